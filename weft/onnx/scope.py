"""What nodes of an ONNX graph see: names around them, attributes, graphs inside graphs, functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.errors import FileError, GraphError
from weft.onnx.model import array_of, dense_of, onnx_package, versions_of
from weft.onnx.operators.registry import Call
from weft.onnx.types import code_of
from weft.tensor.tensor import Tensor

if TYPE_CHECKING:
    import onnx

    from weft.onnx.importer import Runner


Attributes = Mapping[str, "onnx.AttributeProto"]
_UNDEFINED, _TENSOR, _GRAPH, _TENSORS, _GRAPHS, _SPARSE = 0, 4, 5, 9, 10, 11


def attributes_of(
    node: onnx.NodeProto, outer: Attributes, where: str, subgraph: Callable[[onnx.GraphProto], Any]
) -> dict[str, Any]:
    """The attributes of a node by name.

    Args:
        node: whose attributes.
        outer: attributes of the function around it, which its own may refer to.
        where: what the node is called in errors.
        subgraph: makes of a graph what a handler can call.
    """
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            found[attribute.name] = _decoded(attribute, where, subgraph)
        elif attribute.ref_attr_name in outer:
            found[attribute.name] = _decoded(outer[attribute.ref_attr_name], where, subgraph)
    return found


def _decoded(attribute: onnx.AttributeProto, where: str, subgraph: Callable[[Any], Any]) -> Any:
    kind = attribute.type
    if kind in _PLAIN:
        return _PLAIN[kind](attribute)
    if kind == _TENSOR:
        return array_of(attribute.t, where)
    if kind == _SPARSE:
        return dense_of(attribute.sparse_tensor, where)
    if kind == _GRAPH:
        return subgraph(attribute.g)
    if kind == _TENSORS:
        return tuple(array_of(t, where) for t in attribute.tensors)
    if kind == _GRAPHS:
        return tuple(subgraph(g) for g in attribute.graphs)
    raise FileError("onnx.load", f"{where}: attribute {attribute.name!r} must have a known kind, got {kind}")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


_PLAIN: dict[int, Callable[[Any], Any]] = {
    1: lambda a: a.f,
    2: lambda a: a.i,
    3: lambda a: _text(a.s),
    6: lambda a: tuple(a.floats),
    7: lambda a: tuple(a.ints),
    8: lambda a: tuple(map(_text, a.strings)),
    13: lambda a: a.tp,
}


@dataclass
class Scope:
    """The names that nodes see.

    Attributes:
        values: by name.
        parent: the names around, for a graph that is an attribute.
        versions: of the operator sets, by domain.
        attributes: of the function that the nodes are in.
        functions: those that the nodes are in, outermost first.
    """

    values: dict[str, Any]
    versions: Mapping[str, int]
    parent: Scope | None = None
    attributes: Attributes = field(default_factory=dict)
    functions: tuple[tuple[str, str, str], ...] = ()

    def __contains__(self, name: object) -> bool:
        return name in self.values or (self.parent is not None and name in self.parent)

    def __getitem__(self, name: str) -> Any:
        if name in self.values:
            return self.values[name]
        if self.parent is None:
            raise KeyError(name)
        return self.parent[name]


class Body:
    """A graph that is an attribute of a node: called, its nodes run in what is captured then."""

    def __init__(self, runner: Runner, graph: onnx.GraphProto, scope: Scope, where: str) -> None:
        self.graph = graph
        self.input_names = tuple(item.name for item in graph.input)
        self.output_names = tuple(item.name for item in graph.output)
        self._runner = runner
        self._scope = scope
        self._where = where
        self._stored: dict[str, Any] | None = None

    def __call__(self, *inputs: Any) -> list[Any]:
        """What it gives for inputs; it also sees the values around its node."""
        outer, runner = self._scope, self._runner
        if self._stored is None:
            self._stored = runner.initializers(self.graph, self._where)
        values = {**self._stored, **dict(zip(self.input_names, map(runner.kept, inputs), strict=False))}
        scope = Scope(values, outer.versions, outer, outer.attributes, outer.functions)
        found = runner.run_nodes(self.graph.node, self.output_names, scope, self._where)
        return [runner.tensor(x) for x in found]

    def passes_on(self, place: int, output: int) -> bool:
        """Whether an output is an input as it is, or always true."""
        makers = {name: node for node in self.graph.node for name in node.output}
        name = self.output_names[output]
        for _ in makers:  # no more steps than there are nodes, also where these form a cycle
            if name in makers and makers[name].op_type in ("Identity", "Cast"):
                name = makers[name].input[0]
        return name == self.input_names[place] or self._is_true(name, makers.get(name))

    def _is_true(self, name: str, maker: onnx.NodeProto | None) -> bool:
        """Whether a name is a constant that holds true."""
        if maker is None:
            tensors = [t for t in self.graph.initializer if t.name == name]
        else:
            tensors = [a.t for a in maker.attribute if a.name == "value" and maker.op_type == "Constant"]
        return len(tensors) == 1 and bool(array_of(tensors[0], self._where).all())


# Operators that are functions of others: those of a model, and those that ONNX itself defines so

Key = tuple[str, str, str]  # domain, name, overload


class FunctionBody(NamedTuple):
    """A function as nodes."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: Sequence[onnx.NodeProto]
    versions: Mapping[str, int]
    defaults: Attributes


class Functions:
    """The functions that nodes of a model may call."""

    def __init__(self, model: onnx.ModelProto, newest: int) -> None:
        self._own: dict[Key, onnx.FunctionProto] = {
            (f.domain, f.name, f.overload): f for f in model.functions
        }
        self._newest = newest

    def own(self, domain: str, name: str, overload: str) -> bool:
        """Whether the model itself defines an operator."""
        return (domain, name, overload) in self._own

    def find(self, node: onnx.NodeProto, call: Call, inputs: Sequence[Any]) -> FunctionBody:
        """The function that a node calls; an error if there is none."""
        own = self._own.get((call.domain, node.op_type, node.overload))
        if own is not None:
            return self._body(own, {})
        found = self._defined(node, call, inputs)
        if found is None:
            raise _unknown(call)
        return found

    def _body(self, function: onnx.FunctionProto, versions: Mapping[str, int]) -> FunctionBody:
        imported = versions_of(function.opset_import, self._newest, f"function {function.name!r}")
        defaults = {a.name: a for a in function.attribute_proto}
        return FunctionBody(
            tuple(function.input), tuple(function.output), function.node, {**versions, **imported}, defaults
        )

    def _defined(self, node: onnx.NodeProto, call: Call, inputs: Sequence[Any]) -> FunctionBody | None:
        """The function that ONNX defines an operator by, in the newest version that the model may use."""
        package = onnx_package("onnx.load")
        try:
            schema = package.defs.get_schema(node.op_type, call.version, call.domain)
        except package.defs.SchemaError:
            return None
        plain = [v for v in schema.function_opset_versions if v <= call.version]
        typed = [v for v in schema.context_dependent_function_opset_versions if v <= call.version]
        if plain:
            text = schema.get_function_with_opset_version(max(plain))
        elif typed:
            types = [_type_of(package, x, call).SerializeToString() for x in inputs]
            text = schema.get_context_dependent_function_with_opset_version(
                max(typed), node.SerializeToString(), types
            )
        else:
            return None
        function = package.FunctionProto()
        function.ParseFromString(text)
        defaults = {a.name: a.default_value for a in schema.attributes.values() if a.default_value.name}
        body = self._body(function, {call.domain: call.version})
        return body._replace(defaults={**body.defaults, **defaults})


def _type_of(package: Any, x: Any, call: Call) -> Any:
    """The ONNX type of a value."""
    if not isinstance(x, Tensor):
        return package.TypeProto()
    shape = [size if isinstance(size, int) else str(size) for size in x.shape]
    return package.helper.make_tensor_type_proto(code_of(x.dtype, call.narrow(x)), shape)


def _unknown(call: Call) -> GraphError:
    from weft.onnx.operators.registry import operator_names

    domain = f" of domain {call.domain!r}" if call.domain else ""
    exists = call.op in operator_names(call.domain)
    version = f" in version {call.version} of the operator set" if exists else ""
    return GraphError(
        "onnx.load",
        f"{call}: operators must be ones that weft imports, got {call.op!r}{domain}{version}",
        hint="give it a handler: @weft.onnx.operator(...); docs/onnx.md tells which operators have one",
    )

"""What nodes of an ONNX graph see: the names around them, their attributes, and graphs inside graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weft.errors import FileError
from weft.onnx.model import array_of, dense_of

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

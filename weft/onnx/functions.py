"""ONNX operators that are functions of others: those of a model, and those that ONNX itself defines so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.errors import GraphError
from weft.onnx.model import onnx_package, versions_of
from weft.onnx.operators.registry import Call
from weft.onnx.scope import Attributes
from weft.onnx.types import code_of
from weft.tensor.tensor import Tensor

if TYPE_CHECKING:
    import onnx

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

"""The attributes of ONNX nodes as Python values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from weft.errors import FileError
from weft.onnx.model import array_of, dense_of

if TYPE_CHECKING:
    import onnx

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

"""The names in an ONNX model: bytes that are no text must not get further."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from weft.errors import FileError
from weft.onnx.order import subgraphs

if TYPE_CHECKING:
    import onnx


def check_names(model: onnx.ModelProto, where: str) -> None:
    """Raise if a name is no text, which the format forbids and its readers let pass."""
    functions = [_of_function(f) for f in model.functions]
    sets = [item.domain for item in model.opset_import]
    for name in chain(sets, _of_graph(model.graph), *functions):
        if not isinstance(name, str):
            raise FileError(
                "onnx.load", f"{where}: names must be text, got {name!r}", hint="the file is damaged"
            )


def _of_graph(graph: onnx.GraphProto) -> Iterator[Any]:
    yield graph.name
    for info in chain(graph.input, graph.output):
        yield info.name
        yield from _of_type(info.type)
    yield from [tensor.name for tensor in graph.initializer]
    yield from [tensor.values.name for tensor in graph.sparse_initializer]
    yield from _of_nodes(graph.node)


def _of_type(kind: onnx.TypeProto) -> Iterator[Any]:
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        yield from [dim.dim_param for dim in kind.tensor_type.shape.dim]
    elif which in ("sequence_type", "optional_type"):
        yield from _of_type(getattr(kind, which).elem_type)


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[Any]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, node.overload, *node.input, *node.output)
        for attribute in node.attribute:
            yield from (attribute.name, attribute.ref_attr_name)
        for graph in subgraphs(node):
            yield from _of_graph(graph)


def _of_function(function: onnx.FunctionProto) -> Iterator[Any]:
    yield from (function.name, function.domain, function.overload, *function.input, *function.output)
    yield from [attribute.name for attribute in function.attribute_proto]
    yield from [item.domain for item in function.opset_import]
    yield from _of_nodes(function.node)

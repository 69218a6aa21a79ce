"""ONNX files as protocol buffers: what is read and checked, and in which order nodes are imported."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import ArgumentError, FileError, GraphError

if TYPE_CHECKING:
    import onnx


# The order of nodes: as they stand, or sorted

_GRAPH, _GRAPHS = 5, 10  # kinds of attributes


def title(node: onnx.NodeProto) -> str:
    """What a node is called in errors."""
    name = node.name or next(filter(None, node.output), "")
    return f"{node.op_type} node {name!r}" if name else f"{node.op_type} node"


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among the attributes of a node."""
    for attribute in node.attribute:
        if attribute.type == _GRAPH:
            yield attribute.g
        elif attribute.type == _GRAPHS:
            yield from attribute.graphs


def needs(node: onnx.NodeProto) -> set[str]:
    """The names that a node uses, those that its graphs take from around it included."""
    names = set(node.input)
    for graph in subgraphs(node):
        names |= _free_names(graph)
    return names - {""}


def _free_names(graph: onnx.GraphProto) -> set[str]:
    made = {item.name for item in (*graph.input, *graph.initializer)}
    made |= {item.values.name for item in graph.sparse_initializer}
    used = {item.name for item in graph.output}
    for node in graph.node:
        made.update(node.output)
        used |= needs(node)
    return used - made


def ordered(
    nodes: Sequence[onnx.NodeProto], given: Container[str], where: str
) -> list[tuple[int, onnx.NodeProto]]:
    """Nodes with their numbers from 1 on, each after those that make what it uses.

    Args:
        nodes: of one graph.
        given: names that exist before.
        where: what the graph is called in errors.
    """
    makers: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in makers:
                raise GraphError(
                    "onnx.load",
                    f"{where}: a value must be made once, got {name!r} from {title(nodes[makers[name]])} "
                    f"and {title(node)}",
                )
            makers[name] = i
    waits = [{makers[n] for n in needs(node) if n in makers and n not in given} for node in nodes]
    if all(max(before, default=-1) < i for i, before in enumerate(waits)):
        return list(enumerate(nodes, 1))
    return [(i + 1, nodes[i]) for i in _sorted(nodes, waits, where)]


def _sorted(nodes: Sequence[onnx.NodeProto], waits: Sequence[set[int]], where: str) -> list[int]:
    try:
        return list(TopologicalSorter(dict(enumerate(waits))).static_order())
    except CycleError as error:
        told = " → ".join(title(nodes[i]) for i in error.args[1])
        raise GraphError("onnx.load", f"{where}: nodes must not form a cycle, got {told}") from None


def onnx_package(op: str) -> Any:
    """The package, or an error in the name of op that says how to install it."""
    try:
        return import_module("onnx")
    except ImportError:
        raise ArgumentError(op, "needs the package onnx, got none", hint="pip install weft[onnx]") from None


Array = np.ndarray[Any, Any]


def read_model(source: Any) -> tuple[onnx.ModelProto, str]:
    """The model in a file, in bytes or as it is, and what it is called in errors."""
    package = onnx_package("onnx.load")
    if isinstance(source, package.ModelProto):
        return source, source.graph.name or "model"
    if isinstance(source, bytes | bytearray | memoryview):
        return _parsed("model", lambda: package.load_model_from_string(bytes(source))), "model"
    if not isinstance(source, str | os.PathLike):
        raise ArgumentError(
            "onnx.load", f"must be given a path, bytes or a ModelProto, got {type(source).__name__}"
        )
    name = os.path.basename(os.fspath(source))
    return _parsed(name, lambda: package.load_model(os.fspath(source))), name


def _parsed(name: str, read: Any) -> Any:
    """What a reader of the onnx package gives; its errors in weft's words."""
    decode_error = import_module("google.protobuf.message").DecodeError

    try:
        model = read()
    except (decode_error, UnicodeDecodeError) as error:
        raise FileError(
            "onnx.load",
            f"{name}: must be an ONNX model, got bytes that are none",
            hint="the file is damaged, or of another kind",
        ) from error
    except OSError:
        raise
    except Exception as error:  # of data beside the file: the package raises errors of many classes
        raise FileError("onnx.load", f"{name}: {_first_line(error)}") from error
    if not model.HasField("graph"):
        raise FileError("onnx.load", f"{name}: must hold a graph, got none", hint="the file is damaged")
    return model


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def versions_of(imports: Iterable[Any], newest: int, what: str) -> dict[str, int]:
    """The version of each operator set that a model or a function uses."""
    versions = {"" if item.domain == "ai.onnx" else item.domain: int(item.version) for item in imports}
    if versions.get("", 0) > newest:
        raise FileError(
            "onnx.load",
            f"{what}: must use operator set {newest} or an earlier one, got {versions['']}",
            hint="convert it with onnx.version_converter, or install a newer onnx package",
        )
    return versions


def array_of(tensor: onnx.TensorProto, where: str) -> Array:
    """The data of a tensor of a file."""
    from onnx import numpy_helper

    try:
        return numpy_helper.to_array(tensor)
    except Exception as error:  # a tensor whose data does not fit its type may fail in many ways
        raise FileError(
            "onnx.load",
            f"{where}: tensor {tensor.name!r} must have data that fits its type and shape: "
            f"{_first_line(error)}",
            hint="the file is damaged",
        ) from error


def dense_of(tensor: onnx.SparseTensorProto, where: str) -> Array:
    """The data of a sparse tensor of a file, as a dense array."""
    values, indices = array_of(tensor.values, where), array_of(tensor.indices, where)
    out = np.zeros(tuple(tensor.dims), values.dtype)
    try:
        if indices.ndim == 1:
            out.reshape(-1)[indices] = values
        else:
            out[tuple(indices.T)] = values
    except (IndexError, ValueError) as error:
        raise FileError(
            "onnx.load", f"{where}: a sparse tensor must have indices inside its shape: {error}"
        ) from error
    return out


# Names: bytes that are no text must not get further


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

"""The model of a saved graph, names, weights and nodes; and its file, checked before it takes its place."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

import weft
from weft.base.dtypes import kind
from weft.base.trees import tree_flatten
from weft.capture.program.arguments import readable
from weft.errors import GraphError
from weft.io.atomic import replacing
from weft.io.saved import Saved
from weft.io.trees import Mark
from weft.ir.graph import Array, Value
from weft.ir.types import TensorType
from weft.onnx.types import code_of
from weft.onnx.writers.graphs import refuse, write_graph
from weft.onnx.writers.prepare import prepared
from weft.onnx.writers.registry import HINTS, load_writers
from weft.onnx.writers.writer import Book, Ref, Sheet, Writer, type_info

_OP = "onnx.export"


class Made(NamedTuple):
    """A model without its weights, and these."""

    model: ModelProto
    tensors: dict[str, Array]


def model_of(saved: Saved, opset: int, *, new_values: bool) -> Made:
    """The model of a saved graph."""
    load_writers()
    _check_state(saved, new_values)
    saved = saved._replace(graph=prepared(saved.graph))
    book = Book(opset)
    sheet = Sheet(book)
    inputs = _inputs(saved, book)
    names = [book.unique(name) for name in _output_names(saved, inputs)]
    for ref in inputs.values():
        sheet.tell(ref)
    results = write_graph(sheet, saved.graph, list(inputs.values()))
    infos = _named_outputs(sheet, names, _outputs(saved, results, inputs))
    arguments = [
        type_info(r.name, v.type)
        for (v, r), mark in zip(inputs.items(), saved.sources, strict=True)
        if mark.word == "input"
    ]
    outside = {info.name for info in infos}
    graph = helper.make_graph(
        _with_constants(book, sheet.nodes),
        saved.graph.name,
        arguments,
        infos,
        value_info=[info for name, info in sheet.infos.items() if name not in outside],
    )
    return Made(_model(graph, opset), book.tensors)


def _model(graph: Any, opset: int) -> ModelProto:
    ids = [helper.make_opsetid("", opset)]
    return helper.make_model(
        graph,
        opset_imports=ids,
        ir_version=helper.find_min_ir_version_for(ids),
        producer_name="weft",
        producer_version=weft.__version__,
    )


def _with_constants(book: Book, nodes: Iterable[NodeProto]) -> list[NodeProto]:
    """Nodes with the constants that they use before them, each its own, so that viewers show them inside.

    What is left as an initializer is a weight, or a large constant.
    """
    out: list[NodeProto] = []
    for node in nodes:
        for i, name in enumerate(node.input):
            if name in book.arrays and name not in book.tensors:
                own = book.unique(f"{node.name}/constant")
                tensor = numpy_helper.from_array(book.arrays[name])
                out.append(helper.make_node("Constant", [], [own], name=own, value=tensor))
                node.input[i] = own
        for attribute in node.attribute:
            if attribute.HasField("g"):
                inner = _with_constants(book, attribute.g.node)
                del attribute.g.node[:]
                attribute.g.node.extend(inner)
        out.append(node)
    return out


# What goes in


def _check_state(saved: Saved, new_values: bool) -> None:
    """Raise if the graph draws random numbers, or changes something that nobody takes."""
    drawn = {v for v, mark in zip(saved.graph.inputs, saved.sources, strict=True) if mark.word == "generator"}
    for node in saved.graph.walk():
        if node.op.name == "guard":
            refuse(Writer(Sheet(Book(0)), node), node)
        if drawn.intersection(node.inputs):
            where = None if node.location is None else node.location.place
            what = "a function must draw no random numbers, which ONNX has none of weft's kind of"
            raise GraphError(_OP, f"{what}, got {node.op.name}", hint=HINTS["random_bits"], location=where)
    changed = [old for old, _ in saved.graph.updates if old not in drawn]
    if changed and not new_values:
        names = ", ".join(v.name or "?" for v in changed[:3]) + (", ..." if len(changed) > 3 else "")
        hint = 'updates="outputs" makes outputs of the new values; model.eval() keeps running statistics'
        raise GraphError(_OP, f"a function must change nothing, got new values of {names}", hint=hint)


def _inputs(saved: Saved, book: Book) -> dict[Value, Ref]:
    """A ref for each input of the graph; weights are initializers."""
    names = _argument_names(saved)
    refs: dict[Value, Ref] = {}
    for value, mark in zip(saved.graph.inputs, saved.sources, strict=True):
        if kind(value.type.dtype) == "c":
            hint = "hold real and imaginary parts in two tensors"
            raise GraphError(_OP, f"inputs must be real, got {value}", hint=hint)
        if mark.word == "input":
            name = book.unique(names.get(mark.value) or value.name or "input")
        else:
            name = book.unique(mark.value if mark.word == "weight" else "generator")
        refs[value] = Ref(name, value.type.dtype, value.type.shape)
        if mark.word == "weight":
            book.tensors[name] = saved.weights[mark.value]
    return refs


def _argument_names(saved: Saved) -> dict[int, str]:
    """The names of tensors among the arguments, by their number."""
    leaves, structure = tree_flatten(saved.arguments, is_leaf=lambda x: isinstance(x, Mark))
    names: dict[int, str] = {}
    for leaf, path in zip(leaves, structure.paths(), strict=True):
        if isinstance(leaf, Mark):
            names.setdefault(leaf.value, readable(path).strip("."))
    return names


# What comes out


def _returned(saved: Saved) -> list[tuple[str, Mark]]:
    """What the function returns, and how to get there; plain values are not computed, and left out."""
    leaves, structure = tree_flatten(saved.returned, is_leaf=lambda x: isinstance(x, Mark))
    pairs = zip(structure.paths(), leaves, strict=True)
    return [(readable(path), leaf) for path, leaf in pairs if isinstance(leaf, Mark)]


def _output_names(saved: Saved, inputs: Mapping[Value, Ref]) -> list[str]:
    """The names of what the function returns, and of what it changes."""
    changed = [f"{inputs[old].name}.new" for old, _ in saved.graph.updates]
    return [*[_output_name(path) for path, _ in _returned(saved)], *changed]


def _outputs(saved: Saved, results: list[Ref], inputs: Mapping[Value, Ref]) -> list[Ref]:
    """What the function returns, and what it changes."""
    out: list[Ref] = []
    for _, leaf in _returned(saved):
        if leaf.word in ("output", "number"):
            out.append(results[leaf.value if leaf.word == "output" else leaf.value[0]])
        else:
            out.append(_passed_on(saved, leaf, inputs))
    return [*out, *results[len(saved.graph.outputs) :]]


def _passed_on(saved: Saved, leaf: Mark, inputs: Mapping[Value, Ref]) -> Ref:
    """An argument or a weight that is returned as it is."""
    for mark, ref in zip(saved.sources, inputs.values(), strict=True):
        if (mark.word, mark.value) == (leaf.word, leaf.value):
            return ref
    raise GraphError(_OP, f"what is returned must be computed, got the weight {leaf.value}")


def _output_name(path: str) -> str:
    """``output`` for a single result, ``output.0`` in a tuple, and the keys of dicts as they are."""
    if not path:
        return "output"
    name = path.strip(".")
    return f"output.{name}" if name.split(".")[0].isdecimal() else name


def _named_outputs(sheet: Sheet, names: list[str], refs: list[Ref]) -> list[ValueInfoProto]:
    """Give outputs their names: what makes them does, or, if that is no node, one that passes them on."""
    renamed: dict[str, str] = {}
    infos: list[ValueInfoProto] = []
    for name, ref in zip(names, refs, strict=True):
        if ref.name in sheet.made and ref.name not in renamed:
            renamed[ref.name] = name
        else:
            Writer(sheet, None).add("Identity", [ref.name], [name], {})
        infos.append(type_info(name, TensorType(ref.shape, ref.dtype)))
    _rename(sheet.nodes, renamed)
    return infos


def _rename(nodes: Any, renamed: Mapping[str, str]) -> None:
    for node in nodes:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name in renamed:
                    names[i] = renamed[name]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename(attribute.g.node, renamed)


# Files: weights in them or beside them

_MOST = 2**31 - 2**24  # bytes that a file of protobuf can hold, less what nodes may take
_SMALL = 1024  # bytes of a tensor that stays in the model: shapes and numbers
_PAGE = 4096  # tensors of a data file begin at a multiple of this, so that they can be mapped


def write_model(made: Made, path: str, *, external: bool) -> None:
    """Write a model; its data goes beside it if that is asked for, or there is too much of it."""
    total = sum(array.nbytes for array in made.tensors.values())
    model = made.model
    if external or total > _MOST:
        _write_beside(made, path)
    else:
        tensors = [_tensor(name, array) for name, array in made.tensors.items()]
        model.graph.initializer.extend(tensors)
        _check(model)
    with replacing(path) as file:
        file.write(model.SerializeToString())


def _tensor(name: str, array: Array) -> TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def _write_beside(made: Made, path: str) -> None:
    data = f"{path}.data"
    location = os.path.basename(data)
    small = {n: a for n, a in made.tensors.items() if a.nbytes <= _SMALL}
    large = {n: a for n, a in made.tensors.items() if a.nbytes > _SMALL}
    made.model.graph.initializer.extend([_tensor(name, array) for name, array in small.items()])
    _check(_with_inputs(made.model, large))
    with replacing(data) as file:
        for name, array in large.items():
            file.write(bytes(-file.tell() % _PAGE))
            made.model.graph.initializer.append(_external(name, array, location, file.tell()))
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _external(name: str, array: Array, location: str, offset: int) -> TensorProto:
    out = TensorProto(name=name, data_type=code_of(array.dtype), dims=array.shape)
    out.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", array.nbytes)):
        out.external_data.add(key=key, value=str(value))
    return out


def _with_inputs(model: ModelProto, tensors: dict[str, Array]) -> ModelProto:
    """The model in which tensors that are not there yet are inputs, so that it can be checked."""
    out = ModelProto()
    out.CopyFrom(model)
    for name, array in tensors.items():
        out.graph.input.append(onnx.helper.make_tensor_value_info(name, code_of(array.dtype), array.shape))
    return out


def _check(model: ModelProto) -> None:
    """Let the standard's own checker look at a model, its types and shapes included."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        reason: Any = str(error).strip().splitlines()[0]
        hint = "this is a mistake of weft's writers; please report it"
        raise GraphError("onnx.export", f"the model must be valid, got: {reason}", hint=hint) from error

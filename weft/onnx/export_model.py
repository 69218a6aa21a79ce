"""The model of a saved graph: names of inputs and outputs, weights, nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

import weft
from weft.base.dtypes import kind
from weft.base.trees import tree_flatten
from weft.capture.arguments import readable
from weft.errors import GraphError
from weft.io.saved import Saved
from weft.io.trees import Mark
from weft.ir.graph import Array, Value
from weft.ir.types import TensorType
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
        _need_real(value)
        if mark.word == "input":
            name = book.unique(names.get(mark.value) or value.name or "input")
        else:
            name = book.unique(mark.value if mark.word == "weight" else "generator")
        refs[value] = Ref(name, value.type.dtype, value.type.shape)
        if mark.word == "weight":
            book.tensors[name] = saved.weights[mark.value]
    return refs


def _need_real(value: Value) -> None:
    if kind(value.type.dtype) == "c":
        hint = "hold real and imaginary parts in two tensors"
        raise GraphError(_OP, f"inputs must be real, got {value}", hint=hint)


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

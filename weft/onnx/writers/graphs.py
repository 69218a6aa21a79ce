"""Graphs of weft on a sheet: each node by its writer, composites op by op where they have none."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from weft.base.dtypes import DType, kind
from weft.ir.graph import Graph, Node, Operand, Value
from weft.ir.order import kahn_order, needed_nodes, sizes_defined
from weft.ir.types import TensorType
from weft.onnx.types import code_of
from weft.onnx.writers.prepare import Sealed, prepared
from weft.onnx.writers.registry import COMPOSITES, HINTS, OPS
from weft.onnx.writers.writer import Ref, Sheet, Writer, is_float, type_info
from weft.ops.op import COMPOSITES as FUNCTIONS
from weft.ops.op import Op
from weft.ops.table import argument_names

_ANY = "weft.onnx.writer registers a way to write it"


def write_graph(sheet: Sheet, graph: Graph, inputs: Sequence[Ref]) -> list[Ref]:
    """Write the nodes of a graph, whose inputs are refs; gives refs for its results.

    Printed text and assertions are left out: a model has no place for them.
    """
    env: dict[Value, Ref] = dict(zip(graph.inputs, inputs, strict=True))
    nodes = kahn_order(needed_nodes(graph.nodes, graph.results, effects=False))
    used = {v for node in nodes for v in node.inputs}.union(graph.results)
    for value, array in graph.constants.items():
        if value in used:
            env[value] = _constant(sheet, value, np.asarray(array))
    for node in nodes:
        _write_node(sheet, node, env)
    return [env[v] for v in graph.results]


def _constant(sheet: Sheet, value: Value, array: Any) -> Ref:
    if kind(array.dtype) == "c":
        return Ref("", array.dtype, array.shape)  # whoever uses it says that it cannot
    w = Writer(sheet, None)
    if array.size > 1 and all(s == 0 for s in array.strides):
        return w.full(array.shape, array.reshape(-1)[0], array.dtype)._replace(shape=array.shape)
    return sheet.book.constant(array, value.name or "constant")


def _write_node(sheet: Sheet, node: Node, env: dict[Value, Ref]) -> None:
    w = Writer(sheet, node)
    _need_real(w, node)
    outs = _refs(w, node, [env[v] for v in node.inputs])
    again = tuple(sizes_defined(node))
    wanted, got = ([x.dtype.name for x in xs] for xs in ([v.type for v in node.outputs], outs))
    if wanted != got:
        w.fail(f"its writer must give {', '.join(wanted)}, got {', '.join(got) or 'nothing'}")
    for value, ref in zip(node.outputs, outs, strict=True):
        env[value] = ref._replace(shape=value.type.shape)
        if ref.name in sheet.made:
            sheet.note(env[value], value.type)
        sheet.tell(env[value], again=again)


def _need_real(w: Writer, node: Node) -> None:
    if node.op.name in HINTS:
        refuse(w, node)
    for value in (*node.inputs, *node.outputs):
        if kind(value.type.dtype) == "c":
            hint = "hold real and imaginary parts in two tensors"
            w.fail(f"must be real, since ONNX does not compute with {value.type.dtype.name}", hint=hint)


def refuse(w: Writer, node: Node) -> NoReturn:
    """Raise for an op that ONNX cannot say."""
    types = ", ".join(str(v.type) for v in node.inputs) or "nothing"
    message = f"every op must be one that ONNX can say, got {node.op.name} of {types}"
    w.fail(message, hint=HINTS.get(node.op.name, _ANY), named=False)


def _refs(w: Writer, node: Node, inputs: Sequence[Ref]) -> Sequence[Ref]:
    name = node.op.name
    if name == "call":
        return _call(w, node, inputs)
    if name == "function":
        return write_graph(w.sheet, node.attrs["body"], inputs[: node.attrs["used"]])
    if name in OPS:
        out = OPS[name](w, *inputs, **node.attrs)
    elif node.op.scalar is not None:
        out = write_scalar(w, node.op, inputs, node.attrs)
    else:
        refuse(w, node)
    return [out] if isinstance(out, Ref) else list(out)


# Composites


def _call(w: Writer, node: Node, inputs: Sequence[Ref]) -> Sequence[Ref]:
    """A call by its writer; where that gives None, and where it was not sealed, op by op."""
    if not isinstance(node.op, Sealed):
        return write_graph(w.sheet, node.attrs["body"], inputs)
    out = COMPOSITES[node.attrs["function"]](w, **_arguments(node, inputs))
    if out is None:
        return write_graph(w.sheet, prepared(node.op.body), inputs)
    return [out] if isinstance(out, Ref) else list(out)


def _arguments(node: Node, inputs: Sequence[Ref]) -> Mapping[str, Any]:
    function = FUNCTIONS[node.attrs["function"]].function
    signature = inspect.signature(getattr(function, "__wrapped__", function))
    names = argument_names(node.attrs["function"])[0]
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for i, (name, x) in enumerate(node.attrs["arguments"]):
        if not kwargs and (not name or (i < len(names) and name == names[i])):
            args.append(_filled(x, inputs))
        else:
            kwargs[name] = _filled(x, inputs)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _filled(x: Any, inputs: Sequence[Ref]) -> Any:
    if isinstance(x, Operand):
        return inputs[x.index]
    return tuple(_filled(i, inputs) for i in x) if type(x) is tuple else x


# Bodies of operators


def body_graph(
    w: Writer, name: str, inputs: Sequence[Ref], sheet: Sheet, outputs: Sequence[tuple[Ref, TensorType]]
) -> Any:
    """A sheet as the body of an operator."""
    from onnx import helper

    inner = Writer(sheet, w.node)
    refs: list[Ref] = []
    for ref, _ in outputs:  # each output is made by a node of the body, and is one output only
        own = ref.name in sheet.made and ref.name not in [r.name for r in refs]
        refs.append(ref if own else inner.emit("Identity", ref)._replace(shape=ref.shape))
    types = [type for _, type in outputs]
    names = {ref.name for ref in refs}
    return helper.make_graph(
        sheet.nodes,
        w.sheet.book.unique(name),
        [type_info(r.name, TensorType(r.shape, r.dtype)) for r in inputs],
        [type_info(r.name, t) for r, t in zip(refs, types, strict=True)],
        value_info=[info for info in sheet.infos.values() if info.name not in names],
    )


# Elementwise ops without a writer of their own, by their scalar code: those of users, special functions

_SAME = "add sub mul abs min max sqrt floor round exp log sin cos tanh pow"
_OPERATORS = {name: name.capitalize() for name in _SAME.split()}
_OPERATORS |= {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "select": "Where"}
_WRITERS = {"neg": "neg", "trunc": "trunc", "atan2": "atan2", "rem": "fmod"}
_WRITERS |= {"and_": "bitwise_and", "or_": "bitwise_or", "xor": "bitwise_xor", "not_": "bitwise_invert"}
_WRITERS |= {"shl": "left_shift", "shr": "right_shift"}


def write_scalar(w: Writer, op: Op, inputs: Sequence[Ref], attrs: Mapping[str, Any]) -> Any:
    """The scalar code of an op as nodes; a result that is a number is spread over the inputs."""
    assert op.scalar is not None
    out = op.scalar(Emitter(w), *inputs, **attrs)
    if not isinstance(out, Ref):
        out = w.constant(out, w.type.dtype)
    if w.known(out) is not None:
        out = w.emit("Expand", out, w.ints(w.type.shape))
    return out


class Emitter:
    """The scalar instructions as nodes."""

    def __init__(self, w: Writer) -> None:
        self.w = w

    def __getattr__(self, name: str) -> Any:
        if name in ("constant", "cast"):
            return getattr(self.w, name)
        if name in _OPERATORS:
            return lambda *xs: self.w.emit(_OPERATORS[name], *xs)
        if name in _WRITERS:
            return lambda *xs: OPS[_WRITERS[name]](self.w, *self._refs(xs))
        self.w.fail(f"must be made of what ONNX can say, got the instruction {name}")

    def bitcast(self, x: Ref, dtype: DType) -> Any:
        """The bits of x read as another dtype."""
        return self.w.emit("BitCast", x, to=code_of(dtype), dtype=dtype)

    def _refs(self, xs: Sequence[Any]) -> list[Ref]:
        """Operands, with constants for numbers."""
        dtype = next(x.dtype for x in xs if isinstance(x, Ref))
        return [x if isinstance(x, Ref) else self.w.constant(x, dtype) for x in xs]

    def dtype(self, x: Ref) -> DType:
        """The dtype of a value."""
        return x.dtype

    def div(self, x: Any, y: Any) -> Any:
        """x / y; of integers towards zero."""
        x, y = self._refs((x, y))
        if is_float(x):
            return self.w.emit("Div", x, y)
        return OPS["floor_divide"](self.w, self.w.emit("Sub", x, OPS["fmod"](self.w, x, y)), y)

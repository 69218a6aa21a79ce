"""Random well-typed graphs, for properties that must hold of every graph.

``graphs()`` is a hypothesis strategy; ``arrays_of(graph)`` gives arrays that it can run on. Graphs are
built node by node on the table of ops, not by tracing, so they have forms that no program would give them:
dead nodes, equal nodes twice, outputs that are inputs or constants, an output given twice. ``graphs(WIDE)``
has all dtypes, complex ones too, more ops, and sizes with names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from tests.ir.drawing import ByHypothesis, Draw
from weft.base.dtypes import FLOATS, INTEGERS, kind
from weft.base.sizes import Size, bind, named_size
from weft.errors import WeftError
from weft.ir.graph import Graph, Node, Value
from weft.ir.location import Location
from weft.ir.types import TensorType
from weft.ops.table import find_op

F32, F64, I64, BOOL = (np.dtype(n) for n in ("float32", "float64", "int64", "bool"))
C64, C128 = np.dtype("complex64"), np.dtype("complex128")
SHAPES = [(), (1,), (3,), (2, 3), (3, 2), (1, 3), (2, 1, 3)]
NUMBERS = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.25, -1e-3, 1e6]
FLOAT_UNARY = [
    "neg",
    "abs",
    "sign",
    "square",
    "tanh",
    "sin",
    "cos",
    "sigmoid",
    "exp",
    "floor",
    "sqrt",
    "relu",
]
FLOAT_BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "hypot"]
INT_UNARY = ["neg", "abs", "sign", "square"]
INT_BINARY = ["add", "sub", "mul", "maximum", "minimum"]
MORE_FLOAT_UNARY = [
    "ceil", "trunc", "round", "reciprocal", "rsqrt", "log", "log1p", "expm1", "exp2", "log2", "erf",
    "softplus", "tan", "atan", "asinh", "sinh", "cosh", "normal_cdf",
]  # fmt: skip
MORE_FLOAT_BINARY = ["remainder", "floor_divide", "fmod", "atan2", "logaddexp", "copysign", "pow"]
MORE_INT_BINARY = ["bitwise_and", "bitwise_or", "bitwise_xor", "remainder", "floor_divide"]
COMPLEX_UNARY = [
    "neg", "square", "exp", "log", "sin", "cos", "tanh", "sqrt", "conj", "abs", "real", "imag", "angle",
    "reciprocal", "sinh", "cosh", "sigmoid",
]  # fmt: skip
COMPLEX_BINARY = ["add", "sub", "mul", "div"]
COMPARISONS = ["less", "equal", "greater_equal", "not_equal"]
LOGICAL = ["logical_and", "logical_or", "logical_xor"]


class Choice(NamedTuple):
    """What graphs are made of: dtypes, shapes of inputs, and ops besides those that every graph may have."""

    dtypes: Sequence[Any]
    shapes: Sequence[Any]
    wide: bool


NAMED = named_size("n")
USUAL = Choice([F32, F32, F64, I64], SHAPES, False)
WIDE = Choice(
    [F32, F32, F64, I64, *FLOATS, *INTEGERS, BOOL, C64, C64, C128],
    [*SHAPES, (NAMED,), (NAMED, 3), (2, NAMED), (NAMED, NAMED), (1, NAMED)],
    True,
)
COMPLEX = Choice([C64, C64, C128, F32, F64], WIDE.shapes, True)


class Builder:
    """A graph while it is built."""

    def __init__(self, name: str = "f", choice: Choice = USUAL) -> None:
        self.name = name
        self.choice = choice
        self.inputs: list[Value] = []
        self.roles: list[str] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, Any] = {}

    def input(self, type: TensorType, name: str = "", role: str = "arg") -> Value:
        self.inputs.append(Value(type, name))
        self.roles.append(role)
        return self.inputs[-1]

    def constant(self, array: Any, name: str = "") -> Value:
        value = Value(TensorType(array.shape, array.dtype), name)
        self.constants[value] = array
        return value

    def emit(self, name: str, *inputs: Value, location: Location | None = None, **attrs: Any) -> Any:
        """Append a node; gives its output, or a tuple of them."""
        op: Any = find_op(name)
        types = op.type_rule(*[v.type for v in inputs], **attrs)
        outs = [Value(t) for t in ((types,) if op.outputs == 1 else types)]
        self.nodes.append(Node(op, inputs, attrs, outs, location))
        return outs[0] if op.outputs == 1 else tuple(outs)

    @property
    def values(self) -> list[Value]:
        made = [v for node in self.nodes for v in node.outputs]
        return [*self.inputs, *self.constants, *made]

    def graph(self, outputs: Sequence[Value], updates: Sequence[tuple[Value, Value]] = ()) -> Graph:
        return Graph(
            self.name,
            self.inputs,
            self.nodes,
            outputs,
            constants=self.constants,
            roles=self.roles,
            updates=updates,
        )


def _type(draw: Draw, choice: Choice, shapes: Sequence[Any]) -> TensorType:
    return TensorType(draw.of(shapes), draw.of(choice.dtypes))


@st.composite
def graphs(draw: Any, choice: Choice = USUAL, max_nodes: int = 12, regions: bool = True) -> Graph:
    """Graphs as hypothesis draws them."""
    return drawn_graph(ByHypothesis(draw), choice, max_nodes, regions)


def drawn_graph(draw: Draw, choice: Choice = USUAL, max_nodes: int = 12, regions: bool = True) -> Graph:
    """A graph of elementwise ops, products, reductions, views, constants, and control flow if asked."""
    b = Builder(draw.of(["f", "step", "<lambda>"]), choice)
    for i in range(draw.whole(1, 3)):
        role = draw.of(["arg", "arg", "param", "state"])
        b.input(_type(draw, choice, choice.shapes), draw.of(["", f"x{i}", f"layer.{i}.weight"]), role)
    _grow(draw, b, draw.whole(0, max_nodes), 2 if regions else 0)
    if choice.wide:
        return b.graph(_unused(b), _updates(draw, b))
    outputs = [draw.of(b.values) for _ in range(draw.whole(1, 4))]
    return b.graph(outputs, _updates(draw, b))


def _unused(b: Builder) -> list[Value]:
    """What nothing in a graph uses, so that all of it is needed."""
    used = {v for node in b.nodes for v in node.inputs}
    return [v for node in b.nodes for v in node.outputs if v not in used] or b.values[-1:]


def _updates(draw: Draw, b: Builder) -> list[tuple[Value, Value]]:
    out = []
    for value, role in zip(b.inputs, b.roles, strict=True):
        fitting = [v for v in b.values if v.type == value.type]
        if role == "state" and draw.truth():
            out.append((value, draw.of(fitting)))
    return out


def _grow(draw: Draw, b: Builder, count: int, depth: int) -> None:
    """Append nodes."""
    steps = [
        _unary,
        _binary,
        _binary,
        _compare,
        _select,
        _reduce,
        _view,
        _view,
        _join,
        _product,
        _constant,
        _cast,
    ]
    steps += [_cond, _scan, _while] if depth else []
    if not b.choice.wide:
        for _ in range(count):
            draw.of(steps)(draw, b, depth)
        return
    for _ in range(count):
        with suppress(WeftError):  # what cannot be decided of a size with a name, or is not for a dtype
            draw.of([*steps, _along, _complex])(draw, b, depth)


def _pick(draw: Draw, b: Builder, kinds: str = "fi", condition: Callable[[Value], bool] = bool) -> Value:
    """A value of some kinds of dtype; a new constant if there is none."""
    kinds += "u" * ("i" in kinds)
    fitting = [v for v in b.values if kind(v.type.dtype) in kinds and condition(v)]
    if fitting:
        return draw.of(fitting)
    dtype = {"f": F32, "i": I64, "b": BOOL, "c": C64}[kinds[0]]
    return b.constant(np.ones((), dtype))


def _complex(draw: Draw, b: Builder, depth: int) -> None:
    """What complex numbers are made of, and what is made of them."""
    if draw.whole(0, 4) == 0:
        x = _pick(draw, b, "f", lambda v: v.type.dtype in (F32, F64))
        b.emit("complex", x, _partner(draw, b, x), location=_place(draw))
        return
    x = _pick(draw, b, "c")
    step = draw.of([_of_complex, _of_complex, _between, _between, _of_axes, _view_of, _chosen])
    step(draw, b, x)


def _of_complex(draw: Draw, b: Builder, x: Value) -> None:
    b.emit(draw.of(COMPLEX_UNARY), x, location=_place(draw))


def _between(draw: Draw, b: Builder, x: Value) -> None:
    pair = [x, _partner(draw, b, x)]
    name = draw.of([*COMPLEX_BINARY, *COMPLEX_BINARY, "equal", "not_equal"])
    b.emit(name, *(pair if draw.truth() else pair[::-1]), location=_place(draw))


def _of_axes(draw: Draw, b: Builder, x: Value) -> None:
    if x.type.ndim == 2 and draw.truth():
        b.emit("matmul", x, b.emit("permute", x, axes=(1, 0)), location=_place(draw))
    elif x.type.ndim and draw.truth():
        axis = draw.whole(0, x.type.ndim - 1)
        name = draw.of(["cumsum", "cumprod"])
        b.emit(name, x, axis=axis, **({"reverse": draw.truth()} if name == "cumsum" else {}))
    else:
        axes = tuple(draw.some(range(x.type.ndim)))
        b.emit(draw.of(["sum", "sum", "prod"]), x, axes=axes, keepdims=draw.truth(), location=_place(draw))


def _view_of(draw: Draw, b: Builder, x: Value) -> None:
    draw.of([_reshape, _permute, _broadcast, _slice])(draw, b, x)


def _chosen(draw: Draw, b: Builder, x: Value) -> None:
    y = _partner(draw, b, x)
    b.emit("where", b.emit("less", b.emit("abs", x), b.emit("abs", y)), x, y)


def _place(draw: Draw) -> Location | None:
    line = draw.whole(0, 3)
    if not line:
        return None
    module, phase = draw.of([("", ""), ("encoder.layers.3", ""), ("head", "backward")])
    return Location(draw.of(["/a/model.py", "/b/model.py"]), line, "forward", module, phase)


def _unary(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b)
    more = MORE_FLOAT_UNARY if b.choice.wide else []
    names = [*FLOAT_UNARY, *more] if kind(x.type.dtype) == "f" else INT_UNARY
    b.emit(draw.of(names), x, location=_place(draw))


def _partner(draw: Draw, b: Builder, x: Value) -> Value:
    """A value that broadcasts with another one; a number, if nothing else does."""

    def fits(v: Value) -> bool:
        sizes = zip(v.type.shape[::-1], x.type.shape[::-1], strict=False)
        return bool(v.type.dtype == x.type.dtype) and all(a == b or 1 in (a, b) for a, b in sizes)

    least = 0 if kind(x.type.dtype) == "u" else -np.inf
    most = 100 if x.type.dtype.itemsize < 4 else np.inf
    numbers = [n for n in NUMBERS if least <= n <= most]
    if draw.truth():
        return b.constant(np.asarray(draw.of(numbers)).astype(x.type.dtype))
    return draw.of([v for v in b.values if fits(v)])


def _binary(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b)
    names = FLOAT_BINARY if kind(x.type.dtype) == "f" else INT_BINARY
    if b.choice.wide:
        names = [*names, *(MORE_FLOAT_BINARY if kind(x.type.dtype) == "f" else MORE_INT_BINARY)]
    pair = [x, _partner(draw, b, x)]
    b.emit(draw.of(names), *(pair if draw.truth() else pair[::-1]), location=_place(draw))


def _compare(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b, "fib")
    names = LOGICAL if x.type.dtype == BOOL else COMPARISONS
    b.emit(draw.of(names), x, _partner(draw, b, x))


def _select(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b)
    y = _partner(draw, b, x)
    condition = b.emit("less", x, y)
    b.emit("where", condition, x, y)


def _reduce(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b, "fi", lambda v: 0 not in v.type.shape)
    axes = tuple(draw.some(range(x.type.ndim)))
    name = draw.of(["sum", "max", "min", "prod"])
    b.emit(name, x, axes=axes, keepdims=draw.truth(), location=_place(draw))


def _view(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b, "fib")
    draw.of([_reshape, _permute, _broadcast, _slice])(draw, b, x)


def _reshape(draw: Draw, b: Builder, x: Value) -> None:
    size = prod(x.type.shape)
    b.emit("reshape", x, shape=draw.of([(size,), (1, size), (size, 1), x.type.shape]))


def _permute(draw: Draw, b: Builder, x: Value) -> None:
    b.emit("permute", x, axes=tuple(draw.shuffled(range(x.type.ndim))))


def _broadcast(draw: Draw, b: Builder, x: Value) -> None:
    wide = tuple(draw.of([s, 2]) if s == 1 else s for s in x.type.shape)
    b.emit("broadcast_to", x, shape=(2, *wide) if len(wide) < 3 and draw.truth() else wide)


def _slice(draw: Draw, b: Builder, x: Value) -> None:
    parts = [_part(draw, s) for s in x.type.shape]
    starts, stops = (tuple(p[i] for p in parts) for i in range(2))
    b.emit("slice", x, starts=starts, stops=stops, steps=(1,) * x.type.ndim)


def _part(draw: Draw, size: Any) -> tuple[Any, Any]:
    """Where a slice of an axis begins and ends."""
    if isinstance(size, Size):
        return draw.of([0, 0, 1]), size
    start = draw.whole(0, size - 1) if size else 0
    return start, draw.whole(start, size)


def _along(draw: Draw, b: Builder, depth: int) -> None:
    """What goes along an axis: running results, normalised rows, order."""
    x = _pick(draw, b, "fi", lambda v: v.type.ndim > 0)
    if not x.type.ndim:
        return
    axis = draw.whole(0, x.type.ndim - 1)
    name = draw.of(["cumsum", "cumprod", "softmax", "log_softmax", "sort", "argmax"])
    if name == "cumsum":
        b.emit(name, x, axis=axis, reverse=draw.truth())
    elif name == "cumprod":
        b.emit(name, x, axis=axis)
    elif name == "sort":
        b.emit(name, x, axis=axis, descending=draw.truth())
    elif name == "argmax":
        b.emit(name, x, axis=axis, keepdims=draw.truth())
    elif kind(x.type.dtype) == "f":
        b.emit(name, x, axis=axis)


def _join(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b, "fib", lambda v: v.type.ndim > 0)
    if x.type.ndim:
        b.emit("concat", x, x, *([x] if draw.truth() else []), axis=draw.whole(0, x.type.ndim - 1))


def _product(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b, "f", lambda v: v.type.ndim == 2)
    if x.type.ndim == 2:
        transposed = b.emit("permute", x, axes=(1, 0))
        b.emit("matmul", x, transposed, location=_place(draw))


def _constant(draw: Draw, b: Builder, depth: int) -> None:
    t = _type(draw, b.choice, SHAPES)
    b.constant(_array(t, draw.whole(0, 99)), draw.of(["", "", "table"]))


def _cast(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b, "b" if draw.truth() else "i")
    if b.choice.wide and draw.truth():
        x = _pick(draw, b, "fib")
        b.emit("cast", x, dtype=draw.of(b.choice.dtypes))
        return
    b.emit("cast", x, dtype=draw.of([F32, F64]))


# Control flow


def _region(
    draw: Draw,
    inputs: Sequence[TensorType],
    outputs: Sequence[TensorType],
    depth: int,
    name: str,
    choice: Choice = USUAL,
) -> Graph:
    """A closed graph of given types."""
    b = Builder(name, choice)
    for t in inputs:
        b.input(t)
    _grow(draw, b, draw.whole(0, 3), depth - 1)
    out = []
    for t in outputs:
        fitting = [v for v in b.values if v.type == t]
        out.append(draw.of(fitting) if fitting else _filled(b, t))
    return b.graph(out)


def _filled(b: Builder, type: TensorType) -> Value:
    """A value of a type that nothing has."""
    if not any(isinstance(s, Size) for s in type.shape):
        return b.constant(_array(type, 1))
    number = b.emit("reshape", b.constant(np.ones((), type.dtype)), shape=(1,) * type.ndim)
    return b.emit("broadcast_to", number, shape=type.shape)  # type: ignore[no-any-return]


def _cond(draw: Draw, b: Builder, depth: int) -> None:
    operands = [_pick(draw, b) for _ in range(draw.whole(1, 2))]
    given = [v.type for v in operands]
    outs = [draw.of(given) for _ in range(draw.whole(1, 2))]
    branches = tuple(_region(draw, given, outs, depth, "branches", b.choice) for _ in range(2))
    test = b.constant(np.asarray(draw.truth())) if draw.truth() else _truth(b, operands[0])
    b.emit("cond", test, *operands, branches=branches, location=_place(draw))


def _truth(b: Builder, x: Value) -> Value:
    positive = b.emit("greater", x, b.constant(np.zeros((), x.type.dtype)))
    return b.emit("any", positive, axes=tuple(range(x.type.ndim)), keepdims=False)  # type: ignore[no-any-return]


def _scan(draw: Draw, b: Builder, depth: int) -> None:
    carry = _pick(draw, b, "fi")
    along = _pick(draw, b, "f", lambda v: v.type.ndim > 0)
    if not along.type.ndim:
        return
    row = TensorType(along.type.shape[1:], along.type.dtype)
    body = _region(draw, [carry.type, row], [carry.type, row], depth, "body", b.choice)
    attrs = {"carries": 1, "mapped": 1, "length": along.type.shape[0], "reverse": draw.truth()}
    b.emit(
        "scan", carry, along, body=body, counted=False, checkpoint_every=None, **attrs, location=_place(draw)
    )


def _while(draw: Draw, b: Builder, depth: int) -> None:
    """A loop of up to three iterations, counted by its first carry."""
    x = _pick(draw, b)
    count = TensorType((), I64)
    test = Builder("test")
    i, _ = test.input(count), test.input(x.type)
    done = test.emit("less", i, test.constant(np.asarray(draw.whole(0, 3))))
    inner = _region(draw, [x.type], [x.type], depth, "step", b.choice)
    body = Builder("body")
    i, state = body.input(count), body.input(x.type)
    following = body.emit("add", i, body.constant(np.asarray(1)))
    arguments = (("", _operand(0)),)
    (out,) = body.emit("call", state, function="step", arguments=arguments, body=inner)
    attrs = {"test": test.graph([done]), "body": body.graph([following, out]), "carries": 2}
    start = b.constant(np.asarray(0))
    b.emit("while_loop", start, x, trips=None, checkpoint_every=None, **attrs, location=_place(draw))


def _operand(index: int) -> Any:
    from weft.ir.graph import Operand

    return Operand(index)


# Data


def _array(type: TensorType, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    if type.dtype == BOOL:
        return rng.integers(0, 2, type.shape).astype(bool)
    letter = kind(type.dtype)
    numbers = rng.integers(-3, 4, type.shape) + (3 if letter == "u" else 0)
    if letter == "c":
        return np.asarray((numbers + 1j * rng.integers(-3, 4, type.shape)) / 2).astype(type.dtype)
    return np.asarray(numbers / (2 if letter == "f" else 1)).astype(type.dtype)


def arrays_of(graph: Graph, seed: int = 0, sizes: Mapping[str, int] = {}) -> list[Any]:
    """Arrays for the inputs of a graph, whose named sizes have values."""
    types = [TensorType(bind(v.type.shape, sizes), v.type.dtype) for v in graph.inputs]
    return [_array(t, seed + i) for i, t in enumerate(types)]


def assert_same_results(actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """Equal arrays: type and every element, where NaN is NaN."""
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert (a.dtype, a.shape) == (e.dtype, e.shape)
        np.testing.assert_array_equal(a, e)

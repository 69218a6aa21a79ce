"""Random well-typed graphs, for properties that must hold of every graph.

``graphs()`` is a hypothesis strategy; ``arrays_of(graph)`` gives arrays that it can run on. Graphs are
built node by node on the table of ops, not by tracing, so they have forms that no program would give them:
dead nodes, equal nodes twice, outputs that are inputs or constants, an output given twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from weft.ir.graph import Graph, Node, Value
from weft.ir.location import Location
from weft.ir.types import TensorType
from weft.ops.table import find_op

Draw = Callable[[st.SearchStrategy[Any]], Any]

F32, F64, I64, BOOL = (np.dtype(n) for n in ("float32", "float64", "int64", "bool"))
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
COMPARISONS = ["less", "equal", "greater_equal", "not_equal"]
LOGICAL = ["logical_and", "logical_or", "logical_xor"]


class Builder:
    """A graph while it is built."""

    def __init__(self, name: str = "f") -> None:
        self.name = name
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


def types() -> st.SearchStrategy[TensorType]:
    return st.builds(TensorType, st.sampled_from(SHAPES), st.sampled_from([F32, F32, F64, I64]))


@st.composite
def graphs(draw: Draw, max_nodes: int = 12, regions: bool = True) -> Graph:
    """Graphs with elementwise ops, products, reductions, views, constants, and control flow if asked."""
    b = Builder(draw(st.sampled_from(["f", "step", "<lambda>"])))
    for i in range(draw(st.integers(1, 3))):
        role = draw(st.sampled_from(["arg", "arg", "param", "state"]))
        b.input(draw(types()), draw(st.sampled_from(["", f"x{i}", f"layer.{i}.weight"])), role)
    _grow(draw, b, draw(st.integers(0, max_nodes)), 2 if regions else 0)
    outputs = draw(st.lists(st.sampled_from(b.values), min_size=1, max_size=4))
    return b.graph(outputs, _updates(draw, b))


def _updates(draw: Draw, b: Builder) -> list[tuple[Value, Value]]:
    out = []
    for value, role in zip(b.inputs, b.roles, strict=True):
        fitting = [v for v in b.values if v.type == value.type]
        if role == "state" and draw(st.booleans()):
            out.append((value, draw(st.sampled_from(fitting))))
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
    for _ in range(count):
        draw(st.sampled_from(steps))(draw, b, depth)


def _pick(draw: Draw, b: Builder, kinds: str = "fi", condition: Callable[[Value], bool] = bool) -> Value:
    """A value of some kinds of dtype; a new constant if there is none."""
    fitting = [v for v in b.values if v.type.dtype.kind in kinds and condition(v)]
    if fitting:
        return draw(st.sampled_from(fitting))  # type: ignore[no-any-return]
    dtype = {"f": F32, "i": I64, "b": BOOL}[kinds[0]]
    return b.constant(np.ones((), dtype))


def _place(draw: Draw) -> Location | None:
    line = draw(st.integers(0, 3))
    if not line:
        return None
    module, phase = draw(st.sampled_from([("", ""), ("encoder.layers.3", ""), ("head", "backward")]))
    return Location(draw(st.sampled_from(["/a/model.py", "/b/model.py"])), line, "forward", module, phase)


def _unary(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b)
    names = FLOAT_UNARY if x.type.dtype.kind == "f" else INT_UNARY
    b.emit(draw(st.sampled_from(names)), x, location=_place(draw))


def _partner(draw: Draw, b: Builder, x: Value) -> Value:
    """A value that broadcasts with another one; a number, if nothing else does."""

    def fits(v: Value) -> bool:
        try:
            np.broadcast_shapes(v.type.shape, x.type.shape)
        except ValueError:
            return False
        return bool(v.type.dtype == x.type.dtype)

    number = st.sampled_from(NUMBERS).map(lambda n: np.asarray(n, x.type.dtype))
    if draw(st.booleans()):
        return b.constant(draw(number))
    return draw(st.sampled_from([v for v in b.values if fits(v)]))  # type: ignore[no-any-return]


def _binary(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b)
    names = FLOAT_BINARY if x.type.dtype.kind == "f" else INT_BINARY
    pair = [x, _partner(draw, b, x)]
    b.emit(
        draw(st.sampled_from(names)), *(pair if draw(st.booleans()) else pair[::-1]), location=_place(draw)
    )


def _compare(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b, "fib")
    names = LOGICAL if x.type.dtype == BOOL else COMPARISONS
    b.emit(draw(st.sampled_from(names)), x, _partner(draw, b, x))


def _select(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b)
    y = _partner(draw, b, x)
    condition = b.emit("less", x, y)
    b.emit("where", condition, x, y)


def _reduce(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b, "fi", lambda v: 0 not in v.type.shape)
    axes = tuple(sorted(draw(st.sets(st.sampled_from(range(x.type.ndim)))))) if x.type.ndim else ()
    name = draw(st.sampled_from(["sum", "max", "min", "prod"]))
    b.emit(name, x, axes=axes, keepdims=draw(st.booleans()), location=_place(draw))


def _view(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b, "fib")
    draw(st.sampled_from([_reshape, _permute, _broadcast, _slice]))(draw, b, x)


def _reshape(draw: Draw, b: Builder, x: Value) -> None:
    size = int(np.prod(x.type.shape))
    b.emit("reshape", x, shape=draw(st.sampled_from([(size,), (1, size), (size, 1), x.type.shape])))


def _permute(draw: Draw, b: Builder, x: Value) -> None:
    b.emit("permute", x, axes=tuple(draw(st.permutations(range(x.type.ndim)))))


def _broadcast(draw: Draw, b: Builder, x: Value) -> None:
    wide = tuple(draw(st.sampled_from([s, 2])) if s == 1 else s for s in x.type.shape)
    b.emit("broadcast_to", x, shape=(2, *wide) if len(wide) < 3 and draw(st.booleans()) else wide)


def _slice(draw: Draw, b: Builder, x: Value) -> None:
    starts = [draw(st.integers(0, s - 1)) if s else 0 for s in x.type.shape]
    stops = [draw(st.integers(start, s)) for start, s in zip(starts, x.type.shape, strict=True)]
    b.emit("slice", x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * x.type.ndim)


def _join(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b, "fib", lambda v: v.type.ndim > 0)
    if x.type.ndim:
        b.emit(
            "concat", x, x, *([x] if draw(st.booleans()) else []), axis=draw(st.integers(0, x.type.ndim - 1))
        )


def _product(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b, "f", lambda v: v.type.ndim == 2)
    if x.type.ndim == 2:
        transposed = b.emit("permute", x, axes=(1, 0))
        b.emit("matmul", x, transposed, location=_place(draw))


def _constant(draw: Draw, b: Builder, depth: int) -> None:
    t = draw(types())
    b.constant(_array(t, draw(st.integers(0, 99))), draw(st.sampled_from(["", "", "table"])))


def _cast(draw: Draw, b: Builder, depth: int) -> None:
    x = _pick(draw, b, "b" if draw(st.booleans()) else "i")
    b.emit("cast", x, dtype=draw(st.sampled_from([F32, F64])))


# Control flow


def _region(
    draw: Draw, inputs: Sequence[TensorType], outputs: Sequence[TensorType], depth: int, name: str
) -> Graph:
    """A closed graph of given types."""
    b = Builder(name)
    for t in inputs:
        b.input(t)
    _grow(draw, b, draw(st.integers(0, 3)), depth - 1)
    out = []
    for t in outputs:
        fitting = [v for v in b.values if v.type == t]
        out.append(draw(st.sampled_from(fitting)) if fitting else b.constant(_array(t, 1)))
    return b.graph(out)


def _cond(draw: Draw, b: Builder, depth: int) -> None:
    operands = [_pick(draw, b) for _ in range(draw(st.integers(1, 2)))]
    given = [v.type for v in operands]
    outs = draw(st.lists(st.sampled_from(given), min_size=1, max_size=2))
    branches = tuple(_region(draw, given, outs, depth, "branches") for _ in range(2))
    test = b.constant(np.asarray(draw(st.booleans()))) if draw(st.booleans()) else _truth(b, operands[0])
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
    body = _region(draw, [carry.type, row], [carry.type, row], depth, "body")
    attrs = {"carries": 1, "mapped": 1, "length": along.type.shape[0], "reverse": draw(st.booleans())}
    b.emit("scan", carry, along, body=body, counted=False, **attrs, location=_place(draw))


def _while(draw: Draw, b: Builder, depth: int) -> None:
    """A loop of up to three iterations, counted by its first carry."""
    x = _pick(draw, b)
    count = TensorType((), I64)
    test = Builder("test")
    i, _ = test.input(count), test.input(x.type)
    done = test.emit("less", i, test.constant(np.asarray(draw(st.integers(0, 3)))))
    inner = _region(draw, [x.type], [x.type], depth, "step")
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
    return np.asarray(rng.integers(-3, 4, type.shape) / (2 if type.dtype.kind == "f" else 1)).astype(
        type.dtype
    )


def arrays_of(graph: Graph, seed: int = 0) -> list[Any]:
    """Arrays for the inputs of a graph without named sizes."""
    return [_array(v.type, seed + i) for i, v in enumerate(graph.inputs)]


def assert_same_results(actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """Equal arrays: type and every element, where NaN is NaN."""
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert (a.dtype, a.shape) == (e.dtype, e.shape)
        np.testing.assert_array_equal(a, e)

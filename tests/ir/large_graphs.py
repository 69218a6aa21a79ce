"""Random graphs on arrays of sizes at which vectors, blocks and tasks end in the middle.

The generator of ``random_graphs`` has tiny shapes, on which a loop never fills a vector. Here the sizes are
around the borders of what machine code does at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.ir.drawing import ByHypothesis, Draw
from tests.ir.random_graphs import BOOL, F32, F64, I64, Builder
from weft.ir.graph import Graph, Value
from weft.ir.types import TensorType

SIZES = (1, 2, 7, 8, 16, 17, 33, 64, 100)
LONG = (1000, 1025, 4099, 20001)
MOST = 1 << 16  # elements
# Functions are continuous and comparisons are no results: the last bit of an element must not decide more.
UNARY = ("neg", "abs", "tanh", "sin", "sigmoid", "exp", "relu", "square")
BINARY = ("add", "sub", "mul", "maximum", "minimum")


@st.composite
def large_graphs(draw: Any, max_nodes: int = 10) -> Graph:
    """Graphs as hypothesis draws them."""
    return drawn_large_graph(ByHypothesis(draw), max_nodes)


def drawn_large_graph(draw: Draw, max_nodes: int = 10) -> Graph:
    """A graph of elementwise ops, reductions, broadcasts, permutations, slices, joins and products."""
    b = Builder("large")
    for _ in range(draw.whole(1, 3)):
        b.input(TensorType(_shape(draw), draw.of([F32, F32, F64, I64])))
    for _ in range(draw.whole(1, max_nodes)):
        draw.of(_STEPS)(draw, b)
    made = [v for node in b.nodes for v in node.outputs if v.type.dtype != BOOL] or b.inputs
    return b.graph([draw.of(made[-4:]) for _ in range(draw.whole(1, 3))])


def _shape(draw: Draw) -> tuple[int, ...]:
    """One to three axes, of which one may be long."""
    shape = [draw.of(SIZES) for _ in range(draw.whole(1, 3))]
    if draw.truth():
        shape[draw.whole(0, len(shape) - 1)] = draw.of(LONG)
    while np.prod(shape) > MOST:
        shape[int(np.argmax(shape))] //= 3
    return tuple(shape)


def _any(draw: Draw, b: Builder, condition: Callable[[Value], bool] = lambda v: True) -> Value | None:
    """A value with elements that are numbers."""
    fitting = [v for v in b.values if v.type.dtype != BOOL and condition(v) and np.prod(v.type.shape) > 0]
    return draw.of(fitting) if fitting else None


def _is_float(v: Value) -> bool:
    return v.type.dtype.kind == "f"


def _tamed(b: Builder, x: Value) -> Value:
    """Values that further functions keep finite."""
    return b.emit("tanh", x) if _is_float(x) else x  # type: ignore[no-any-return]


def _unary(draw: Draw, b: Builder) -> None:
    x = _any(draw, b, _is_float)
    if x is not None:
        b.emit(draw.of(UNARY), _tamed(b, x))


def _binary(draw: Draw, b: Builder) -> None:
    """Of two values that broadcast: one of them may be a row, a column or a part of the other."""
    x = _any(draw, b)
    assert x is not None
    others = [v for v in b.values if v.type.dtype == x.type.dtype and _broadcast(v, x)]
    pair = [x, draw.of(others)]
    b.emit(draw.of(BINARY), *draw.shuffled(pair))


def _broadcast(v: Value, x: Value) -> bool:
    try:
        return bool(np.prod(np.broadcast_shapes(v.type.shape, x.type.shape)) <= MOST)
    except ValueError:
        return False


def _reduce(draw: Draw, b: Builder) -> None:
    x = _any(draw, b, lambda v: v.type.ndim > 0)
    if x is None:
        return
    name = draw.of(["sum", "max", "min"])
    axes = tuple(draw.some(range(x.type.ndim), least=1))
    reduced = b.emit(name, _tamed(b, x), axes=axes, keepdims=draw.truth())
    if reduced.type.ndim == x.type.ndim and reduced.type.dtype == x.type.dtype and draw.truth():
        b.emit("sub", x, reduced)


def _softmax(draw: Draw, b: Builder) -> None:
    x = _any(draw, b, lambda v: _is_float(v) and v.type.ndim > 0)
    if x is not None:
        name = draw.of(["softmax", "log_softmax"])
        b.emit(name, _tamed(b, x), axis=draw.whole(0, x.type.ndim - 1))


def _permute(draw: Draw, b: Builder) -> None:
    x = _any(draw, b)
    assert x is not None
    b.emit("permute", x, axes=tuple(draw.shuffled(range(x.type.ndim))))


def _reshape(draw: Draw, b: Builder) -> None:
    x = _any(draw, b)
    assert x is not None
    size = int(np.prod(x.type.shape))
    shapes = [(size,), (1, size), (size, 1), (*x.type.shape, 1)]
    shapes += [(d, size // d) for d in (2, 3, 7, 8) if size % d == 0]
    b.emit("reshape", x, shape=draw.of(shapes))


def _slice(draw: Draw, b: Builder) -> None:
    x = _any(draw, b, lambda v: v.type.ndim > 0)
    if x is None:
        return
    keys = [_key(draw, size) for size in x.type.shape]
    starts, stops, steps = (tuple(part) for part in zip(*keys, strict=True))
    b.emit("slice", x, starts=starts, stops=stops, steps=steps)


def _key(draw: Draw, size: int) -> tuple[int, int, int]:
    """Start, stop and step of a slice that is not empty."""
    if draw.whole(0, 3) == 0:
        return size - 1, -1, -1
    start = draw.whole(0, min(size - 1, 9))
    return start, draw.whole(max(start + 1, size - 9), size), draw.of([1, 1, 2, 3])


def _join(draw: Draw, b: Builder) -> None:
    x = _any(draw, b, lambda v: v.type.ndim > 0 and np.prod(v.type.shape) * 2 <= MOST)  # type: ignore[return-value]
    if x is None:
        return
    others = [v for v in b.values if v.type == x.type]
    b.emit("concat", x, draw.of(others), axis=draw.whole(0, x.type.ndim - 1))


def _product(draw: Draw, b: Builder) -> None:
    x = _any(draw, b, lambda v: _is_float(v) and v.type.ndim == 2 and v.type.shape[0] <= 256)
    if x is not None:
        b.emit("matmul", _tamed(b, x), b.emit("permute", x, axes=(1, 0)))


def _scan(draw: Draw, b: Builder) -> None:
    x = _any(draw, b, lambda v: _is_float(v) and v.type.ndim > 0)
    if x is not None:
        axis = draw.whole(0, x.type.ndim - 1)
        b.emit("cumsum", _tamed(b, x), axis=axis, reverse=draw.truth())


def _select(draw: Draw, b: Builder) -> None:
    x = _any(draw, b)
    assert x is not None
    others = [v for v in b.values if v.type == x.type]
    y = draw.of(others)
    b.emit("where", b.emit("less", x, y), y, x)


_STEPS = [
    _unary, _unary, _binary, _binary, _reduce, _reduce, _softmax, _permute, _reshape, _slice, _join, _product,
    _scan, _select,
]  # fmt: skip


def large_arrays(graph: Graph, seed: int = 0, sizes: Mapping[str, int] = {}) -> list[Any]:
    """Arrays for the inputs, without named sizes: floats between -1 and 1, small integers."""
    rng = np.random.default_rng(seed)
    out = []
    for v in graph.inputs:
        numbers = rng.uniform(-1, 1, v.type.shape) if _is_float(v) else rng.integers(-9, 9, v.type.shape)
        out.append(np.asarray(numbers).astype(v.type.dtype))
    return out

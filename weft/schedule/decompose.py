"""Ops that are several loops, written as the ops that are one each, so that fusion sees through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import bfloat16, float16, float32
from weft.base.shapes import reduce_shape, size_of
from weft.base.size_bounds import size_max
from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, sweep
from weft.ops.call import call
from weft.ops.contract import matrix_multiply as matmul
from weft.ops.function import function
from weft.ops.norm import standardize
from weft.ops.op import OPS
from weft.ops.reduce import reduce_max, reduce_sum
from weft.ops.rows import rows
from weft.ops.select import cast
from weft.ops.size import size
from weft.ops.softmax import log_softmax_op, softmax_op
from weft.ops.statistics import log_sum_exp
from weft.ops.view.primitives import permute, reshape


class _Write:
    """Emits ops by name, numbers as constants of the dtype beside them."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    def __call__(self, name: str, *args: Any, **attrs: Any) -> Value:
        like = next(a for a in args if isinstance(a, Value)).type.dtype
        values = [a if isinstance(a, Value) else self.draft.constant(np.asarray(a, like)) for a in args]
        return self.draft.emit(OPS[name], values, **attrs)[0]

    def reduce(self, op: Any, x: Value, axes: tuple[int, ...]) -> Value:
        return self.draft.emit(op, [x], axes=axes, keepdims=True)[0]

    def cast(self, x: Value, dtype: Any) -> Value:
        return x if x.type.dtype == dtype else self.draft.emit(cast, [x], dtype=dtype)[0]

    def wide(self, x: Value) -> Value:
        """Half precision as float32."""
        return self.cast(x, float32) if x.type.dtype in (float16, bfloat16) else x


def _softmax(draft: Draft, node: Node) -> Sequence[Value]:
    w = _Write(draft)
    (x,), axis = node.inputs, node.attrs["axis"]
    wide = w.wide(x)
    powers = w("exp", w("sub", wide, w.reduce(reduce_max, wide, (axis,))))
    total = w.reduce(reduce_sum, powers, (axis,))
    out = w("mul", powers, w("div", _ones_like(w, total), total))  # one division a row: the sum is at least 1
    return [w.cast(out, x.type.dtype)]


def _log_softmax(draft: Draft, node: Node) -> Sequence[Value]:
    w = _Write(draft)
    (x,), axis = node.inputs, node.attrs["axis"]
    wide = w.wide(x)
    shifted = w("sub", wide, w.reduce(reduce_max, wide, (axis,)))
    total = w.reduce(reduce_sum, w("exp", shifted), (axis,))
    return [w.cast(w("sub", shifted, w("log", total)), x.type.dtype)]


def _logsumexp(draft: Draft, node: Node) -> Sequence[Value]:
    w = _Write(draft)
    (x,), axes = node.inputs, node.attrs["axes"]
    wide = w.wide(x)
    top = w.reduce(reduce_max, wide, axes)
    finite = draft.emit(OPS["isfinite"], [top])[0]
    zero = draft.constant(np.zeros((), wide.type.dtype))
    top = draft.emit(OPS["where"], [finite, top, zero])[0]
    total = w.reduce(reduce_sum, w("exp", w("sub", wide, top)), axes)
    out = w("add", w("log", total), top)
    shape = reduce_shape(x.type.shape, axes, node.attrs["keepdims"])
    if shape != out.type.shape:
        out = draft.emit(reshape, [out], shape=shape)[0]
    return [w.cast(out, x.type.dtype)]


def _standardize(draft: Draft, node: Node) -> Sequence[Value]:
    """As its kernel: the variance of the centred values, less what rounding of the mean left over."""
    w = _Write(draft)
    (x,), axes = node.inputs, node.attrs["axes"]
    wide = w.wide(x)
    count = _count(draft, size_max(1, size_of(tuple(x.type.shape[a] for a in axes))), wide.type.dtype)
    if not node.attrs["center"]:
        variance = w("div", w.reduce(reduce_sum, w("mul", wide, wide), axes), count)
        mean = w("mul", variance, 0.0)
        out = w("mul", wide, _scale(w, variance, node.attrs["eps"]))
        return [w.cast(out, x.type.dtype), mean, variance]
    mean = w("div", w.reduce(reduce_sum, wide, axes), count)
    centred = w("sub", wide, mean)
    shift = w("div", w.reduce(reduce_sum, centred, axes), count)
    squares = w("div", w.reduce(reduce_sum, w("mul", centred, centred), axes), count)
    variance = w("sub", squares, w("mul", shift, shift))
    out = w("mul", w("sub", centred, shift), _scale(w, variance, node.attrs["eps"]))
    return [w.cast(out, x.type.dtype), mean, variance]


def _scale(w: _Write, variance: Value, eps: float) -> Value:
    return w("div", _ones_like(w, variance), w("sqrt", w("add", variance, eps)))


def _ones_like(w: _Write, x: Value) -> Value:
    return w.draft.constant(np.ones((), x.type.dtype))


def _count(draft: Draft, count: Any, dtype: Any) -> Value:
    if isinstance(count, Size):
        return draft.emit(size, [], value=count, dtype=dtype)[0]
    return draft.constant(np.asarray(count, dtype))


def _call(draft: Draft, node: Node) -> Sequence[Value]:
    return draft.expand(node.attrs["body"], node.inputs)


def _turn_product(draft: Draft, node: Node) -> Sequence[Value] | None:
    """``(a @ b)ᵀ`` as ``bᵀ @ aᵀ``: sides are read in any order, results are best written in theirs."""
    (x,), axes = node.inputs, node.attrs["axes"]
    product = draft.producer(x, matmul)
    rank = len(axes)
    swapped = rank >= 2 and axes == (*range(rank - 2), rank - 1, rank - 2)
    if product is None or not swapped or draft.uses.get(x, 0) != 1:
        return None
    a, b = (draft.emit(permute, [v], axes=_swap_last(len(v.type.shape)))[0] for v in product.inputs)
    return draft.emit(matmul, [b, a])


def _swap_last(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _of_elements(rule: Any) -> Any:
    """A rule for inputs that have elements: of none, none is the largest."""

    def limited(draft: Draft, node: Node) -> Sequence[Value] | None:
        is_empty = any(not isinstance(s, Size) and s == 0 for s in node.inputs[0].type.shape)
        return None if is_empty else rule(draft, node)

    return limited


def _rows(draft: Draft, node: Node) -> Sequence[Value]:
    (x,) = node.inputs
    shape = x.type.shape
    out: list[Value] = []
    for i in range(node.attrs["count"]):
        starts, stops = (i, *[0] * (len(shape) - 1)), (i + 1, *shape[1:])
        row = draft.emit(OPS["slice"], [x], starts=starts, stops=stops, steps=(1,) * len(shape))[0]
        out += draft.emit(reshape, [row], shape=shape[1:])
    return out


def _function(draft: Draft, node: Node) -> Sequence[Value]:
    return draft.expand(node.attrs["body"], node.inputs[: node.attrs["used"]])


_RULES: dict[Any, Any] = {
    function: [_function],
    permute: [_turn_product],
    rows: [_rows],
    softmax_op: [_of_elements(_softmax)],
    log_softmax_op: [_of_elements(_log_softmax)],
    log_sum_exp: [_of_elements(_logsumexp)],
    standardize: [_standardize],
    call: [_call],
}


def expand_calls(graph: Graph) -> Graph:
    """The graph with the bodies of calls written out, in regions too."""
    return sweep(graph, {call: [_call]})


def decompose(graph: Graph) -> Graph:
    """The graph with ops of several loops written out, in regions too."""
    return sweep(graph, _RULES)

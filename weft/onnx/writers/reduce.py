"""Writers of reductions over axes, running ones, and order along an axis."""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import bool_, int32, int64, kind
from weft.base.sizes import Size
from weft.interop.forms.elements import lowest
from weft.onnx.writers.registry import Write, composite_writer, enter_writers, writer
from weft.onnx.writers.view import count_to, cut, pad_axis
from weft.onnx.writers.writer import Ref, Writer

Ints = tuple[Any, ...]


def reduced(w: Writer, operator: str, x: Ref, axes: Ints, keepdims: bool) -> Any:
    """x reduced over axes; over none it is x itself."""
    if not axes:
        return x
    if operator == "ReduceSum" or w.opset >= 18:
        return w.emit(operator, x, w.ints(axes), keepdims=int(keepdims))
    return w.emit(operator, x, axes=axes, keepdims=int(keepdims))


def _reduction(operator: str, *, truth: bool = False) -> Write:
    """A reduction; sums and products of truth values are or and and, as are their extremes."""

    def write(w: Writer, x: Ref, *, axes: Ints, keepdims: bool) -> Any:
        if truth or x.dtype == bool_:
            return w.truth(reduced(w, operator, w.cast(w.truth(x), int32), axes, keepdims))
        return reduced(w, operator, x, axes, keepdims)

    return write


@composite_writer("mean")
def write_mean(w: Writer, x: Ref, axis: Any, dtype: Any, keepdims: bool) -> Any:
    """The average over axes."""
    if dtype is not None or kind(x.dtype) != "f":
        return None
    given = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return reduced(w, "ReduceMean", x, tuple(sorted(a % x.ndim for a in given)), keepdims)


def _place(operator: str) -> Write:
    return lambda w, x, *, axis, keepdims: w.emit(operator, _counted(w, x), axis=axis, keepdims=int(keepdims))


def _counted(w: Writer, x: Ref) -> Ref:
    """x, truth values as numbers."""
    return w.cast(x, int32) if x.dtype == bool_ else x


enter_writers(
    {
        "sum": _reduction("ReduceSum"),
        "prod": _reduction("ReduceProd"),
        "max": _reduction("ReduceMax"),
        "min": _reduction("ReduceMin"),
        "any": _reduction("ReduceSum", truth=True),
        "all": _reduction("ReduceProd", truth=True),
        "logsumexp": lambda w, x, *, axes, keepdims: reduced(w, "ReduceLogSumExp", x, axes, keepdims),
        "argmax": _place("ArgMax"),
        "argmin": _place("ArgMin"),
    }
)

# Running sums, products and extremes


@writer("cumsum")
def write_cumsum(w: Writer, x: Ref, *, axis: int, reverse: bool) -> Any:
    """The sums of the first elements."""
    return w.cast(
        w.emit("CumSum", _counted(w, x), w.constant(axis, int64), reverse=int(reverse)), w.type.dtype
    )


@writer("cumprod")
def write_cumprod(w: Writer, x: Ref, *, axis: int) -> Any:
    """The products of the first elements."""
    if w.opset >= 26:
        return w.emit("CumProd", x, w.constant(axis, int64))
    return _doubled(w, "Mul", x, axis, 1)


def _doubled(w: Writer, operator: str, x: Ref, axis: int, neutral: Any) -> Ref:
    """A running result by doubling: each step joins elements twice as far apart."""
    size, reach = x.shape[axis], 1
    if isinstance(size, Size):
        w.fail(f"the axis must have a known size, got {size}", hint="give the example a number for this size")
    while reach < size:
        moved = pad_axis(w, cut(w, x, axis, 0, size - reach)._replace(shape=x.shape), axis, reach, 0, neutral)
        x = w.emit(operator, x, moved)._replace(shape=x.shape)
        reach *= 2
    return x


@writer("cummax_index")
def write_cummax_index(w: Writer, x: Ref, *, axis: int, largest: bool) -> Any:
    """Where the largest of the first elements is, the last of equal ones."""
    sign = x if largest else w.emit("Neg", x)._replace(shape=x.shape)
    best = _doubled(w, "Max", sign, axis, lowest(x.dtype))
    hit = w.emit("Equal", sign, best)
    numbers = count_to(w, x.shape[axis], x.ndim - 1 - axis)
    places = w.emit("Where", hit, numbers, w.constant(0, int64))._replace(shape=x.shape)
    return _doubled(w, "Max", places, axis, 0)


# Order


def _top(w: Writer, x: Ref, axis: int, k: Any, largest: bool) -> list[Ref]:
    """The first elements in order along an axis, and where they are; equal ones stay in their order."""
    found: list[Ref] = w.emit(
        "TopK", _counted(w, x), w.ints((k,)), outputs=2, axis=axis, largest=int(largest)
    )
    return [w.cast(found[0], x.dtype), found[1]]


enter_writers(
    {
        "sort": lambda w, x, *, axis, descending: _top(w, x, axis, x.shape[axis], descending)[0],
        "argsort": lambda w, x, *, axis, descending: _top(w, x, axis, x.shape[axis], descending)[1],
        "topk_index": lambda w, x, *, k, axis, largest: _top(w, x, axis, k, largest)[1],
    }
)


@composite_writer("topk")
def write_topk(w: Writer, x: Ref, k: Any, axis: int, largest: bool, sorted: bool) -> list[Ref]:
    """The largest elements, and where they are."""
    return _top(w, x, axis % x.ndim, k, largest)

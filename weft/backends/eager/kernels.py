"""Kernels for single ops on large arrays, outside of graphs: the same code as in graphs, on all threads.

Those for whole composites are in ``calls``, those for gradients in ``rules``.

Sizes are named in these kernels, so that one serves many shapes: elementwise ops see one row of any length;
reductions, softmax and what broadcasts see any number of rows. A kernel is compiled at its first use; later
processes find it in the cache on disk. What does not fit (other dtypes, gaps in memory, axes in the middle)
is left to NumPy.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from weft.backends.backend import Array, Arrays, Run
from weft.backends.eager.calls import call_whole
from weft.backends.eager.graphs import ANY, build, empty
from weft.backends.eager.rules import pull_large
from weft.base.dtypes import DType, float32, float64
from weft.base.shapes import size_of
from weft.base.sizes import named_size
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.ops.op import Op, type_of

__all__ = ["call_whole", "empty", "evaluate_large", "pull_large"]

Shape = tuple[Any, ...]

_ANY_COLUMNS = named_size("m")
_MANY = 8192  # columns from which on they are named, too


def evaluate_large(op: Op, arrays: Arrays, attrs: dict[str, Any]) -> Any:
    """What the kernel of an op gives on arrays, of which one at least is large; None if there is none here.

    >>> import numpy as np
    >>> from weft.backends.eager.kernels import evaluate_large
    >>> from weft.ops.exponential import exp
    >>> evaluate_large(exp, [np.zeros((400, 300), np.float32)], {}).sum()
    np.float32(120000.0)
    """
    dtype = arrays[0].dtype
    if dtype is not float32 and dtype is not float64:
        return None
    for x in arrays:
        if x.dtype is not dtype or not x.flags.c_contiguous:
            return None
    if op.accepts:
        return None if op.scalar is None else _elementwise(op, arrays, dtype)
    return _of_rows(op, arrays[0], attrs)


def _elementwise(op: Op, arrays: Arrays, dtype: DType) -> Any:
    shape = arrays[0].shape
    if len(arrays) == 1 or arrays[1].shape == shape:
        run = _flat_kernel(op, len(arrays), dtype)
        return None if run is None else run([x.reshape(-1) for x in arrays])[0].reshape(shape)
    shape, seen = _seen(*arrays)
    if not seen:
        return None
    run = _kernel(op, _named(seen), dtype, ())
    if run is None:
        return None
    (out,) = run([x.reshape(s) for x, s in zip(arrays, seen, strict=True)])
    return out.reshape(shape)


def _seen(x: Array, y: Array) -> tuple[Shape, tuple[Shape, ...]]:
    """The shape of what two arrays broadcast to, and the shapes that a kernel sees; none if none does."""
    large, small = (x, y) if (x.size, x.ndim) >= (y.size, y.ndim) else (y, x)
    shape, own = large.shape, small.shape
    if len(own) > len(shape):
        return shape, ()
    own = (1,) * (len(shape) - len(own)) + own
    first = next((i for i, s in enumerate(own) if s != 1), len(own))
    last = next((i for i, s in reversed([*enumerate(own, 1)]) if s != 1), 0)
    seen: tuple[Shape, ...]
    if last == 0:
        seen = ((large.size,), ())
    elif own[first:] == shape[first:]:
        seen = ((size_of(shape[:first]), small.size), (small.size,))
    elif own[:last] == shape[:last]:
        seen = ((small.size, size_of(shape[last:])), (small.size, 1))
    else:
        return shape, ()
    return shape, seen if large is x else seen[::-1]


def _named(seen: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """Shapes with a name for how many elements or rows there are; columns have a name if there are many."""
    if all(len(s) < 2 for s in seen):
        return tuple((ANY,) if s else () for s in seen)
    return tuple((*(ANY,) * (len(s) - 1), s[-1] if s[-1] < _MANY else _ANY_COLUMNS) for s in seen)


def _of_rows(op: Op, x: Array, attrs: dict[str, Any]) -> Any:
    """Ops along the last axes; reductions may be along the first ones, or along all."""
    axes = attrs["axes"] if "axes" in attrs else (attrs["axis"],)
    found = _matrix(op, x.shape, axes)
    if found is None:
        return None
    seen, axis = found
    own = {**attrs, "axes": (axis,)} if "axes" in attrs else {"axis": axis}
    if "keepdims" in own:
        own["keepdims"] = False
    run = _kernel(op, _named((seen,)), x.dtype, tuple(own.items()))
    if run is None:
        return None
    outs = run([x.reshape(seen)])
    types = op.type_rule(type_of(x), **attrs)
    if op.outputs == 1:
        return outs[0].reshape(types.shape)
    return tuple(out.reshape(t.shape) for out, t in zip(outs, types, strict=True))


def _matrix(op: Op, shape: Shape, axes: tuple[int, ...]) -> tuple[Shape, int] | None:
    """The shape that a kernel sees, and the axis there; None if there is no kernel."""
    rank, count = len(shape), len(axes)
    reduces = "keepdims" in op.attrs
    if count == 0:
        return None
    if count == rank and reduces:
        return (size_of(shape),), 0
    if axes == tuple(range(rank - count, rank)):
        return (size_of(shape[: rank - count]), size_of(shape[rank - count :])), 1
    if axes == tuple(range(count)) and reduces:
        return (size_of(shape[:count]), size_of(shape[count:])), 0
    return None


@cache
def _flat_kernel(op: Op, inputs: int, dtype: DType) -> Run | None:
    """What runs an elementwise op on arrays of one shape, seen as one row."""
    return _kernel(op, ((ANY,),) * inputs, dtype, ())


@cache
def _kernel(
    op: Op, shapes: tuple[Shape, ...], dtype: DType, attrs: tuple[tuple[str, Any], ...]
) -> Run | None:
    """What runs an op on arrays of shapes with named sizes; None if nothing does."""
    inputs = [Value(TensorType(shape, dtype)) for shape in shapes]
    types = op.type_rule(*[v.type for v in inputs], **dict(attrs))
    outputs = [Value(t) for t in ((types,) if op.outputs == 1 else types)]
    try:
        return build(Graph(op.name, inputs, [Node(op, inputs, dict(attrs), outputs)], outputs))
    except (ImportError, OSError, RuntimeError, NotImplementedError):
        return None  # where nothing can be compiled, NumPy still runs

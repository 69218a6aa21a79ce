"""Choosing between elements, and changing their dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import (
    FLOATS,
    DType,
    bfloat16,
    bool_,
    default_float,
    float16,
    float32,
    kind,
    result_dtype,
    scalar_dtype,
)
from weft.base.hooks import hooks
from weft.base.shapes import broadcast_shapes
from weft.errors import ArgumentError, DtypeError
from weft.ir.types import TensorType
from weft.ops.batching import batch_elementwise
from weft.ops.broadcast import unbroadcast
from weft.ops.families import linear
from weft.ops.op import Array, Op, Operand, Sample, Tensor, TensorLike, Typed, WeakNumber, no_gradient
from weft.ops.public import published
from weft.ops.samples import complex_array, int_array, real_array
from weft.ops.scalar import to_integers
from weft.ops.size import filled


def _where_type(condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
    if condition.dtype != bool_:
        raise DtypeError("where", f"the condition must be bool, got {condition.dtype.name}")
    if x.dtype != y.dtype:
        raise DtypeError("where", f"dtypes must be equal, got {x.dtype.name} and {y.dtype.name}")
    types = (condition, x, y)
    return TensorType(broadcast_shapes("where", [t.shape for t in types], types), x.dtype)


def _where_samples() -> list[Sample]:
    mask = real_array((3, 4), seed=9) > 0
    return [
        Sample((mask, real_array((3, 4)), real_array((3, 4), seed=1))),
        Sample((mask, real_array((4,)), real_array((), seed=1))),
        Sample((mask[:0], real_array((0, 4)), real_array((0, 4)))),
        Sample((mask.T, int_array((4, 3)), int_array((3,)))),
        Sample((mask, complex_array((4,)), complex_array((3, 1)))),
    ]


select: Op = linear(
    "where",
    type_rule=_where_type,
    eval=lambda condition, x, y: np.where(condition, x, y),
    transpose=(
        no_gradient("a truth value"),
        lambda g, condition, x_type: unbroadcast(select(condition, g, zeros_like(g)), x_type.shape),
        lambda g, condition, y_type: unbroadcast(select(condition, zeros_like(g), g), y_type.shape),
    ),
    batch=batch_elementwise,
    samples=_where_samples,
    scalar=lambda e, condition, x, y: e.select(condition, x, y),
    over="joint",
    masks=True,
)


@published(
    "(weft.tensor([True, False]), weft.tensor([1.0, 2.0]), weft.tensor([3.0, 4.0])) -> tensor([1., 4.])"
)
def where(condition: Tensor, x1: Operand = None, x2: Operand = None, /) -> Tensor:  # type: ignore[assignment]
    """Elements of ``x1`` where ``condition`` holds, else of ``x2``; ``where(condition)`` is ``nonzero``."""
    if x1 is None and x2 is None:
        return hooks.nonzero(condition)
    if x1 is None or x2 is None:
        raise ArgumentError("where", "takes a condition and two tensors or numbers, got one of these")
    if isinstance(condition, bool | np.bool_ | list | tuple):
        condition = np.asarray(condition)  # beside tensors of floats it would be a float
    elif isinstance(condition, WeakNumber) and isinstance(condition.example, bool):
        condition = condition.in_dtype(bool_)
    x1, x2 = same_dtype("where", x1, x2)
    out: Tensor = select.on_tensors(condition, x1, x2)
    return out


cast: Op = linear(
    "cast",
    type_rule=lambda x, *, dtype: TensorType(x.shape, dtype),
    eval=lambda x, *, dtype: cast_array(x, dtype),
    transpose=(lambda g, x_type: cast_gradient(g, x_type.dtype),),
    samples=lambda: [
        Sample((real_array((3, 4)),), {"dtype": float32}, smooth=False),
        Sample((real_array((3, 4)).astype(float32),), {"dtype": np.dtype("float64")}, smooth=False),
        Sample((real_array(()),), {"dtype": np.dtype("complex128")}),
        Sample((complex_array((4, 3)).T,), {"dtype": np.dtype("float64")}, smooth=False),
        Sample((int_array((3,)),), {"dtype": bool_}),
        Sample((real_array((0, 3)),), {"dtype": np.dtype("int32")}),
    ],
    scalar=lambda e, x, dtype: e.cast(x, dtype),
)


def cast_array(x: Array, dtype: DType) -> Array:
    """An array in another dtype; the imaginary part of a complex one is dropped, integers saturate."""
    if kind(x.dtype) == "c" and kind(dtype) != "c":
        x = x != 0 if dtype == bool_ else x.real
    return to_integers(x, dtype) if kind(dtype) in "iu" and kind(x.dtype) == "f" else x.astype(dtype)


def in_dtype(x: Tensor, dtype: DType) -> Tensor:
    """An array or tensor in a dtype; itself if it has it."""
    return x if x.dtype is dtype or x.dtype == dtype else cast(x, dtype=dtype)


def in_single(x: Tensor) -> Tensor:
    """Half precision as float32, in which it is summed; anything else as it is."""
    is_half = x.dtype.itemsize == 2 and x.dtype in (float16, bfloat16)
    return cast(x, dtype=float32) if is_half else x


def run_in_single(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of ops on half precision as float32, and give what it gives in their dtype.

    Next to a float of another dtype, which the result then has, nothing is changed.
    """
    given = [*args, *kwargs.values()]
    dtypes = {x.dtype for x in given if _is_float(x)}
    if len(dtypes) != 1:
        return function(*args, **kwargs)
    (half,) = dtypes
    wide = [in_single(x) if _is_float(x) else x for x in given]
    out = function(*wide[: len(args)], **dict(zip(kwargs, wide[len(args) :], strict=True)))
    if not isinstance(out, tuple):
        return in_dtype(out, half) if out.dtype == float32 else out
    outs = [in_dtype(o, half) if o.dtype == float32 else o for o in out]
    return type(out)(*outs) if hasattr(out, "_fields") else tuple(outs)


def _is_float(x: object) -> bool:
    return isinstance(x, TensorLike | np.ndarray) and kind(x.dtype) == "f"


_MASKED = 512  # elements from which bits are multiplied: NumPy's own choice waits for each branch
_BITS = {dtype: np.dtype(f"i{dtype.itemsize}") for dtype in FLOATS}


def keep_where(condition: Any, x: Any) -> Any:
    """x where a condition holds, else 0, on arrays or tensors."""
    if type(x) is not np.ndarray:
        return select(condition, x, np.zeros((), x.dtype))
    if x.size < _MASKED or condition.shape != x.shape:
        return np.where(condition, x, np.zeros((), x.dtype))
    bits = _BITS[x.dtype]
    kept = condition.astype(bits)  # 1 or 0, times the bits of a number, which may be any
    np.multiply(kept, (x if x.flags.c_contiguous else np.ascontiguousarray(x)).view(bits), out=kept)
    return kept.view(x.dtype)


def cast_gradient(g: Tensor, dtype: DType) -> Tensor | None:
    """The gradient of a cast, in the input's dtype; None for an input that has no gradient."""
    return cast(g, dtype=dtype) if kind(dtype) in "fc" else None


def zeros_like(g: Tensor) -> Any:
    """Zeros of the type of an array or tensor, as an array (a constant wherever it flows)."""
    return filled(g.shape, 0, g.dtype)


def weight(condition: Tensor, like: Tensor) -> Tensor:
    """A truth value as 1 or 0 of another array's or tensor's dtype, to multiply with."""
    return cast(condition, dtype=like.dtype)


def need_real(op: str, x: Typed) -> None:
    """Raise an error where the elements of a tensor, or of a type, have no order: they are complex."""
    if kind(x.dtype) == "c":
        raise DtypeError(op, f"dtype must be real, got {x.dtype.name}")


def same_dtype(op: str, *inputs: Operand) -> list[Any]:
    """Inputs in their common dtype; Python numbers are weak, and so are NumPy's next to tensors."""
    first = getattr(inputs[0], "dtype", None)
    for x in inputs:
        if first is None or getattr(x, "dtype", None) is not first:
            break
    else:
        return list(inputs)
    if any(isinstance(x, TensorLike) for x in inputs):
        inputs = tuple(map(python_number, inputs))
    dtypes = [x.dtype for x in inputs if hasattr(x, "dtype")]
    if any(isinstance(x, WeakNumber) for x in inputs):
        return _next_to(op, inputs)
    if not dtypes:
        dtypes = [default_float() if isinstance(x, float) else np.asarray(x).dtype for x in inputs]
    common = result_dtype(op, *dtypes)
    for x in inputs:
        if not hasattr(x, "dtype"):
            common = result_dtype(op, common, scalar_dtype(x, common))
    return [
        np.asarray(x, common)
        if not hasattr(x, "dtype")
        else x
        if x.dtype == common
        else cast(x, dtype=common)
        for x in inputs
    ]


def _next_to(op: str, inputs: Sequence[Any]) -> list[Any]:
    """Inputs in their common dtype, where some are numbers whose value only a run tells."""
    examples = [x.example if isinstance(x, WeakNumber) else x for x in inputs]
    likes = same_dtype(op, *[np.zeros((), x.dtype) if hasattr(x, "dtype") else x for x in examples])
    common = likes[0].dtype
    return [
        x.in_dtype(common) if isinstance(x, WeakNumber) else same_dtype(op, x, likes[0])[0] for x in inputs
    ]


def python_number(x: Operand | np.generic) -> Operand:
    """A NumPy scalar as the Python number it is worth, anything else as it is."""
    if not isinstance(x, np.generic):
        return x
    value = x.item()
    return float(value) if isinstance(value, np.generic) else value  # the item of a bfloat16 is a bfloat16

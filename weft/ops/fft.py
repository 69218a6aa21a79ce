"""The ops of discrete Fourier transforms: of complex numbers, and of real numbers with half the spectrum.

The adjoint of a transform is the other direction with the normalisations "backward" and "forward" swapped.
The public functions are in ``fft_functions``; they fit each axis to its length, so that the ops need not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import complex64, complex128, complex_dtype, float32, float64, int64, real_dtype
from weft.base.size_bounds import surely_less
from weft.base.sizes import Size
from weft.errors import DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import batch_leading, shifted_axes
from weft.ops.compare import equal, logical_or
from weft.ops.families import linear
from weft.ops.op import Array, Op, Sample, Tensor
from weft.ops.samples import complex_array, real_array
from weft.ops.select import select
from weft.ops.size import count_to
from weft.ops.view.primitives import reshape

SWAPPED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
REAL, COMPLEX = (float32, float64), (complex64, complex128)
Axes = tuple[int, ...]


def _check_input(op: str, x: TensorType, axes: Axes, dtypes: tuple[Any, ...]) -> None:
    if x.dtype not in dtypes:
        raise DtypeError(op, f"dtype must be {dtypes[0].name} or {dtypes[1].name}, got {x.dtype.name}")
    if any(x.shape[a] == 0 for a in axes):
        raise ShapeError(op, f"axes must not be empty, got {x} along {axes}")


def _fft_type(op: str) -> Callable[..., Any]:
    def rule(x: TensorType, *, axes: Axes, norm: str) -> TensorType:
        _check_input(op, x, axes, COMPLEX)
        return x

    return rule


def _fft_eval(one: str, many: str) -> Callable[..., Any]:
    def run(x: Array, *, axes: Axes, norm: str) -> Array:
        transform = getattr(np.fft, one if len(axes) == 1 else many)
        out: Array = (
            transform(x, axis=axes[0], norm=norm) if len(axes) == 1 else transform(x, axes=axes, norm=norm)
        )
        return out

    return run


def _fft_samples() -> list[Sample]:
    return [
        Sample((complex_array((5,)),), {"axes": (0,), "norm": "backward"}),
        Sample((complex_array((2, 4, 3)),), {"axes": (0, 2), "norm": "ortho"}),
        Sample((complex_array((4, 3)).T,), {"axes": (0, 1), "norm": "forward"}),
        Sample((complex_array((0, 3)),), {"axes": (1,), "norm": "backward"}),
        Sample((complex_array((1,)),), {"axes": (0,), "norm": "forward"}),
        Sample((complex_array((6,)).astype(complex64),), {"axes": (0,), "norm": "backward"}, smooth=False),
    ]


transform = linear(
    "fft",
    type_rule=_fft_type("fft"),
    eval=_fft_eval("fft", "fftn"),
    transpose=(lambda g, axes, norm: inverse_transform(g, axes=axes, norm=SWAPPED[norm]),),
    batch=batch_leading(shifted_axes),
    samples=_fft_samples,
    host=True,
)
inverse_transform: Op = linear(
    "ifft",
    type_rule=_fft_type("ifft"),
    eval=_fft_eval("ifft", "ifftn"),
    transpose=(lambda g, axes, norm: transform(g, axes=axes, norm=SWAPPED[norm]),),
    batch=batch_leading(shifted_axes),
    samples=_fft_samples,
    host=True,
)


def _weights(g: Tensor, axis: int, n: int, inner: float) -> Tensor:
    """1 at the frequencies that stand for themselves, ``inner`` at those that stand for a conjugate pair."""
    size = n // 2 + 1
    if isinstance(n, Size):
        alone = logical_or(equal(count_to(size, int64), 0), equal(count_to(size, int64) * 2, n))
        weights = select(alone, np.asarray(1, real_dtype(g.dtype)), np.asarray(inner, real_dtype(g.dtype)))
        return reshape(weights, shape=tuple(size if i == axis else 1 for i in range(g.ndim)))
    weights = np.full(size, inner, real_dtype(g.dtype))
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    return weights.reshape([size if i == axis else 1 for i in range(g.ndim)])  # type: ignore[return-value]


def _rfft_type(x: TensorType, *, axis: int, norm: str) -> TensorType:
    _check_input("rfft", x, (axis,), REAL)
    return TensorType(_resized(x.shape, axis, x.shape[axis] // 2 + 1), complex_dtype(x.dtype))


def _irfft_type(x: TensorType, *, axis: int, n: int, norm: str) -> TensorType:
    _check_input("irfft", x, (axis,), COMPLEX)
    if surely_less(n, 1) or x.shape[axis] != n // 2 + 1:
        raise ShapeError("irfft", f"axis {axis} must have n // 2 + 1 elements, got {x} for n = {n}")
    return TensorType(_resized(x.shape, axis, n), real_dtype(x.dtype))


def _resized(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _rfft_adjoint(g: Tensor, x_type: TensorType, axis: int, norm: str) -> Tensor:
    n = x_type.shape[axis]
    return real_inverse_transform(g * _weights(g, axis, n, 0.5), axis=axis, n=n, norm=SWAPPED[norm])


def _irfft_adjoint(g: Tensor, axis: int, n: int, norm: str) -> Tensor:
    return real_transform(g, axis=axis, norm=SWAPPED[norm]) * _weights(g, axis, n, 2.0)


real_transform = linear(
    "rfft",
    type_rule=_rfft_type,
    eval=lambda x, *, axis, norm: np.fft.rfft(x, axis=axis, norm=norm),
    transpose=(_rfft_adjoint,),
    batch=batch_leading(shifted_axes),
    samples=lambda: [
        Sample((real_array((5,)),), {"axis": 0, "norm": "backward"}),
        Sample((real_array((2, 4, 3)),), {"axis": 1, "norm": "ortho"}),
        Sample((real_array((4, 2)).T,), {"axis": 1, "norm": "forward"}),
        Sample((real_array((0, 1)),), {"axis": 1, "norm": "backward"}),
        Sample((real_array((6,)).astype(float32),), {"axis": 0, "norm": "backward"}, smooth=False),
    ],
    host=True,
)
real_inverse_transform = linear(
    "irfft",
    type_rule=_irfft_type,
    eval=lambda x, *, axis, n, norm: np.fft.irfft(x, n, axis=axis, norm=norm),
    transpose=(_irfft_adjoint,),
    batch=batch_leading(shifted_axes),
    samples=lambda: [
        Sample((complex_array((3,)),), {"axis": 0, "n": 5, "norm": "backward"}),
        Sample((complex_array((2, 3, 2)),), {"axis": 1, "n": 4, "norm": "ortho"}),
        Sample((complex_array((4, 2)).T,), {"axis": 1, "n": 6, "norm": "forward"}),
        Sample((complex_array((0, 1)),), {"axis": 1, "n": 1, "norm": "backward"}),
        Sample(
            (complex_array((4,)).astype(complex64),), {"axis": 0, "n": 6, "norm": "backward"}, smooth=False
        ),
    ],
    host=True,
)

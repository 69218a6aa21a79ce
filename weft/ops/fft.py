"""Discrete Fourier transforms: ops, of complex numbers and of reals with half the spectrum; and functions.

The adjoint of a transform is the other direction with the normalisations "backward" and "forward" swapped.
The public functions fit each axis to its length, so that the ops need not.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import (
    complex64,
    complex128,
    complex_dtype,
    default_float,
    float32,
    float64,
    int64,
    kind,
    real_dtype,
)
from weft.base.shapes import Shape, normalize_axes, normalize_axis
from weft.base.size_bounds import positive, size_min, surely_less
from weft.base.sizes import Size, is_known
from weft.errors import ArgumentError, AxisError, DomainError, DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.compare import equal, logical_or
from weft.ops.complex import conj
from weft.ops.factors import along
from weft.ops.families import linear
from weft.ops.op import Array, Op, Sample, Samples, Tensor, composite, type_of
from weft.ops.public import example, example_text, published
from weft.ops.samples import complex_array, real_array
from weft.ops.select import cast, select
from weft.ops.size import count_to
from weft.ops.variants import variants
from weft.ops.view.joining import roll
from weft.ops.view.primitives import reshape
from weft.ops.view.slices import pad_axes, slice_axis

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
    factors=along("axes"),
    samples=_fft_samples,
    host=True,
)
inverse_transform: Op = linear(
    "ifft",
    type_rule=_fft_type("ifft"),
    eval=_fft_eval("ifft", "ifftn"),
    transpose=(lambda g, axes, norm: transform(g, axes=axes, norm=SWAPPED[norm]),),
    factors=along("axes"),
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
    factors=along("axis"),
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
    factors=along("axis"),
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


# Arguments


def _norm(op: str, norm: str) -> str:
    if norm is None:
        return "backward"
    if norm not in SWAPPED:
        raise DomainError(op, f"norm must be 'backward', 'ortho' or 'forward', got {norm!r}")
    return str(norm)


def _length(op: str, n: int) -> int:
    try:
        length = n if isinstance(n, Size) else operator.index(n)
    except TypeError:
        raise ArgumentError(op, f"the length must be an int, got {n!r}") from None
    if surely_less(length, 1):
        raise DomainError(op, f"the length must be at least 1, got {length}")
    return length


def _axes(op: str, x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None) -> Shape:
    """Distinct, non-negative axes in the order given; the last ones if only their lengths are given."""
    if axes is None:
        return tuple(range(x.ndim - len(s), x.ndim)) if s is not None else tuple(range(x.ndim))
    chosen = tuple(normalize_axis(op, a, x.ndim) for a in axes)
    if len(set(chosen)) != len(chosen):
        raise AxisError(op, f"axes must be distinct, got {tuple(axes)}")
    return chosen


def _lengths(
    op: str, x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None
) -> tuple[Shape, tuple[int | None, ...]]:
    """The axes to transform and the length of each, None for the one it has."""
    for name, value in (("s", s), ("axes", axes)):
        if value is not None and not isinstance(value, Sequence):
            raise ArgumentError(op, f"{name} must be a tuple of ints, got {value!r}")
    if s is not None and axes is None and len(s) > x.ndim:
        raise ShapeError(op, f"s must have at most one length an axis, got {tuple(s)} for {type_of(x)}")
    chosen = _axes(op, x, s, axes)
    if s is None:
        return chosen, (None,) * len(chosen)
    if len(s) != len(chosen):
        raise ShapeError(op, f"s and axes must be equally long, got {tuple(s)} and {tuple(axes or ())}")
    return chosen, tuple(None if n is None or n == -1 else _length(op, n) for n in s)


def _fit(x: Tensor, axis: int, n: int | None) -> Tensor:
    """x with n elements along an axis: cut, or with zeros at the end."""
    size = x.shape[axis]
    if n is None or n == size:
        return x
    if surely_less(n, size):
        return slice_axis(x, axis, 0, n)
    if not is_known((size,)):
        x = slice_axis(x, axis, 0, size_min(n, size))
    high = tuple(positive(n - size) if i == axis else 0 for i in range(x.ndim))
    none = (0,) * x.ndim
    return pad_axes(x, low=none, high=high, interior=none, value=0)


def _as_complex(op: str, x: Tensor) -> Tensor:
    if kind(x.dtype) == "c":
        return x
    x = _as_floating(op, x)
    return cast(x, dtype=complex_dtype(x.dtype))


def _as_real(op: str, x: Tensor) -> Tensor:
    if kind(x.dtype) == "c":
        hint = f"use weft.fft.{op.removeprefix('r')}, or .real" if op.startswith("r") else "use .real"
        raise DtypeError(op, f"dtype must be real, got {x.dtype.name}", hint=hint)
    return _as_floating(op, x)


def _as_floating(op: str, x: Tensor) -> Tensor:
    if kind(x.dtype) in "biu":
        return cast(x, dtype=default_float())
    if x.dtype not in REAL:
        raise DtypeError(
            op,
            f"dtype must be float32 or float64, or complex, got {x.dtype.name}",
            hint="cast with .astype(weft.float32)",
        )
    return x


# Transforms of one axis


def _complex_transform(
    op: str, direction: Op, x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Tensor:
    axis, norm = normalize_axis(op, axis, x.ndim), _norm(op, norm)
    x = _fit(_as_complex(op, x), axis, None if n is None else _length(op, n))
    return direction(x, axes=(axis,), norm=norm)


fft, ifft = variants(
    _complex_transform,
    {"fft": transform, "ifft": inverse_transform},
    "The discrete Fourier transform along an axis, which is cut or filled with zeros to length n.\n\n"
    'The norm "backward" divides the inverse by n, "forward" this transform, "ortho" both by sqrt(n).'
    + example_text("weft.fft.fft(weft.tensor([1.0, 0.0, 0.0])).real -> tensor([1., 1., 1.])"),
    "The inverse of ``fft``."
    + example_text("weft.fft.ifft(weft.tensor([1.0, 1.0, 1.0])).real -> tensor([1., 0., 0.])"),
)


@published("weft.fft.rfft(weft.tensor([1.0, 2.0, 3.0, 4.0])).real -> tensor([10., -2., -2.])")
def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The Fourier transform of real numbers: the ``n // 2 + 1`` frequencies that are not negative."""
    axis, norm = normalize_axis("rfft", axis, x.ndim), _norm("rfft", norm)
    x = _fit(_as_real("rfft", x), axis, None if n is None else _length("rfft", n))
    return real_transform(x, axis=axis, norm=norm)


@published("weft.fft.irfft(weft.fft.rfft(weft.tensor([1.0, 2.0, 3.0])), n=3) -> tensor([1., 2., 3.])")
def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of ``rfft``: n real numbers, by default an even number of them."""
    return _half_to_real("irfft", x, n, axis, _norm("irfft", norm))


def _half_to_real(op: str, x: Tensor, n: int | None, axis: int, norm: str) -> Tensor:
    axis = normalize_axis(op, axis, x.ndim)
    length = _length(op, 2 * (x.shape[axis] - 1) if n is None else n)
    x = _fit(_as_complex(op, x), axis, length // 2 + 1)
    return real_inverse_transform(x, axis=axis, n=length, norm=norm)


@published("weft.fft.hfft(weft.tensor([1.0, 2.0, 3.0])) -> tensor([ 8., -2.,  0., -2.])")
def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The Fourier transform, real, of half a signal that is Hermitian: ``x[-k] = conj(x[k])``."""
    return _half_to_real("hfft", conj(x), n, axis, SWAPPED[_norm("hfft", norm)])


@published("weft.fft.ihfft(weft.tensor([8.0, -2.0, 0.0, -2.0])).real -> tensor([1., 2., 3.])")
def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of ``hfft``: half of the Hermitian signal with a real spectrum."""
    x = _as_real("ihfft", x)
    return conj(rfft(x, n=n, axis=axis, norm=SWAPPED[_norm("ihfft", norm)]))


# Transforms of several axes


def _complex_transforms(
    op: str,
    direction: Op,
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Tensor:
    chosen, lengths = _lengths(op, x, s, axes)
    norm, x = _norm(op, norm), _as_complex(op, x)
    for axis, n in zip(chosen, lengths, strict=True):
        x = _fit(x, axis, n)
    return direction(x, axes=chosen, norm=norm) if chosen else x


fftn, ifftn = variants(
    _complex_transforms,
    {"fftn": transform, "ifftn": inverse_transform},
    "The Fourier transform over axes, all by default, cut or filled with zeros to the lengths s."
    + example_text("weft.fft.fftn(weft.ones((2, 2))).real.flatten() -> tensor([4., 0., 0., 0.])"),
    "The inverse of ``fftn``."
    + example_text("weft.fft.ifftn(weft.ones((2, 2))).real.flatten() -> tensor([1., 0., 0., 0.])"),
)


def _nd_samples(make: Any) -> Samples:
    return lambda: [
        Sample((make((3, 4)),)),
        Sample((make((2, 3, 4)),), {"axes": (0, 2), "norm": "ortho"}),
        Sample((make((2, 3)),), {"s": (3, 2), "axes": (1, 0), "norm": "forward"}),
        Sample((make((4, 3)).T,), {"s": (4,), "axes": (-1,)}),
    ]


@composite(samples=_nd_samples(real_array))
@example("weft.fft.rfftn(weft.ones((2, 4))).shape -> (2, 3)")
def rfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """The Fourier transform of real numbers over axes; of the last, the frequencies that are not negative."""
    chosen, lengths = _lengths("rfftn", x, s, axes)
    if not chosen:
        raise AxisError("rfftn", "there must be at least one axis, got none")
    x, norm = _as_real("rfftn", x), _norm("rfftn", norm)
    for axis, n in zip(chosen, lengths, strict=True):
        x = _fit(x, axis, n)
    half = real_transform(x, axis=chosen[-1], norm=norm)
    return transform(half, axes=chosen[:-1], norm=norm) if chosen[1:] else half


@composite(samples=_nd_samples(complex_array))
@example("weft.fft.irfftn(weft.fft.rfftn(weft.ones((2, 4))), s=(2, 4)).shape -> (2, 4)")
def irfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """The inverse of ``rfftn``; s tells the length of the last axis, which by default is even."""
    chosen, lengths = _lengths("irfftn", x, s, axes)
    if not chosen:
        raise AxisError("irfftn", "there must be at least one axis, got none")
    x, norm = _as_complex("irfftn", x), _norm("irfftn", norm)
    for axis, n in zip(chosen[:-1], lengths[:-1], strict=True):
        x = _fit(x, axis, n)
    if chosen[1:]:
        x = inverse_transform(x, axes=chosen[:-1], norm=norm)
    return _half_to_real("irfftn", x, lengths[-1], chosen[-1], norm)


def _of_last_axes(
    op: str,
    function: Callable[..., Tensor],
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str = "backward",
) -> Tensor:
    return function(x, s=s, axes=axes, norm=norm)


_LAST: dict[str, Callable[..., Tensor]] = {"fft2": fftn, "ifft2": ifftn, "rfft2": rfftn, "irfft2": irfftn}
fft2, ifft2, rfft2, irfft2 = variants(
    _of_last_axes,
    _LAST,
    "``fftn`` over the last two axes."
    + example_text("weft.fft.fft2(weft.ones((5, 2, 2))).shape -> (5, 2, 2)"),
    "``ifftn`` over the last two axes."
    + example_text("weft.fft.ifft2(weft.ones((5, 2, 2))).shape -> (5, 2, 2)"),
    "``rfftn`` over the last two axes."
    + example_text("weft.fft.rfft2(weft.ones((5, 4, 4))).shape -> (5, 4, 3)"),
    "``irfftn`` over the last two axes."
    + example_text("weft.fft.irfft2(weft.ones((5, 4, 3))).shape -> (5, 4, 4)"),
)

# The order of frequencies


def _shift(op: str, direction: int, x: Tensor, /, *, axes: Sequence[int] | None = None) -> Tensor:
    chosen = normalize_axes(op, axes, x.ndim)
    return roll(x, tuple(direction * (x.shape[a] // 2) for a in chosen), chosen)


fftshift, ifftshift = variants(
    _shift,
    {"fftshift": 1, "ifftshift": -1},
    "x with the frequency 0 moved from the beginning of axes to their middle."
    + example_text("weft.fft.fftshift(weft.tensor([0, 1, 2, -2, -1])) -> tensor([-2, -1,  0,  1,  2])"),
    "The inverse of ``fftshift``."
    + example_text("weft.fft.ifftshift(weft.tensor([-2, -1, 0, 1, 2])) -> tensor([ 0,  1,  2, -2, -1])"),
)

"""Complex numbers: their parts, and the functions that are not holomorphic.

Of these the partials speak for real inputs only; for complex inputs vjp and jvp are written out. The
gradient of a real function of z is that along the real and imaginary axes (conjugate Wirtinger), so a
map that is linear over the reals has its adjoint as vjp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import complex_dtype, kind
from weft.base.public import public
from weft.base.shapes import Shape
from weft.errors import DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.alias import OpStep, Strides, link_taken
from weft.ops.families import elementwise
from weft.ops.op import Array, Container, Op, Sample, Tensor, TensorLike, type_of
from weft.ops.public import Public, published
from weft.ops.samples import complex_array, integers, joined, real_array, reals
from weft.ops.scalar import ScalarEmitter, Value, copy_sign, is_nan
from weft.ops.select import select, zeros_like


def _complexes() -> list[Sample]:
    edges = np.array([0, 1, -1j, -0.0 + 0.0j, np.inf + 1j, 1e200 - 1e200j, np.nan])
    return [
        Sample((complex_array((3, 4)),)),
        Sample((complex_array(()),)),
        Sample((complex_array((0, 2)),)),
        Sample((complex_array((4, 3)).T,)),
        Sample((complex_array((5,)).astype(np.complex64),), smooth=False),
        Sample((edges,), smooth=False),
    ]


def _pairs() -> list[Sample]:
    return [
        Sample((real_array((3, 4)), real_array((3, 4), seed=1))),
        Sample((real_array((2, 1)), real_array((), seed=1))),
        Sample((real_array((0, 2)), real_array((0, 2)))),
        Sample(
            (real_array((3,)).astype(np.float32), real_array((3,), seed=1).astype(np.float32)), smooth=False
        ),
        Sample((np.array([np.inf, -0.0, 1.0]), np.array([-0.0, np.nan, np.inf])), smooth=False),
    ]


def _join_parts(x: Array, y: Array) -> Array:
    shape = np.broadcast_shapes(np.shape(x), np.shape(y))
    out = np.empty(shape, complex_dtype(x.dtype))
    out.real, out.imag = x, y
    return out


real_part: Op = elementwise(
    "real",
    eval=lambda x: np.real(x).copy(),
    partials=None,
    vjp=(lambda g: make_complex(g, g * 0),),
    jvp=lambda primals, tangents, out: real_part(tangents[0]),
    accepts="c",
    result="real",
    samples=_complexes,
    scalar=lambda e, x: e.real(x),
)
imaginary_part: Op = elementwise(
    "imag",
    eval=lambda x: np.imag(x).copy(),
    partials=None,
    vjp=(lambda g: make_complex(g * 0, g),),
    jvp=lambda primals, tangents, out: imaginary_part(tangents[0]),
    accepts="c",
    result="real",
    samples=_complexes,
    scalar=lambda e, x: e.imag(x),
)
make_complex: Op = elementwise(
    "complex",
    eval=_join_parts,
    partials=None,
    vjp=lambda g, x_type, y_type: _parts_gradient(g, x_type, y_type),
    jvp=lambda primals, tangents, out: _parts_tangent(tangents),
    accepts="f",
    result="complex",
    samples=_pairs,
    scalar=lambda e, x, y: e.complex(x, y),
)
conjugate: Op = elementwise(
    "conj",
    eval=np.conjugate,
    partials=None,
    vjp=(lambda g: conjugate(g),),
    jvp=lambda primals, tangents, out: conjugate(tangents[0]),
    accepts="c",
    samples=_complexes,
    scalar=lambda e, x: e.complex(e.real(x), e.neg(e.imag(x))),
)


def _parts_gradient(g: Tensor, x_type: TensorType, y_type: TensorType) -> tuple[Tensor, Tensor]:
    from weft.ops.broadcast import unbroadcast

    return unbroadcast(real_part(g), x_type.shape), unbroadcast(imaginary_part(g), y_type.shape)


def _parts_tangent(tangents: Sequence[Any]) -> Tensor:
    x, y = tangents
    return make_complex(y * 0 if x is None else x, x * 0 if y is None else y)


# Size, direction and angle: all zero at the origin


def _tangential(x: Tensor, t: Tensor) -> Tensor:
    """What of t turns x, divided by |x|: the derivative of x / |x| along t, which is its own adjoint."""
    direction, length = sign(x), absolute(x)
    origin = length == 0
    turned = (t - direction * real_part(conjugate(direction) * t)) / (length + origin)
    return select(origin, zeros_like(t), turned)


def _cosine(e: ScalarEmitter[Value], part: Value, length: Value) -> Value:
    """part / length for a part of a complex number; 0 at the origin, -1, 0 or 1 if the length is infinite."""
    ratio = e.div(part, e.select(e.eq(length, 0), 1, length))
    unit = e.select(e.eq(e.abs(part), np.inf), copy_sign(e, e.constant(1, e.dtype(part)), part), 0)
    return e.select(e.eq(length, np.inf), unit, ratio)


def _sign_code(e: ScalarEmitter[Value], x: Value) -> Value:
    letter = kind(e.dtype(x))
    if letter == "c":
        length = e.abs(x)
        return e.complex(_cosine(e, e.real(x), length), _cosine(e, e.imag(x), length))
    if letter == "u":
        return e.min(x, 1)
    minus, plus = (e.constant(v, e.dtype(x)) for v in (-1, 1))
    unit = e.select(e.lt(0, x), plus, e.select(e.lt(x, 0), minus, 0))
    return unit if letter == "i" else e.select(is_nan(e, x), x, unit)


absolute: Op = elementwise(
    "abs",
    public=Public(
        "The absolute value; of a complex number, its distance from 0.",
        "[-1.5, 2.0] -> [1.5000, 2.0000]",
        names=("abs", "absolute"),
    ),
    eval=np.absolute,
    partials=(lambda x: sign(x),),
    vjp=(lambda g, x: g * sign(x),),
    jvp=lambda primals, tangents, out: real_part(conj(sign(primals[0])) * tangents[0]),
    result="real",
    samples=joined(reals(1), integers(1), _complexes),
    scalar=lambda e, x: x if kind(e.dtype(x)) == "u" else e.abs(x),
)
sign: Op = elementwise(
    "sign",
    public=Public(
        "-1, 0 or 1; of a complex number, the number of length 1 in its direction.",
        "[-1.5, 0.0, 2.0] -> [-1.,  0.,  1.]",
    ),
    eval=np.sign,
    partials=(0,),
    vjp=(lambda g, x: _tangential(x, g),),
    jvp=lambda primals, tangents, out: _tangential(primals[0], tangents[0]),
    samples=joined(reals(1), integers(1), _complexes),
    scalar=_sign_code,
)


def _turn(x: Tensor) -> Tensor:
    """The gradient of the angle of x: i x / |x|^2."""
    length = absolute(x)
    return sign(x) * 1j / (length + (length == 0))


def _angle_code(e: ScalarEmitter[Value], x: Value) -> Value:
    if kind(e.dtype(x)) == "c":
        return e.atan2(e.imag(x), e.real(x))
    return e.select(is_nan(e, x), x, e.select(e.lt(x, 0), e.constant(np.pi, e.dtype(x)), 0))


def _angle(x: Array) -> Any:
    if kind(x.dtype) == "c":
        return np.arctan2(x.imag, x.real)
    return np.where(np.isnan(x), x, np.where(x < 0, np.asarray(np.pi, x.dtype), np.asarray(0, x.dtype)))


angle: Op = elementwise(
    "angle",
    public=Public("The angle of a complex number, in -pi..pi.", "[1j, -1.0] -> [1.5708, 3.1416]"),
    eval=_angle,
    partials=(0,),
    vjp=(lambda g, x: g * _turn(x),),
    jvp=lambda primals, tangents, out: real_part(conj(_turn(primals[0])) * tangents[0]),
    accepts="fc",
    result="real",
    samples=joined(reals(1), _complexes),
    scalar=_angle_code,
)


# The public functions take real numbers too; parts of complex ones are views


class _Part(OpStep):
    """The real or the imaginary part as a view."""

    def put(self, parent: Tensor, part: Tensor, args: Mapping[str, Any]) -> Tensor:
        """The parent with another such part."""
        if self.op is real_part:
            return make_complex(part, imaginary_part(parent))
        return make_complex(real_part(parent), part)

    def array(self, parent: Array, args: Mapping[str, Any]) -> Array:
        """The part of an array, in its memory."""
        return parent.real if self.op is real_part else parent.imag

    def strides(self, shape: Shape, strides: Strides, args: Mapping[str, Any]) -> Strides:
        """Counted in numbers of which a complex one has two."""
        return tuple(2 * s for s in strides)


_REAL, _IMAGINARY = _Part(real_part), _Part(imaginary_part)


def _part(x: Tensor, step: _Part) -> Tensor:
    out = step.op(x)
    if isinstance(x, TensorLike) and not isinstance(x, Container):
        link_taken(out, x, step, {})
    return out


@published("(weft.tensor([1 + 2j, 3 - 4j])) -> tensor([1., 3.])")
def real(x: Tensor, /) -> Tensor:
    """The real part."""
    return _part(x, _REAL) if kind(x.dtype) == "c" else x


@published("(weft.tensor([1 + 2j, 3 - 4j])) -> tensor([ 2., -4.])")
def imag(x: Tensor, /) -> Tensor:
    """The imaginary part; zero of a real number."""
    return _part(x, _IMAGINARY) if kind(x.dtype) == "c" else x * 0


@public
def conj(x: Tensor, /) -> Tensor:
    """The complex conjugate; a real number is its own.

    >>> import weft
    >>> weft.conj(weft.tensor([1 + 2j, 3 - 4j]))
    tensor([1.-2.j, 3.+4.j])
    """
    return conjugate(x) if kind(x.dtype) == "c" else x


@published("(weft.tensor([1 + 2j, 3 - 4j])) -> tensor([[ 1.,  2.],\n        [ 3., -4.]])")
def view_as_real(x: Tensor, /) -> Tensor:
    """Complex numbers as pairs of their parts, along a new last axis; a copy."""
    from weft.ops.view.primitives import stack  # which builds on this module

    if kind(x.dtype) != "c":
        raise DtypeError("view_as_real", f"dtype must be complex, got {x.dtype.name}")
    return stack([real_part(x), imaginary_part(x)], axis=-1)


@published("(weft.tensor([[1.0, 2.0], [3.0, -4.0]])) -> tensor([1.+2.j, 3.-4.j])")
def view_as_complex(x: Tensor, /) -> Tensor:
    """Pairs along the last axis as complex numbers; a copy."""
    if kind(x.dtype) != "f" or x.ndim == 0 or x.shape[-1] != 2:
        raise ShapeError("view_as_complex", f"needs floats with a last axis of 2, got {type_of(x)}")
    return make_complex(x[..., 0], x[..., 1])


@published("(weft.tensor([1.0, 2.0]), weft.tensor([0.0, 0.0])) -> tensor([1.+0.j, 2.+0.j])")
def polar(abs: Tensor, angle: Tensor, /) -> Tensor:
    """Complex numbers from their distances from 0 and their angles."""
    from weft.ops.trigonometric import cos, sin  # which build on this module

    return make_complex(abs * cos(angle), abs * sin(angle))


@published("(weft.tensor([1.0, 3.0]), weft.tensor([2.0, -4.0])) -> tensor([1.+2.j, 3.-4.j])")
def complex(real: Tensor, imag: Tensor, /) -> Tensor:
    """Complex numbers from their real and imaginary parts."""
    return make_complex(real, imag)

"""Convolutions with a bias, rounded once: ``conv`` of half precision whose sums are not stored before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import DType, bfloat16, float16, float32
from weft.base.shapes import size_of
from weft.errors import DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.affine import HALVES
from weft.ops.arithmetic import add
from weft.ops.batching import move_axis
from weft.ops.conv.kernel import Ints, Padding
from weft.ops.conv.primitive import conv, input_gradient, weight_gradient
from weft.ops.factors import Factors, Types, of_convolution
from weft.ops.families import lowered, primitive
from weft.ops.op import Array, Attrs, Op, Sample, Tensor
from weft.ops.reduce import reduce_sum
from weft.ops.samples import real_array
from weft.ops.select import cast
from weft.ops.view.primitives import broadcast_to, permute, reshape


def _halves_type(x: TensorType, w: TensorType, **attrs: Any) -> TensorType:
    if x.dtype not in HALVES:
        raise DtypeError("conv_halves", f"both sides must be of half precision, got {x} and {w}")
    return TensorType(conv.type_rule(x, w, **attrs).shape, float32)


def _convolve_halves(
    x: Array, w: Array, *, stride: Ints, padding: Padding, dilation: Ints, input_dilation: Ints, groups: int
) -> Array:
    out: Array = conv.eval(
        x.astype(float32), w.astype(float32), stride=stride, padding=padding, dilation=dilation,
        input_dilation=input_dilation, groups=groups,
    )  # fmt: skip
    return out


def _plain(rank: int, **given: Any) -> Attrs:
    own = {"stride": (1,) * rank, "padding": ((0, 1),) * rank, "dilation": (1,) * rank}
    return {**own, "input_dilation": (1,) * rank, "groups": 1, **given}


def _arrays(dtype: DType | str, *shapes: tuple[int, ...]) -> tuple[Array, ...]:
    return tuple([real_array(shape, seed=i).astype(dtype) for i, shape in enumerate(shapes)])


conv_halves: Op = lowered(
    "conv_halves",
    type_rule=_halves_type,
    eval=_convolve_halves,
    samples=lambda: [
        Sample(_arrays(float16, (2, 3, 5), (4, 3, 3)), _plain(1), smooth=False),
        Sample(_arrays(bfloat16, (2, 4, 5, 6), (6, 2, 3, 2)), _plain(2, groups=2), smooth=False),
    ],
    products=lambda x, w: size_of(w[1:]),
    factors=of_convolution,
    total=True,
)
"""The convolution of half precision in float32: sums as they are before they are rounded."""


def _type(x: TensorType, w: TensorType, z: TensorType, **attrs: Any) -> TensorType:
    out: TensorType = conv.type_rule(x, w, **attrs)
    if z.shape != (out.shape[1],):
        raise ShapeError("conv_add", f"what is added must be a number for each output channel, got {z}")
    if z.dtype != out.dtype:
        raise DtypeError("conv_add", f"dtypes must be equal, got {out.dtype.name} and {z.dtype.name}")
    return out


def _evaluate(
    x: Array,
    w: Array,
    z: Array,
    *,
    stride: Ints,
    padding: Padding,
    dilation: Ints,
    input_dilation: Ints,
    groups: int,
) -> Array:
    wide = [a.astype(float32) for a in (x, w, z)] if x.dtype in HALVES else [x, w, z]
    sums = conv.eval(
        *wide[:2], stride=stride, padding=padding, dilation=dilation, input_dilation=input_dilation,
        groups=groups,
    )  # fmt: skip
    total: Array = sums + wide[2].reshape(-1, *(1,) * (x.ndim - 2))
    return total.astype(x.dtype) if x.dtype in HALVES else total


def _for_channels(z: Tensor, rank: int) -> Tensor:
    return reshape(z, shape=(*z.shape, *(1,) * rank))


def _add(x: Tensor, w: Tensor, z: Tensor, **attrs: Any) -> Tensor:
    z = _for_channels(z, x.ndim - 2)
    if x.dtype not in HALVES:
        return add(conv(x, w, **attrs), z)
    sums = conv_halves(x, w, **attrs)
    z = broadcast_to(z, shape=sums.shape)  # cast when it is read: by itself that would be a kernel
    return cast(add(sums, cast(z, dtype=float32)), dtype=x.dtype)


def _z_gradient(g: Tensor, z_type: TensorType) -> Tensor:
    return reduce_sum(g, axes=(0, *range(2, g.ndim)), keepdims=False)


def _jvp(primals: Sequence[Tensor], tangents: Sequence[Tensor | None], out: Tensor, **attrs: Any) -> Tensor:
    (x, w, _), (tx, tw, tz) = primals, tangents
    terms = [conv(x, tw, **attrs)] if tw is not None else []
    if tx is not None and tz is not None:
        terms.append(conv_add(tx, w, tz, **attrs))
    elif tx is not None:
        terms.append(conv(tx, w, **attrs))
    elif tz is not None:
        terms.append(broadcast_to(_for_channels(tz, out.ndim - 2), shape=out.shape))
    return terms[0] if len(terms) == 1 else add(*terms)


def _batch(
    op: Op, size: int, inputs: Sequence[Any], axes: Sequence[int | None], attrs: Attrs
) -> tuple[Any, Any]:
    """The batch goes into the examples if only x has one; else examples are groups of channels."""
    (x, w, z), (x_axis, w_axis, z_axis) = inputs, axes
    if w_axis is None and z_axis is None:
        x = move_axis(x, x_axis, 0)  # type: ignore[arg-type] # one of them has a batch
        out = op(reshape(x, shape=(size * x.shape[1], *x.shape[2:])), w, z, **attrs)
        return reshape(out, shape=(size, x.shape[1], *out.shape[1:])), 0
    x, w, z = (_with_batch(v, axis, size) for v, axis in zip(inputs, axes, strict=True))
    x = permute(x, axes=(1, 0, *range(2, x.ndim)))
    x = reshape(x, shape=(x.shape[0], size * x.shape[2], *x.shape[3:]))
    outputs = w.shape[1]
    w, z = reshape(w, shape=(size * outputs, *w.shape[2:])), reshape(z, shape=(size * outputs,))
    out = op(x, w, z, **{**attrs, "groups": size * attrs["groups"]})
    return reshape(out, shape=(out.shape[0], size, outputs, *out.shape[2:])), 1


def _with_batch(x: Tensor, axis: int | None, size: int) -> Tensor:
    return move_axis(x, axis, 0) if axis is not None else broadcast_to(x, shape=(size, *x.shape))


def _factors(inputs: Types, outputs: Types, **attrs: Any) -> Factors:
    found = of_convolution(inputs[:2], outputs, **attrs)
    return Factors((*found.inputs, (found.outputs[0][1],)), found.outputs, found.folds, (2,))


def _samples() -> list[Sample]:
    double = "float64"
    return [
        Sample(_arrays(double, (2, 3, 5), (4, 3, 3), (4,)), _plain(1)),
        Sample(_arrays(double, (2, 4, 5, 6), (6, 2, 3, 2), (6,)), _plain(2, groups=2, stride=(2, 1))),
        Sample(_arrays(double, (1, 2, 3, 3, 2), (2, 2, 2, 2, 2), (2,)), _plain(3)),
        Sample(_arrays(double, (0, 3, 5), (4, 3, 3), (4,)), _plain(1)),
        Sample(_arrays(float16, (1, 2, 4), (2, 2, 3), (2,)), _plain(1), smooth=False),
        Sample(_arrays(bfloat16, (2, 3, 6, 5), (4, 3, 3, 3), (4,)), _plain(2), smooth=False),
    ]


conv_add: Op = primitive(
    "conv_add",
    type_rule=_type,
    eval=_evaluate,
    decomposition=_add,
    vjp=(input_gradient, weight_gradient, _z_gradient),
    jvp=_jvp,
    batch=_batch,
    samples=_samples,
    products=lambda x, w, z: size_of(w[1:]),
    factors=_factors,
    total=True,
)
"""A convolution with a number added for each output channel, rounded once."""

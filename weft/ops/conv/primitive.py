"""Convolution over any number of axes.

There is one primitive. Its gradients by input and by weight are convolutions again, with stride and
dilation in exchanged roles, so it is closed under differentiation to any order; the transposed
convolution is the same primitive with a dilated input. The NumPy kernel stands in ``kernel``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import kind
from weft.base.shapes import size_of
from weft.errors import DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import move_axis
from weft.ops.conv.kernel import Ints, Padding, convolve, dilated_size, output_size
from weft.ops.factors import of_convolution
from weft.ops.families import linear
from weft.ops.op import Array, Attrs, Op, Sample, Tensor, type_of
from weft.ops.samples import complex_array, int_array, real_array
from weft.ops.view.primitives import permute, reshape
from weft.ops.view.slices import flip_axes


def check_types(op: str, x: TensorType, w: TensorType, groups: int) -> None:
    """Raise in the name of op if x and w cannot be convolved."""
    if x.ndim != w.ndim or x.ndim < 2:
        raise ShapeError(
            op, f"input and weight must be (N, C, *S) and (O, C, *K) of one rank, got {x} and {w}"
        )
    if x.dtype != w.dtype:
        raise DtypeError(op, f"dtypes must be equal, got {x.dtype.name} and {w.dtype.name}")
    if kind(x.dtype) == "b":
        raise DtypeError(op, f"dtype must be numeric, got {x.dtype.name}")
    if w.shape[0] % groups:
        raise ShapeError(op, f"output channels must be a multiple of groups, got {w} in {groups} groups")
    if x.shape[1] != w.shape[1] * groups:
        expected = f"{w.shape[1]} in each of {groups} groups" if groups > 1 else str(w.shape[1])
        message = f"input channels must be {expected} as the weight says, got {x} and {w}"
        is_last = x.shape[-1] == w.shape[1] * groups
        hint = "channels come before sizes: x.movedim(-1, 1)" if is_last else None
        raise ShapeError(op, message, hint=hint, clash=(x.shape[1], w.shape[1] * groups))


def _conv_type(
    x: TensorType,
    w: TensorType,
    *,
    stride: Ints,
    padding: Padding,
    dilation: Ints,
    input_dilation: Ints,
    groups: int,
) -> TensorType:
    check_types("conv", x, w, groups)
    axes = zip(x.shape[2:], w.shape[2:], stride, padding, dilation, input_dilation, strict=True)
    sizes = (output_size(n, k, s, lo, hi, d, e) for n, k, s, (lo, hi), d, e in axes)
    return TensorType((x.shape[0], w.shape[0], *sizes), x.dtype)


def swap_channels(w: Tensor, groups: int) -> Tensor:
    """A weight with input and output channels of each group exchanged, (O, C / groups) to (C, O / groups)."""
    outputs, channels, *taps = w.shape
    w = reshape(w, shape=(groups, outputs // groups, channels, *taps))
    w = permute(w, axes=(0, 2, 1, *range(3, w.ndim)))
    return reshape(w, shape=(groups * channels, outputs // groups, *taps))


def conjugate(x: Tensor) -> Tensor:
    """x, conjugated if it is complex."""
    return x.conj() if x.dtype.kind == "c" else x


def input_gradient(
    g: Tensor,
    w: Tensor,
    x_type: TensorType,
    stride: Ints,
    padding: Padding,
    dilation: Ints,
    input_dilation: Ints,
    groups: int,
) -> Tensor:
    """The gradient of a convolution by its input."""
    pads = []
    axes = zip(
        x_type.shape[2:], g.shape[2:], w.shape[2:], stride, padding, dilation, input_dilation, strict=True
    )
    for size, positions, taps, s, (low, _), d, e in axes:
        before = (taps - 1) * d - low
        after = (size - 1) * e + dilated_size(taps, d) - dilated_size(positions, s) - before
        pads.append((before, after))
    turned = flip_axes(swap_channels(conjugate(w), groups), range(2, w.ndim))
    return conv(
        g,
        turned,
        stride=input_dilation,
        padding=tuple(pads),
        dilation=dilation,
        input_dilation=stride,
        groups=groups,
    )


def weight_gradient(
    g: Tensor,
    x: Tensor,
    w_type: TensorType,
    stride: Ints,
    padding: Padding,
    dilation: Ints,
    input_dilation: Ints,
    groups: int,
) -> Tensor:
    """The gradient of a convolution by its weight."""
    pads = []
    axes = zip(
        x.shape[2:], g.shape[2:], w_type.shape[2:], stride, padding, dilation, input_dilation, strict=True
    )
    for size, positions, taps, s, (low, _), d, e in axes:
        after = (taps - 1) * d + dilated_size(positions, s) - dilated_size(size, e) - low
        pads.append((low, after))
    n, outputs, channels = x.shape[0], *w_type.shape[:2]
    x = reshape(conjugate(x), shape=(n, groups, channels, *x.shape[2:]))
    x = permute(x, axes=(2, 1, 0, *range(3, x.ndim)))
    x = reshape(x, shape=(channels, groups * n, *x.shape[3:]))
    g = reshape(g, shape=(n, groups, outputs // groups, *g.shape[2:]))
    g = permute(g, axes=(1, 2, 0, *range(3, g.ndim)))
    g = reshape(g, shape=(outputs, n, *g.shape[3:]))
    out = conv(
        x,
        g,
        stride=dilation,
        padding=tuple(pads),
        dilation=stride,
        input_dilation=input_dilation,
        groups=groups,
    )
    return permute(out, axes=(1, 0, *range(2, out.ndim)))


def _batch_conv(
    op: Op, size: int, inputs: Sequence[Any], axes: Sequence[int | None], attrs: Attrs
) -> tuple[Any, Any]:
    """The batch goes into the examples if only x has one, else into the groups or their outputs."""
    (x, w), (x_axis, w_axis) = inputs, axes
    if w_axis is None:
        assert x_axis is not None
        x = move_axis(x, x_axis, 0)
        out = op(reshape(x, shape=(size * x.shape[1], *x.shape[2:])), w, **attrs)
        return reshape(out, shape=(size, x.shape[1], *out.shape[1:])), 0
    w, groups = move_axis(w, w_axis, 0), attrs["groups"]
    if x_axis is None:
        return _batch_weight(op, x, w, attrs), 0
    x = move_axis(x, x_axis, 1)
    x = reshape(x, shape=(x.shape[0], size * x.shape[2], *x.shape[3:]))
    outputs = w.shape[1]
    w = reshape(w, shape=(size * outputs, *w.shape[2:]))
    out = op(x, w, **{**attrs, "groups": size * groups})
    return reshape(out, shape=(out.shape[0], size, outputs, *out.shape[2:])), 1


def _batch_weight(op: Op, x: Tensor, w: Tensor, attrs: Attrs) -> Tensor:
    """One input with a batch of weights: outputs are numbered by group, then example, then channel."""
    groups: int = attrs["groups"]
    size, outputs = w.shape[:2]
    each = outputs // groups
    w = reshape(w, shape=(size, groups, each, *w.shape[2:]))
    w = permute(w, axes=(1, 0, *range(2, w.ndim)))
    out = op(x, reshape(w, shape=(groups * size * each, *w.shape[3:])), **attrs)
    out = reshape(out, shape=(out.shape[0], groups, size, each, *out.shape[2:]))
    out = move_axis(out, 2, 0)
    return reshape(out, shape=(size, out.shape[1], outputs, *out.shape[4:]))


def _conv_attrs(
    rank: int,
    stride: int = 1,
    padding: tuple[int, int] = (0, 0),
    dilation: int = 1,
    input_dilation: int = 1,
    groups: int = 1,
) -> Attrs:
    return {
        "stride": (stride,) * rank,
        "padding": (padding,) * rank,
        "dilation": (dilation,) * rank,
        "input_dilation": (input_dilation,) * rank,
        "groups": groups,
    }


def _conv_samples() -> list[Sample]:
    def pair(x: Sequence[int], w: Sequence[int]) -> tuple[Array, Array]:
        return real_array(x), real_array(w, seed=1)

    uneven = {
        "stride": (2, 1),
        "padding": ((1, 0), (-1, 2)),
        "dilation": (1, 2),
        "input_dilation": (1, 3),
        "groups": 1,
    }
    return [
        Sample(pair((2, 3, 5), (4, 3, 3)), _conv_attrs(1, padding=(1, 1))),
        Sample(pair((2, 3, 6, 5), (2, 3, 3, 2)), _conv_attrs(2, stride=2, padding=(1, 2))),
        Sample(pair((1, 2, 4, 6), (3, 2, 2, 3)), uneven),
        Sample(pair((2, 4, 6), (6, 2, 2)), _conv_attrs(1, dilation=2, groups=2)),
        Sample(pair((2, 3, 4, 4), (3, 1, 3, 3)), _conv_attrs(2, padding=(1, 1), groups=3)),
        Sample(pair((1, 2, 3, 3, 2), (2, 2, 2, 2, 2)), _conv_attrs(3, padding=(1, 0))),
        Sample(pair((2, 4, 4), (1, 4, 3)), _conv_attrs(1, padding=(2, 2), input_dilation=2)),
        Sample(pair((2, 3, 5), (4, 3, 1)), _conv_attrs(1, stride=2)),
        Sample(pair((0, 3, 5), (4, 3, 3)), _conv_attrs(1)),
        Sample(pair((2, 0, 5), (4, 0, 3)), _conv_attrs(1)),
        Sample(pair((2, 3, 2), (4, 3, 3)), _conv_attrs(1)),
        Sample((complex_array((1, 2, 4)), complex_array((2, 2, 3), seed=1)), _conv_attrs(1, padding=(1, 1))),
        Sample((real_array((5, 2, 3)).T, real_array((3, 2, 2)).transpose(2, 1, 0)), _conv_attrs(1)),
        Sample((int_array((1, 2, 4)), int_array((2, 2, 3), seed=1)), _conv_attrs(1)),
        Sample(tuple(a.astype("float16") for a in pair((1, 2, 4), (2, 2, 3))), _conv_attrs(1), smooth=False),
    ]


conv: Op = linear(
    "conv",
    type_rule=_conv_type,
    eval=convolve,
    factors=of_convolution,
    transpose=(input_gradient, weight_gradient),
    batch=_batch_conv,
    precision="low",
    samples=_conv_samples,
    products=lambda x, w: size_of(w[1:]),
)


def convolve_types(op: str, x: Tensor, w: Tensor, attrs: Attrs) -> TensorType:
    """The type of ``conv(x, w, **attrs)``, or an error in the name of op where the window does not fit."""
    check_types(op, type_of(x), type_of(w), attrs["groups"])
    out = _conv_type(type_of(x), type_of(w), **attrs)
    if 0 in out.shape[2:]:
        raise ShapeError(
            op, f"the window must fit into the padded input, got {type_of(x)} and weight {type_of(w)}"
        )
    return out

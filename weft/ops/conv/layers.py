"""The convolutions that networks use: one, two and three axes, and their transposes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from weft.base.shapes import PerAxis, Shape
from weft.base.size_bounds import lower_bound, same_size
from weft.base.sizes import Size
from weft.errors import ArgumentError, DomainError, ShapeError
from weft.ops.affine import HALVES
from weft.ops.conv.biased import conv_add
from weft.ops.conv.kernel import Ints, Padding
from weft.ops.conv.primitive import conv, convolve_types, swap_channels
from weft.ops.op import Sample, Samples, Tensor, type_of
from weft.ops.samples import real_array
from weft.ops.select import same_dtype
from weft.ops.variants import of_ranks
from weft.ops.view.primitives import reshape
from weft.ops.view.slices import flip_axes, slice_axis


def per_axis(op: str, name: str, value: Any, rank: int, least: int) -> Ints:
    """An int for each axis, from one int or one for each."""
    items = value if isinstance(value, tuple | list) else (value,) * rank
    try:
        out = tuple(operator.index(v) for v in items)
    except TypeError:
        raise ArgumentError(op, f"{name} must be an int or {rank} of them, got {value!r}") from None
    if len(out) == 1:
        out *= rank
    if len(out) != rank:
        raise ArgumentError(op, f"{name} must be an int or {rank} of them, got {value!r}")
    if any(v < least for v in out):
        raise DomainError(op, f"{name} must be at least {least}, got {value!r}")
    return out


def _check_groups(op: str, groups: int) -> int:
    (count,) = per_axis(op, "groups", groups, 1, 1)
    return count


def _conv(
    op: str,
    rank: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis | str = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """The convolution (windows are not turned around) of x (N, C, {sizes}) with a weight (O, C / groups, *K).

    ``padding`` is a number of zeros on both sides of each axis, "valid" for none, or "same" to keep the size.
    """
    x, w, *rest = same_dtype(op, x, weight, *([] if bias is None else [bias]))
    _check_rank(op, rank, x, w)
    stride, dilation = (per_axis(op, "stride", stride, rank, 1), per_axis(op, "dilation", dilation, rank, 1))
    attrs = {
        "stride": stride,
        "padding": _padding(op, rank, padding, stride, dilation, w.shape[2:]),
        "dilation": dilation,
        "input_dilation": (1,) * rank,
        "groups": _check_groups(op, groups),
    }
    return _finish(op, rank, x, w, rest, attrs)


def _finish(op: str, rank: int, x: Tensor, w: Tensor, rest: list[Any], attrs: dict[str, Any]) -> Tensor:
    """Convolve, for one example without a batch axis too, and add the bias if there is one."""
    single = x.ndim == rank + 1
    if single:
        x = reshape(x, shape=(1, *x.shape))
    out_type = convolve_types(op, x, w, attrs)
    for bias in rest:
        if bias.shape != (out_type.shape[1],):
            expected = f"one value for each of {out_type.shape[1]} output channels"
            raise ShapeError(op, f"bias must have {expected}, got {type_of(bias)}")
    if rest and x.dtype.itemsize == 2 and x.dtype in HALVES:
        out = conv_add(x, w, *rest, **attrs)
    else:
        out = conv(x, w, **attrs)
        for bias in rest:
            out = out + reshape(bias, shape=(*bias.shape, *(1,) * rank))
    return reshape(out, shape=out_type.shape[1:]) if single else out


def _check_rank(op: str, rank: int, x: Tensor, w: Tensor) -> None:
    if x.ndim not in (rank + 1, rank + 2):
        raise ShapeError(op, f"the input must have {rank + 1} or {rank + 2} axes, got {type_of(x)}")
    if w.ndim != rank + 2:
        raise ShapeError(op, f"the weight must have {rank + 2} axes, got {type_of(w)}")


def _padding(op: str, rank: int, padding: PerAxis | str, stride: Ints, dilation: Ints, taps: Ints) -> Padding:
    if padding == "valid":
        return ((0, 0),) * rank
    if padding == "same":
        if any(s != 1 for s in stride):
            raise DomainError(op, f"stride must be 1 where padding is 'same', got {stride}")
        reach = [(k - 1) * d for k, d in zip(taps, dilation, strict=True)]
        return tuple((r // 2, r - r // 2) for r in reach)
    if isinstance(padding, str):
        raise DomainError(op, f"padding must be ints, 'same' or 'valid', got {padding!r}")
    return tuple((p, p) for p in per_axis(op, "padding", padding, rank, 0))


def _conv_transpose(
    op: str,
    rank: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
) -> Tensor:
    """The transpose of ``conv``: x (N, C, {sizes}) and a weight (C, O / groups, *K) give (N, O, larger)."""
    x, w, *rest = same_dtype(op, x, weight, *([] if bias is None else [bias]))
    _check_rank(op, rank, x, w)
    stride, dilation = (per_axis(op, "stride", stride, rank, 1), per_axis(op, "dilation", dilation, rank, 1))
    padding, extra = (
        per_axis(op, "padding", padding, rank, 0),
        per_axis(op, "output_padding", output_padding, rank, 0),
    )
    if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        raise DomainError(op, f"output_padding must be less than stride or dilation, got {output_padding!r}")
    count = _check_groups(op, groups)
    if w.shape[0] % count:
        raise ShapeError(
            op, f"input channels must be a multiple of groups, got weight {type_of(w)} in {count} groups"
        )
    reach = [(k - 1) * d for k, d in zip(w.shape[2:], dilation, strict=True)]
    attrs = {
        "stride": (1,) * rank,
        "padding": tuple((r - p, r - p + e) for r, p, e in zip(reach, padding, extra, strict=True)),
        "dilation": dilation,
        "input_dilation": stride,
        "groups": count,
    }
    out = _finish(op, rank, x, flip_axes(swap_channels(w, count), range(2, w.ndim)), rest, attrs)
    more = [r - 2 * p + e + 1 for r, p, e in zip(reach, padding, extra, strict=True)]
    return _without_empty(out, x.shape[x.ndim - rank :], stride, more)


def _without_empty(out: Tensor, sizes: Shape, stride: Ints, more: Sequence[int]) -> Tensor:
    """What a transposed convolution gives, also for no elements: (n - 1) * stride and some more.

    The convolution that computes it sees the border of what is empty; an open size may be 0, too.
    """
    for axis, (n, step, rest) in enumerate(zip(sizes, stride, more, strict=True), out.ndim - len(sizes)):
        length = (n - 1) * step + rest
        low = lower_bound(length) if isinstance(n, Size) or n == 0 else None
        if low is not None and low >= 0 and not same_size(length, out.shape[axis]):
            out = slice_axis(out, axis, 0, length)
    return out


def _samples(rank: int) -> Samples:
    def generate() -> list[Sample]:
        sizes, taps = (6, 5, 4)[:rank], (3, 2, 2)[:rank]
        x, w, b = real_array((2, 4, *sizes)), real_array((6, 4, *taps), seed=1), real_array((6,), seed=2)
        return [
            Sample((x, w, b), {"padding": 1}),
            Sample((x, w), {"stride": 2, "padding": "valid"}),
            Sample((x[0], w), {"padding": "same", "dilation": (2, 1, 2)[:rank]}),
            Sample((x, w[:, :2], b), {"groups": 2, "stride": (1, 2, 1)[:rank]}),
        ]

    return generate


def _transposed_samples(rank: int) -> Samples:
    def generate() -> list[Sample]:
        sizes, taps = (3, 4, 2)[:rank], (3, 2, 2)[:rank]
        x, w, b = real_array((2, 4, *sizes)), real_array((4, 3, *taps), seed=1), real_array((3,), seed=2)
        return [
            Sample((x, w, b)),
            Sample((x, w), {"stride": 2, "padding": 1, "output_padding": 1}),
            Sample((x[0], w), {"stride": (1, 2, 3)[:rank], "dilation": 2}),
            Sample((x, w), {"groups": 2, "stride": 2}),
        ]

    return generate


conv1d, conv2d, conv3d = of_ranks(
    _conv,
    examples={
        1: "(weft.tensor([[[1.0, 2.0, 3.0, 4.0]]]), weft.tensor([[[1.0, -1.0]]])) -> "
        "tensor([[[-1., -1., -1.]]])",
        2: "(weft.ones((8, 3, 32, 32)), weft.ones((16, 3, 5, 5)), stride=2, padding=2).shape -> "
        "(8, 16, 16, 16)",
        3: '(weft.ones((1, 2, 4, 5, 6)), weft.ones((3, 2, 3, 3, 3)), padding="same").shape -> '
        "(1, 3, 4, 5, 6)",
    },
    samples=_samples,
    whole=("x",),
    precision="low",
)
conv_transpose1d, conv_transpose2d, conv_transpose3d = of_ranks(
    _conv_transpose,
    examples={
        1: "(weft.tensor([[[1.0, 2.0]]]), weft.tensor([[[1.0, 10.0]]]), stride=2) -> "
        "tensor([[[ 1., 10.,  2., 20.]]])",
        2: "(weft.ones((1, 8, 7, 7)), weft.ones((8, 4, 2, 2)), stride=2).shape -> (1, 4, 14, 14)",
        3: "(weft.ones((1, 2, 2, 2, 2)), weft.ones((2, 1, 3, 3, 3)), stride=2).shape -> (1, 1, 5, 5, 5)",
    },
    samples=_transposed_samples,
    whole=("x",),
    precision="low",
)

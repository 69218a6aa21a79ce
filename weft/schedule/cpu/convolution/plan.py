"""What a convolution is made of, its input with the zeros that windows reach, and which way suits it."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

from weft.base.dtypes import DType
from weft.base.records import dataclass
from weft.base.shapes import size_of
from weft.base.size_bounds import size_max, size_min
from weft.base.sizes import Size
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.ops.conv.kernel import dilated_size
from weft.schedule.arrays import Array, Shape
from weft.schedule.cpu.machine import Machine
from weft.schedule.cpu.matmul.plan import GATHER, known
from weft.schedule.extents import sum_dtype
from weft.schedule.writer import Writer, unflattened

FLAT = 2048  # positions that are counted through at most
SUMS_BYTES = 1 << 21  # that their sums take on the stack at most
WIDE = 192  # lines of so many positions fill vectors well enough by themselves
FLAT_WASTE = 1.6  # lanes computed for each that is kept, above which lines are not counted through


@dataclass(frozen=True)
class Convolution:
    """A convolution of x (N, groups * C, *S) with w (groups * O, C, *T), giving (N, groups * O, *P).

    Attributes:
        x, w: as arrays with any strides.
        shape: of the result.
        groups: of channels.
        stride, dilation: of the windows.
        low, high: zeros before and after each axis that windows reach; at least 0.
        spread: how far apart elements of x stand.
        dtype: of the result.
    """

    x: Array
    w: Array
    shape: Shape
    groups: int
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[Any, ...]
    high: tuple[Any, ...]
    spread: tuple[int, ...]
    dtype: DType

    @staticmethod
    def of(x: Array, w: Array, out: Array, attrs: Any) -> Convolution:
        """The convolution of an op's attributes; what negative padding cuts off is cut off of x."""
        stride, dilation, spread = attrs["stride"], attrs["dilation"], attrs["input_dilation"]
        low, high, offset, shape = [], [], x.offset, list(x.shape)
        for axis, (before, _) in enumerate(attrs["padding"]):
            at = axis + 2
            if before < 0 and spread[axis] == 1:
                offset = offset + -before * x.strides[at]
                shape[at] = shape[at] + before
            reached = (out.shape[at] - 1) * stride[axis] + dilated_size(w.shape[at], dilation[axis])
            behind = reached - before - dilated_size(x.shape[at], spread[axis])
            low.append(before if before > 0 or spread[axis] > 1 else 0)
            high.append(_at_least_zero(behind) if spread[axis] == 1 else behind)
        view = Array(x.buffer, tuple(shape), x.strides, offset)
        groups = attrs["groups"]
        pads = tuple(low), tuple(high)
        return Convolution(view, w, out.shape, groups, stride, dilation, *pads, spread, out.dtype)

    @property
    def rank(self) -> int:
        """The number of axes that windows slide over."""
        return len(self.stride)

    @property
    def channels(self) -> Any:
        """Input channels of a group."""
        return self.w.shape[1]

    @property
    def outputs(self) -> Any:
        """Output channels of a group."""
        return self.w.shape[0] // self.groups

    @property
    def taps(self) -> Shape:
        """Sizes of a window."""
        return self.w.shape[2:]

    @property
    def positions(self) -> Shape:
        """Sizes of the result along the axes of windows."""
        return self.shape[2:]

    @property
    def is_padded(self) -> bool:
        """Whether windows reach zeros around or between the elements of x."""
        pads = (*self.low, *self.high)
        return any(e > 1 for e in self.spread) or any(isinstance(p, Size) or p != 0 for p in pads)

    @property
    def padded_sizes(self) -> Shape:
        """Sizes of x with the zeros, along the axes of windows."""
        sizes = zip(self.x.shape[2:], self.low, self.high, self.spread, strict=True)
        return tuple(dilated_size(n, e) + lo + hi for n, lo, hi, e in sizes)


def _at_least_zero(x: Any) -> Any:
    from weft.base.size_bounds import positive

    return positive(x)


def counts_through(conv: Convolution, strides: Shape) -> bool:
    """Whether positions along the last two axes are counted through as they lie in the input."""
    if conv.rank < 2 or conv.stride[-2:] != (1, 1):
        return False
    if any(
        isinstance(s, Size) for s in (*conv.positions[-2:], conv.outputs)
    ):  # sums have a place of their own
        return False
    line = strides[-2]
    if (
        isinstance(line, Size)
        or isinstance(strides[-1], Size)
        or strides[-1] != 1
        or line < conv.positions[-1]
    ):
        return False
    height, width = conv.positions[-2:]
    if width >= WIDE or ((height - 1) * line + width) / (height * width) >= FLAT_WASTE:
        return False
    return line_blocks(conv, strides) is not None


def line_blocks(conv: Convolution, strides: Shape) -> int | None:
    """Into how many equal parts lines are cut, so that each has few positions; None where there are none."""
    if conv.rank < 2 or isinstance(conv.positions[-2], Size) or isinstance(strides[-2], Size):
        return None
    height = conv.positions[-2]
    most = min(FLAT, SUMS_BYTES // (sum_dtype(conv.x.dtype).itemsize * known(conv.outputs)))
    counts = (b for b in range(1, height + 1) if height % b == 0 and height // b * strides[-2] <= most)
    return next(counts, None)


def prefers_positions(conv: Convolution, machine: Machine) -> bool:
    """Whether positions in lanes take fewer cycles than output channels in lanes."""
    lanes = machine.lanes(sum_dtype(conv.x.dtype))
    depth = known(conv.channels) * prod(map(known, conv.taps))
    n, outputs, positions = known(conv.shape[0]), known(conv.outputs), [*map(known, conv.positions)]
    if not positions:
        return False
    strides = (*conv.padded_sizes[-1:], 1) if conv.is_padded else conv.x.strides[-2:]
    if counts_through(conv, strides):
        vectors = ceil(((positions[-2] - 1) * strides[-2] + positions[-1]) / lanes) * prod(positions[:-2])
    else:
        vectors = ceil(positions[-1] / lanes) * prod(positions[:-1])
    by_positions = n * outputs * vectors * depth / 2
    if conv.stride[-1] != 1 or (not conv.is_padded and conv.x.strides[-1] != 1):
        by_positions += n * vectors * lanes * depth * GATHER
    by_channels = n * prod(positions) * ceil(outputs / lanes) * depth / 2
    by_channels += depth * outputs * GATHER + n * prod(positions) * outputs * GATHER
    return bool(by_positions < 1.15 * by_channels)  # whose results are scattered


# Zeros around the input and between its elements


def padded(writer: Writer, conv: Convolution) -> Array:
    """x with zeros, in memory of its own; x itself where there are none."""
    if not conv.is_padded:
        return conv.x
    out = writer.temporary((*conv.x.shape[:2], *conv.padded_sizes), conv.x.dtype, "z")
    with writer.kernel("pad", [conv.x], [out]) as kernel:
        b, (source,), (target,) = kernel.builder, kernel.reads, kernel.writes
        with b.parallel(size_of(out.shape[:2])) as plane:
            i, c = unflattened(b, plane, out.shape[:2])
            write_padded(b, conv, source.row(i).row(c), target.row(i).row(c))
    return out


def write_padded(b: Builder, conv: Convolution, source: Array, target: Array) -> None:
    """Fill a dense array with zeros, then put the elements of another where they belong.

    The last axes of both are those that windows slide over; those before them are equal.
    """
    with b.vector(target.size) as i:
        b.store(target.buffer, target.flat(i), 0)
    lead = source.ndim - conv.rank
    _write_lines(b, conv, source, target, lead, [], [])


def _write_lines(
    b: Builder,
    conv: Convolution,
    source: Array,
    target: Array,
    lead: int,
    at: Sequence[Index],
    to: Sequence[Index],
) -> None:
    axis = len(at)
    if axis == source.ndim:
        b.store(target.buffer, target.at(*to), b.load(source.buffer, source.at(*at)))
        return
    low: Any = 0
    spread, size = 1, source.shape[axis]
    if axis >= lead:
        low, spread = conv.low[axis - lead], conv.spread[axis - lead]
        first, stop = _inside(low, spread, size, target.shape[axis])
    else:
        first, stop = 0, size
    last = axis == source.ndim - 1
    with (b.vector if last else b.loop)(stop - first) as i:
        _write_lines(b, conv, source, target, lead, [*at, i + first], [*to, (i + first) * spread + low])


def _inside(low: Any, spread: int, size: Any, whole: Any) -> tuple[Any, Any]:
    """The first element of an axis that lies in the padded one, and where they stop doing so."""
    if spread == 1:
        return 0, size
    return size_max(0, -(low // spread)), size_min(size, -(-(whole - low) // spread))

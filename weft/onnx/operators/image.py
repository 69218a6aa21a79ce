"""Images: sampling at places, channels as pixels, pools over regions of interest, boxes that overlap."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

import weft
from weft import Tensor
from weft.base.shapes import size_of
from weft.onnx.operators.registry import Call, all_inputs, enter_handlers, operator
from weft.onnx.operators.resize import corners, within
from weft.onnx.operators.run_time import places_of

_MODES = {"linear": "bilinear", "cubic": "bicubic"}


@operator("GridSample")
def grid_sample(
    call: Call, x: Tensor, grid: Tensor, *, mode: str = "bilinear", align_corners: int = 0
) -> Any:
    """The values of x at places of a grid."""
    work = x if weft.isdtype(x.dtype, "real floating") else x.astype(grid.dtype)
    mode, padding = _MODES.get(mode, mode), call.attribute("padding_mode", "zeros")
    out = weft.grid_sample(work, grid.astype(work.dtype), mode, padding, bool(align_corners))
    return out.astype(x.dtype)


@operator("DepthToSpace", moves=True)
def depth_to_space(call: Call, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Any:
    """Channels laid out as pixels; "CRD" takes the pixels of a channel from neighbouring ones."""
    if mode == "CRD":
        return weft.pixel_shuffle(x, blocksize)
    (n, channels, height, width), r = x.shape, blocksize
    parts = weft.permute_dims(x.reshape((n, r, r, channels // (r * r), height, width)), (0, 3, 4, 1, 5, 2))
    return parts.reshape((n, channels // (r * r), height * r, width * r))


@operator("SpaceToDepth", moves=True)
def space_to_depth(call: Call, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Any:
    """Blocks of pixels as channels; "CRD" keeps those of a channel together."""
    (n, channels, height, width), r = x.shape, blocksize
    parts = x.reshape((n, channels, height // r, r, width // r, r))
    order = (0, 1, 3, 5, 2, 4) if mode == "CRD" else (0, 3, 5, 1, 2, 4)
    return weft.permute_dims(parts, order).reshape((n, channels * r * r, height // r, width // r))


# Pools over regions of interest: boxes of an image, each brought to one size


@operator("RoiAlign")
def roi_align(call: Call, x: Tensor, rois: Tensor, batch_indices: Tensor) -> Any:
    """The mean (or the largest value) of points in each cell of each box, read between elements."""
    transform = call.attribute("coordinate_transformation_mode", "half_pixel")
    half = call.version >= 16 and transform == "half_pixel"
    scaled = rois * call.attribute("spatial_scale", 1.0) - (0.5 if half else 0.0)
    starts, lengths = scaled[:, 1::-1], (scaled[:, 2:] - scaled[:, :2])[:, ::-1]  # down, then across
    lengths = lengths if half else weft.maximum(lengths, 1.0)
    boxes = Boxes(
        weft.take(x, batch_indices, axis=0),
        starts,
        lengths,
        (call.attribute("output_height", 1), call.attribute("output_width", 1)),
        call.attribute("mode", "avg") == "max",
    )
    points = call.attribute("sampling_ratio", 0)
    return _fixed(boxes, points) if points > 0 else _adaptive(boxes)


class Boxes(NamedTuple):
    """Boxes of images: the image of each (boxes, C, H, W), where it starts, how long it is, its cells."""

    images: Tensor
    starts: Tensor
    lengths: Tensor
    cells: tuple[int, int]
    largest: bool


def _fixed(boxes: Boxes, points: int) -> Any:
    """As many points along each axis of every cell."""
    shares = (weft.arange(points, dtype=boxes.starts.dtype) + 0.5) / points
    found = _sample(boxes, (shares, shares))
    return weft.max(found, axis=(3, 5)) if boxes.largest else weft.mean(found, axis=(3, 5))


def _adaptive(boxes: Boxes) -> Any:
    """About a point for each element: how many there are depends on the box, so they come one by one."""
    cells = weft.asarray(np.array(boxes.cells, np.float32)).astype(boxes.lengths.dtype)
    needed = weft.maximum(weft.ceil(boxes.lengths / cells), 0.0)
    most = weft.max(needed, axis=0).astype(weft.int64)

    def step(i: Tensor, total: Tensor) -> Any:
        at = weft.stack([i // most[1], i % most[1]]).astype(needed.dtype)
        shares = ((at + 0.5) / weft.maximum(needed, 1.0))[:, :, None, None]
        values = _sample(boxes, (shares[:, 0], shares[:, 1]))[:, :, :, 0, :, 0]
        counts = weft.all(at < needed, axis=1)[:, None, None, None]
        if boxes.largest:
            return weft.where(counts, weft.maximum(total, values), total)
        return weft.where(counts, total + values, total)

    shape = (*boxes.images.shape[:2], *boxes.cells)
    start = weft.full(shape, -weft.inf if boxes.largest else 0.0, dtype=boxes.images.dtype)
    total = weft.fori_loop(0, most[0] * most[1], step, start)
    if boxes.largest:
        return weft.where(weft.isinf(total), 0.0, total)  # boxes without a point
    return total / weft.maximum(needed[:, 0] * needed[:, 1], 1.0)[:, None, None, None]


def _sample(boxes: Boxes, shares: tuple[Tensor, Tensor]) -> Any:
    """Values at points that lie at shares of each cell: (boxes, C, cells, points, cells, points)."""
    (down, rows_in), (across, columns_in) = (_axis_points(boxes, k, shares[k]) for k in (0, 1))
    counted = rows_in[:, :, :, None, None] & columns_in[:, None, None]
    places = weft.broadcast_arrays(down[:, :, :, None, None], across[:, None, None])
    found = corners(boxes.images, [at.reshape((at.shape[0], -1)) for at in places])
    total = reduce(weft.maximum if boxes.largest else weft.add, found)
    whole = total.reshape((*total.shape[:2], *counted.shape[1:]))
    return weft.where(counted[:, None], whole, 0.0)


def _axis_points(boxes: Boxes, axis: int, shares: Tensor) -> tuple[Any, Any]:
    """For one axis where each point is, (boxes, cells, points), and which points count."""
    start, length, count = boxes.starts[:, axis], boxes.lengths[:, axis], boxes.cells[axis]
    size = boxes.images.shape[2 + axis]
    cells = weft.arange(count, dtype=start.dtype)[:, None]
    at = start[:, None, None] + (cells + shares) * (length / count)[:, None, None]
    return within(weft, at, size), (at >= -1.0) & weft.less_equal(at, size)


@operator("MaxRoiPool")
def max_roi_pool(call: Call, x: Tensor, rois: Tensor) -> Any:
    """The largest element in each cell of each box; 0 where a cell is empty."""
    boxes, counts = rois[:, 1:] * call.attribute("spatial_scale", 1.0), call.attribute("pooled_shape")
    out = weft.take(x, rois[:, 0].astype(weft.int64), axis=0)
    for axis, count in ((3, counts[1]), (2, counts[0])):
        covered = _cells(boxes[:, 3 - axis], boxes[:, 5 - axis], count, x.shape[axis])
        lines = weft.moveaxis(out, axis, -1)[..., None, :]
        shape = (covered.shape[0], *(1,) * (lines.ndim - 3), *covered.shape[1:])
        found = weft.max(weft.where(covered.reshape(shape), lines, -weft.inf), axis=-1)
        out = weft.moveaxis(found, -1, axis)
    return weft.where(weft.isinf(out), 0.0, out)


def _cells(start: Tensor, end: Tensor, count: int, size: Any) -> Any:
    """Which places of an axis belong to each cell of each box: (boxes, cells, places)."""
    first, last = _rounded(start)[:, None], _rounded(end)[:, None]
    width = weft.maximum(last - first + 1, 1) / count
    cells, places = weft.arange(count, dtype=start.dtype), weft.arange(size, dtype=start.dtype)
    lows, highs = weft.floor(cells * width) + first, weft.ceil((cells + 1) * width) + first
    return (places >= lows[:, :, None]) & (places < highs[:, :, None])


def _rounded(x: Tensor) -> Any:
    """Halves away from zero."""
    return weft.sign(x) * weft.floor(weft.abs(x) + 0.5)


# Boxes that overlap better ones, left out; how many are left only a run tells


@operator("NonMaxSuppression")
def non_max_suppression(call: Call, boxes: Tensor, scores: Tensor, *limits: Any) -> Any:
    """Rows of example, class and box, the best box of a class first; none overlaps a better one too much."""
    most, overlap, lowest = all_inputs(limits, 3)
    classes, count = scores.shape[1:]
    order = weft.argsort(scores, axis=2, descending=True, stable=True)
    ranked = weft.gather(scores, 2, order)
    corners = _corners(boxes, centered=bool(call.attribute("center_point_box", 0)))
    wide = [weft.broadcast_to(side[:, None, :], order.shape) for side in corners]
    rows = [weft.gather(side, 2, order) for side in wide]  # for each class in the order of its scores
    good = weft.ones_like(ranked, dtype=weft.bool) if lowest is None else ranked > lowest.reshape(())
    limit = weft.tensor(0) if most is None else most.reshape(())
    kept = _kept(rows, good, limit, weft.tensor(0.0) if overlap is None else overlap.reshape(()))
    flat = places_of(kept.reshape((size_of(kept.shape),)))
    chosen = weft.take(order.reshape((size_of(order.shape),)), flat, axis=0)
    group = weft.floor_divide(flat, count)
    columns = [weft.floor_divide(group, classes), weft.remainder(group, classes), chosen]
    return weft.stack(columns, axis=1)


def _corners(boxes: Tensor, *, centered: bool) -> list[Tensor]:
    """Lower and upper ends of boxes along both axes, of which a box may have the corners in any order."""
    a, b, c, d = (boxes[..., i] for i in range(4))
    if centered:
        return [b - d / 2, a - c / 2, b + d / 2, a + c / 2]
    return [weft.minimum(a, c), weft.minimum(b, d), weft.maximum(a, c), weft.maximum(b, d)]


def _kept(sides: list[Tensor], good: Tensor, limit: Tensor, overlap: Tensor) -> Tensor:
    """Whether a box stays: one after the other, best first, for all classes at once."""
    top, left, bottom, right = sides
    areas = (bottom - top) * (right - left)
    places = weft.arange(good.shape[2])

    def shared(low: Tensor, high: Tensor, i: Tensor) -> Any:
        ends = weft.minimum(high, weft.take(high, i, axis=2)[..., None])
        return weft.maximum(ends - weft.maximum(low, weft.take(low, i, axis=2)[..., None]), 0.0)

    def step(kept: Tensor, i: Tensor) -> tuple[Tensor, None]:
        both = shared(top, bottom, i) * shared(left, right, i)
        either = areas + weft.take(areas, i, axis=2)[..., None] - both
        close = both > overlap * either
        free = weft.logical_not(weft.any(weft.logical_and(kept, close), axis=2))
        stays: Any = weft.logical_and(free, weft.take(good, i, axis=2))
        stays = weft.logical_and(stays, weft.sum(kept, axis=2) < limit)
        return weft.logical_or(kept, weft.logical_and(stays[..., None], places == i)), None

    kept: Tensor = weft.scan(step, weft.zeros_like(good), places)[0]
    return kept


enter_handlers(
    {
        "AffineGrid": lambda call, theta, size, *, align_corners=0: weft.affine_grid(
            theta, call.ints(size, "size"), bool(align_corners)
        )
    }
)

"""Pools over regions of interest: boxes of an image, each brought to one size."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

import weft
from weft import Tensor
from weft.onnx.operators.registry import Call, operator
from weft.onnx.operators.sampling import corners, within


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

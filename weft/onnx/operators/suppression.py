"""Boxes that overlap better ones, left out; how many are left only a run tells."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.base.shapes import size_of
from weft.onnx.operators.counted import places_of
from weft.onnx.operators.registry import Call, operator


@operator("NonMaxSuppression")
def non_max_suppression(
    call: Call,
    boxes: Tensor,
    scores: Tensor,
    most: Tensor | None = None,
    overlap: Tensor | None = None,
    lowest: Tensor | None = None,
) -> Any:
    """Rows of example, class and box, the best box of a class first; none overlaps a better one too much."""
    classes, count = scores.shape[1:]
    order = weft.argsort(scores, axis=2, descending=True, stable=True)
    ranked = weft.gather(scores, 2, order)
    corners = _corners(boxes, centered=bool(call.attribute("center_point_box", 0)))
    rows = [_in_order(side, order) for side in corners]
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


def _in_order(side: Tensor, order: Tensor) -> Any:
    """A number of each box, for each class in the order of its scores."""
    return weft.gather(weft.broadcast_to(side[:, None, :], order.shape), 2, order)


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

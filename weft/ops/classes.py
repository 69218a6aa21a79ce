"""One class out of many: what a loss on class numbers needs, and its transpose."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.errors import BoundsError, DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.factors import of_class
from weft.ops.families import linear
from weft.ops.op import Array, Op, Sample, no_gradient
from weft.ops.samples import int_array, real_array


def _need_targets(op: str, target: TensorType) -> None:
    if kind(target.dtype) not in "iu":
        raise DtypeError(op, f"class numbers must be integers, got {target.dtype.name}")


def _taken_type(x: TensorType, target: TensorType, *, axis: int, ignore: int) -> TensorType:
    _need_targets("take_class", target)
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    if target.shape != rest:
        raise ShapeError("take_class", f"class numbers must be of shape {rest} for scores {x}, got {target}")
    return TensorType(target.shape, x.dtype)


def _valid_targets(target: Array, classes: int, ignore: int) -> tuple[Array, Array | None]:
    """Class numbers that can be used as indices, and which of them count; None if all do."""
    outside = (target < 0) | (target >= classes)
    if not outside.any():
        kept = target != ignore
        return target, None if kept.all() else kept
    wrong = outside & (target != ignore)
    if wrong.any():
        raise class_error(classes, ignore, target[wrong][0])
    kept = target != ignore
    return np.where(kept, target, 0), kept


def class_error(classes: int, ignore: int, got: Any) -> BoundsError:
    """A class number that stands for no class."""
    return BoundsError("take_class", f"class numbers must be in 0..{classes - 1} or {ignore}, got {int(got)}")


def _take(x: Array, target: Array, *, axis: int, ignore: int) -> Array:
    index, kept = _valid_targets(target, x.shape[axis], ignore)
    if x.size == 0:
        return np.zeros(target.shape, x.dtype)
    out = np.take_along_axis(x, np.expand_dims(index, axis), axis).squeeze(axis)
    return out if kept is None else np.where(kept, out, np.zeros((), x.dtype))


def _put_type(x: TensorType, target: TensorType, *, classes: int, axis: int, ignore: int) -> TensorType:
    _need_targets("put_class", target)
    if target.shape != x.shape:
        raise ShapeError("put_class", f"class numbers must be of the shape of {x}, got {target}")
    return TensorType((*x.shape[:axis], classes, *x.shape[axis:]), x.dtype)


def _put(x: Array, target: Array, *, classes: int, axis: int, ignore: int) -> Array:
    out = np.zeros((*x.shape[:axis], classes, *x.shape[axis:]), x.dtype)
    index, kept = _valid_targets(target, classes, ignore)
    if out.size:
        values = x if kept is None else np.where(kept, x, np.zeros((), x.dtype))
        np.put_along_axis(out, np.expand_dims(index, axis), np.expand_dims(values, axis), axis)
    return out


def _put_back(g: Any, target: Any, x_type: TensorType, axis: int, ignore: int) -> Any:
    return put_class(g, target, classes=x_type.shape[axis], axis=axis, ignore=ignore)


def _samples_of_rows() -> list[Sample]:
    return [
        Sample((real_array((4, 3)), int_array((4,), 0, 3)), {"axis": 1, "ignore": -100}),
        Sample((real_array((2, 3, 4)), int_array((2, 4), 0, 3)), {"axis": 1, "ignore": 1}),
        Sample((real_array((3,)), np.array(2)), {"axis": 0, "ignore": -100}),
        Sample((real_array((3, 4)).T, np.array([0, -7, 2, 1])), {"axis": 1, "ignore": -7}),
        Sample((real_array((0, 3)), np.zeros((0,), np.int32)), {"axis": 1, "ignore": -100}),
    ]


def _taking(name: str) -> Op:
    return linear(
        name,
        type_rule=_taken_type,
        eval=_take,
        transpose=(_put_back, no_gradient("class numbers")),
        samples=_samples_of_rows,
        fallible=True,
        raises=BoundsError,
        factors=of_class,
    )


take_class: Op = _taking("take_class")
pick_class: Op = _taking("pick_class")
"""``take_class`` in a kernel of its own, so that the rows which it takes from can be read in vectors."""

put_class: Op = linear(
    "put_class",
    type_rule=_put_type,
    eval=_put,
    transpose=(
        lambda g, target, axis, ignore: take_class(g, target, axis=axis, ignore=ignore),
        no_gradient("class numbers"),
    ),
    samples=lambda: [
        Sample((real_array((4,)), int_array((4,), 0, 3)), {"classes": 3, "axis": 1, "ignore": -100}),
        Sample((real_array((2, 4)), int_array((2, 4), 0, 3)), {"classes": 3, "axis": 1, "ignore": 1}),
        Sample((real_array((4,)), np.array([0, -7, 2, 1])), {"classes": 3, "axis": 0, "ignore": -7}),
        Sample((real_array((0,)), np.zeros((0,), np.int32)), {"classes": 3, "axis": 1, "ignore": -100}),
    ],
    fallible=True,
    raises=BoundsError,
    factors=of_class,
)

"""The ops of views as steps: how a new part is put into its parent, and where its elements lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.base.shapes import Shape
from weft.base.sizes import is_known
from weft.errors import CaptureError, ShapeError
from weft.ops.alias import (
    SAME,
    UNKNOWN,
    OpStep,
    Strides,
    is_contiguous,
    link_taken,
    note_layout,
    reshaped_strides,
    strides_of,
)
from weft.ops.op import Container, Op, Tensor, TensorLike, type_of
from weft.ops.view.primitives import broadcast_to, inverse_axes, permute, reshape
from weft.ops.view.slices import bounds_along, slice_axes, update_slice


class Reshaped(OpStep):
    """A reshape: the new part in the old shape."""

    def put(self, parent: Tensor, part: Tensor, args: Mapping[str, Any]) -> Tensor:
        """The part, reshaped back."""
        return reshape(part, shape=parent.shape)

    def strides(self, shape: Shape, strides: Strides, args: Mapping[str, Any]) -> Strides:
        """Those of the blocks of axes that lie evenly."""
        found = reshaped_strides(shape, strides, args["shape"])
        assert found is not None, "only a reshape that strides can tell is linked"
        return found


class Permuted(OpStep):
    """Axes in another order: the new part with the old order."""

    def put(self, parent: Tensor, part: Tensor, args: Mapping[str, Any]) -> Tensor:
        """The part, its axes brought back."""
        return permute(part, axes=inverse_axes(args["axes"]))

    def strides(self, shape: Shape, strides: Strides, args: Mapping[str, Any]) -> Strides:
        """Those of the parent, in the new order."""
        return tuple(strides[a] for a in args["axes"])


class Sliced(OpStep):
    """A slice: the parent with another part in its place."""

    def put(self, parent: Tensor, part: Tensor, args: Mapping[str, Any]) -> Tensor:
        """The parent, updated."""
        return update_slice(parent, part, **args)

    def strides(self, shape: Shape, strides: Strides, args: Mapping[str, Any]) -> Strides:
        """Those of the parent, times the steps."""
        return tuple(a * b for a, b in zip(strides, args["steps"], strict=True))


class Expanded(OpStep):
    """A broadcast: elements that stand for many, so that none can be changed."""

    def put(self, parent: Tensor, part: Tensor, args: Mapping[str, Any]) -> Tensor:
        """Only where nothing was repeated."""
        if type_of(parent).shape != args["shape"]:
            raise ShapeError(
                "expand",
                f"elements that are repeated must not be changed in place, got {type_of(part)} of "
                f"{type_of(parent)}",
                hint="change a .clone() of it",
            )
        return part

    def strides(self, shape: Shape, strides: Strides, args: Mapping[str, Any]) -> Strides:
        """0 along axes that are repeated."""
        lead = len(args["shape"]) - len(shape)
        own = zip(shape, args["shape"][lead:], strides, strict=True)
        return (*[0] * lead, *[b if s == t else 0 for s, t, b in own])


class Undecided(OpStep):
    """A reshape that is a view for some sizes, or on some ways, and a copy for others."""

    def strides(self, shape: Shape, strides: Strides, args: Mapping[str, Any]) -> Strides:
        """None that anybody knows."""
        return (UNKNOWN,) * len(args["shape"])

    def get(self, parent: Tensor, args: Mapping[str, Any]) -> Tensor:
        """Refused: the parent has changed, and the result may be a copy."""
        raise CaptureError(
            "reshape",
            f"must be known to be a view or a copy where one of the two is changed, got {type_of(parent)} "
            f"to {args['shape']}, of which only a run tells",
            hint="take a .clone() before, or use .view()",
        )

    def put(self, parent: Tensor, part: Tensor, args: Mapping[str, Any]) -> Tensor:
        """Refused likewise."""
        return self.get(parent, args)


_RESHAPED, _UNDECIDED = Reshaped(reshape), Undecided(reshape)
_STEPS: dict[Op, OpStep] = {
    reshape: _RESHAPED,
    permute: Permuted(permute),
    slice_axes: Sliced(slice_axes),
    broadcast_to: Expanded(broadcast_to),
}


def viewed(op: Op, x: Tensor, **attrs: Any) -> Tensor:
    """The result of an op that moves elements, as a view of its input."""
    out = op(x, **attrs)
    if isinstance(x, TensorLike) and not isinstance(x, Container):
        link_taken(out, x, _STEPS[op], attrs)
    return out


def reshaped(x: Tensor, shape: Shape) -> Tensor:
    """x in another shape: a view where strides can tell where elements lie, else a tensor of its own."""
    out = reshape(x, shape=shape)
    if not isinstance(x, TensorLike) or isinstance(x, Container):
        return out
    note_layout(x)
    found = getattr(x, "_link", None)
    if found is None or (found[1] is SAME and not hasattr(found[0], "_link")):  # all elements, in order
        link_taken(out, x, _RESHAPED, {"shape": shape})
    elif not is_known((*x.shape, *shape)) or any(s != s for s in strides_of(x)):
        link_taken(out, x, _RESHAPED if is_contiguous(x) else _UNDECIDED, {"shape": shape})
    elif reshaped_strides(x.shape, strides_of(x), shape) is not None:
        link_taken(out, x, _RESHAPED, {"shape": shape})
    return out


def sliced(x: Tensor, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
    """The elements range(start, stop, step) along one axis, as a view."""
    return viewed(slice_axes, x, **bounds_along(x, axis, start, stop, step))

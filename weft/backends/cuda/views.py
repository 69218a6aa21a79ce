"""Views of arrays on a device: other shapes and strides for the same memory, without a kernel.

Where an element of a view lies is said by the op (``Op.view``), as a sum of multiples of its indices; so the
strides are what the place changes by when one index does.
"""

from __future__ import annotations

from typing import Any

from weft.backends.cuda.array import DeviceArray, Strides, strided
from weft.ops.alias import reshaped_strides
from weft.ops.op import Op

_MOST = 4096
_known: dict[Any, tuple[tuple[int, ...], Strides, int]] = {}


def view_of(op: Op, array: DeviceArray, attrs: dict[str, Any]) -> DeviceArray:
    """What an op that only moves elements gives: elements of the same memory, where strides can say which."""
    if op.view == "flat":
        return _reshaped(op, array, attrs)
    key = (op, array.shape, array.strides, *attrs.values())
    known = _known.get(key)
    if known is None:
        if len(_known) >= _MOST:
            _known.clear()
        known = _known[key] = _places(op, array, attrs)
    return strided(array, *known)


def _reshaped(op: Op, array: DeviceArray, attrs: dict[str, Any]) -> DeviceArray:
    shape = op.type_rule(array.type, **attrs).shape
    if array.gaps is not None:
        strides = reshaped_strides(array.shape, array.strides, shape)
        if strides is not None:
            return strided(array, shape, strides, 0)
        array = array.copy()
    return DeviceArray(array.card, array.block, array.pointer, shape, array.dtype)


def _places(op: Op, array: DeviceArray, attrs: dict[str, Any]) -> tuple[tuple[int, ...], Strides, int]:
    """The shape of a view, its strides, and how far its first element is from that of the array."""
    kind = array.type
    shape = op.type_rule(kind, **attrs).shape
    own = array.strides

    def place(index: list[int]) -> int:
        found: Any = op.view(index, kind, **attrs)  # type: ignore[misc, operator]
        return sum(i * stride for i, stride in zip(found, own, strict=True))

    origin = place([0] * len(shape))
    units = [[int(i == axis) for i in range(len(shape))] for axis in range(len(shape))]
    return shape, tuple([place(unit) - origin for unit in units]), origin

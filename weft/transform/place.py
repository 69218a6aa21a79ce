"""The place in the graph of a tensor that is changed in place while nothing records: it keeps the one it has.

Outside of regions the tape knows that place, and the tensor gets new data only. In a region it is the graph
that must say where the gradient of the new elements goes.
"""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import kind
from weft.ops.stop import in_place_of
from weft.tensor.tensor import Tensor
from weft.transform.captured import Captured, is_cut


def data_in_place(capture: Any, tensor: Tensor, value: Tensor) -> Any:
    """The data of a tensor that takes on a value, in a capture, without its history."""
    data = value._data
    if not capture.region or kind(data.dtype) not in "fc":
        keeps = type(data) is Captured and data.cut and tensor._node is not None
        return Captured(data.capture, data.value) if keeps else data
    old = tensor._data
    inside = type(old) is Captured and old.capture.region
    if is_cut(tensor) or not (inside or tensor._node is not None):
        return capture.as_captured(value).detached()
    new, before = capture.value_of(value), capture.value_of(tensor)
    if not capture.flows(before):
        return Captured(capture, new)
    return capture.emit(in_place_of, [new, before], {})[0]

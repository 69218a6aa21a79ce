"""The place in the graph of a tensor that a capture changes in place: outside of regions the tape knows it.

A tensor that is changed while nothing records keeps the place that it has. Where the tape knows, it gets new
data only; in a region it is the graph that must say where the gradient of the new elements goes.
"""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import kind
from weft.ir.graph import Value
from weft.ops.op import NoGradient
from weft.ops.stop import in_place_of
from weft.tensor.node import Leaf
from weft.tensor.tensor import Tensor
from weft.transform.captured import Captured, is_cut


def data_in_place(capture: Any, tensor: Tensor, value: Tensor) -> Any:
    """The data of a tensor that takes on a value, in a capture, without its history."""
    data = value._data
    if not capture.region or kind(data.dtype) not in "fc":
        if tensor._node is not None and type(data) is Captured and data.capture is capture:
            if type(tensor._node) is not Leaf:
                capture.root.untold_tangent = True
                return capture.emit(in_place_of, [data.value, capture.value_of(tensor)], {})[0]
            capture.root.untold_gradient = True
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


def may_have_gradient(data: Any, node: Any) -> bool:
    """Whether gradients flow to a tensor of some data: False where it is known that none do, whoever runs."""
    if node is not None:
        return True
    if type(data) is not Captured or data.cut or not data.capture.region:
        return False
    capture, waiting, seen = data.capture, [data.value], set[Value]()
    around = capture.imported()
    while waiting:
        value = waiting.pop()
        if value in seen or not capture.flows(value):
            continue
        seen.add(value)
        if value in capture.made:
            made = capture.made[value]
            waiting += () if isinstance(made.op.vjp, NoGradient) else made.inputs
        elif value not in around or may_have_gradient(*around[value]):
            return True  # what a loop carries may be anything
    return False

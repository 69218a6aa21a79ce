"""Tensors from device to device: ``x.to("cuda")``, with its gradient, and new tensors where they go."""

from __future__ import annotations

from functools import cache
from typing import Any

from weft.base.concrete import is_concrete
from weft.base.device import BLOCKS, CPU, Device, DeviceLike, as_device
from weft.base.hooks import hooks
from weft.base.parts import Parts
from weft.errors import DeviceError
from weft.ops.op import Tensor, intercepted
from weft.tensor.dispatch import recording, stage, wrap
from weft.tensor.mode import thread
from weft.tensor.node import make_node
from weft.tensor.rules import Backward


def move(x: Tensor, device: Device) -> Tensor:
    """The tensor on a device: itself if it is there; gradients come back to where it was."""
    source = x.device
    if source == device or (intercepted.threads and thread.capture is not None and _is_staged(x, device)):
        return x
    data = x._data
    if not is_concrete(data):
        if device is CPU and thread.capture is not None:
            return x  # all of a graph runs on one device, and so it does here
        raise DeviceError(
            "to", f"the tensor must stay on {source} inside {data.place}, got {device}", hint="move it before"
        )
    node = None
    if x._node is not None and recording():
        node = make_node(_back_to(source), (x._node,), ())
    return wrap(data.on(device) if type(data) is Parts else hooks.copy_to(data, device), node)


def _is_staged(x: Tensor, device: Device) -> bool:
    """Whether a tensor is one of the graph that this thread captures, and the graph is for that device."""
    stage(x)
    return not is_concrete(x._data) and x.device == device


@cache
def _back_to(source: Device) -> Backward:
    def run(g: Tensor, saved: object, edges: object) -> list[Any]:
        return [move(g, source)]

    return Backward("to", run, (), keeps_device=False)


def moved(x: Tensor, device: DeviceLike | None) -> Tensor:
    """A new tensor on the device that was asked for, or on the default one."""
    if device is None and not BLOCKS:
        return x
    return _leaf_on(x, as_device(device))


def moved_like(x: Tensor, device: DeviceLike | None, template: Tensor) -> Tensor:
    """A new tensor on the device that was asked for, or on that of another one."""
    target = template.device if device is None else as_device(device)
    return x if target is CPU else _leaf_on(x, target)


def _leaf_on(x: Tensor, target: Device) -> Tensor:
    """The same on a device; what is made in a capture is part of the graph, wherever that runs."""
    if target is CPU or (intercepted.threads and thread.capture is not None):
        return x
    return move(x, target)

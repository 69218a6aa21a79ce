"""Where data goes: from host to device, back, and from device to device; which operands an op may have."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import numpy as np

from weft.backends.cuda import copies
from weft.backends.cuda.array import DeviceArray, Host, new_array
from weft.backends.cuda.card import Card, card, device_count
from weft.backends.cuda.driver import why_unavailable
from weft.base.device import CPU, Device
from weft.base.dtypes import DType, uint64
from weft.base.frames import PACKAGE
from weft.errors import DeviceError
from weft.ops.op import Op, TensorLike, type_of

_MOST_CONSTANTS = 4096
_CORE = tuple(
    os.path.join(PACKAGE, part) + os.sep
    for part in ("base", "ops", "tensor", "transform", "capture", "backends")
)


def found_device(device: Device) -> Device:
    """The device with its number, made ready; an error says what is missing."""
    return card(device.index or 0, "device").device


def cuda_devices() -> list[Device]:
    """The CUDA devices that are there; none where something is missing for any."""
    return [] if why_unavailable() else [Device("cuda", i) for i in range(device_count("devices"))]


def copy_to(data: Host | DeviceArray, device: Device) -> Host | DeviceArray:
    """A copy of data on a device; the data itself where it is there already."""
    if isinstance(data, DeviceArray):
        if device is CPU or device.type == "cpu":
            return data.to_host()
        if device == data.device:
            return data
        return _between(data, card(device.index or 0))
    return data if device.type == "cpu" else copies.to_device(data, card(device.index or 0))


def _between(array: DeviceArray, target: Card) -> DeviceArray:
    """A copy on another device, without the host where the devices can."""
    packed = array.packed()
    target.enter()
    stream = target.current()
    out = new_array(target, array.shape, array.dtype, stream)
    if out.size:
        packed.block.read_on(stream)
        target.driver.cuMemcpyPeerAsync(
            out.pointer, target.context, packed.pointer, array.card.context, out.nbytes, stream.handle
        )
    return out


def new_filled(shape: tuple[int, ...], value: object, dtype: DType, device: Device) -> DeviceArray:
    """A new array of one value on a device; of any content if that is None."""
    on = card(device.index or 0)
    if value is None:
        return new_array(on, shape, dtype)
    return copies.filled(on, shape, np.asarray(value, dtype), dtype)


# The operands of an op

_constants: dict[tuple[Any, ...], DeviceArray] = {}


def constant(array: Host, on: Card) -> DeviceArray:
    """A small array on a device; the same value is copied there once."""
    key = (id(on), array.dtype, array.shape, array.tobytes())
    known = _constants.get(key)
    if known is None:
        if len(_constants) >= _MOST_CONSTANTS:
            _constants.clear()
        known = _constants[key] = copies.to_device(array, on, fixed=True)
    return known


def forget_constants() -> None:
    """Drop all constants, for tests that put another driver in place."""
    _constants.clear()


def on_one_device(op: Op, datas: Sequence[Any]) -> list[DeviceArray]:
    """The operands of an op on the device of the first that is on any.

    Numbers go there by themselves, and so does what weft's own functions and rules make on the way. Tensors
    that the user gave must be there: to move them without a word would hide what is slow.
    """
    first = next(d for d in datas if type(d) is DeviceArray)
    on = first.card
    on.enter()
    out = []
    for data in datas:
        if type(data) is DeviceArray:
            if data.card is not on:
                raise _apart(op.name, first, data)
            out.append(data)
        elif not data.shape:
            out.append(constant(data, on))
        else:
            _refuse_given(op.name)
            # What weft's own functions make follows from the code, but for keys, which are drawn.
            out.append(copies.to_device(data, on, fixed=data.dtype != uint64))
    return out


def _apart(op: str, x: Any, y: Any) -> DeviceError:
    texts = [f"{type_of(t)} on {t.device}" for t in (x, y)]
    away = next((t.device for t in (x, y) if t.device != "cpu"), y.device)
    hint = f"move one of them: .to({str(away)!r})"
    return DeviceError(op, f"tensors must be on one device, got {texts[0]} and {texts[1]}", hint=hint)


def _refuse_given(op: str) -> None:
    """Raise if the call that weft's core was entered by was given tensors on two devices."""
    given = list(_tensors_of(_edge(sys._getframe(2))))
    away = next((t for t in given if t.device != CPU), None)
    here = next((t for t in given if t.device == CPU and t.shape), None)
    if away is not None and here is not None:
        order = sorted((away, here), key=lambda t: next(i for i, g in enumerate(given) if g is t))
        raise _apart(op, *order)


def _edge(frame: FrameType | None) -> FrameType | None:
    """The outermost frame of the core of weft, as seen from inside: what a user, or a layer, has called."""
    edge = None
    while frame is not None and frame.f_code.co_filename.startswith(_CORE):
        edge, frame = frame, frame.f_back
    return edge


def _tensors_of(frame: FrameType | None) -> Iterator[Any]:
    """The tensors among the arguments of a frame, also those in tuples and lists."""
    if frame is None:
        return
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    waiting = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
    while waiting:
        x = waiting.pop(0)
        if isinstance(x, TensorLike) and hasattr(x, "_data"):
            yield x
        elif isinstance(x, tuple | list):
            waiting[:0] = x
        elif isinstance(x, dict):
            waiting[:0] = x.values()

"""Devices: where data lives, and where new tensors go."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TypeAlias

from weft.base.hooks import hooks
from weft.errors import DeviceError

TYPES = ("cpu", "cuda")


class Device:
    """A place for data, such as ``cpu`` or ``cuda:0``. Equal to its name, so ``x.device == "cpu"`` holds.

    A device of which no number is given is the first one: ``cuda`` is ``cuda:0``.

    >>> import weft
    >>> weft.ones(2).device, weft.ones(2).device == "cpu"
    (device('cpu'), True)
    >>> weft.device("cuda:1").index, weft.device("cuda") == "cuda:0"
    (1, True)
    """

    __slots__ = ("index", "type")  # not a dataclass: making one takes longer than importing a module

    type: str
    index: int | None

    def __init__(self, type: str | Device, index: int | None = None) -> None:
        if isinstance(type, Device):
            self.type, self.index = type.type, type.index if index is None else index
            return
        kind, _, number = type.partition(":") if isinstance(type, str) else ("", "", "")
        if kind not in TYPES:
            hint = 'a GPU is "cuda", or "cuda:1"' if kind.lower() in ("gpu", "mps", "tpu", "xpu") else None
            raise DeviceError("device", f"must be {' or '.join(TYPES)}, got {type!r}", hint=hint)
        if ":" in type and (index is not None or not number.isdecimal()):
            raise DeviceError("device", f"the number must be one, as in cuda:0, got {number!r}")
        self.type = kind
        self.index = int(number) if number else index

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Device):
            return self.type == other.type and (self.index or 0) == (other.index or 0)
        if isinstance(other, str):
            kind, _, number = other.partition(":")
            return self.type == kind and str(self.index or 0) == (number or "0")
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self.type, self.index or 0))

    def __reduce__(self) -> tuple[object, ...]:
        return Device, (self.type, self.index)


DeviceLike: TypeAlias = Device | str
CPU = Device("cpu")


class _Chosen(threading.local):
    """The devices of the ``default_device`` blocks that this thread is in, the innermost last."""

    def __init__(self) -> None:
        self.devices: list[Device] = []


_chosen = _Chosen()
BLOCKS: list[Device] = []  # of all threads: while it is empty nobody asks further


def as_device(spec: object) -> Device:
    """The device meant by a Device or its name; None means the default one. One that is not there raises."""
    if spec is None:
        return CPU if not BLOCKS or not _chosen.devices else _chosen.devices[-1]
    if spec is CPU:
        return CPU
    if not isinstance(spec, Device | str):
        raise DeviceError("device", f"must be {' or '.join(TYPES)}, got {spec!r}")
    device = Device(spec)
    if device.type == "cpu":
        if device.index:
            raise DeviceError("device", f"there is one cpu, got {spec!r}")
        return CPU
    return hooks.found_device(device)


def index_of(op: str, spec: DeviceLike | int | None) -> int:
    """The number of a CUDA device; None is the first one."""
    if spec is None:
        return 0
    if isinstance(spec, int):
        return spec
    device = Device(spec)
    if device.type != "cuda":
        raise DeviceError(op, f"must be a CUDA device, got {spec}")
    return device.index or 0


class default_device:  # noqa: N801 - reads as what it does
    """New tensors of this thread go to a device inside a ``with`` block, unless they are told where to go.

    >>> import weft
    >>> with weft.default_device("cpu"):
    ...     x = weft.zeros(2)
    >>> x.device
    device('cpu')
    """

    def __init__(self, device: DeviceLike) -> None:
        self.device = as_device(device)

    def __enter__(self) -> Device:
        _chosen.devices.append(self.device)
        BLOCKS.append(self.device)
        return self.device

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _chosen.devices.pop()
        BLOCKS.pop()


def get_default_device() -> Device:
    """Where new tensors of this thread go.

    >>> import weft
    >>> weft.get_default_device()
    device('cpu')
    """
    return as_device(None)

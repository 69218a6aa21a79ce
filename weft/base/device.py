"""Devices: where data lives."""

from __future__ import annotations

from typing import TypeAlias

from weft.errors import DeviceError


class Device:
    """A place for data, such as ``cpu``. Equal to its name, so ``x.device == "cpu"`` holds.

    >>> import weft
    >>> weft.ones(2).device, weft.ones(2).device == "cpu"
    (device('cpu'), True)
    """

    __slots__ = ("index", "type")  # not a dataclass: making one takes longer than importing a module

    def __init__(self, type: str, index: int | None = None) -> None:
        self.type = type
        self.index = index

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Device | str) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


DeviceLike: TypeAlias = Device | str
CPU = Device("cpu")


def as_device(spec: object) -> Device:
    """The device meant by a Device or its name; None means the default one."""
    if spec is None or spec == CPU:
        return CPU
    raise DeviceError("device", f"must be one of cpu, got {spec!r}")

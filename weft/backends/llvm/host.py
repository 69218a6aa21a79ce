"""Calls from machine code back into Python: for ops that have no machine code, such as those of LAPACK."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from weft.backends.llvm.lapack import native_kernel
from weft.base.records import NamedTuple
from weft.base.sizes import bind
from weft.errors import WeftError
from weft.ir.interpret import placed
from weft.ir.types import TensorType

HOST_FAILED = -3  # the number of the failure that is noted if Python raises an error

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 3)
_numbers = itertools.count(1)
_frames: WeakValueDictionary[int, HostFrame] = WeakValueDictionary()


class _Found(NamedTuple):
    """The arrays of a call, and where they are."""

    places: tuple[list[int], list[int]]
    sizes: Mapping[str, int]
    inputs: list[Any]
    outputs: list[Any]


class HostFrame:
    """What a call back into Python needs to know of the call that it comes from.

    Attributes:
        number: that machine code knows it by.
        hosts: table of the program.
        context: of the call, as words.
        error: that was raised.
        found: by entry, the addresses of its last call and the arrays there: most calls have the same.
    """

    __slots__ = ("__weakref__", "context", "error", "found", "hosts", "number")

    def __init__(self, hosts: Sequence[Any], context: Any) -> None:
        self.number = next(_numbers)
        self.hosts = hosts
        self.context = context
        self.error: BaseException | None = None
        self.found: dict[int, _Found] = {}
        _frames[self.number] = self


@lru_cache
def host_address() -> int:
    """The address of the function that machine code calls."""
    callback = _CALLBACK(_call_back)
    _kept.append(callback)
    return int(ctypes.cast(callback, ctypes.c_void_p).value or 0)


_kept: list[Any] = []


def _call_back(frame_number: int, number: int, inputs: int, outputs: int, sizes: int) -> None:
    frame = _frames[frame_number]
    try:
        entry = frame.hosts[number]
        values = _sizes(entry.sizes, sizes)
        places = _words(inputs, entry.inputs), _words(outputs, entry.outputs)
        found = frame.found.get(number)
        if found is None or found.places != places or found.sizes != values:
            arrays = _arrays(entry.inputs, places[0], values)
            found = _Found(places, values, arrays, _arrays(entry.outputs, places[1], values))
            frame.found[number] = found
        _run(entry, found.inputs, found.outputs, values)
    except BaseException as error:  # it must not pass through machine code; it is raised when that has ended
        frame.error = error
        if frame.context[0] == 0:
            frame.context[0] = HOST_FAILED + 1


def _run(entry: Any, arrays: Sequence[Any], targets: Sequence[Any], values: Mapping[str, int]) -> None:
    """Run the kernel of an op on arrays, into others."""
    attrs = {k: bind(a, values) for k, a in entry.attrs.items()} if values else entry.attrs
    try:
        with np.errstate(all="ignore"):
            native = native_kernel(entry.op.name)
            if native is not None and native(*targets, *arrays, **attrs):
                return
            if entry.op.into is not None:
                entry.op.into(*targets, *arrays, **attrs)
                return
            # Copies, since a kernel may keep what it is given, and this memory will hold something else.
            result = entry.op.eval(*[a.copy() for a in arrays], **attrs)
    except WeftError as error:
        raise placed(error, entry.node) from None
    results = (result,) if entry.op.outputs == 1 else result
    for target, array in zip(targets, results, strict=True):
        target[...] = array


def _sizes(names: Sequence[Any], place: int) -> Mapping[str, int]:
    """The values of named sizes."""
    found = (ctypes.c_int64 * len(names)).from_address(place) if names else ()
    return {str(name): value for name, value in zip(names, found, strict=True)}


def _words(place: int, types: Sequence[TensorType]) -> list[int]:
    """Addresses from a table."""
    return (ctypes.c_uint64 * len(types)).from_address(place)[:] if types else []


def _arrays(types: Sequence[TensorType], addresses: Sequence[int], sizes: Mapping[str, int]) -> list[Any]:
    """Arrays in memory."""
    return [_array(bind(t.shape, sizes), t.dtype, a) for t, a in zip(types, addresses, strict=True)]


def _array(shape: tuple[int, ...], dtype: Any, address: int) -> Any:
    size = prod(shape) * dtype.itemsize
    if size == 0:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, (ctypes.c_char * size).from_address(address))

"""Memory of devices shared with other libraries, without a copy: DLPack, and ``__cuda_array_interface__``.

Both sides have streams. Who gives memory makes the stream of who takes it wait for what was written; who
takes it is waited for before the memory goes back. What weft gives is marked read-only where the protocol can
say so, and what it takes it never writes to.
"""

from __future__ import annotations

import ctypes
from typing import Any
from weakref import finalize

import numpy as np

from weft.backends.cuda.array import DeviceArray, packed_strides, same_place
from weft.backends.cuda.card import Card, card, device_count
from weft.backends.cuda.driver import Life
from weft.backends.cuda.memory import Borrowed
from weft.backends.cuda.streams import Stream
from weft.base.dtypes import DType, bfloat16, bool_, canonical
from weft.errors import SharingError
from weft.tensor.dlpack import LAYOUTS, Managed, Versioned, export

CUDA, MANAGED = 2, 13  # kDLCUDA, kDLCUDAManaged
_ORDINAL = 9  # of CUpointer_attribute: the number of the device
_LEGACY, _PER_THREAD = 1, 2  # streams that are always there
_READ_ONLY = 1
_MOST_LENT = 16  # memories of one tensor that others may still have, the last ones
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # of DLDataTypeCode, by kind of dtype
_BFLOAT = 4

_api = ctypes.pythonapi
_new_capsule = _api.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


# To others

_given: dict[int, tuple[Any, ...]] = {}  # by the address of what a capsule points to, all that must live


def export_array(
    array: DeviceArray, stream: int | None, max_version: tuple[int, int] | None, copy: bool | None
) -> Any:
    """A capsule with the memory of an array, for a library that works on a stream."""
    array.card.enter()
    array = array.copy() if copy else same_place(array)
    taker = _hand_over(array, stream)
    versioned = max_version is not None and tuple(max_version) >= (1, 0)
    managed = _described(array, versioned)
    address = ctypes.addressof(managed)
    _given[address] = (managed, array, taker)
    name = b"dltensor_versioned" if versioned else b"dltensor"
    return _new_capsule(address, name, ctypes.cast(_destructor, ctypes.c_void_p))


def is_given(array: DeviceArray) -> bool:
    """Whether a library has the memory of an array: it must stay where it is."""
    lent = (a for kept in _lent.values() for a in kept)
    return any(given is array for given in (*lent, *[g for _, g, _ in _given.values()]))


def given_count() -> int:
    """How many arrays libraries have the memory of."""
    return len(_given) + sum(map(len, _lent.values()))


def _hand_over(array: DeviceArray, stream: int | None) -> Stream | None:
    """Let the stream of who takes an array wait for what was written; None if it said that it need not."""
    if stream == -1:
        return None
    taker = Stream(array.card, handle=_LEGACY if stream is None else int(stream))
    array.block.read_on(array.card.current())
    taker.wait_stream(array.card.current())
    return taker


def _described(array: DeviceArray, versioned: bool) -> Any:
    managed = Versioned() if versioned else Managed()
    tensor = managed.tensor
    item = array.dtype.itemsize
    numbers = ctypes.c_int64 * max(array.ndim, 1)
    shape, strides = numbers(*array.shape), numbers(*[s // item for s in array.strides])
    managed.kept = (shape, strides)
    tensor.data, tensor.device_type, tensor.device_id = array.pointer, CUDA, array.card.index
    tensor.ndim, tensor.byte_offset = array.ndim, 0
    tensor.shape, tensor.strides = ctypes.addressof(shape), ctypes.addressof(strides)
    tensor.dtype.code = _BFLOAT if array.dtype == bfloat16 else _CODES[array.dtype.kind]
    tensor.dtype.bits, tensor.dtype.lanes = 8 * item, 1
    managed.deleter = ctypes.cast(_deleter, ctypes.c_void_p).value
    if versioned:
        managed.major, managed.minor, managed.flags = 1, 0, _READ_ONLY
    return managed


@_Deleter  # type: ignore[untyped-decorator]
def _deleter(address: int) -> None:
    """What a library calls when it is done with memory of ours."""
    kept = _given.pop(address, None)
    if kept is None:
        return
    _, array, taker = kept
    if taker is None:
        return
    if taker.handle in (_LEGACY, _PER_THREAD):
        array.block.read_on(taker)  # the memory goes back after all that this stream was given
    else:  # a stream of theirs may be gone by now
        array.card.synchronize()


@_Destructor  # type: ignore[untyped-decorator]
def _destructor(capsule: int) -> None:
    """What Python calls when a capsule goes: one that nobody took still owns its memory."""
    for name in LAYOUTS:
        if _is_valid(capsule, name):
            _deleter(_pointer_of(capsule, name))


_lent: dict[int, list[DeviceArray]] = {}  # by whose interface was asked for, the memory that it told


def _lend(array: DeviceArray, owner: object) -> None:
    """Keep memory while its owner lives, which is all that who takes it holds; a change moves it."""
    key = id(owner)
    if key not in _lent:
        _lent[key] = []
        finalize(owner, _lent.pop, key, None).atexit = False
    kept = _lent[key]
    if all(a.block is not array.block for a in kept):
        kept.append(same_place(array))
        del kept[:-_MOST_LENT]


def array_interface(array: DeviceArray, owner: object) -> dict[str, Any]:
    """The dictionary of ``__cuda_array_interface__``, version 3: who takes it waits for the stream in it."""
    if array.dtype == bfloat16:
        raise AttributeError("bfloat16 has no name in __cuda_array_interface__: use DLPack")
    stream = array.card.current()
    array.block.read_on(stream)
    _lend(array, owner)
    return {
        "shape": array.shape,
        "typestr": array.dtype.str,
        "data": (array.pointer, True),
        "strides": None if array.gaps is None else array.strides,
        "version": 3,
        "stream": stream.handle,
    }


# From others


class _Taken:
    """A capsule that was consumed: its memory goes back when nobody here uses it, and nothing reads it."""

    def __init__(self, address: int, deleter: int, stream: Stream) -> None:
        self._address, self._deleter, self._stream = address, deleter, stream

    def __del__(self, life: type[Life] = Life) -> None:
        if life.ending:
            return
        self._stream.synchronize()  # what we gave to the stream may still read it
        if self._deleter:
            _Deleter(self._deleter)(self._address)


def import_array(x: Any, copy: bool | None) -> DeviceArray:
    """An array of the memory of an object of another library."""
    if hasattr(x, "__dlpack__"):
        kind, index = x.__dlpack_device__()
        if kind not in (CUDA, MANAGED):
            raise SharingError("from_dlpack", f"the device must be a CUDA one, got {(kind, index)}")
        array = _from_capsule(x, card(int(index), "from_dlpack"))
    else:
        array = _from_interface(x)
    return array.copy() if copy else array


def _from_capsule(x: Any, on: Card) -> DeviceArray:
    stream = on.current()
    capsule = export(x, {"stream": stream.handle, "max_version": (1, 0)}, {"stream": stream.handle})
    for name, layout in LAYOUTS.items():
        if _is_valid(id(capsule), name):
            address = _pointer_of(id(capsule), name)
            managed = layout.from_address(address)
            rename = _api.PyCapsule_SetName
            rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
            rename(capsule, _USED[name])
            owner = _Taken(address, managed.deleter or 0, stream)
            return _array_of(managed.tensor, on, owner, stream)
    raise SharingError("from_dlpack", "the exporter must give a capsule that nobody used, got another one")


_USED = {name: b"used_" + name for name in LAYOUTS}  # kept: a capsule does not copy its name


def _array_of(tensor: Any, on: Card, owner: object, stream: Stream) -> DeviceArray:
    dtype = _dtype_of(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
    numbers = ctypes.c_int64 * tensor.ndim
    shape = tuple(numbers.from_address(tensor.shape)) if tensor.ndim else ()
    strides = None
    if tensor.strides and tensor.ndim:
        strides = tuple([s * dtype.itemsize for s in numbers.from_address(tensor.strides)])
    pointer = (tensor.data or 0) + tensor.byte_offset
    return _borrowed(on, pointer, shape, dtype, strides, owner, stream)


def _dtype_of(code: int, bits: int, lanes: int) -> DType:
    if (code, bits, lanes) == (_BFLOAT, 16, 1):
        return bfloat16
    letter = next((k for k, c in _CODES.items() if c == code), "")
    if lanes == 1 and letter == "b" and bits == 8:
        return bool_
    if lanes == 1 and letter and (found := _canonical(f"{letter}{bits // 8}")) is not None:
        return found
    raise SharingError("from_dlpack", f"dtype must be one that weft has, got code {code} of {bits} bits")


def _canonical(name: str) -> DType | None:
    try:
        return canonical(np.dtype(name))
    except TypeError:
        return None


def _borrowed(
    on: Card, pointer: int, shape: tuple[int, ...], dtype: DType, strides: Any, owner: object, stream: Stream
) -> DeviceArray:
    array = DeviceArray(on, Borrowed(pointer, 0, owner, stream), pointer, shape, dtype)
    packed = packed_strides(shape, dtype.itemsize)
    if (
        strides is not None
        and array.size
        and any(n > 1 and a != b for n, a, b in zip(shape, strides, packed, strict=True))
    ):
        array.gaps = tuple(strides)
    return array


def _from_interface(x: Any) -> DeviceArray:
    described = x.__cuda_array_interface__
    pointer, _ = described["data"]
    on = _card_of(int(pointer or 0))
    stream = on.current()
    if (theirs := described.get("stream")) is not None:
        stream.wait_stream(Stream(on, handle=int(theirs)))
    name = described["typestr"]
    dtype = None if name[0] == ">" else _canonical(name)
    if dtype is None:
        raise SharingError("asarray", f"dtype must be one that weft has, got {name}")
    if described.get("mask") is not None:
        raise SharingError("asarray", "all elements must be there, got an array with a mask")
    strides = described.get("strides")
    shape = tuple(described["shape"])
    return _borrowed(on, int(pointer or 0), shape, dtype, strides, _Read(x, stream), stream)


def _card_of(pointer: int) -> Card:
    """The device that memory is of, which the interface does not tell."""
    first = card(0, "asarray")
    if not pointer or device_count("asarray") < 2:
        return first
    ask = getattr(first.driver.api, "CUpointer_attribute", int)
    return card(int(first.driver.cuPointerGetAttribute(ask(_ORDINAL), pointer)), "asarray")


class _Read:
    """An object of another library whose memory we read: it lives until nothing of ours reads it."""

    def __init__(self, owner: object, stream: Stream) -> None:
        self._owner, self._stream = owner, stream

    def __del__(self, life: type[Life] = Life) -> None:
        if life.ending:
            return
        self._stream.synchronize()

"""DLPack capsules of bfloat16, which NumPy neither writes nor reads.

Such memory travels through NumPy as uint16, and the dtype's code inside the capsule is changed on the way.
Imported at first use, for it needs ctypes. The layout is that of dlpack.h, version 1.0.
"""

from __future__ import annotations

import ctypes
from typing import Any

UINT, BFLOAT = 1, 4  # kDLUInt, kDLBfloat


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DLTensor(ctypes.Structure):
    """Where elements are, and how they lie."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    """A tensor, and what gives it back: what capsules point to before version 1.0."""

    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Versioned(ctypes.Structure):
    """The same since version 1.0, with flags."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


LAYOUTS: dict[bytes, Any] = {b"dltensor": Managed, b"dltensor_versioned": Versioned}


def _data_type(capsule: object) -> Any:
    """The dtype field inside a capsule that nobody has consumed yet."""
    get_name, get_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = get_name(capsule)
    return LAYOUTS[name].from_address(get_pointer(capsule, name)).tensor.dtype


def as_bfloat16(capsule: object) -> Any:
    """A capsule of uint16 turned into one of bfloat16."""
    _data_type(capsule).code = BFLOAT
    return capsule


class AsUint16:
    """An exporter of bfloat16 that says uint16, for NumPy to import."""

    def __init__(self, exporter: Any) -> None:
        self.exporter = exporter

    def __dlpack_device__(self) -> Any:
        return self.exporter.__dlpack_device__()

    def __dlpack__(self, **options: object) -> object:
        capsule = export(self.exporter, options)
        dtype = _data_type(capsule)
        if (dtype.code, dtype.bits, dtype.lanes) != (BFLOAT, 16, 1):
            raise BufferError(f"unknown dtype: code {dtype.code}, {dtype.bits} bits, {dtype.lanes} lanes")
        dtype.code = UINT
        return capsule


def export(exporter: Any, options: dict[str, Any], known: dict[str, Any] | None = None) -> Any:
    """The capsule of an exporter, which may be too old to know other options than those of before 1.0."""
    try:
        return exporter.__dlpack__(**options)
    except TypeError:
        return exporter.__dlpack__(**known or {})

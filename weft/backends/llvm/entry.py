"""The way from Python into machine code: one function that takes arrays as they are, without converting them.

``enter(inputs, outputs, frame, recipe)`` looks at the arrays where NumPy keeps what they are, makes arrays
for results that the list has none for, and calls the main function of a program without the lock of the
interpreter. It is machine code that Python calls like one of its own functions. Where NumPy's arrays do not
look as expected, a function in Python does the same.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.backends.backend import Array, Arrays
from weft.backends.llvm.code import Code, Source, llvm_text, shared
from weft.base.stopping import BUSY, WANTED

if TYPE_CHECKING:
    from weft.base.dtypes import DType

# Words of a frame: what one call of a program needs. After the context comes the table of buffers.
MAIN, INPUTS, OUTPUTS, CHECKS, ARENA, SIZES = range(6)
CONTEXT = 8
CONTEXT_WORDS = 16
BUFFERS = CONTEXT + CONTEXT_WORDS

# Words of the context, which the program sees.
FAILED, VALUES, HOST, PROGRAM, PROFILE = 0, 1, 5, 6, 7
STOP, POLL, THREAD = WANTED - CONTEXT, 11, BUSY - CONTEXT

UNFIT = -(1 << 40)  # the result if input i does not fit is this plus i
UNKNOWN = UNFIT - 1  # and this if anything else is not as it should be, such as their number

Enter = Callable[[Arrays, list[Any], Array, Array], int]  # inputs, outputs, frame, recipe


@lru_cache
def enter_source() -> Source:
    """The text of ``enter``."""
    places = {
        "arena": ARENA,
        "buffers": BUFFERS,
        "checks": CHECKS,
        "context": CONTEXT,
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "sizes": SIZES,
        "stop": STOP,
        "thread": THREAD,
        "unfit": UNFIT,
        "unknown": UNKNOWN,
    }
    return Source("\n" + llvm_text("enter", places))


def is_unfit(code: int) -> bool:
    """Whether a result says that arrays do not fit as they are; the program has not run then."""
    return code < UNFIT // 2


PYTHON = (
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyLong_FromLongLong",
    "PyList_SetItem",
    "Py_IncRef",
    "PyArray_Empty",
    "PyErr_CheckSignals",
    "PyErr_Occurred",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyThread_get_thread_ident",
)
_ARRAY_EMPTY = 184  # the place of PyArray_Empty in the table of NumPy's functions, which never changes


class _MethodDef(ctypes.Structure):
    """What Python needs to know to call a native function."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_METH_FASTCALL = 0x80
_kept: list[Any] = []  # what native functions of Python point to


@lru_cache
def make_enter() -> Enter:
    """The function for this interpreter, made at the first call."""
    return _native_enter() if arrays_look_as_expected() else enter_slowly


def _native_enter() -> Enter:
    code = _codes()["weft_enter"]
    types = np.array([id(list), id(tuple), id(np.ndarray), id(None), _tuple_items()], np.uint64)
    function: Enter = as_python_function(code, "enter", types)
    return function


@lru_cache
def _codes() -> Mapping[str, Code]:
    """The functions in machine code, from disk or compiled."""
    if shared:
        return shared
    from weft.backends.llvm.engine import default_engine

    engine = default_engine()
    engine.provide(PYTHON, python_address)
    return engine.load([enter_source()])


@lru_cache
def poll_address() -> int:
    """Where the function is that a loop calls when somebody may want it to end."""
    if arrays_look_as_expected():
        return _codes()["weft_poll"].address
    callback = _POLL_TYPE(_poll_slowly)
    _kept.append(callback)
    return int(ctypes.cast(callback, ctypes.c_void_p).value or 0)


_POLL_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


def _poll_slowly(context: int, failure: int) -> int:
    """The same as ``weft_poll``, but for signals: these wait until the run has ended."""
    words = (ctypes.c_int64 * CONTEXT_WORDS).from_address(context)
    ends = words[STOP] == words[THREAD]
    words[STOP] = 0
    if ends and not words[FAILED]:
        words[FAILED] = failure
    return int(ends)


def python_address(name: str) -> int:
    """Where a function of the interpreter or of NumPy is."""
    if name == "PyArray_Empty":
        return _numpy_address(_ARRAY_EMPTY)
    return int(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0)


def _numpy_address(number: int) -> int:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    table = pointer(import_module("numpy._core._multiarray_umath")._ARRAY_API, None)
    return int(ctypes.c_uint64.from_address(table + 8 * number).value)


def as_python_function(code: Code, name: str, self: Any) -> Any:
    """Native code that keeps to Python's own convention, as a function."""
    definition = _MethodDef(name.encode(), code.address, _METH_FASTCALL, None)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.argtypes = (ctypes.POINTER(_MethodDef), ctypes.py_object, ctypes.py_object)
    make.restype = ctypes.py_object
    _kept.extend((definition, code, self))
    return make(ctypes.byref(definition), self, None)


def arrays_look_as_expected() -> bool:
    """Whether arrays, lists and tuples have everything at the places where ``enter`` looks."""
    if "t" in sys.abiflags or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    probes = (np.zeros((3, 5), np.float32), np.zeros((4, 6), np.int64)[:, ::2].T, np.zeros((), np.bool_))
    listed = [*probes]
    at = ctypes.c_uint64.from_address
    in_order = at(at(id(listed) + 24).value).value == id(probes[0]) and _tuple_items() > 0
    sizes = at(id(listed) + 16).value == at(id(probes) + 16).value == len(probes)
    return in_order and sizes and all(map(_looks_as_expected, probes))


def _tuple_items() -> int:
    """How far into a tuple its items are, which depends on the version of Python; 0 if that is not known."""
    probe = (object(), object())
    at = ctypes.c_uint64.from_address
    return next((n for n in (24, 32) if at(id(probe) + n).value == id(probe[0])), 0)


def _looks_as_expected(array: Any) -> bool:
    word = ctypes.c_int64.from_address
    half = ctypes.c_int32.from_address
    place = id(array)
    dims = word(place + 32).value
    ordered = array.flags.c_contiguous | array.flags.aligned << 8
    return (
        word(place + 8).value == id(type(array))
        and word(place + 16).value == array.ctypes.data
        and half(place + 24).value == array.ndim
        and tuple(word(dims + 8 * i).value for i in range(array.ndim)) == array.shape
        and word(place + 56).value == id(array.dtype)
        and half(place + 64).value & 0x101 == ordered
    )


def check_words(shape: Sequence[int], dtype: DType) -> list[int]:
    """What ``enter`` compares an input with."""
    return [id(dtype), len(shape), *shape]


def recipe_words(donor: int, shape: Sequence[int], dtype: DType) -> list[int]:
    """What ``enter`` takes for a result that it finds no array for: that of an input, or (-1) a new one."""
    return [donor, *check_words(shape, dtype)]


_MAIN_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4)


def enter_slowly(inputs: Arrays, outputs: list[Any], frame: Array, recipe: Array) -> int:
    """The same as ``enter``, in Python."""
    if type(inputs) not in (list, tuple) or len(inputs) != frame[INPUTS]:
        return UNKNOWN
    check = ctypes.cast(int(frame[CHECKS]), ctypes.POINTER(ctypes.c_int64))
    place = 0
    for i, array in enumerate(inputs):
        if type(array) is not np.ndarray or id(array.dtype) != check[place]:
            return UNFIT + i
        rank = check[place + 1]
        shape = tuple(check[place + 2 : place + 2 + rank])
        if array.shape != shape or not (array.flags.c_contiguous and array.flags.aligned):
            return UNFIT + i
        place += 2 + rank
    _fill(inputs, outputs, recipe.tolist())
    if not all(a.flags.carray for a in outputs):
        return UNKNOWN
    for i, array in enumerate((*inputs, *outputs)):
        frame[BUFFERS + i] = array.ctypes.data
    frame[CONTEXT + FAILED] = 0
    base = frame.ctypes.data
    main = _MAIN_TYPE(int(frame[MAIN]))
    frame[BUSY] = get_ident()
    try:
        return int(main(base + 8 * CONTEXT, base + 8 * BUFFERS, int(frame[ARENA]), int(frame[SIZES])))
    finally:
        frame[BUSY] = 0


def _fill(inputs: Arrays, outputs: list[Any], recipe: list[int]) -> None:
    """Have an array for each result."""
    place = 0
    for i, held in enumerate(outputs):
        donor, dtype, rank = recipe[place : place + 3]
        place += 3 + rank
        if held is None and donor >= 0:
            outputs[i] = inputs[donor]
        elif held is None:
            kind: Any = ctypes.cast(dtype, ctypes.py_object).value
            outputs[i] = np.empty(recipe[place - rank : place], kind)

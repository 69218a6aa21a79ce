"""The way from Python into machine code: one function that takes arrays as they are, without converting them.

``enter(inputs, outputs, frame, recipe)`` looks at the arrays where NumPy keeps what they are, makes arrays
for results that the list has none for, and calls the main function of a program without the lock of the
interpreter. It is machine code that Python calls like one of its own functions. Where NumPy's arrays do not
look as expected, a function in Python does the same.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.backends.llvm.code import Code, Source, shared

if TYPE_CHECKING:
    from weft.backends.llvm.engine import Engine

# Words of a frame: what one call of a program needs. After the context comes the table of buffers.
MAIN, INPUTS, OUTPUTS, CHECKS, ARENA, SIZES = range(6)
CONTEXT = 8
CONTEXT_WORDS = 16
BUFFERS = CONTEXT + CONTEXT_WORDS

# Words of the context, which the program sees.
FAILED, VALUES, HOST, PROGRAM, PROFILE = 0, 1, 5, 6, 7

UNFIT = -(1 << 40)  # the result if input i does not fit is this plus i
UNKNOWN = UNFIT - 1  # and this if anything else is not as it should be, such as their number

Enter = Callable[[Sequence[Any], list[Any], Any, Any], int]

_TEXT = f"""
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare void @Py_IncRef(ptr)
declare ptr @PyArray_Empty(i32, ptr, ptr, i32)

define ptr @weft_enter(ptr %self, ptr %args, i64 %nargs) {{
entry:
  %inputs = load ptr, ptr %args
  %args1 = getelementptr i64, ptr %args, i64 1
  %outputs = load ptr, ptr %args1
  %args2 = getelementptr i64, ptr %args, i64 2
  %frame_object = load ptr, ptr %args2
  %frame_data = getelementptr i8, ptr %frame_object, i64 16
  %frame = load ptr, ptr %frame_data
  %args3 = getelementptr i64, ptr %args, i64 3
  %recipes_object = load ptr, ptr %args3
  %recipes_data = getelementptr i8, ptr %recipes_object, i64 16
  %recipes = load ptr, ptr %recipes_data
  %types_data = getelementptr i8, ptr %self, i64 16
  %types = load ptr, ptr %types_data
  %types1 = getelementptr i64, ptr %types, i64 1
  %types2 = getelementptr i64, ptr %types, i64 2
  %types3 = getelementptr i64, ptr %types, i64 3
  %list_type = load ptr, ptr %types
  %tuple_type = load ptr, ptr %types1
  %array_type = load ptr, ptr %types2
  %none = load ptr, ptr %types3
  %frame_inputs = getelementptr i64, ptr %frame, i64 {INPUTS}
  %frame_outputs = getelementptr i64, ptr %frame, i64 {OUTPUTS}
  %frame_checks = getelementptr i64, ptr %frame, i64 {CHECKS}
  %frame_arena = getelementptr i64, ptr %frame, i64 {ARENA}
  %frame_sizes = getelementptr i64, ptr %frame, i64 {SIZES}
  %context = getelementptr i64, ptr %frame, i64 {CONTEXT}
  %buffers = getelementptr i64, ptr %frame, i64 {BUFFERS}
  %input_count = load i64, ptr %frame_inputs
  %output_count = load i64, ptr %frame_outputs
  %checks = load ptr, ptr %frame_checks
  %arena = load ptr, ptr %frame_arena
  %sizes = load ptr, ptr %frame_sizes
  %main = load ptr, ptr %frame
  %size_place = getelementptr i8, ptr %inputs, i64 16
  %size = load i64, ptr %size_place
  %right_size = icmp eq i64 %size, %input_count
  br i1 %right_size, label %kind, label %unknown
kind:
  %type_place = getelementptr i8, ptr %inputs, i64 8
  %type = load ptr, ptr %type_place
  %types4 = getelementptr i64, ptr %types, i64 4
  %tuple_items = load i64, ptr %types4
  %within = getelementptr i8, ptr %inputs, i64 %tuple_items
  %is_tuple = icmp eq ptr %type, %tuple_type
  br i1 %is_tuple, label %begin, label %list
list:
  %elsewhere_place = getelementptr i8, ptr %inputs, i64 24
  %elsewhere = load ptr, ptr %elsewhere_place
  %is_list = icmp eq ptr %type, %list_type
  br i1 %is_list, label %begin, label %unknown
begin:
  %items = phi ptr [%within, %kind], [%elsewhere, %list]
  br label %next
next:
  %i = phi i64 [0, %begin], [%i1, %take]
  %check = phi ptr [%checks, %begin], [%check_next, %take]
  %more = icmp slt i64 %i, %input_count
  br i1 %more, label %look, label %give
look:
  %item = getelementptr ptr, ptr %items, i64 %i
  %array = load ptr, ptr %item
  %array_type_place = getelementptr i8, ptr %array, i64 8
  %this_type = load ptr, ptr %array_type_place
  %is_array = icmp eq ptr %this_type, %array_type
  br i1 %is_array, label %compare, label %unfit
compare:
  %descr_place = getelementptr i8, ptr %array, i64 56
  %descr = load ptr, ptr %descr_place
  %wanted_descr = load ptr, ptr %check
  %same_descr = icmp eq ptr %descr, %wanted_descr
  %rank_place = getelementptr i8, ptr %array, i64 24
  %rank = load i32, ptr %rank_place
  %rank_wide = zext i32 %rank to i64
  %wanted_rank_place = getelementptr i64, ptr %check, i64 1
  %wanted_rank = load i64, ptr %wanted_rank_place
  %same_rank = icmp eq i64 %rank_wide, %wanted_rank
  %flags_place = getelementptr i8, ptr %array, i64 64
  %flags = load i32, ptr %flags_place
  %ordered = and i32 %flags, 257
  %is_ordered = icmp eq i32 %ordered, 257
  %fits1 = and i1 %same_descr, %same_rank
  %fits2 = and i1 %fits1, %is_ordered
  br i1 %fits2, label %shape, label %unfit
shape:
  %dims_place = getelementptr i8, ptr %array, i64 32
  %dims = load ptr, ptr %dims_place
  %wanted_dims = getelementptr i64, ptr %check, i64 2
  br label %axis
axis:
  %d = phi i64 [0, %shape], [%d1, %dim]
  %more_axes = icmp slt i64 %d, %rank_wide
  br i1 %more_axes, label %dim, label %take
dim:
  %dim_place = getelementptr i64, ptr %dims, i64 %d
  %length = load i64, ptr %dim_place
  %wanted_place = getelementptr i64, ptr %wanted_dims, i64 %d
  %wanted = load i64, ptr %wanted_place
  %same = icmp eq i64 %length, %wanted
  %d1 = add i64 %d, 1
  br i1 %same, label %axis, label %unfit
take:
  %data_place = getelementptr i8, ptr %array, i64 16
  %data = load ptr, ptr %data_place
  %buffer = getelementptr ptr, ptr %buffers, i64 %i
  store ptr %data, ptr %buffer
  %check_next = getelementptr i64, ptr %wanted_dims, i64 %rank_wide
  %i1 = add i64 %i, 1
  br label %next
give:
  %outputs_place = getelementptr i8, ptr %outputs, i64 24
  %output_items = load ptr, ptr %outputs_place
  %output_buffers = getelementptr ptr, ptr %buffers, i64 %input_count
  br label %next_output
next_output:
  %o = phi i64 [0, %give], [%o1, %placed]
  %recipe = phi ptr [%recipes, %give], [%recipe_next, %placed]
  %more_outputs = icmp slt i64 %o, %output_count
  br i1 %more_outputs, label %output, label %run
output:
  %donor = load i64, ptr %recipe
  %recipe1 = getelementptr i64, ptr %recipe, i64 1
  %new_descr = load ptr, ptr %recipe1
  %recipe2 = getelementptr i64, ptr %recipe, i64 2
  %new_rank = load i64, ptr %recipe2
  %new_dims = getelementptr i64, ptr %recipe, i64 3
  %recipe_next = getelementptr i64, ptr %new_dims, i64 %new_rank
  %output_item = getelementptr ptr, ptr %output_items, i64 %o
  %held = load ptr, ptr %output_item
  %is_missing = icmp eq ptr %held, %none
  br i1 %is_missing, label %missing, label %placed
missing:
  %is_given = icmp sge i64 %donor, 0
  br i1 %is_given, label %borrow, label %create
borrow:
  %donor_item = getelementptr ptr, ptr %items, i64 %donor
  %donated = load ptr, ptr %donor_item
  call void @Py_IncRef(ptr %donated)
  br label %put
create:
  call void @Py_IncRef(ptr %new_descr)
  %new_rank_narrow = trunc i64 %new_rank to i32
  %created = call ptr @PyArray_Empty(i32 %new_rank_narrow, ptr %new_dims, ptr %new_descr, i32 0)
  %refused = icmp eq ptr %created, null
  br i1 %refused, label %fail, label %put
put:
  %new = phi ptr [%donated, %borrow], [%created, %create]
  %status = call i32 @PyList_SetItem(ptr %outputs, i64 %o, ptr %new)
  br label %placed
placed:
  %output_array = phi ptr [%held, %output], [%new, %put]
  %output_data_place = getelementptr i8, ptr %output_array, i64 16
  %output_data = load ptr, ptr %output_data_place
  %output_buffer = getelementptr ptr, ptr %output_buffers, i64 %o
  store ptr %output_data, ptr %output_buffer
  %output_flags_place = getelementptr i8, ptr %output_array, i64 64
  %output_flags = load i32, ptr %output_flags_place
  %output_ordered = and i32 %output_flags, 1281
  %output_fits = icmp eq i32 %output_ordered, 1281
  %o1 = add i64 %o, 1
  br i1 %output_fits, label %next_output, label %unknown
fail:
  ret ptr null
run:
  store i64 0, ptr %context
  %thread = call ptr @PyEval_SaveThread()
  %code = call i64 %main(ptr %context, ptr %buffers, ptr %arena, ptr %sizes)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %leave
unfit:
  %which = add i64 %i, {UNFIT}
  br label %leave
unknown:
  br label %leave
leave:
  %result = phi i64 [%code, %run], [%which, %unfit], [{UNKNOWN}, %unknown]
  %number = call ptr @PyLong_FromLongLong(i64 %result)
  ret ptr %number
}}
"""

ENTER = Source(_TEXT)


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
    code = shared.get("weft_enter") or _compiled()
    types = np.array([id(list), id(tuple), id(np.ndarray), id(None), _tuple_items()], np.uint64)
    function: Enter = _as_python_function(code, "enter", types)
    return function


def _compiled() -> Code:
    from weft.backends.llvm.engine import default_engine

    engine = default_engine()
    provide_python(engine)
    return engine.load([ENTER])["weft_enter"]


def provide_python(engine: Engine) -> None:
    """Let texts declare the functions of the interpreter that they need here."""
    for name in PYTHON:
        engine.provide(name, partial(python_address, name))


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


def _as_python_function(code: Code, name: str, self: Any) -> Any:
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


def check_words(shape: Sequence[int], dtype: Any) -> list[int]:
    """What ``enter`` compares an input with."""
    return [id(dtype), len(shape), *shape]


def recipe_words(donor: int, shape: Sequence[int], dtype: Any) -> list[int]:
    """What ``enter`` takes for a result that it finds no array for: that of an input, or (-1) a new one."""
    return [donor, *check_words(shape, dtype)]


_MAIN_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4)


def enter_slowly(inputs: Sequence[Any], outputs: list[Any], frame: Any, recipe: Any) -> int:
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
    return int(main(base + 8 * CONTEXT, base + 8 * BUFFERS, int(frame[ARENA]), int(frame[SIZES])))


def _fill(inputs: Sequence[Any], outputs: list[Any], recipe: list[int]) -> None:
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

"""Launches from Python by machine code: one call that takes pointers as they are, and nothing in between.

``launch(record, *words)`` is a function in machine code that Python calls like one of its own; what it does
stands in ``launch.ll``. Where it cannot be made, ``launches`` calls the driver by the bindings.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from importlib.resources import files

from weft.backends.cuda.driver import Driver

HEADER = 11  # words before the values of a record
KERNEL, GRID, BLOCK, SHARED, STREAM, FUNCTION, COUNT = 0, 1, 4, 7, 8, 9, 10
MOST = 128  # parameters of a kernel
_PYTHON = ("PyLong_AsUnsignedLongLong", "PyLong_FromLongLong")


def driver_address(driver: Driver) -> int:
    """Where the driver's function for launches is; 0 if nobody knows."""
    told = getattr(driver.api, "launch_address", None)
    if told is not None:
        return int(told)
    try:
        function = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
    except (OSError, AttributeError):
        return 0
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


@cache
def native_launch() -> Callable[..., int] | None:
    """The function in machine code, from the cache on disk or compiled; None where that cannot be."""
    try:
        from weft.backends.llvm.code import Source
        from weft.backends.llvm.engine import default_engine
        from weft.backends.llvm.entry import as_python_function, python_address
    except ImportError:
        return None
    text = files("weft.backends.cuda").joinpath("launch.ll").read_text("utf-8")
    code = "".join([line for line in text.splitlines(keepends=True) if not line.startswith(";")])
    engine = default_engine()
    engine.provide(_PYTHON, python_address)
    found = engine.load([Source("\n" + code)])["weft_launch"]
    function: Callable[..., int] = as_python_function(found, "launch", None)
    return function

"""Launches from Python by machine code: one call that takes pointers as they are, and nothing in between.

``launch(record, *words)`` and ``call(function, *words)`` are functions in machine code that Python calls like
its own; what they do stands in ``launch.ll``. Where they cannot be made, the bindings are called.
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
_NAMES = ("weft_launch", "weft_call")
_WORDS = {"cuGraphLaunch": 2, "cuMemcpyDtoDAsync": 4}  # that functions take
_PYTHON = ("PyLong_AsUnsignedLongLong", "PyLong_FromLongLong")


def driver_address(driver: Driver, name: str = "cuLaunchKernel") -> int:
    """Where a function of the driver is; 0 if nobody knows."""
    told = getattr(driver.api, "addresses", None)
    if told is not None:
        return int(told.get(name, 0))
    try:
        function = getattr(ctypes.CDLL("libcuda.so.1"), name)
    except (OSError, AttributeError):
        return 0
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def native_launch() -> Callable[..., int] | None:
    """The function in machine code that launches; None where it cannot be made."""
    return _functions().get("weft_launch")


def native_call(driver: Driver, name: str, symbol: str = "") -> Callable[[int, int, int, int], None]:
    """A function of the driver that takes four words at most, called by machine code where that can be.

    ``symbol`` is what the library calls it, if that is not its name.
    """
    call, address = _functions().get("weft_call"), driver_address(driver, symbol or name)
    general = getattr(driver, name)
    if call is None or not address:
        count = _WORDS[name]
        return lambda *words: general(*words[:count])

    def direct(a: int, b: int, c: int, d: int) -> None:
        if code := call(address, a, b, c, d):
            raise driver.failure(name, code)

    return direct


@cache
def _functions() -> dict[str, Callable[..., int]]:
    """The functions in machine code, from the cache on disk or compiled; none where that cannot be."""
    try:
        from weft.backends.llvm.code import Source
        from weft.backends.llvm.engine import default_engine
        from weft.backends.llvm.entry import as_python_function, python_address
    except ImportError:
        return {}
    text = files("weft.backends.cuda").joinpath("launch.ll").read_text("utf-8")
    code = "".join([line for line in text.splitlines(keepends=True) if not line.startswith(";")])
    engine = default_engine()
    engine.provide(_PYTHON, python_address)
    found = engine.load([Source("\n" + code)])
    return {name: as_python_function(found[name], name.removeprefix("weft_"), None) for name in _NAMES}

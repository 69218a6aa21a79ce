"""The CUDA driver: its functions under their own names, every return code looked at.

The functions are those of ``cuda.bindings.driver``, which is imported at first use, or of a stand-in with the
same names that tests put in its place. Handles are plain ints everywhere in weft: the bindings take them.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import Any

from weft.errors import DeviceError, DeviceMemoryError, WeftError

SUCCESS, OUT_OF_MEMORY, NO_DEVICE = 0, 2, 100
NOT_READY = 600
_BROKEN = frozenset({700, 702, 709, 714, 715, 716, 717, 718, 719})  # after which the context is of no use

INSTALL = "pip install 'weft[cuda]'"


class Life:
    """Whether the process is about to end: then nothing is given back any more, the driver does it all."""

    ending = False


def _end() -> None:
    Life.ending = True


atexit.register(_end)


class Driver:
    """Calls functions of the driver: ``driver.cuMemAllocAsync(bytes, stream)`` gives the pointer, or raises.

    Attributes:
        api: what has the functions; each gives a tuple, of which the first item is the return code.
    """

    def __init__(self, api: object) -> None:
        self.api = api

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self.api, name)

        def checked(*args: object) -> Any:
            result = function(*args)
            if result[0]:
                raise self.failure(name, int(result[0]))
            return result[1] if len(result) == 2 else result[1:]

        checked.__name__ = name
        self.__dict__[name] = checked  # from now on this method is not asked
        return checked

    def code(self, name: str, *args: object) -> int:
        """The return code of a function that may fail for reasons that the caller knows what to do with."""
        return int(getattr(self.api, name)(*args)[0])

    def failure(self, name: str, code: int) -> WeftError:
        """The error that a return code means."""
        if code == OUT_OF_MEMORY:
            return DeviceMemoryError("cuda", f"the device must have memory left, got none for {name}")
        hint = None
        if code in _BROKEN:
            hint = "the device cannot be used any more in this process: start it again"
        return DeviceError("cuda", f"{name} must succeed, got error {code}: {self.reason(code)}", hint=hint)

    def reason(self, code: int) -> str:
        """A return code in the driver's own words."""
        api: Any = self.api
        texts = []
        for ask in (api.cuGetErrorName, api.cuGetErrorString):
            found, text = ask(_as_result(api, code))
            texts.append(text.decode() if not found and text else "unknown")
        return ": ".join(texts)


def _as_result(api: Any, code: int) -> object:
    return api.CUresult(code) if hasattr(api, "CUresult") else code


class _Found:
    """The driver of this process, or why there is none; looked for once."""

    __slots__ = ("asked", "driver", "forked", "hint", "missing")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Look again the next time."""
        self.asked = False
        self.forked = False
        self.driver: Driver | None = None
        self.missing = ""
        self.hint: str | None = None

    def look(self) -> None:
        """Look for the bindings, the driver and a device."""
        self.asked = True
        try:
            from cuda.bindings import driver as api
        except ImportError:
            self.missing, self.hint = "the package cuda-bindings is not installed", INSTALL
            return
        self.use(api)

    def use(self, api: object) -> None:
        """Take functions as those of the driver, if they work."""
        self.asked = True
        driver = Driver(api)
        try:
            code = driver.code("cuInit", 0)
        except (RuntimeError, OSError):  # the bindings find no libcuda
            self.missing = "this machine has no driver of NVIDIA (libcuda.so.1)"
            self.hint = "install NVIDIA's driver, and see what `nvidia-smi` says"
            return
        if code:
            self.missing = f"the driver of NVIDIA does not start: {driver.reason(code)}"
            self.hint = "see what `nvidia-smi` says" if code != NO_DEVICE else "a GPU of NVIDIA is needed"
            return
        self.driver = driver


found = _Found()


def _in_child() -> None:
    """What a forked process holds of devices is its parent's: it uses none of it, and gives none back."""
    found.forked = found.driver is not None
    Life.ending = Life.ending or found.forked


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def why_unavailable() -> tuple[str, str | None] | None:
    """What is missing for devices, and what helps; None where nothing is."""
    if not found.asked:
        found.look()
    return None if found.driver is not None else (found.missing, found.hint)


def the_driver(op: str) -> Driver:
    """The driver, or an error in the name of ``op`` that says what is missing."""
    if not found.asked:
        found.look()
    if found.driver is None:
        raise DeviceError(op, f"a CUDA device must be there, but {found.missing}", hint=found.hint)
    if found.forked:
        raise DeviceError(
            op,
            "devices must not be used in a process that was forked from one that used them",
            hint='start processes by multiprocessing.get_context("spawn")',
        )
    return found.driver

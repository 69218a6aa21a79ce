"""What this processor has beyond the name that LLVM has for it, where LLVM does not tell: on ARM."""

from __future__ import annotations

import ctypes
import sys

# By feature, as LLVM names it: which word of the system's tells of it, and the bit.
ARM_BITS = {
    "lse": (0, 8),
    "fullfp16": (0, 10),
    "rdm": (0, 12),
    "dotprod": (0, 20),
    "sve": (0, 22),
    "sve2": (1, 1),
    "i8mm": (1, 13),
    "bf16": (1, 14),
}
CAPABILITIES = (16, 26)  # under which the system gives these words
_UNITS = {"dotprod": "FEAT_DotProd", "i8mm": "FEAT_I8MM", "bf16": "FEAT_BF16"}  # and Apple's name


def arm_units() -> list[str]:
    """Features of this processor that add products of narrow numbers, as its system tells.

    >>> from weft.backends.llvm.features import arm_units
    >>> set(arm_units()) <= {"dotprod", "i8mm", "bf16"}
    True
    """
    asked = _apple if sys.platform == "darwin" else _linux
    return [name for name in _UNITS if asked(name)]


def _linux(name: str) -> bool:
    library = ctypes.CDLL(None)
    library.getauxval.restype, library.getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    word, bit = ARM_BITS[name]
    return bool(library.getauxval(CAPABILITIES[word]) >> bit & 1)


def _apple(name: str) -> bool:
    found, size = ctypes.c_int(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    key = f"hw.optional.arm.{_UNITS[name]}".encode()
    answer = ctypes.CDLL(None).sysctlbyname(key, ctypes.byref(found), ctypes.byref(size), None, 0)
    return answer == 0 and bool(found.value)

"""The machine that code is made for: its name, what it can do, and how wide its vectors are."""

from __future__ import annotations

import platform
import sys
from functools import lru_cache

import llvmlite.binding as llvm

from weft.backends.llvm.code import early
from weft.backends.llvm.features import arm_units
from weft.base.records import dataclass
from weft.config import settings
from weft.errors import DeviceError, DomainError

# Machines with narrower vectors that any x86-64 machine with wider ones can stand in for.
_NARROWER = {32: "x86-64-v3", 16: "x86-64-v2"}


@dataclass(frozen=True, slots=True)
class Target:
    """What the code generator and the writers of LLVM text need to know of a machine.

    Attributes:
        triple: architecture and system, as LLVM names them.
        cpu: the processor, as LLVM names it.
        features: what it has beyond or short of its name, as LLVM writes it.
        vector_bytes: the size of a vector register.
        registers: how many of them there are.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int


def host_target(vector_bytes: int | None = None) -> Target:
    """This machine; with narrower vectors than it has if asked, or if WEFT_VECTOR_BYTES says so.

    >>> from weft.backends.llvm.target import host_target
    >>> host_target().vector_bytes in (16, 32, 64)
    True
    """
    if vector_bytes is None:
        vector_bytes = settings.vector_bytes
    host = _host()
    if vector_bytes is None or vector_bytes == host.vector_bytes:
        return host
    if vector_bytes > host.vector_bytes or vector_bytes not in _NARROWER:
        message = f"vectors here have at most {host.vector_bytes} bytes, got {vector_bytes}"
        raise DomainError("target", message)
    return Target(host.triple, _NARROWER[vector_bytes], "", vector_bytes, registers=16)


@lru_cache
def _host() -> Target:
    if sys.platform == "win32":
        hint = 'use backend="interpret"'
        raise DeviceError("llvm", "the backend runs on Linux and macOS, got Windows", hint=hint)
    with early:  # LLVM has a lock of its own, which a fork must not find held
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        features = llvm.get_host_cpu_features()
    wide = features.get("avx512f", False)
    width = 64 if wide else 32 if features.get("avx2", False) else 16
    arm = platform.machine().lower() in ("aarch64", "arm64")
    told = features.flatten()
    if arm:  # of which LLVM asks the system for little
        told = ",".join([*filter(None, [told]), *[f"+{name}" for name in arm_units()]])
    triple, many = llvm.get_process_triple(), wide or arm
    return Target(triple, llvm.get_host_cpu_name(), told, width, registers=32 if many else 16)

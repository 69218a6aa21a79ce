"""The machine that a library is for: this one, or any of a kind."""

from __future__ import annotations

import platform

import llvmlite.binding as llvm

from weft.backends.llvm.target import Target, host_target
from weft.errors import DomainError

_X86 = "x86_64-unknown-linux-gnu"
_ARM = "aarch64-unknown-linux-gnu"

# By name, machines that all processors from some year on can stand in for.
_TARGETS = {
    "x86-64-v2": Target(_X86, "x86-64-v2", "", vector_bytes=16, registers=16),
    "x86-64-v3": Target(_X86, "x86-64-v3", "", vector_bytes=32, registers=16),
    "x86-64-v4": Target(_X86, "x86-64-v4", "", vector_bytes=64, registers=32),
    "armv8-a": Target(_ARM, "generic", "+neon,+fp-armv8", vector_bytes=16, registers=32),
}
_GENERIC = {"x86_64": "x86-64-v2", "amd64": "x86-64-v2", "aarch64": "armv8-a", "arm64": "armv8-a"}


def target_named(cpu: str) -> Target:
    """The machine with a name: "host", "generic", or a level such as "x86-64-v3".

    >>> from weft.backends.llvm.export.target import target_named
    >>> target_named("x86-64-v3").vector_bytes
    32
    """
    if cpu == "host":
        return host_target()
    name = _GENERIC.get(platform.machine().lower(), cpu) if cpu == "generic" else cpu
    if name not in _TARGETS:
        known = ", ".join(['"host"', '"generic"', *[f'"{n}"' for n in _TARGETS]])
        raise DomainError("export_library", f"cpu must be one of {known}, got {cpu!r}")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return _TARGETS[name]


def is_arm(target: Target) -> bool:
    """Whether a machine is one of ARM's."""
    return target.triple.startswith(("aarch64", "arm64"))


def is_here(target: Target) -> bool:
    """Whether a machine is of the kind that this program runs on."""
    return is_arm(target) == is_arm(host_target())

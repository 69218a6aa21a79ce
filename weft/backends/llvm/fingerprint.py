"""What compiled programs depend on besides their graph: weft itself, the processor, and settings.

It is found without importing what compiles, since it is asked for to do without.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec

import numpy as np

from weft.backends.llvm.tuning_file import file_state
from weft.config import settings

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # of weft
_PARTS = ("base", "backends", "ir", "io", "loop", "ops", "passes", "schedule")  # with all inside them
_ENDINGS = (".py", ".ll")
_ENOUGH = 8192  # bytes of the description of processors: the first one is in them


def fingerprint() -> tuple[str, ...] | None:
    """What the key of a compiled program has besides its graph; None where programs are not kept.

    >>> from weft.backends.llvm.fingerprint import fingerprint
    >>> fingerprint() == fingerprint()
    True
    """
    processor = _processor()
    if processor is None or settings.debug:
        return None
    return (*versions(), processor, str(settings.vector_bytes or ""), file_state())


@lru_cache
def versions() -> tuple[str, ...]:
    """What a program depends on that runs elsewhere than on this processor: weft, and what it is made by."""
    return ("weft-program-1", weft_fingerprint(_FOLDER), _compiler(), sys.version, np.__version__)


def _compiler() -> str:
    """Which LLVM is installed, by when."""
    spec = find_spec("llvmlite")
    return "" if spec is None or spec.origin is None else f"{spec.origin} {os.stat(spec.origin).st_mtime_ns}"


def weft_fingerprint(folder: str) -> str:
    """Tells weft's files in a folder from others: by the list that pip wrote, or by when each was changed."""
    beside = os.path.dirname(folder)
    installed = [n for n in os.listdir(beside) if n.startswith("weft-") and n.endswith(".dist-info")]
    if len(installed) != 1:
        return " ".join(_changes(folder))
    info = os.stat(os.path.join(beside, installed[0], "RECORD"))
    return f"{folder} {installed[0]} {info.st_mtime_ns} {info.st_size}"


def _changes(folder: str) -> list[str]:
    found: list[str] = []
    _look_through(folder, found, inside=False)
    return sorted(found)


def _look_through(folder: str, found: list[str], *, inside: bool) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_ENDINGS):
                info = entry.stat()
                found.append(f"{entry.path} {info.st_mtime_ns} {info.st_size}")
            elif (inside or entry.name in _PARTS) and entry.is_dir() and entry.name != "__pycache__":
                _look_through(entry.path, found, inside=True)


# What tells processors apart, by the kind of machine: one block of lines a processor, as Linux writes them.
_TELLING = {
    "x86_64": ("vendor_id", "cpu family", "model", "stepping", "flags"),
    "aarch64": ("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
}


@lru_cache
def _processor() -> str | None:
    """What the processor is and can do, as Linux tells; None elsewhere, and where code is of another kind."""
    wanted = _TELLING.get(os.uname().machine) if sys.platform == "linux" and sys.maxsize > 2**32 else None
    if wanted is None:
        return None
    alike = wanted is _TELLING["x86_64"]  # processors of other machines may differ, and LLVM asks all of them
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            blocks = file.read(_ENOUGH if alike else -1).strip().split("\n\n")
    except OSError:
        return None
    told = dict.fromkeys(_told(block, wanted) for block in (blocks[:1] if alike else blocks))
    told.pop("", None)  # lines about the whole machine
    return " ".join(told) or None


def _told(block: str, wanted: Sequence[str]) -> str:
    """What is wanted of a block; nothing if a part of it is not there."""
    pairs = [line.split(":", 1) for line in block.splitlines() if ":" in line]
    found = {name.strip(): value.strip() for name, value in pairs}
    return " ".join(found[name] for name in wanted) if found.keys() >= set(wanted) else ""

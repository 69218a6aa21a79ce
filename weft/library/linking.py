"""Objects become a shared library, by the linker of the system."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from weft.errors import DeviceError

_COMPILERS = ("cc", "gcc", "clang")
_LINKERS = ("ld", "ld.lld")
_HINT = "install one: apt install gcc, dnf install gcc, or apk add gcc musl-dev"


def find_linker(linker: str | None = None) -> str:
    """The path of a program that links: one that is named, a C compiler, or a linker."""
    names = (*_COMPILERS, *_LINKERS) if linker is None else (linker,)
    for name in names:
        if found := shutil.which(name):
            return found
    wanted = "a C compiler or a linker" if linker is None else linker
    message = f"{wanted} must be there to link the library, got none of {', '.join(names)} on the PATH"
    raise DeviceError("export_library", message, hint=_HINT)


def link(
    objects: Sequence[Path],
    target: Path,
    exported: Sequence[str],
    libraries: Sequence[Path] = (),
    *,
    linker: str,
) -> None:
    """Write a shared library of objects, in which other programs see the exported names only.

    Args:
        objects: files.
        target: the library.
        exported: names of functions.
        libraries: that are beside it wherever it goes.
        linker: the path of the program that links.
    """
    script = target.with_suffix(".map")
    script.write_text(f"{{ global: {' '.join([f'{name};' for name in exported])} local: *; }};\n")
    is_plain = os.path.basename(linker) in _LINKERS
    options = [
        f"--version-script={script}",
        f"-soname={target.name}",
        "-z,noexecstack",
        "-z,nodelete",  # the threads of the pool run its code as long as the process lives
        "-z,relro",
        "--gc-sections",
        *(["--enable-new-dtags", "-rpath,$ORIGIN"] if libraries else []),
    ]
    passed = [x for o in options for x in o.split(",")] if is_plain else [f"-Wl,{o}" for o in options]
    system = [] if is_plain else ["-lpthread", "-ldl", "-lm"]
    command: list[str | Path] = [linker, "-shared", "-o", target, *objects, *libraries, *passed, *system]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    script.unlink()
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        message = f"{os.path.basename(linker)} must link the library, got: {' / '.join(said[-3:])}"
        raise DeviceError("export_library", message, hint=_HINT)

"""NVIDIA's assembler, where there is one: on the path, or in a wheel of NVIDIA's."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest


@cache
def find_ptxas() -> str | None:
    """The assembler, or None."""
    found = shutil.which("ptxas")
    if found is not None:
        return found
    for folder in sys.path:
        for path in sorted(Path(folder).glob("nvidia/**/bin/ptxas")) if folder else ():
            return str(path)
    return None


needs_ptxas = pytest.mark.skipif(
    find_ptxas() is None, reason="ptxas is not here: pip install nvidia-cuda-nvcc has it"
)


def assemble(ptx: str, architecture: str, folder: Path, *options: str) -> str:
    """What the assembler says of a text; an error if it refuses it."""
    tool = find_ptxas()
    assert tool is not None
    source = folder / "kernels.ptx"
    source.write_text(ptx)
    command = [tool, f"-arch={architecture}", *options, str(source), "-o", str(folder / "kernels.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stderr + done.stdout

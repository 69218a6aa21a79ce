"""The environments of the peers, made with pip in a folder that git ignores."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from bench.frameworks import PACKAGES

FOLDER = Path(__file__).parent.parent / ".bench"


def pythons(given: dict[str, str], wanted: set[str]) -> dict[str, str]:
    """The interpreter of each environment that is wanted: given, there already, or made now."""
    found = {"weft": sys.executable}
    for name in sorted(wanted & set(PACKAGES)):
        found[name] = _python(Path(given[name])) if name in given else _made(name)
    return found


def _python(folder: Path) -> str:
    return str(folder / "bin" / "python")


def _made(name: str) -> str:
    folder = FOLDER / name
    if not (folder / ".done").exists():
        print(f"making the environment of {name} in {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        command = [_python(folder), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*command, *PACKAGES[name]], check=True)
        (folder / ".done").touch()
    return _python(folder)

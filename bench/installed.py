"""What installing costs: ``python -m bench.installed [NAME ...]``, or ``make sizes``.

Each framework is downloaded and installed by pip into an empty environment of its own, weft from the wheel of
this tree. Counted are the files that pip fetched, what lies in ``site-packages`` afterwards (with bytecode,
without pip and setuptools), and the time of the import; the table goes to ``results/installed.md``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench import machine
from bench.environments import FOLDER
from bench.frameworks import PACKAGES

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
IMPORTS = 11

# from the name of a module to what a user tells pip
REQUIREMENTS = {
    "weft": [],  # its wheel
    "torch": PACKAGES["torch"][:1],
    "jax": PACKAGES["jax"][:1],
    "tensorflow": ["tensorflow"],
    "onnxruntime": PACKAGES["onnxruntime"][:1],
}
NOT_COUNTED = ("pip", "setuptools", "_distutils_hack", "distutils-precedence.pth", "pkg_resources")
TIMED_IMPORT = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(REQUIREMENTS), help=", ".join(REQUIREMENTS))
    names = parser.parse_args().names
    RESULTS.mkdir(exist_ok=True)
    found = {"machine": machine.describe(), "frameworks": [measure(name) for name in names]}
    text = table(found)
    print(text)
    (RESULTS / "installed.md").write_text(text + "\n")
    (RESULTS / "installed.json").write_text(json.dumps(found, indent=1) + "\n")


def measure(name: str) -> dict[str, Any]:
    """Download, install, import; what each of them took."""
    folder = FOLDER / "installed" / name
    print(f"installing {name} in {folder}", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True)
    python, wheels = str(folder / "bin" / "python"), folder / "wheels"
    requirements = REQUIREMENTS[name] or [str(build_wheel(folder / "own"))]
    _pip(python, "download", "--dest", str(wheels), *requirements)
    _pip(python, "install", "--no-index", "--find-links", str(wheels), *requirements)
    packages = next(folder.glob("lib/python*/site-packages"))
    return {
        "name": name,
        "version": version_of(packages, name),
        "packages": sum(1 for entry in counted(packages) if entry.suffix == ".dist-info"),
        "download": sum(f.stat().st_size for f in wheels.iterdir() if not f.name.startswith(NOT_COUNTED)),
        "installed": sum(size_of(entry) for entry in counted(packages)),
        "import": import_time(python, name),
    }


def build_wheel(folder: Path) -> Path:
    """The wheel of this tree."""
    _pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    return next(folder.glob("weft-*.whl"))


def _pip(python: str, command: str, *arguments: str) -> None:
    subprocess.run(
        [python, "-m", "pip", command, "--quiet", "--disable-pip-version-check", *arguments], check=True
    )


def counted(packages: Path) -> Iterator[Path]:
    """What lies in site-packages without what was there before anything was installed."""
    return (entry for entry in packages.iterdir() if not entry.name.startswith(NOT_COUNTED))


def version_of(packages: Path, name: str) -> str:
    """The version in the name of a distribution's folder."""
    return next(packages.glob(f"{name}-*.dist-info")).name.removesuffix(".dist-info").split("-")[1]


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(f.lstat().st_size for f in files if not f.is_dir())


def import_time(python: str, name: str) -> float:
    """The median over new processes, after one that reads the files from disk."""
    command = [python, "-I", "-W", "ignore", "-c", TIMED_IMPORT.format(name)]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(IMPORTS + 1)]
    return median(float(run.stdout) for run in runs[1:])


def table(found: dict[str, Any]) -> str:
    """The figures, in Markdown."""
    where = found["machine"]
    lines = [
        f"{where['processor']}, {where['system']}, Python {where['python']}",
        "",
        "| | packages | download | on disk | `import` |",
        "|---|---|---|---|---|",
    ]
    for one in found["frameworks"]:
        sizes = " | ".join(f"{one[key] / 1e6:,.0f} MB" for key in ("download", "installed"))
        seconds = f"{one['import']:.2f} s"
        lines.append(f"| {one['name']} {one['version']} | {one['packages']} | {sizes} | {seconds} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

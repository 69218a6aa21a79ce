"""``weft doctor``: what weft runs on here, what is missing, which settings hold, whether compiling works."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import weft
from weft.cli.arguments import Commands
from weft.config import settings
from weft.errors import WeftError

_NEEDED = ("numpy", "ml_dtypes", "llvmlite", "scipy-openblas32")
_EXTRAS = {  # by package, the extra that installs it
    "igraph": "view",
    "onnx": "onnx",
    "uvicorn": "serve",
    "httptools": "serve",
    "orjson": "serve",
    "rich": "train",
    "pyarrow": "arrow",
    "mpi4py": "mpi",
    "cuda-bindings": "cuda",
}
_Row = tuple[str, str]


def add(commands: Commands) -> None:
    """Describe the command."""
    parser = commands.add_parser("doctor", help="tell what weft runs on here, and whether it works")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Tell it; gives 1 if something that every program needs is missing or does not work."""
    packages = list(_packages())
    trial, works = _trial()
    _write("machine", _machine())
    _write("packages", packages)
    _write("settings", _settings())
    _write("code", [*_cache(), ("self-test", trial)])
    _write("gpu", list(_gpu()))
    missing = [name for name, found in packages if name in _NEEDED and not found[0].isdigit()]
    return 0 if works and not missing else 1


def _write(title: str, rows: Iterator[_Row] | list[_Row]) -> None:
    sys.stdout.write(f"{title}\n")
    sys.stdout.writelines(f"  {name:<18}{value}\n" for name, value in rows)


def _machine() -> Iterator[_Row]:
    yield "weft", weft.__version__
    yield "Python", f"{platform.python_version()} ({platform.python_implementation()})"
    yield "system", f"{platform.system()} {platform.machine()}"
    yield "threads", str(weft.get_num_threads())
    yield from _tuning()


def _tuning() -> Iterator[_Row]:
    from weft.backends import find_backend

    backend = find_backend(None)
    with suppress(WeftError):  # a backend that has nothing to tune
        tuner = backend.tuner()
        yield "tuned by", f"{tuner.told.source} ({tuner.processor}); `weft tune` measures"
        yield "units", f"products of {', '.join(tuner.units) or 'no narrow numbers'} (docs/halves.md)"


def _packages() -> Iterator[_Row]:
    for name in (*_NEEDED, *_EXTRAS):
        extra = _EXTRAS.get(name)
        how = f"not installed: pip install 'weft[{extra}]'" if extra else "missing: pip install weft again"
        try:
            yield name, version(name)
        except PackageNotFoundError:
            yield name, how


def _settings() -> Iterator[_Row]:
    for setting in settings.described():
        shown = "none" if setting.value is None else setting.value
        source = setting.source if setting.source != "default" else f"default; {setting.variable}"
        yield setting.name, f"{shown} ({source}): {setting.meaning}"


def _cache() -> Iterator[_Row]:
    from weft.backends import find_backend

    backend = find_backend(None)
    yield "backend", backend.name
    directory = None if backend.programs is None else backend.programs.directory
    if directory is None:
        yield "cache", "none"
        return
    files = [path for path in Path(directory).rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 2**20
    state = "" if os.access(_existing(Path(directory)), os.W_OK) else ", which may not be written"
    yield "cache", f"{directory}{state}: {len(files)} files, {size:.1f} MB"
    if backend.programs is not None and (reason := backend.programs.distrust) is not None:
        yield "", f"not used: {reason}, and code from there would be run"


def _existing(path: Path) -> Path:
    """The directory, or the nearest one above it that is there."""
    while not path.exists():
        path = path.parent
    return path


def _gpu() -> Iterator[_Row]:
    """Driver, devices and libraries, and a short trial on each device; or what is missing for any."""
    missing = weft.cuda.why_not()
    if missing:
        yield "none", missing
        return
    yield from weft.cuda.describe()
    for number in range(weft.cuda.device_count()):
        yield f"self-test cuda:{number}", _gpu_trial(f"cuda:{number}")


def _gpu_trial(device: str) -> str:
    """Copies, ops and a gradient on a device beside the same on the host, in a second or two."""
    begin = time.perf_counter()
    try:
        grads: list[Any] = []
        for place in ("cpu", device):
            x = (weft.arange(64.0).reshape(8, 8) / 64).to(place).requires_grad_()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of ops that go through the host
                (weft.tanh(x @ x.T + 1.0).sum(axis=0) * 2.0).sum().backward()
            grads.append(x.grad)
        right = bool(weft.allclose(grads[1].cpu(), grads[0], rtol=1e-4, atol=1e-6))
    except Exception as error:  # whatever is wrong with an installation is what the command is asked for
        return f"failed: {type(error).__name__}: {error}"
    taken = f"copied, computed and differentiated in {(time.perf_counter() - begin) * 1e3:.0f} ms"
    return taken if right else f"wrong: {grads[1]} where the host gives {grads[0]}"


def _trial() -> tuple[str, bool]:
    """A compiled function beside the same one run at once: what came of it, and whether it is right."""

    def step(x: Any) -> Any:
        return weft.tanh(x @ x + 1.0).sum(axis=0)

    x = weft.arange(64.0).reshape(8, 8) / 64
    begin = time.perf_counter()
    try:
        found = weft.compile(step)(x)
    except Exception as error:  # whatever is wrong with an installation is what the command is asked for
        return f"failed: {type(error).__name__}: {error}", False
    right = bool(weft.allclose(found, step(x), rtol=1e-5))
    taken = f"compiled and run in {(time.perf_counter() - begin) * 1e3:.0f} ms"
    return (taken, True) if right else (f"wrong: {found} where eager code gives {step(x)}", False)

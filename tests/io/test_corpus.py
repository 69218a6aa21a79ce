"""Hostile files, kept in tests/io/corpus: each is refused, or does no harm, in little memory and time.

They are loaded by a process of their own, which may not have much more memory than weft takes: what a file
claims must not be believed. ``tests.fuzz.hostile`` makes them, ``tests.fuzz.damage`` looks for more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CORPUS = Path(__file__).parent / "corpus"
ROOT = Path(__file__).parent.parent.parent
LOADERS = ("load_graph", "load")
MEMORY = 2_000_000  # bytes that may be taken, and as many more as the file is long, this many times
TIMES = 30
SECONDS = 10.0

LOADING = """
import json, resource, sys, time, tracemalloc
import weft
from weft.errors import FileError
weft.load_graph(sys.argv[1])  # imports what is needed
try: weft.load(sys.argv[1])  # likewise, before it says that this is a graph
except FileError: pass
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + (512 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
for path in sys.argv[2:]:
    for loader in ("load_graph", "load"):
        tracemalloc.start()
        begin = time.perf_counter()
        try: found = ("loaded", str(getattr(weft, loader)(path)))
        except FileError as error: found = ("FileError", str(error))
        except BaseException as error: found = (type(error).__name__, str(error))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(json.dumps([path, loader, *found, peak, time.perf_counter() - begin]), flush=True)
"""


@pytest.fixture(scope="module")
def outcomes() -> dict[tuple[str, str], Any]:
    """By name of a file and of what loads it: how that ended, the text, the most memory, and the time."""
    files = sorted(str(path) for path in CORPUS.rglob("*.weft"))
    good = str(CORPUS.parent / "files" / "graph-1.weft")
    command = [sys.executable, "-W", "error", "-c", LOADING, good, *files]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == len(LOADERS) * len(files), f"ended after {rows[-1:]}: {done.stderr}"
    return {(f"{Path(path).parent.name}/{Path(path).stem}", loader): rest for path, loader, *rest in rows}


def names(folder: str) -> list[str]:
    return sorted(f"{folder}/{path.stem}" for path in (CORPUS / folder).glob("*.weft"))


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("name", names("refused"))
def test_hostile_file_is_refused(name: str, loader: str, outcomes: dict[tuple[str, str], Any]) -> None:
    kind, text, _, _ = outcomes[name, loader]
    assert kind == "FileError", text
    assert text.startswith(f"{loader}: {name.split('/')[1]}.weft: ")


@pytest.mark.parametrize("name", names("harmless"))
def test_file_that_is_costly_to_run_is_not_to_load(name: str, outcomes: dict[tuple[str, str], Any]) -> None:
    kind, text, _, _ = outcomes[name, "load_graph"]
    assert kind == "loaded", text


@pytest.mark.parametrize("name", names("refused") + names("harmless"))
def test_file_takes_little_memory_and_time(name: str, outcomes: dict[tuple[str, str], Any]) -> None:
    size = (CORPUS / f"{name}.weft").stat().st_size
    for loader in LOADERS:
        _, _, peak, seconds = outcomes[name, loader]
        assert peak <= MEMORY + TIMES * size, loader
        assert seconds < SECONDS, loader

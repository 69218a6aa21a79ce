"""Loads changed files for as long as it is told to: ``python -m tests.fuzz.load_graph --seconds 600``.

A file must load or be a FileError, a text must be a graph or a GraphError, in bounded memory and time. What
is not so is written to a folder with the traceback, once for each place that raised. Work is done in a child
process, so that a crash is found out too.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import weft
from tests.fuzz.hostile import graph, tree
from tests.fuzz.mutations import change_text, mutated
from weft.errors import FileError, WeftError
from weft.io.layout import read_file

HERE = Path(__file__).parent
FILES = HERE.parent / "io"
MEMORY = 1 << 30  # bytes that the child may take more than it starts with
SECONDS = 20  # for one file
SOME = 500  # files until the child is asked for another seed


class TooLong(BaseException):
    """A file took too long."""


def seeds() -> list[bytes]:
    """Files to begin with: good ones, and those that are known to be bad."""
    return [*[path.read_bytes() for path in sorted(FILES.rglob("*.weft"))], *_made(), graph(), tree("[1,2]")]


def _made() -> list[bytes]:
    """Files of functions with loops, branches, sizes, random numbers and state."""
    weft.manual_seed(0)
    model = weft.nn.Linear(3, 2)
    optimizer = weft.optim.Adam(model.parameters())

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = weft.dropout(model(x), 0.5).square().sum()
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach(), "count": [1, (2.5, None)]}

    def collatz(n: Any) -> Any:
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
        return n

    types = weft.TensorType(("batch", 3), weft.float32), weft.TensorType((), weft.int64)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        found = []
        for function, kind in zip((step, collatz), types, strict=True):
            weft.compile(function).save(path, kind)
            found.append(path.read_bytes())
        weft.save({"a": weft.arange(3), "s": weft.sparse_coo_tensor([[1]], [2.0], (3,)), "n": 1.5}, path)
        return [*found, path.read_bytes()]


def texts(files: Sequence[bytes], path: Path) -> list[str]:
    """The texts of graphs in files."""
    found = []
    for data in files:
        path.write_bytes(data)
        try:
            found.append(read_file("fuzz", str(path), mmap=False, verify=False).metadata["weft.graph"])
        except (FileError, KeyError):
            continue
    return found


# One case


def check_file(data: bytes, path: Path) -> None:
    """Load a file in each way; what loads must be whole."""
    path.write_bytes(data)
    for load in (weft.load_graph, weft.load):
        try:
            loaded = load(path)
        except FileError:
            continue
        if load is weft.load_graph:
            check_graph(loaded.graph)
            repr(loaded)


def check_text(text: str) -> None:
    try:
        found = weft.parse_graph(text)
    except WeftError:
        return
    check_graph(found)


def check_graph(found: Any) -> None:
    """What was read can be written and read again."""
    constants = found.constant_data(expand=True)
    weft.parse_graph(found.to_text(expand=True), constants)


def timed(check: Callable[[], None]) -> None:
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        check()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


# The child


def work(seed: int, files: list[bytes], folder: Path) -> None:
    """Check files of a seed; each is in the folder while it is checked."""
    _limit()
    draw, path = random.Random(seed), folder / "current"
    known = texts(files, path)
    for _ in range(SOME):
        if draw.random() < 0.75:
            case = mutated(draw.choice(files), files, draw)
            check = partial(check_file, case, path)
        else:
            text = change_text(draw.choice(known), draw)
            case = text.encode("utf-8", "surrogatepass")
            path.write_bytes(case)
            check = partial(check_text, text)
        try:
            timed(check)
        except BaseException as error:
            report(error, case, folder)


def _limit() -> None:
    def stop(*_: object) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, stop)
    most = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def report(error: BaseException, case: bytes, folder: Path) -> None:
    """Keep a case, unless one that failed at the same place is there."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    name = f"{type(error).__name__}-{Path(frame.filename).stem}-{frame.lineno}"
    if not (folder / f"{name}.weft").exists():
        (folder / f"{name}.weft").write_bytes(case)
        (folder / f"{name}.txt").write_text("".join(traceback.format_exception(error)))
        sys.stderr.write(f"{name}: {error}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz; gives 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="of the first child; others count on from it")
    parser.add_argument(
        "--found", type=Path, default=Path(tempfile.gettempdir(), "weft-fuzz"), help="folder for what fails"
    )
    options = parser.parse_args(arguments)
    options.found.mkdir(parents=True, exist_ok=True)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    files, done = seeds(), 0
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        status = _in_child(seed, files, options.found)
        if status:
            (options.found / f"crash-{seed}.weft").write_bytes((options.found / "current").read_bytes())
            sys.stderr.write(f"crash-{seed}: the process ended with {status}\n")
        seed, done = seed + 1, done + SOME
    (options.found / "current").unlink(missing_ok=True)
    found = sorted(options.found.glob("*.weft"))
    sys.stdout.write(f"{done} files, up to seed {seed - 1}: {len(found)} failures in {options.found}\n")
    return 1 if found else 0


def _in_child(seed: int, files: list[bytes], folder: Path) -> int:
    child = os.fork()
    if child == 0:
        try:
            work(seed, files, folder)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main())

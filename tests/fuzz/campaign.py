"""What the generators have in common: their options, and children that may crash, hang and take memory.

A generator is a module with ``batch(watch)``, which checks cases of ``watch.seed`` and says of each that it
begins; ``replay(case)``, which gives what is wrong with a case, "" if nothing is; and ``main``, this one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from tests.fuzz.found import Found

SECONDS = 5.0  # of the processor that a case may take
PATIENCE = 60.0  # seconds by the clock, besides, until a child whose case does not end is killed
SIGNS = {-number: name for number, name in ((s.value, s.name) for s in signal.Signals)}


class TooLong(BaseException):
    """A case took too long."""


class Watch:
    """What a batch tells of itself.

    Attributes:
        seed: of the batch.
        folder: for files of its own, which are removed afterwards.
        end: when the campaign is over, by ``time.monotonic``.
        counts: of cases, by what they were.
        options: of the command line.
    """

    def __init__(
        self, generator: str, seed: int, end: float, folder: Path, options: argparse.Namespace
    ) -> None:
        self.seed = seed
        self.end = end
        self.folder = folder
        self.options = options
        self.counts: Counter[str] = Counter()
        self._generator = generator
        self._current = os.open(folder / "current", os.O_RDWR | os.O_CREAT)
        self._case = b""

    def over(self) -> bool:
        """Whether time is up."""
        return time.monotonic() > self.end

    def begin(self, case: bytes, what: str = "cases", seconds: float | None = None) -> None:
        """A case begins: it is kept for the parent, counted, and its time is limited."""
        self._case = case
        self.counts[what] += 1
        seconds = self.options.limit if seconds is None else seconds
        head = f"{time.monotonic() + seconds + self.options.patience:.3f}\n".encode()
        os.pwrite(self._current, head + case, 0)
        os.ftruncate(self._current, len(head) + len(case))
        signal.setitimer(signal.ITIMER_PROF, seconds)

    def done(self) -> None:
        """The case has ended."""
        signal.setitimer(signal.ITIMER_PROF, 0)

    def found(self, key: str, expected: str, got: str, case: bytes | None = None) -> None:
        """Keep a case, by default the one that runs, unless one with the same key is there."""
        self.done()
        found = Found(self._generator, self.seed, self._case if case is None else case, expected, got)
        if found.write(self.options.found, key):
            sys.stderr.write(f"{self._generator} {key}: expected {expected}, got {got[:2000]}\n")
        self.counts["found"] += 1


def place(error: BaseException) -> str:
    """An error by where it was raised, for cases that fail alike to be kept once."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}-{Path(frame.filename).stem}-{frame.lineno}"


def told(error: BaseException) -> str:
    """An error with the end of its traceback."""
    return "".join(traceback.format_exception(error, limit=-6))


Batch = Callable[[Watch], None]
Options = Callable[[argparse.ArgumentParser], None]


def campaign(
    generator: str, batch: Batch, arguments: Sequence[str] | None = None, more: Options | None = None
) -> int:
    """Run batches, each with a seed and a child of its own, until time is up; gives 1 if something was found.

    Args:
        generator: its name.
        batch: checks cases.
        arguments: of the command line.
        more: adds options of its own.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tests.fuzz.{generator}")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="of the first batch; others count on from it")
    folder = Path(gettempdir()) / "weft-fuzz"
    parser.add_argument("--found", type=Path, default=folder, help="folder for what fails")
    parser.add_argument("--limit", type=float, default=SECONDS, help="seconds that one case may take")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="and by the clock, besides")
    parser.add_argument("--once", action="store_true", help="run one batch, however long")
    if more is not None:
        more(parser)
    options = parser.parse_args(arguments)
    first = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    begin, seed, counts = time.monotonic(), first, Counter({"found": 0})
    while seed == first or (time.monotonic() < begin + options.seconds and not options.once):
        counts += _in_child(generator, batch, seed, begin + options.seconds, options)
        seed += 1
    found = counts.pop("found", 0)
    figures = ", ".join(f"{counts[what]:,} {what}" for what in sorted(counts))
    took = f"{time.monotonic() - begin:.0f} s, seeds {first} to {seed - 1}"
    sys.stdout.write(f"{generator}: {figures}; {found} wrong; {took}\n")
    sys.stdout.flush()
    return 1 if found else 0


def _in_child(
    generator: str, batch: Batch, seed: int, end: float, options: argparse.Namespace
) -> Counter[str]:
    """The counts of a batch, which runs in a child."""
    with TemporaryDirectory(prefix="weft-fuzz-") as name:
        folder = Path(name)
        (folder / "current").write_bytes(b"")
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _run(batch, Watch(generator, seed, end, folder, options), writer)
        os.close(writer)
        status = _waited_for(child, folder / "current")
        with os.fdopen(reader) as pipe:
            counts = Counter(json.loads(pipe.read() or "{}"))
        if status:
            case = (folder / "current").read_bytes().partition(b"\n")[2]
            got = f"the process ended with {SIGNS.get(status, status)}"
            Found(generator, seed, case, "no crash and no hang", got).write(options.found, f"{got}-{seed}")
            sys.stderr.write(f"{generator}, seed {seed}: {got}\n")
            counts["found"] += 1
        return counts


def _run(batch: Batch, watch: Watch, writer: int) -> None:
    """A batch, in a child, which then ends."""
    status = 1
    try:
        signal.signal(signal.SIGPROF, _stop)
        os.setpgid(0, 0)
        batch(watch)
        status = 0
    except BaseException as error:
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stderr.write(told(error))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(writer, json.dumps(watch.counts).encode())
        sys.stderr.flush()
        os._exit(status)


def _stop(*_: object) -> None:
    raise TooLong


def _waited_for(child: int, current: Path) -> int:
    """The exit status of a child, which is killed where a case does not end."""
    pause = 0.001
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(0.2, pause * 2)
        head = current.read_bytes()[:40].partition(b"\n")
        if head[1] and time.monotonic() > float(head[0]):
            sys.stderr.write("a case did not end\n")
            os.killpg(child, signal.SIGKILL)

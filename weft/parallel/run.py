"""What each process of ``weft launch`` runs: the script, with the rank before each line that it writes.

An error, or an end with another number than 0, on one rank ends all of them. A rank that fails by itself
leaves a note for the launcher, which then knows how many are left.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from weft.base.ranks import world
from weft.config import Settings
from weft.errors import RankError


class Prefixed:
    """A stream that writes something before each line; all else is that of the stream itself."""

    def __init__(self, stream: TextIO, prefix: str) -> None:
        self._stream, self._prefix, self._rest = stream, prefix, ""

    def write(self, text: str) -> int:
        """Write whole lines; what is left of the last one waits for its end."""
        *whole, self._rest = (self._rest + text).split("\n")
        if whole:
            self._stream.write("".join(f"{self._prefix}{line}\n" for line in whole))
            self._stream.flush()
        return len(text)

    def flush(self) -> None:
        """Write what is there of a line."""
        if self._rest:
            self.write("\n")
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def processors_of(place: int, ranks: int, each: int, available: Sequence[int]) -> list[int]:
    """The processors of one of the ranks of a machine; all of them where there are too few to share them out.

    >>> from weft.parallel.run import processors_of
    >>> processors_of(1, 2, 2, [0, 1, 2, 3]), processors_of(1, 4, 1, [0, 1])
    ([2, 3], [0, 1])
    """
    if ranks * each > len(available):
        return list(available)
    return list(available[place * each : (place + 1) * each])


# What launchers tell each process: its place among those of its machine, and how many these are.
_PLACES = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_COUNTS = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_TASKS_PER_NODE")


def _told(names: Sequence[str]) -> int | None:
    return next((int(os.environ[n]) for n in names if os.environ.get(n, "").isdecimal()), None)


def _pin() -> None:
    """Keep this rank to its own processors; what the launcher has bound already stays so."""
    place, ranks = _told(_PLACES), _told(_COUNTS)
    each = os.environ.get(Settings.num_threads.variable, "")
    if place is not None and ranks is not None and each.isdecimal():
        available = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, processors_of(place, ranks, int(each), available))


@contextmanager
def _noting(folder: str | None, rank: int) -> Iterator[None]:
    """Leave a note if this rank fails by itself, and not because another one did."""
    try:
        yield
    except (RankError, KeyboardInterrupt):
        raise
    except BaseException as error:
        ended_well = isinstance(error, SystemExit) and error.code in (None, 0)
        if folder is not None and not ended_well:
            with suppress(OSError):  # on another machine the folder may not be there
                Path(folder, f"failed-{rank}").touch()
        raise


def main() -> None:
    """Run the script that the arguments name, with those after it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--notes")
    parser.add_argument("script", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    sys.argv = options.script
    if options.pin:
        _pin()
    here = world()
    if here.size > 1:
        sys.stdout = Prefixed(sys.stdout, f"[{here.rank}] ")
        sys.stderr = Prefixed(sys.stderr, f"[{here.rank}] ")
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    try:
        with _noting(options.notes, here.rank):
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0) and here.size > 1:
            error = RuntimeError(f"rank {here.rank} ended with {end.code}")
            sys.excepthook(RuntimeError, error, None)
        raise
    finally:
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""What each process of ``weft launch`` runs: the script, with the rank before each line that it writes.

An error, or an end with another number than 0, on one rank ends all of them.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any, TextIO

from weft.base.ranks import world


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


def main() -> None:
    """Run the script that the arguments name, with those after it."""
    sys.argv = sys.argv[1:]
    here = world()
    if here.size > 1:
        sys.stdout = Prefixed(sys.stdout, f"[{here.rank}] ")
        sys.stderr = Prefixed(sys.stderr, f"[{here.rank}] ")
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    try:
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

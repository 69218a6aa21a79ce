"""The command itself: it finds out what was asked for, and tells of errors in one line.

It ends with 0, with 1 after an error, 2 if it was called wrongly, 130 if it was interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import weft
from weft.cli import benchmark, diagnosis, information, launching, planning, running, serving, tuning, writing
from weft.config import settings
from weft.errors import FileError, WeftError

_FIRST = (running.add, information.add, writing.add_optimize, benchmark.add)
_COMMANDS = (
    *_FIRST,
    serving.add,
    launching.add,
    planning.add,
    writing.add_library,
    writing.add_view,
    tuning.add,
    diagnosis.add,
)
_INTERRUPTED = 130
_BROKEN_PIPE = 141
_EXPECTED = (WeftError, OSError, ImportError, MemoryError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with its arguments; gives what the process ends with.

    >>> main(["view", "no-such-file.weft"])
    1
    """
    options = _parser().parse_args(arguments)
    try:
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _forget_output()
        return _BROKEN_PIPE
    except Exception as error:
        if settings.full_tracebacks:
            raise
        sys.stderr.write(f"weft {options.command}: {_told(error)}{_kind(options, error)}\n")
        return 1


def _kind(options: argparse.Namespace, error: Exception) -> str:
    """What the file of a command looks like, where it could not be read."""
    path = getattr(options, "file", None)
    if not isinstance(error, FileError | IsADirectoryError) or not isinstance(path, str):
        return ""
    from weft.cli.kinds import kind_of

    kind = kind_of(path)
    return f" ({os.path.basename(path)} is {kind})" if kind else ""


def _told(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, WeftError):
        hint = f" ({error.hint})" if error.hint else ""
        text = f"{error.message}{hint}"
    elif isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    else:
        text = str(error) or type(error).__name__
    if not isinstance(error, _EXPECTED):
        text = f"{type(error).__name__}: {text} (WEFT_FULL_TRACEBACKS=1 shows where)"
    return " ".join(text.split())


def _forget_output() -> None:
    """Have Python write what is left for a reader that has gone to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="weft", description="Computation graphs: run them, look at them, serve them."
    )
    parser.add_argument("--version", action="version", version=f"weft {weft.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for add in _COMMANDS:
        add(commands)
    return parser

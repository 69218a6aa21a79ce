"""What several commands take: numbers and names, how many threads, values of named sizes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import weft
from weft.errors import ArgumentError

Commands = Any  # what argparse calls _SubParsersAction
Run = Callable[[argparse.Namespace], int]
FILE = "a graph (.weft), or an ONNX model (.onnx)"
FAST_MATH = "allow what changes results in the last bits"


def positive(text: str) -> int:
    """A whole number of at least 1.

    >>> positive("3")
    3
    """
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def count(text: str) -> int:
    """A whole number.

    >>> count("0")
    0
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, got {text!r}")
    return int(text)


def several(text: str) -> list[int]:
    """Whole numbers with commas between them.

    >>> several("1,2")
    [1, 2]
    """
    return [positive(part) for part in text.split(",")]


def not_negative(text: str) -> float:
    """A number of at least 0.

    >>> not_negative("0.5")
    0.5
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of at least 0, got {text!r}")
    return value


def size(text: str) -> tuple[str, int]:
    """A named size with its value.

    >>> size("batch=8")
    ('batch', 8)
    """
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier() and value.isdecimal()):
        raise argparse.ArgumentTypeError(f"must be like batch=8, got {text!r}")
    return name, int(value)


def sizes(text: str) -> list[tuple[str, int]]:
    """Named sizes with commas between them.

    >>> sizes("batch=8,time=3")
    [('batch', 8), ('time', 3)]
    """
    return [size(part) for part in text.split(",")]


def add_command(commands: Commands, name: str, told: str, run: Run, file: str = FILE) -> Any:
    """A command that takes a file and is run by a function; gives its parser."""
    parser = commands.add_parser(name, help=told)
    parser.add_argument("file", help=file)
    parser.set_defaults(run=run)
    return parser


def add_sizes(parser: argparse.ArgumentParser, told: str) -> None:
    """Let a command take values of named sizes."""
    parser.add_argument(
        "--sizes", type=sizes, action="extend", default=[], metavar="NAME=N", help=f"{told}: batch=8,time=3"
    )


def chosen_sizes(given: list[tuple[str, int]], known: list[str]) -> dict[str, int]:
    """The sizes that were given, if the graph has them."""
    found = dict(given)
    for name in found:
        if name not in known:
            told = ", ".join(known) or "none, the graph has no named sizes"
            raise ArgumentError("sizes", f"sizes must be among {told}, got {name}")
    return found


def set_threads(count: int | None) -> None:
    """Use so many threads, if it was said how many."""
    if count is not None:
        weft.set_num_threads(count)


def signature(ports: Any) -> Mapping[str, str]:
    """The types of inputs or outputs, by name."""
    return {port.name: str(port.type) for port in ports}

"""The lines of the user's source that nodes of a graph come from, kept in its file.

Errors of a loaded graph, its picture and its profile show these lines where the source does not exist. Of a
source file there are its name and the lines that nodes name: none of its folders, and no other line.
"""

from __future__ import annotations

import json
import linecache
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, overload

from weft.io.layout import Problem, parse_json
from weft.ir.graph import Graph

Lines = dict[int, str]

_LONGEST = 1_000_000  # no source file has more lines; a file that says so gets no long list
_NAME = re.compile(r"<source [0-9a-f]{8}>/[^/\\]*")
_WRONG = "the lines of its source must be text by number and file, got others"


def used_lines(graph: Graph) -> dict[str, Lines]:
    """By file the lines that nodes come from, as far as they can be read."""
    found: dict[str, Lines] = {}
    for node in graph.walk():
        if node.location is not None:
            file, line = node.location.place
            found.setdefault(file, {})[line] = linecache.getline(file, line).rstrip()
    return {file: dict(sorted(lines.items())) for file, lines in found.items()}


def kept_name(file: str, lines: Lines) -> str:
    """What a source file is called in a file of ours; two of the same name are told apart by their lines."""
    if _NAME.fullmatch(file):
        return file
    name = os.path.basename(file)
    return f"<source {zlib.crc32(json.dumps([name, lines]).encode()):08x}>/{name}"


def write_lines(found: Mapping[str, Lines]) -> str:
    """Lines by file as they are in a file; those that could not be read are left out."""
    kept = {file: {n: text for n, text in lines.items() if text} for file, lines in found.items()}
    return json.dumps(kept, separators=(",", ":"), ensure_ascii=False)


def read_lines(text: str, problem: Problem) -> None:
    """Have errors and pictures find the lines of a file, under names that no other source has."""
    found = parse_json(text, "the lines of its source", problem)
    if not isinstance(found, dict) or not all(isinstance(lines, dict) for lines in found.values()):
        raise problem(_WRONG)
    for file, lines in found.items():
        if not _NAME.fullmatch(file) or not all(map(_is_line, lines.items())):
            raise problem(_WRONG)
        kept = _Lines({int(number): text for number, text in lines.items()})
        linecache.cache[file] = (0, None, kept, file)  # type: ignore[assignment]  # it asks for any sequence


def _is_line(item: tuple[str, Any]) -> bool:
    number, text = item
    known = number.isascii() and number.isdigit() and len(number) < 8 and 0 < int(number) <= _LONGEST
    return known and isinstance(text, str) and "\n" not in text


class _Lines(Sequence[str]):
    """The lines of a source file, of which only some are known; the others are empty."""

    def __init__(self, known: Lines) -> None:
        self._known = known

    def __len__(self) -> int:
        return max(self._known, default=0)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._known.get(index % len(self) + 1, "") + "\n"

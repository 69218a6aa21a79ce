"""The user's source files that nodes of a graph come from, for the page to show beside it."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterable, Sequence
from typing import Any

AROUND = 60  # lines that are kept before and after those that are needed, where a file is long
WHOLE = 1500  # lines of a file that is kept as a whole


def read_sources(files: Sequence[str], records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each file its name, path, and the lines that are needed, from the number ``first`` on."""
    used: dict[int, set[int]] = {}
    for record in records:
        if "at" in record:
            used.setdefault(record["at"][0], set()).add(record["at"][1])
    return [_read(path, used.get(i, set())) for i, path in enumerate(files)]


def _read(path: str, used: set[int]) -> dict[str, Any]:
    lines = [line.rstrip("\n") for line in linecache.getlines(path)]
    first = 1
    if len(lines) > WHOLE and used:
        first = max(1, min(used) - AROUND)
        lines = lines[first - 1 : max(used) + AROUND]
    return {"name": os.path.basename(path), "path": path, "first": first, "lines": lines}

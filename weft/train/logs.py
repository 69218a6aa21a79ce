"""Logs of a run: a CSV table and TensorBoard's event files, in the directory of the run."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from weft.errors import DomainError
from weft.train.events import EventFile

Row = Mapping[str, Any]


class Log(Protocol):
    """Takes the numbers of steps."""

    def write(self, row: Row) -> None:
        """Add a row, which has a ``step``."""

    def close(self) -> None:
        """End the log."""


class CsvLog:
    r"""A table in which a run goes on where it stopped: rows after its step are left out.

    Args:
        path: of the file.
        columns: of the table.
        step: from which the run begins or goes on.

    >>> import pathlib, tempfile
    >>> from weft.train.logs import CsvLog
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.csv"
    >>> log = CsvLog(path, ["step", "loss"])
    >>> log.write({"step": 1, "loss": 0.5})
    >>> log.close()
    >>> path.read_text()
    'step,loss\n1,0.5\n'
    """

    def __init__(self, path: str | os.PathLike[str], columns: Sequence[str], step: int = 0) -> None:
        self._path = Path(path)
        kept = [row for row in self._rows() if int(row["step"]) <= step] if step else []
        named = dict.fromkeys([*columns, *(kept[0] if kept else ())])
        beside = self._path.with_suffix(".new")
        self._file = open(beside, "w", newline="")  # noqa: SIM115 - closed by close()
        self._table = csv.DictWriter(
            self._file, list(named), restval="", extrasaction="ignore", lineterminator="\n"
        )
        self._table.writeheader()
        self._table.writerows(kept)
        self._file.flush()
        os.replace(beside, self._path)

    def _rows(self) -> Iterable[dict[str, str]]:
        """The whole rows of an earlier run; the last one may have been cut off."""
        if not self._path.exists():
            return []
        text = self._path.read_text()
        whole = text[: text.rfind("\n") + 1]
        return list(csv.DictReader(whole.splitlines()))

    def write(self, row: Row) -> None:
        """Add a row."""
        self._table.writerow(row)
        self._file.flush()

    def close(self) -> None:
        """End the file."""
        self._file.close()


class EventLog:
    """Numbers of rows as scalars of TensorBoard."""

    def __init__(self, directory: str | os.PathLike[str], step: int = 0) -> None:
        self._events = EventFile(directory, step)

    def write(self, row: Row) -> None:
        """Add the numbers of a row; those of validation stand beside the others."""
        numbers = {_tag(name): float(x) for name, x in row.items() if isinstance(x, float)}
        if numbers:
            self._events.add(numbers, row["step"])

    def close(self) -> None:
        """End the file."""
        self._events.close()


def _tag(name: str) -> str:
    return f"{name[4:]}/validation" if name.startswith("val_") else f"{name}/train"


KINDS = ("csv", "tensorboard")


def check_kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    """Kinds of logs, or an error if one is unknown."""
    given = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    for kind in given:
        if kind not in KINDS:
            raise DomainError("Trainer", f"logs must be among {', '.join(KINDS)}, got {kind!r}")
    return given


def open_logs(directory: Path, kinds: Sequence[str], columns: Sequence[str], step: int) -> list[Log]:
    """The logs of a run that begins or goes on at a step."""
    logs: list[Log] = []
    if "csv" in kinds:
        logs.append(CsvLog(directory / "log.csv", columns, step))
    if "tensorboard" in kinds:
        logs.append(EventLog(directory, step))
    return logs

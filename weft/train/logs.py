"""Logs of a run: a CSV table, lines of JSON and TensorBoard's event files, in the directory of the run.

An event file is a row of records: the length (8 bytes), its checksum, the data, its checksum. The data is an
``Event`` in the encoding of protocol buffers, of which a few fields are used. Checksums are CRC-32C, rotated
and shifted so that data which holds checksums itself does not deceive them.
"""

from __future__ import annotations

import csv
import json
import math
import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.errors import ArgumentError, DomainError

# Event files, as TensorBoard reads them: scalars by name and step, written with nothing but Python

_POLYNOMIAL = 0x82F63B78  # of Castagnoli, reversed
_MASK = 0xA282EAD8
_START = 1  # a status of sessions: what older files say of this step and later ones no longer counts


def _table() -> list[int]:
    out = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
        out.append(byte)
    return out


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """The checksum of data.

    >>> from weft.train.logs import crc32c
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF)


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _event(step: int, content: bytes) -> bytes:
    return b"\x09" + struct.pack("<d", time.time()) + _number(2, step) + content


class EventFile:
    """Writes scalars for TensorBoard.

    Args:
        directory: that TensorBoard is pointed at.
        step: where the run begins or goes on; what older files say of later steps no longer counts.

    >>> import tempfile
    >>> from weft.train.logs import EventFile
    >>> with EventFile(tempfile.mkdtemp()) as events:
    ...     events.add({"loss": 0.5}, step=1)
    """

    def __init__(self, directory: str | os.PathLike[str], step: int = 0) -> None:
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}.weft"
        self.path = Path(directory) / name
        self._file = open(self.path, "ab")  # noqa: SIM115 - closed by close()
        self._write(_event(0, _bytes(3, b"brain.Event:2")))
        if step:
            self._write(_event(step + 1, _bytes(7, _number(1, _START))))

    def add(self, numbers: Mapping[str, float], step: int) -> None:
        """Write numbers of a step."""
        scalars = [_bytes(1, k.encode()) + b"\x15" + struct.pack("<f", v) for k, v in numbers.items()]
        self._write(_event(step, _bytes(5, b"".join(_bytes(1, scalar) for scalar in scalars))))

    def _write(self, data: bytes) -> None:
        length = struct.pack("<Q", len(data))
        self._file.write(length + _masked(length) + data + _masked(data))
        self._file.flush()

    def close(self) -> None:
        """End the file."""
        self._file.close()

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


# Logs

Row = Mapping[str, Any]


def _whole_lines(path: Path) -> list[str]:
    """The lines of an earlier run; the last one may have been cut off, and is left out then."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return text[: text.rfind("\n") + 1].splitlines()


def _is_kept(row: Row, step: int, epoch: int | None) -> bool:
    """Whether a row is not of what a run that goes on does again."""
    return int(row["step"]) <= step and (epoch is None or int(row["epoch"]) <= epoch)


class CsvLog:
    r"""A table in which a run goes on where it stopped: rows of what it does again are left out.

    Args:
        path: of the file.
        columns: of the table; a row with others makes it wider.
        step: from which the run begins or goes on.
        epoch: how many epochs it had ended by then; a row that ends another one at this step is left out.

    >>> import pathlib, tempfile
    >>> from weft.train.logs import CsvLog
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.csv"
    >>> log = CsvLog(path, ["step", "loss"])
    >>> log.write({"step": 1, "loss": 0.5})
    >>> log.close()
    >>> path.read_text()
    'step,loss\n1,0.5\n'
    """

    def __init__(
        self, path: str | os.PathLike[str], columns: Sequence[str], step: int = 0, epoch: int | None = None
    ) -> None:
        self._path = Path(path)
        self._file: Any = None
        kept = [row for row in self._rows() if _is_kept(row, step, epoch)] if step else []
        self._begin([*columns, *(kept[0] if kept else ())], kept)

    def _begin(self, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Write the table anew, beside, and put it in its place."""
        self.close()
        self._columns = dict.fromkeys(columns)
        beside = self._path.with_suffix(".new")
        self._file = open(beside, "w", newline="", encoding="utf-8")  # noqa: SIM115 - closed by close()
        self._table = csv.DictWriter(self._file, list(self._columns), restval="", lineterminator="\n")
        self._table.writeheader()
        self._table.writerows(rows)
        self._file.flush()
        os.replace(beside, self._path)

    def _rows(self) -> list[dict[str, str]]:
        return list(csv.DictReader(_whole_lines(self._path)))

    def write(self, row: Row) -> None:
        """Add a row."""
        if any(name not in self._columns for name in row):
            self._begin([*self._columns, *row], self._rows())
        self._table.writerow(row)
        self._file.flush()

    def close(self) -> None:
        """End the file."""
        if self._file is not None:
            self._file.close()


class JsonLog:
    r"""A line of JSON for each row; a run goes on where it stopped. What is no finite number is null.

    Args:
        path: of the file.
        step: from which the run begins or goes on.
        epoch: how many epochs it had ended by then.

    >>> import pathlib, tempfile
    >>> from weft.train.logs import JsonLog
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.jsonl"
    >>> log = JsonLog(path)
    >>> log.write({"step": 1, "loss": 0.5})
    >>> log.close()
    >>> path.read_text()
    '{"step": 1, "loss": 0.5}\n'
    """

    def __init__(self, path: str | os.PathLike[str], step: int = 0, epoch: int | None = None) -> None:
        self._path = Path(path)
        lines = _whole_lines(self._path) if step else []
        kept = [line for line in lines if _is_kept(json.loads(line), step, epoch)]
        beside = self._path.with_suffix(".new")
        self._file = open(beside, "w", encoding="utf-8")  # noqa: SIM115 - closed by close()
        self._file.writelines(f"{line}\n" for line in kept)
        self._file.flush()
        os.replace(beside, self._path)

    def write(self, row: Row) -> None:
        """Add a row."""
        told = {k: None if isinstance(x, float) and not math.isfinite(x) else x for k, x in row.items()}
        self._file.write(json.dumps(told) + "\n")
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
        numbers = {_tag(name): x for name, x in row.items() if isinstance(x, float)}
        if numbers:
            self._events.add(numbers, row["step"])

    def close(self) -> None:
        """End the file."""
        self._events.close()


def _tag(name: str) -> str:
    if "/" in name:
        return name
    return f"{name[4:]}/validation" if name.startswith("val_") else f"{name}/train"


KINDS = ("csv", "jsonl", "tensorboard")


def check_kinds(kinds: Sequence[str], op: str = "Trainer") -> tuple[str, ...]:
    """Kinds of logs, or an error if one is unknown."""
    given = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    for kind in given:
        if kind not in KINDS:
            raise DomainError(op, f"logs must be among {', '.join(KINDS)}, got {kind!r}")
    return given


class Log:
    """The log of a run: a row for each step that is written, in files of several kinds.

    A run that was killed and goes on from a checkpoint has each row once, as if it had never stopped: put
    ``state_dict()`` into the checkpoint, and give it to ``load_state_dict`` before the first row. What later
    steps had written is then left out, and so is a line that was cut off. Files are opened at the first row.

    Args:
        directory: of the files; it is made if it is not there.
        kinds: which of "csv" (``log.csv``), "jsonl" (``log.jsonl``, a line of JSON for each row) and
            "tensorboard" (event files) are written.
        step: the last step of a run that goes on; 0 begins anew.
        columns: of the table, in this order; others come behind them.
        epoch: how many epochs had ended by then, where rows say that.

    >>> import pathlib, tempfile, weft
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with weft.train.Log(folder) as log:
    ...     for step in range(1, 4):
    ...         log.add(step, loss=1.0 / step)
    >>> print((folder / "log.csv").read_text(), end="")
    step,loss
    1,1.0
    2,0.5
    3,0.3333333333333333
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        kinds: Sequence[str] = ("csv",),
        *,
        step: int = 0,
        columns: Sequence[str] = (),
        epoch: int | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.kinds = check_kinds(kinds, "Log")
        self._columns = columns
        self._step, self._epoch = step, epoch
        self._files: list[CsvLog | JsonLog | EventLog] | None = None

    def add(self, step: int, numbers: Row | None = None, /, **named: Any) -> None:
        """Write a row: the step, and numbers by name, which may be tensors of one element."""
        if type(step) is not int or step < self._step:
            message = f"steps must be whole numbers that do not go back, got {step!r} after {self._step}"
            raise DomainError("Log", message, hint="load_state_dict() goes on from a checkpoint")
        row = {name: _plain(name, x) for name, x in {**(numbers or {}), **named}.items()}
        self.write({"step": step, **row})

    def write(self, row: Row) -> None:
        """Write a row as it is; it has a "step"."""
        files = self.open()
        self._step = row["step"]
        for file in files:
            file.write(row)

    def open(self) -> list[CsvLog | JsonLog | EventLog]:
        """Open the files, where that has not been done; what they have of later steps is left out."""
        if self._files is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            place, self._files = (self._step, self._epoch), []
            if "csv" in self.kinds:
                columns = self._columns or ["step"]
                self._files.append(CsvLog(self.directory / "log.csv", columns, *place))
            if "jsonl" in self.kinds:
                self._files.append(JsonLog(self.directory / "log.jsonl", *place))
            if "tensorboard" in self.kinds:
                self._files.append(EventLog(self.directory, place[0]))
        return self._files

    def state_dict(self) -> dict[str, Any]:
        """The last step that was written."""
        return {"step": self._step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint: rows of later steps are left out."""
        self.close()
        self._step = int(state["step"])

    def close(self) -> None:
        """End the files; another row would open them again, and go on."""
        for file in self._files or ():
            file.close()
        self._files = None

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


def _plain(name: str, x: Any) -> Any:
    """A number, or a text, that a file can hold."""
    if isinstance(x, str | bool | int | float) or x is None:
        return x
    try:
        return float(x)
    except (TypeError, ValueError):
        raise ArgumentError("Log", f"{name} must be one number, got {x!r}") from None

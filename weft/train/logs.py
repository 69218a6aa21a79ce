"""Logs of a run: a CSV table and TensorBoard's event files, in the directory of the run.

An event file is a row of records: the length (8 bytes), its checksum, the data, its checksum. The data is an
``Event`` in the encoding of protocol buffers, of which a few fields are used. Checksums are CRC-32C, rotated
and shifted so that data which holds checksums itself does not deceive them.
"""

from __future__ import annotations

import csv
import os
import socket
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.errors import DomainError

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


class CsvLog:
    r"""A table in which a run goes on where it stopped: rows of what it does again are left out.

    Args:
        path: of the file.
        columns: of the table.
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
        kept = [row for row in self._rows() if int(row["step"]) <= step] if step else []
        if epoch is not None:
            kept = [row for row in kept if int(row["epoch"]) <= epoch]
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
        numbers = {name: float(x) for name, x in row.items() if isinstance(x, float)}
        tags = {n: f"{n[4:]}/validation" if n.startswith("val_") else f"{n}/train" for n in numbers}
        if numbers:
            self._events.add({tags[name]: x for name, x in numbers.items()}, row["step"])

    def close(self) -> None:
        """End the file."""
        self._events.close()


Log = CsvLog | EventLog
KINDS = ("csv", "tensorboard")


def check_kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    """Kinds of logs, or an error if one is unknown."""
    given = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    for kind in given:
        if kind not in KINDS:
            raise DomainError("Trainer", f"logs must be among {', '.join(KINDS)}, got {kind!r}")
    return given


def open_logs(
    directory: Path, kinds: Sequence[str], columns: Sequence[str], step: int, epoch: int
) -> list[Log]:
    """The logs of a run that begins or goes on at a step, after so many epochs."""
    logs: list[Log] = []
    if "csv" in kinds:
        logs.append(CsvLog(directory / "log.csv", columns, step, epoch))
    if "tensorboard" in kinds:
        logs.append(EventLog(directory, step))
    return logs

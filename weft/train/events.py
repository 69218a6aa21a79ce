"""Event files, as TensorBoard reads them: scalars by name and step, written with nothing but Python.

A file is a row of records: the length (8 bytes), its checksum, the data, its checksum. The data is an
``Event`` in the encoding of protocol buffers, of which a few fields are used. Checksums are CRC-32C, rotated
and shifted so that data which holds checksums itself does not deceive them.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

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

    >>> from weft.train.events import crc32c
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


def _scalar(name: str, value: float) -> bytes:
    return _bytes(1, _bytes(1, name.encode()) + b"\x15" + struct.pack("<f", value))


class EventFile:
    """Writes scalars for TensorBoard.

    Args:
        directory: that TensorBoard is pointed at.
        step: where the run begins or goes on; what older files say of later steps no longer counts.

    >>> import tempfile
    >>> from weft.train.events import EventFile
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
        self._write(_event(step, _bytes(5, b"".join(_scalar(k, v) for k, v in numbers.items()))))

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

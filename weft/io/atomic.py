"""Files that appear whole or not at all: written beside, brought to the disk, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from weft.errors import ArgumentError

PART = ".part"  # how the names of files end that are not complete; a process that was killed leaves one


def checked_path(op: str, path: Any) -> str:
    """A path as text, or an error if it is none."""
    if isinstance(path, str | os.PathLike):
        text = os.fspath(path)
        if isinstance(text, str):
            return text
    raise ArgumentError(op, f"path must be a str or a Path, got {type(path).__name__}")


@contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """A new file that takes the place of a path when the block has ended; after an error all is as before.

    >>> import os, tempfile
    >>> from weft.io.atomic import replacing
    >>> path = os.path.join(tempfile.mkdtemp(), "a")
    >>> with replacing(path) as file:
    ...     _ = file.write(b"all of it")
    >>> os.listdir(os.path.dirname(path))
    ['a']
    """
    target = os.path.realpath(path)  # a link stays a link
    directory, name = os.path.split(target)
    beside = os.path.join(directory, f".{name}.{os.getpid()}-{os.urandom(4).hex()}{PART}")
    try:
        with open(beside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    sync_directory(directory)


def sync_directory(directory: str) -> None:
    """Bring the names in a directory to the disk, where the system lets a directory be opened."""
    if os.name == "posix":
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

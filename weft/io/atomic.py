"""Files that appear whole or not at all: written beside, brought to the disk, then renamed.

Whoever writes holds a lock on the file beside, which the system takes from a process that ends, however it
ends. So the next one who saves to the same place knows what nobody writes any more, and removes it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from weft.errors import ArgumentError, FileError

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # a system without such locks: nothing is removed there
    flock = None  # type: ignore[assignment]

PART = ".part"  # how the names of files end that are not complete; a process that was killed leaves one
_ENDINGS = (".weft", ".safetensors", ".safetensors.index.json", ".pt", ".pth", ".bin", ".onnx")


def checked_path(op: str, path: Any) -> str:
    """A path as text, or an error if it is none."""
    if isinstance(path, str | os.PathLike):
        text = os.fspath(path)
        if isinstance(text, str):
            return text
    raise ArgumentError(op, f"path must be a str or a Path, got {type(path).__name__}")


def file_path(op: str, path: Any) -> str:
    """The path of a file as text, or an error if it is none, or that of a directory."""
    text = checked_path(op, path)
    if os.path.isdir(text):
        inside = sorted(name for name in os.listdir(text) if name.endswith(_ENDINGS))[:3]
        hint = f"name a file in it, such as {', '.join(inside)}" if inside else "name a file in it"
        raise FileError(op, f"path must name a file, got the directory {text}", hint=hint)
    return text


@contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """A new file that takes the place of a path when the block has ended; after an error all is as before.

    It may be read and written by those who could do so with the file that was there.

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
    beside, handle = _new_file(directory, name, _existing(target))
    try:
        with open(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(handle)
            if flock is not None:  # while the lock is held, or somebody could take it for left behind
                os.replace(beside, target)
        if flock is None:
            os.replace(beside, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    sync_directory(directory)
    _remove_left_behind(directory, name)


def sync_directory(directory: str) -> None:
    """Bring the names in a directory to the disk, where the system lets a directory be opened."""
    if os.name == "posix":
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# Who may read and write


def _existing(target: str) -> os.stat_result | None:
    try:
        return os.stat(target)
    except FileNotFoundError:
        return None


def _new_file(directory: str, name: str, old: os.stat_result | None) -> tuple[str, int]:
    """The path and the handle of a file beside, locked, with the rights of the one that it replaces."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        beside = os.path.join(directory, f".{name}.{os.getpid()}-{os.urandom(4).hex()}{PART}")
        handle = os.open(beside, flags, 0o666 if old is None else 0o600)
        try:
            if old is not None and hasattr(os, "fchown"):
                _give_rights(handle, old)
            if _is_locked(handle, wait=True) and os.fstat(handle).st_nlink == 0:
                os.close(handle)  # somebody took it for left behind, before it was locked
                continue
        except BaseException:
            os.close(handle)
            os.unlink(beside)
            raise
        return beside, handle


def _give_rights(handle: int, old: os.stat_result) -> None:
    """Owner, group and rights of another file; where the group cannot be its, nobody's group has rights."""
    mode, new = stat.S_IMODE(old.st_mode) & 0o777, os.fstat(handle)
    with suppress(OSError):
        if new.st_uid != old.st_uid:
            os.fchown(handle, old.st_uid, -1)
    try:
        if new.st_gid != old.st_gid:
            os.fchown(handle, -1, old.st_gid)
    except OSError:
        mode &= ~stat.S_IRWXG
    with suppress(OSError):  # a file system without such rights
        os.fchmod(handle, mode)


# What killed processes leave


def _is_locked(handle: int, *, wait: bool) -> bool:
    """Take the lock of a file; whether it is held now."""
    if flock is None:
        return False
    try:
        flock(handle, LOCK_EX if wait else LOCK_EX | LOCK_NB)
    except OSError:  # somebody else holds it, or the file system has no locks
        return False
    return True


def _remove_left_behind(directory: str, name: str) -> None:
    """Remove files beside a path that nobody writes any more."""
    part = re.compile(rf"\.{re.escape(name)}\.[0-9]+-[0-9a-f]{{8}}{re.escape(PART)}")
    with suppress(OSError), os.scandir(directory) as entries:
        found = [entry.path for entry in entries if part.fullmatch(entry.name)]
        for path in found:
            with suppress(OSError):
                _remove_unlocked(path)


def _remove_unlocked(path: str) -> None:
    handle = os.open(path, os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        if stat.S_ISREG(os.fstat(handle).st_mode) and _is_locked(handle, wait=False):
            os.unlink(path)
    finally:
        os.close(handle)

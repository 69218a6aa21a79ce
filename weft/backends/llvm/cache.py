"""Machine code on disk, so that a text or a whole program is compiled once on a machine.

An entry is one file, named by a hash of everything that its content depends on. Files are written beside
their place and moved there, so that processes see whole files only; what is read is checked all the same. The
cache helps and never hurts: where it is damaged, full, read-only or missing, code is compiled instead. A
directory that other people could write to is not used, since what is in it is run.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from weft.base.digest import digest
from weft.config import settings

_MAGIC = b"weft-object-2\n"
_LENGTH = len(_MAGIC)
_HASH = _LENGTH + 8
_CONTENT = _HASH + 32
_LIMIT = 1 << 30
_FORGOTTEN = 3600.0  # seconds after which a file that is still being written never will be


class Cache:
    """A directory of object code.

    >>> import tempfile
    >>> from weft.backends.llvm.cache import Cache
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     cache = Cache(directory)
    ...     cache.put(("text", "cpu"), b"code")
    ...     cache.get(("text", "cpu"))
    b'code'

    Attributes:
        directory: where the files are; None for a cache that holds nothing.
        limit: of all files together, in bytes; those not used for longest go first.
    """

    def __init__(self, directory: str | os.PathLike[str] | None, limit: int = _LIMIT) -> None:
        self.directory = None if directory is None else os.fspath(directory)
        self.limit = limit

    def get(self, key: Sequence[str]) -> bytes | None:
        """What was stored with a key, or None."""
        if self.directory is None:
            return None
        path = os.path.join(self.directory, _name(key))
        try:
            if not _is_private(self.directory):
                return None
            with open(path, "rb", buffering=0) as file:
                content = _content(file.read())
        except OSError:
            return None
        if content is not None:
            with suppress(OSError):
                os.utime(path)  # tells that it is in use
        return content

    def put(self, key: Sequence[str], content: bytes) -> None:
        """Store something with a key; nothing happens where that cannot be done."""
        if self.directory is None:
            return
        name = _name(key)
        with suppress(OSError):
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            if _is_private(self.directory):
                _write(os.path.join(self.directory, name), _head(content) + content)
                if name.startswith("00"):  # once in 256 entries, whatever process writes them
                    self.trim()

    def trim(self) -> None:
        """Remove what is beyond the limit, and what was left behind while it was written."""
        if self.directory is None:
            return
        now = time.time()
        kept = []
        with os.scandir(self.directory) as found:
            for entry in found:
                with suppress(OSError):  # another process may have removed it
                    info = entry.stat()
                    if entry.name.endswith(".o"):
                        kept.append((info.st_mtime, info.st_size, entry.path))
                    elif now - info.st_mtime > _FORGOTTEN:
                        os.unlink(entry.path)
        total = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept):
            if total <= self.limit:
                break
            total -= size
            with suppress(OSError):
                os.unlink(path)


def _name(key: Sequence[str]) -> str:
    parts = [part.encode() for part in key]
    return digest(b"".join(b"%d:%b" % (len(part), part) for part in parts)).hex() + ".o"


def _head(content: bytes) -> bytes:
    return _MAGIC + len(content).to_bytes(8, "little") + digest(content)


def _content(data: bytes) -> bytes | None:
    """What a file holds, or None if it is damaged."""
    content = data[_CONTENT:]
    return content if data[:_CONTENT] == _head(content) else None


def _is_private(directory: str) -> bool:
    """Whether nobody but the user and the system can write there."""
    info = os.stat(directory)
    if not hasattr(os, "getuid"):
        return stat.S_ISDIR(info.st_mode)
    mine = info.st_uid in (os.getuid(), 0)
    return stat.S_ISDIR(info.st_mode) and mine and not info.st_mode & stat.S_IWOTH


def _write(path: str, data: bytes) -> None:
    """A whole file, or none."""
    beside = f"{path.removesuffix('.o')}.{os.getpid()}-{threading.get_ident()}.new"
    try:
        with open(beside, "wb") as file:
            file.write(data)
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise


# The cache of this process

_current: list[Cache] = []


def default_cache() -> Cache:
    """The cache in the directory that WEFT_CACHE_DIR names; if it is empty, a cache that holds nothing.

    Without it, the directory is weft in XDG_CACHE_HOME, or in ~/.cache.
    """
    if not _current:
        _current.append(Cache(_directory()))
    return _current[0]


def set_cache_directory(directory: str | os.PathLike[str] | None) -> None:
    """Keep object code in another directory from now on; None for nowhere.

    >>> from weft.backends.llvm.cache import default_cache, set_cache_directory
    >>> before = default_cache().directory
    >>> set_cache_directory(None)
    >>> set_cache_directory(before)
    """
    default_cache().directory = None if directory is None else os.fspath(directory)


def _directory() -> str | None:
    named = settings.cache_directory
    if named is not None:
        return os.path.abspath(named) if named else None
    base = os.environ.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):
        return os.path.join(base, "weft")
    cache = os.path.expanduser("~/.cache/weft")
    return cache if os.path.isabs(cache) else None  # None where nobody has a home

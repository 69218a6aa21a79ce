"""Machine code on disk, so that a text or a whole program is compiled once on a machine.

An entry is one file, named by a hash of everything that its content depends on. Files are written beside
their place and moved there, so that processes see whole files only; what is read is checked all the same. The
cache helps and never hurts: where it is damaged, full, read-only or missing, code is compiled instead.

What is in it is run. So a directory that somebody else could have written to is not used (``trust``), nor a
file that is not the user's or the system's, that others may write, or that is no file at all: a link, a pipe,
a device. An entry knows its name, so that one cannot stand for another.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from weft.backends.llvm.trust import OTHERS, belongs, distrust, make_private
from weft.base.digest import digest
from weft.config import settings

_MAGIC = b"weft-object-3\n"
_LENGTH = len(_MAGIC)
_HASH = _LENGTH + 8
_CONTENT = _HASH + 32
_LIMIT = 1 << 30
_FORGOTTEN = 3600.0  # seconds after which a file that is still being written never will be
_ENTRY = re.compile(r"[0-9a-f]{64}\.o")
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


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
        self._trusted: set[tuple[object, ...]] = set()  # directories that were looked at, as they were then

    def get(self, key: Sequence[str]) -> bytes | None:
        """What was stored with a key, or None."""
        if self.directory is None:
            return None
        name = _name(key)
        try:
            if not self._is_private(self.directory):
                return None
            handle = os.open(os.path.join(self.directory, name), _READ)
        except OSError:
            return None
        try:
            return _content(handle, name, self.limit)
        except OSError:
            return None
        finally:
            os.close(handle)

    def put(self, key: Sequence[str], content: bytes) -> None:
        """Store something with a key; nothing happens where that cannot be done."""
        if self.directory is None:
            return
        name = _name(key)
        with suppress(OSError):
            make_private(os.path.abspath(self.directory))
            if self._is_private(self.directory):
                _write(os.path.join(self.directory, name), _head(name, content), content)
                if name.startswith("00"):  # once in 256 entries, whatever process writes them
                    self.trim()

    def _is_private(self, directory: str) -> bool:
        """Whether nobody but the user and the system can write there.

        The directories above are looked at once, and again only when the directory itself is another: whoever
        could change them later is the user.
        """
        info = os.stat(directory)
        known = (directory, info.st_dev, info.st_ino, info.st_mode, info.st_uid)
        if known not in self._trusted:
            if distrust(directory) is not None:
                return False
            self._trusted.add(known)
        return True

    def trim(self) -> None:
        """Remove what is beyond the limit, and what was left behind while it was written."""
        if self.directory is None:
            return
        now = time.time()
        kept = []
        with os.scandir(self.directory) as found:
            for entry in found:
                with suppress(OSError):  # another process may have removed it
                    info = entry.stat(follow_symlinks=False)
                    if _ENTRY.fullmatch(entry.name):
                        kept.append((info.st_mtime, info.st_size, entry.path))
                    elif entry.name.endswith(".new") and now - info.st_mtime > _FORGOTTEN:
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


def _head(name: str, content: bytes) -> bytes:
    return _MAGIC + len(content).to_bytes(8, "little") + digest(content, name.encode()[:64])


def _content(handle: int, name: str, most: int) -> bytes | None:
    """What an open file holds; None if it is damaged, or nothing that this user has put there."""
    info = os.fstat(handle)
    mine = stat.S_ISREG(info.st_mode) and belongs(info) and not info.st_mode & OTHERS
    length = info.st_size - _CONTENT
    if not mine or not 0 <= length <= most:
        return None
    head = os.read(handle, _CONTENT)
    if head[:_HASH] != _MAGIC + length.to_bytes(8, "little"):
        return None
    content = os.read(handle, length)
    if head != _head(name, content):
        return None
    with suppress(OSError, TypeError):  # some systems know no time of an open file
        os.utime(handle)  # tells that it is in use
    return content


def _write(path: str, head: bytes, content: bytes) -> None:
    """A whole file, or none."""
    beside = f"{path.removesuffix('.o')}.{os.getpid()}-{threading.get_ident()}.new"
    with suppress(FileNotFoundError):
        os.unlink(beside)  # of a process that was killed, and had the same number
    try:
        with open(os.open(beside, _WRITE, 0o644), "wb") as file:
            file.write(head)
            file.write(content)
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

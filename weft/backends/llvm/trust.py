"""Whether what is in a directory can only be there by the user: code from it is run.

The rule is that of ssh for its keys: the directory, each one above it, and each link on the way belong to the
user or to the system, and nobody else may write to them. A directory above may be one where anybody makes
files and nobody can touch those of others (``/tmp``). Lists of rights beyond the usual bits count too: what
they let others do shows in the bits of the group.
"""

from __future__ import annotations

import errno
import os
import stat

OTHERS = stat.S_IWGRP | stat.S_IWOTH  # the rights by which somebody else may write
_LINKS = 40  # that a path may go by, as for the system


def belongs(info: os.stat_result) -> bool:
    """Whether a file is the user's or the system's, where there are users."""
    return not hasattr(os, "geteuid") or info.st_uid in (os.geteuid(), 0)


def distrust(directory: str) -> str | None:
    """Why what is in a directory may be somebody else's; None where it cannot be.

    >>> import os, tempfile
    >>> from weft.backends.llvm.trust import distrust
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     print(distrust(directory))
    ...     os.chmod(directory, 0o770)
    ...     distrust(directory) == f"{os.path.realpath(directory)} can be written by others"
    None
    True
    """
    if not hasattr(os, "geteuid"):
        return None if os.path.isdir(directory) else f"{directory} is no directory"
    at, links = os.sep, 0
    left = _names(os.path.abspath(directory))
    reason = _distrust_one(at, os.stat(at), above=bool(left))
    while left and reason is None:
        name = left.pop()
        path = os.path.dirname(at) if name == os.pardir else os.path.join(at, name)
        info = os.lstat(path)
        if stat.S_ISLNK(info.st_mode):
            links += 1
            if links > _LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), directory)
            reason = None if belongs(info) else f"{path} is a link of another user"
            target = os.readlink(path)
            at = os.sep if os.path.isabs(target) else at
            left += _names(target)
        else:
            at = path
            reason = _distrust_one(at, info, above=bool(left))
    return reason


def _names(path: str) -> list[str]:
    """The names in a path, the last one first."""
    return [name for name in reversed(path.split(os.sep)) if name not in ("", os.curdir)]


def _distrust_one(path: str, info: os.stat_result, *, above: bool) -> str | None:
    if not stat.S_ISDIR(info.st_mode):
        return f"{path} is no directory"
    if not belongs(info):
        return f"{path} belongs to another user"
    if info.st_mode & OTHERS and not (above and info.st_mode & stat.S_ISVTX):
        return f"{path} can be written by others"
    return None


def make_private(directory: str) -> None:
    """Make a directory, and those above it that are missing, for the user alone."""
    above = os.path.dirname(directory)
    if above != directory and not os.path.isdir(above):
        make_private(above)
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        if not os.path.isdir(directory):
            raise

"""The file of measured tunings: where it is, and whether it is another one than before.

It is asked for where nothing is compiled, so nothing is imported for it.
"""

from __future__ import annotations

import os

from weft.config import settings

State = tuple[str, int, int]


def tuning_file() -> str | None:
    """Where measured tunings stand: what WEFT_TUNING names; None if that is empty, or nobody has a home.

    Without it, the file is weft/tuning.json in XDG_CONFIG_HOME, or in ~/.config.
    """
    named = settings.tuning
    if named is not None:
        return os.path.abspath(named) if named else None
    base = os.environ.get("XDG_CONFIG_HOME")
    if not (base and os.path.isabs(base)):
        base = os.path.expanduser("~/.config")
    return os.path.join(base, "weft", "tuning.json") if os.path.isabs(base) else None


def state_of(path: str) -> State | None:
    """A file as it is: its path, when it was written, its size; None where there is none."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return path, info.st_mtime_ns, info.st_size


def file_state() -> str:
    """Tells the file as it is from what it was, or will be."""
    path = tuning_file()
    state = None if path is None else state_of(path)
    return "" if state is None else " ".join(map(str, state))

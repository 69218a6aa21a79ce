"""The state of a run, all that it takes to go on as if it had never stopped, and its files in a directory.

Each checkpoint is written beside, brought to the disk and renamed, and only then an older one is removed; so
at every moment the newest file with a name is whole.
"""

from __future__ import annotations

import logging
import os
import random
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft import parallel
from weft.errors import DomainError, FileError
from weft.io.files import save_together
from weft.io.slices import remove_slices
from weft.train.ranks import Ranks

FORMAT = 1


def parts_state(parts: Mapping[str, Any]) -> dict[str, Any]:
    """What each part gives with ``state_dict``; None for one that is not there."""
    return {name: None if part is None else part.state_dict() for name, part in parts.items()}


def check_parts(parts: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Raise unless a state is one of these parts."""
    for name, part in parts.items():
        if (state.get(name) is None) != (part is None):
            had, has = ("none" if x is None else "one" for x in (state.get(name), part))
            raise DomainError("resume", f"the checkpoint was made with {had} for {name}, got {has}")


def load_parts(parts: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Give each part its state."""
    for name, part in parts.items():
        if part is not None:
            part.load_state_dict(state[name])


def random_state() -> dict[str, Any]:
    """The states of the global generators of weft, of Python, and of NumPy if it is in use."""
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {"weft": weft.get_rng_state(), "python": (version, np.array(words), gauss)}
    if "numpy.random" in sys.modules:
        state["numpy"] = sys.modules["numpy.random"].get_state()
    return state


def set_random_state(state: Mapping[str, Any]) -> None:
    """Put those generators back whose states are there."""
    weft.set_rng_state(state["weft"])
    if "python" in state:
        version, words, gauss = state["python"]
        random.setstate((version, tuple(words.tolist()), gauss))
    if "numpy" in state:
        from numpy.random import set_state

        set_state(state["numpy"])


_log = logging.getLogger("weft.train")
_NAME = re.compile(r"step-(\d+)\.safetensors")
_PART = re.compile(r"\..*\.(\d+)-[0-9a-f]+\.part")
BEST = "best.safetensors"


class Checkpoints:
    """The checkpoints of a run.

    Args:
        directory: of the files; made if it is not there.
        keep: how many of the newest are kept.
        ranks: that write them together, each its parts.

    >>> import tempfile
    >>> from weft.train.checkpoints import Checkpoints
    >>> checkpoints = Checkpoints(tempfile.mkdtemp(), keep=2)
    >>> for step in (10, 20, 30):
    ...     path = checkpoints.save({"step": step}, step)
    >>> [path.name for path in checkpoints.files()]
    ['step-00000030.safetensors', 'step-00000020.safetensors']
    >>> checkpoints.load()["step"]
    30
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int = 3, ranks: Ranks | None = None) -> None:
        if keep < 1:
            raise DomainError("Trainer", f"keep must be at least 1, got {keep}")
        self.directory = Path(directory)
        self.keep = keep
        self.ranks = ranks
        self.directory.mkdir(parents=True, exist_ok=True)

    def files(self) -> list[Path]:
        """The checkpoints there are, the newest first; the best is not among them."""
        found = [p for p in self.directory.iterdir() if _NAME.fullmatch(p.name)]
        return sorted(found, key=lambda p: int(_NAME.fullmatch(p.name)[1]), reverse=True)  # type: ignore[index]

    @property
    def best(self) -> Path:
        """The path of the best one, which may not be there."""
        return self.directory / BEST

    def save(self, state: Any, step: int) -> Path:
        """Write the checkpoint of a step, then remove those that are too old.

        Those of later steps are removed too: the run has gone back, and they are of what it has left.
        """
        path = self.directory / f"step-{step:08d}.safetensors"
        self._write(state, path)
        if self.ranks is None or self.ranks.is_first:
            files = self.files()
            at = files.index(path)
            for old in (*files[:at], *files[at + self.keep :]):
                with suppress(FileNotFoundError):
                    old.unlink()
                    remove_slices(str(old))
        return path

    def _write(self, state: Any, path: Path) -> None:
        (weft.save if self.ranks is None else save_together)(state, path)

    def read(self, path: str | os.PathLike[str]) -> Any:
        """What a checkpoint holds; on a mesh, what was placed is placed."""
        return weft.load(path) if self.ranks is None else parallel.load(path, self.ranks.mesh)

    def save_best(self, state: Any) -> None:
        """Write the best one."""
        self._write(state, self.best)

    def load(self) -> Any:
        """What the newest checkpoint that can be read holds; None if there is none."""
        if self.ranks is None or self.ranks.is_first:
            self._clean()
        files = self.files()
        for path in files:
            try:
                return self.read(path)
            except FileError as error:
                _log.warning("left out a checkpoint: %s", error)
        if files:
            raise FileError("resume", f"a checkpoint in {self.directory} must be whole, got none that is")
        return None

    def _clean(self) -> None:
        """Remove what processes that were killed left half written."""
        for path in self.directory.iterdir():
            found = _PART.fullmatch(path.name)
            if found and not _is_alive(int(found[1])):
                with suppress(FileNotFoundError):
                    path.unlink()


def _is_alive(pid: int) -> bool:
    """Whether another process is there; where that cannot be asked without harm, it is taken to be."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return pid != os.getpid()

"""Where the processes of a server tell each other what they counted: a folder with a file of each.

Any of them may be asked for the metrics, and answers for all. A process writes its file twice a second; what
one counted that has ended stays, so that numbers only grow.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_EVERY = 0.5  # seconds


class Board:
    """The folder, as one of the processes sees it."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._own = self._folder / f"{os.getpid()}.json"

    def write(self, state: Any) -> None:
        """Tell what this process counted."""
        new = self._own.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.replace(self._own)

    def others(self) -> Iterator[tuple[Any, bool]]:
        """What the other processes told, and whether they live."""
        for path in sorted(self._folder.glob("*.json")):
            if path != self._own:
                yield json.loads(path.read_text()), _lives(int(path.stem))

    def keep(self, state: Callable[[], Any], orphaned: Callable[[], None]) -> None:
        """Go on telling, in a thread; and tell when the process that started this one is gone."""
        parent = os.getppid()

        def go_on() -> None:
            pause = threading.Event()
            while not pause.wait(_EVERY):
                with contextlib.suppress(OSError):  # the folder goes when all end
                    self.write(state())
                if os.getppid() != parent:
                    orphaned()
                    return

        threading.Thread(target=go_on, name="weft-board", daemon=True).start()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

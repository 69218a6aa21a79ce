"""What IPython is asked: whether code runs in a notebook, which cell a line is in, and to show something.

IPython is never imported: where it runs, it has been imported already.
"""

from __future__ import annotations

import os
import sys
from typing import Any

CELL = "Cell In["  # how IPython's own tracebacks begin a place


def shell() -> Any:
    """The shell of IPython that runs this program; None if there is none.

    >>> from weft.base.notebook import shell
    >>> shell() is None
    True
    """
    module = sys.modules.get("IPython")
    find = getattr(module, "get_ipython", None)
    return None if find is None else find()


def in_notebook() -> bool:
    """Whether what is displayed is shown by a notebook, and not in a terminal.

    >>> from weft.base.notebook import in_notebook
    >>> in_notebook()
    False
    """
    found = shell()
    kinds = [kind.__name__ for kind in type(found).__mro__]
    return found is not None and "TerminalInteractiveShell" not in kinds


def file_text(file: str) -> str:
    """The last part of a path, or ``Cell In[15]`` for the code of a notebook's cell.

    >>> from weft.base.notebook import file_text
    >>> file_text("/home/me/model.py")
    'model.py'
    """
    cell = _cell(file)
    return os.path.basename(file) if cell is None else cell


def place_text(file: str, line: int) -> str:
    """``model.py:18``, or ``Cell In[15], line 3`` for code of a notebook's cell.

    >>> from weft.base.notebook import place_text
    >>> place_text("/home/me/model.py", 18)
    'model.py:18'
    """
    name = file_text(file)
    return f"{name}, line {line}" if name.startswith(CELL) else f"{name}:{line}"


def _cell(file: str) -> str | None:
    """What IPython calls the code that it has compiled under a name."""
    compiler = getattr(shell(), "compile", None)
    name_of = getattr(compiler, "format_code_name", None)
    found = None if name_of is None else name_of(file)  # such as ("Cell", "In[15]")
    return None if not found else " ".join(found)


class Shown:
    """Something that is shown below the cell that runs, and can be changed there.

    Args:
        html: to show.
        plain: for what shows no HTML.
    """

    def __init__(self, html: str, plain: str) -> None:
        from IPython import display

        show: Any = display.display
        self._handle = show(_data(html, plain), raw=True, display_id=True)

    def update(self, html: str, plain: str) -> None:
        """Show something else in its place."""
        self._handle.update(_data(html, plain), raw=True)


def _data(html: str, plain: str) -> dict[str, str]:
    return {"text/html": html, "text/plain": plain}

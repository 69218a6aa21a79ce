"""Where time and memory go: ``weft.profile`` and ``weft.memory_profile``, see docs/profiling.md.

``log`` switches watching on and off and takes down raw entries; ``eager``, ``compiled`` and ``loader`` make
them; ``block`` makes events of them, ``tables`` and ``trace`` show these. Nothing of it is on any path while
no block is open: what is watched is replaced when the first one opens, and put back when the last one closes.
"""

from typing import NoReturn


def __getattr__(name: str) -> NoReturn:
    from weft.base.elsewhere import unknown

    raise unknown(__name__, name)

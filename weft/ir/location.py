"""Where in the user's program a node comes from."""

from __future__ import annotations

from weft.base.notebook import place_text
from weft.base.records import NamedTuple


class Location(NamedTuple):
    """File, line and function of the user's code, and the path of the module that was running.

    Attributes:
        file: as Python names it.
        line: the line, from 1 on.
        function: the name of the function the line stands in.
        module: the path of the module whose call it was in, such as ``encoder.layers.3.attn``, or "".
        phase: "" for what the user wrote, "backward" for what its gradient added.
    """

    file: str
    line: int
    function: str = ""
    module: str = ""
    phase: str = ""

    def __str__(self) -> str:
        return place_text(self.file, self.line)

    @property
    def place(self) -> tuple[str, int]:
        """File and line, as errors take them."""
        return self.file, self.line

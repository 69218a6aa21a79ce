"""The lines of the user's code that nodes of a graph come from, while it is captured.

What a backward pass adds has the line of the op whose gradient it is, since the tape's nodes know theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.base.frames import user_frame
from weft.ir.graph import Node, Value
from weft.ir.location import Location


class Located:
    """The part of a capture that knows where its nodes come from.

    Attributes:
        placement: where in a program of another format the running code comes from, for an import.
        module_path: names of the modules around the running code.
    """

    parent: Any
    made: dict[Value, Node]

    def __init__(self, parent: Any) -> None:
        self._tape: dict[Any, Location | None] = {}
        self._phase: Location | None = None
        self.placement: Location | None = None if parent is None else parent.placement
        self.module_path: tuple[str, ...] = () if parent is None else parent.module_path

    def location(self) -> Location | None:
        """Where the user's code is now, or where the op came from whose gradient is computed."""
        if self._phase is not None or self.placement is not None:
            return self._phase or self.placement
        found = user_frame(2)
        return None if found is None else Location(*found, ".".join(self.module_path))

    def location_of(self, value: Value) -> Location | None:
        """The line that made a value, if it is known."""
        node = self.made.get(value)
        return None if node is None else node.location

    def recorded(self, node: object) -> bool:
        """Whether a node of the tape was recorded in this very capture."""
        return node in self._tape

    def note(self, node: object) -> None:
        """Remember where a node of the tape was recorded."""
        self._tape[node] = self.location()

    @contextmanager
    def going_back(self) -> Iterator[None]:
        """Tell what a sweep backward adds itself from what the user wrote on the line that starts it."""
        before = self._phase
        here = self.location()
        self._phase = None if here is None else here._replace(phase="backward")
        try:
            yield
        finally:
            self._phase = before

    @contextmanager
    def differentiating(self, node: object) -> Iterator[None]:
        """Give what is emitted the location of the op that a node of the tape came from."""
        before = self._phase
        found = self._tape_location(node)
        self._phase = before if found is None else found._replace(phase="backward")
        try:
            yield
        finally:
            self._phase = before

    def _tape_location(self, node: object) -> Location | None:
        if node in self._tape:
            return self._tape[node]
        return None if self.parent is None else self.parent._tape_location(node)

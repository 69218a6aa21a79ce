"""The forms of rows: an expression, and what it gives or which error it gets."""

from __future__ import annotations


class Hint:
    """Words that the error of an expression has."""

    def __init__(self, *words: str) -> None:
        self.words = words


Row = tuple[str, str | Hint]

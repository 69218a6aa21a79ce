"""What the declaration of an op says to make it a public function: its text, an example, its names."""

from __future__ import annotations

import re
from typing import NamedTuple


class Public(NamedTuple):
    """The public side of an elementwise op: ``weft.sin`` and the methods ``x.sin()`` and ``x.sin_()``.

    Attributes:
        text: what it gives, in a sentence.
        example: values of the inputs, an arrow, and the values that come out as they are printed.
        names: of the function; by default the op's own.
        is_method: whether tensors have it as a method too, in place also.
    """

    text: str
    example: str
    names: tuple[str, ...] = ()
    is_method: bool = True

    def docstring(self, name: str) -> str:
        """The text, and the example as a doctest of a function."""
        given, _, gives = self.example.partition(" -> ")
        tensors = ", ".join(f"weft.tensor({values})" for values in re.split(r"(?<=\]), (?=\[)", given))
        return f"{self.text}\n\n>>> import weft\n>>> weft.{name}({tensors})\ntensor({gives})\n"

"""Texts of machine code, and functions in memory: what is needed of them without LLVM."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template
from typing import Any

from weft.base.forks import Level, lock_of
from weft.base.records import NamedTuple

MAIN = "weft_main"  # the function of a whole program

lock = lock_of(Level.CODE)  # of who compiles or loads code: whoever compiles uses all processors anyway
early = lock_of(Level.EARLY)  # held by who compiles before anybody has asked for it


class Source(NamedTuple):
    """A text with functions in it.

    Attributes:
        text: the functions.
        optimise: whether LLVM is to optimise them first. It takes two to four times as long; it pays for
            loops over scalars, and gains nothing for code whose vectors are written out.
        quick: whether to take the code that LLVM finds soonest, in a tenth of the time: good enough where
            nothing is in a loop.
    """

    text: str
    optimise: bool = False
    quick: bool = False


def llvm_text(name: str, values: Mapping[str, str | int] = {}) -> str:
    """A text from the folder ``text``, without its comments, with values for all of its ``$names``.

    >>> from weft.backends.llvm.code import llvm_text
    >>> llvm_text("mode_x86").splitlines()[0]
    'declare void @llvm.x86.sse.stmxcsr(ptr)'
    """
    from importlib.resources import files

    text = files("weft.backends.llvm").joinpath("text", f"{name}.ll").read_text("utf-8")
    code = "".join([line for line in text.splitlines(keepends=True) if not line.startswith(";")])
    return Template(code).substitute(values)


class Code:
    """A function in machine code.

    Attributes:
        symbol: its name.
        address: where it is.
    """

    __slots__ = ("__weakref__", "_library", "address", "symbol")

    def __init__(self, symbol: str, address: int, library: Any) -> None:
        self.symbol = symbol
        self.address = address
        self._library = library  # what keeps the code in memory


shared: dict[str, Code] = {}  # the entry and the pool, where they came from disk, see `programs`

"""Sizes from text: names, numbers, ``+ - * // %``, brackets, ``max(a,b)`` and ``min(a,b)``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from weft.base.size_bounds import size_max, size_min
from weft.base.sizes import named_size, term_count
from weft.errors import ParseError

_TOKEN = re.compile(r"\s*(?:(\d+)|([^\W\d]\w*)|(//|[-+*%(),]))")


_TERMS = 1000  # text from anywhere must not multiply sums without end


def parse_size(text: str) -> Any:
    """The size that a text as printed stands for: an int or a ``Size``."""
    size, end = scan_size(text)
    if text[end:].strip():
        raise ParseError("parse_size", f"a size must end here, got {text[end:]!r} in {text!r}")
    return size


def shape_of_texts(shape: Iterable[Any]) -> tuple[Any, ...]:
    """A shape in which a text is the name of a size, or an expression in names.

    >>> from weft.base.size_text import shape_of_texts
    >>> shape_of_texts(("batch", 3, "4*h"))
    (batch, 3, 4*h)
    """
    return tuple([parse_size(size) if isinstance(size, str) else size for size in shape])


def scan_size(text: str, start: int = 0) -> tuple[Any, int]:
    """The size that stands in a text from a position on, and the position after it.

    >>> from weft.base.size_text import scan_size
    >>> scan_size("f32[max(n-1,0),4]", 4)
    (max(n-1,0), 14)
    """
    reader = _Reader(text, start)
    return reader.sum(), reader.at


class _Reader:
    """Recursive descent over a text."""

    __slots__ = ("at", "text")

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at

    def take(self, *symbols: str) -> str:
        """The next token, if it is one of some symbols, else "" and nothing is taken."""
        found = _TOKEN.match(self.text, self.at)
        if found is None or found[3] not in symbols:
            return ""
        self.at = found.end()
        return found[3]

    def sum(self) -> Any:
        total = self.product()
        while sign := self.take("+", "-"):
            term = self.product()
            total = total + term if sign == "+" else total - term
        return total

    def product(self) -> Any:
        value = self.signed()
        while sign := self.take("*", "//", "%"):
            factor = self.signed()
            if sign == "*":
                value = self.multiplied(value, factor)
            else:
                quotient = self.divided(value, factor)
                value = quotient if sign == "//" else value - self.multiplied(quotient, factor)
        return value

    def multiplied(self, value: Any, by: Any) -> Any:
        if term_count(value) * term_count(by) > _TERMS:
            raise self.wrong(f"at most {_TERMS} terms")
        return value * by

    def divided(self, value: Any, by: Any) -> Any:
        if by == 0:
            raise self.wrong("no division by 0")
        return value // by

    def signed(self) -> Any:
        return -self.signed() if self.take("-") else self.atom()

    def atom(self) -> Any:
        if self.take("("):
            value = self.sum()
            self.expect(")")
            return value
        found = _TOKEN.match(self.text, self.at)
        if found is None or found[3]:
            raise self.wrong("a name or a number")
        self.at = found.end()
        if found[1]:
            return int(found[1])
        if found[2] in _FUNCTIONS and self.take("("):
            return self.function(found[2])
        return named_size(found[2])

    def function(self, name: str) -> Any:
        left = self.sum()
        self.expect(",")
        right = self.sum()
        self.expect(")")
        return _FUNCTIONS[name](left, right)

    def expect(self, symbol: str) -> None:
        if not self.take(symbol):
            raise self.wrong(f"{symbol!r}")

    def wrong(self, wanted: str) -> ParseError:
        return ParseError(
            "parse_size", f"a size must have {wanted} at column {self.at + 1}, got {self.text[self.at :]!r}"
        )


_FUNCTIONS = {"max": size_max, "min": size_min}

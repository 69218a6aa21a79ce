"""Reads graph text from left to right: names, literals, types, locations; an error tells line and column.

Text may come from anywhere: nothing in it is run, nesting is limited, and no array is made that is not
written out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import prod
from typing import Any, TypeVar

import numpy as np

from weft.base.dtypes import DType, kind
from weft.base.records import NamedTuple
from weft.base.size_text import scan_size
from weft.errors import ParseError, WeftError
from weft.ir.graph import Array, Operand
from weft.ir.literals import DTYPE_NAMES, FILLED, IDENTIFIER, Number
from weft.ir.types import TensorType

T = TypeVar("T")

DEPTH = 64  # of brackets and regions
_SIZE_LENGTH = 300  # characters of a size, whose terms could otherwise multiply without end
_RANK = 64
_DIGITS = 400

_BLANK = re.compile(r"[ \t\r]*(?:#[^\n]*)?")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_DIGITS_TEXT = r"(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|inf|nan(?:\(0x[0-9a-f]+\))?)"
_SIGNED = re.compile(rf"-?{_DIGITS_TEXT}j?(?!\w)", re.ASCII)
_IMAGINARY = re.compile(rf"[+-]{_DIGITS_TEXT}j(?!\w)", re.ASCII)
_GOES_ON = re.compile(r"[ \t]*[*+/-]")
_PLAIN_SIZE = re.compile(r"\d{1,18}(?=[,\]])", re.ASCII)
_SIZE_START = re.compile(r"-?\w", re.ASCII)
_SIZE_TEXT = re.compile(rf"[\w+*/() \t,-]{{0,{_SIZE_LENGTH + 1}}}", re.ASCII)
_LABEL = re.compile(r"\w[\w.]*", re.ASCII)
_AGAIN = re.compile(r"~\d+")
_WORD = re.compile(r"\w+|[^\w\s]", re.ASCII)
_WORDS = {"True": True, "False": False, "None": None}


class Ref(NamedTuple):
    """A value that an argument names, ``%x`` or ``$c0``, and where it stands."""

    label: str
    at: int


class Literal(NamedTuple):
    """An array that is written out as an argument."""

    array: Array


class Reader:
    """A text and a position in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    # Errors

    def wrong(self, message: str, at: int | None = None, hint: str | None = None) -> ParseError:
        """The error that something is wrong at a position."""
        at = self.at if at is None else at
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        return ParseError("parse_graph", f"line {line}, column {column}: {message}", hint=hint)

    def expected(self, what: str) -> ParseError:
        """The error that something else must stand here."""
        found = _WORD.match(self.text, self.at)
        end = "the end of the line" if self.at < len(self.text) else "the end of the text"
        return self.wrong(f"expected {what}, got {found[0][:40] if found else end}")

    # Space and words

    def blank(self) -> None:
        """Skip blanks on this line, and a comment."""
        self.at = _BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]

    def space(self) -> None:
        """Skip blanks, ends of lines and comments."""
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]

    def peek(self, symbol: str) -> bool:
        """Whether a symbol stands here."""
        return self.text.startswith(symbol, self.at)

    def take(self, symbol: str) -> bool:
        """Whether a symbol stands here, which is then read."""
        if not self.peek(symbol):
            return False
        self.at += len(symbol)
        return True

    def expect(self, symbol: str) -> None:
        """Read a symbol."""
        if not self.take(symbol):
            raise self.expected(repr(symbol))

    def sign(self, symbol: str) -> None:
        """Read a symbol, with blanks around it."""
        self.blank()
        self.expect(symbol)
        self.blank()

    def match(self, pattern: re.Pattern[str]) -> str | None:
        """Read what a pattern matches here, if anything."""
        found = pattern.match(self.text, self.at)
        if found is None or not found[0]:
            return None
        self.at = found.end()
        return found[0]

    def word(self, what: str) -> str:
        """Read an identifier."""
        found = self.match(IDENTIFIER)
        if found is None:
            raise self.expected(what)
        return found

    def keyword(self, word: str) -> bool:
        """Whether a word stands here, as a whole, which is then read."""
        found = IDENTIFIER.match(self.text, self.at)
        if found is None or found[0] != word:
            return False
        self.at = found.end()
        return True

    def name(self, what: str, pattern: re.Pattern[str] = IDENTIFIER) -> str:
        """Read a name: as it is, or in quotes."""
        if self.peek('"'):
            return self.string()
        found = self.match(pattern)
        if found is None:
            raise self.expected(what)
        return found

    def string(self) -> str:
        """Read a string in quotes."""
        start = self.at
        found = self.match(_STRING)
        if found is None:
            raise self.wrong("a string must end on its line")
        try:
            return str(json.loads(found))
        except ValueError:
            raise self.wrong("a string must be written with JSON's escapes", start) from None

    def listed(self, one: Callable[[], T], close: str = ")") -> list[T]:
        """Read what stands between brackets, of which the first was read, with commas between."""
        self.depth += 1
        if self.depth > DEPTH:
            raise self.wrong(f"brackets must not be nested more than {DEPTH} deep")
        out = []
        self.space()
        while not self.take(close):
            out.append(one())
            self.space()
            if not self.take(","):
                if not self.peek(close):
                    raise self.expected(f"',' or {close!r}")
                continue
            self.space()
        self.depth -= 1
        return out

    # Types and sizes

    def type(self) -> TensorType:
        """Read a type: ``f32[2,batch]``."""
        dtype = self.dtype()
        self.expect("[")
        return TensorType(self.shape(), dtype)

    def dtype(self) -> DType:
        """Read a dtype: ``f32``."""
        start = self.at
        word = self.word("a type, such as f32[2,3]")
        if word not in DTYPE_NAMES:
            raise self.wrong(f"expected a dtype, one of {', '.join(DTYPE_NAMES)}, got {word}", start)
        return DTYPE_NAMES[word]

    def shape(self) -> tuple[Any, ...]:
        """Read sizes up to a square bracket."""
        start = self.at
        sizes = self.listed(self.size, "]")
        if len(sizes) > _RANK:
            raise self.wrong(f"a shape must have at most {_RANK} axes, got {len(sizes)}", start)
        return tuple(sizes)

    def size(self) -> Any:
        """Read a size: a number, or an expression in names."""
        plain = self.match(_PLAIN_SIZE)
        if plain is not None:
            return int(plain)
        start = self.at
        text = _SIZE_TEXT.match(self.text, start)[0]  # type: ignore[index]
        try:
            size, end = scan_size(text)
        except (WeftError, ValueError, RecursionError) as error:
            message = error.message if isinstance(error, WeftError) else "a size must be short and simple"
            raise self.wrong(message, start) from None
        if end > _SIZE_LENGTH:
            raise self.wrong(f"a size must be at most {_SIZE_LENGTH} characters long", start)
        self.at = start + end
        return size

    # Literals

    def literal(self) -> Any:
        """Read an attribute or argument: a literal, a value, an array, or a tuple of these."""
        if self.take("("):
            return self.rest_of_tuple()
        if self.peek('"'):
            return self.string()
        if self.peek('b"'):
            return self.byte_string()
        if self.peek("%") or self.peek("$"):
            return self.ref()
        return self.plain()

    def rest_of_tuple(self) -> tuple[Any, ...]:
        """Read a tuple, of which the first bracket was read."""
        items = self.listed(self.literal)
        if len(items) == 1 and not re.search(r",\s*\)$", self.text[max(0, self.at - 200) : self.at]):
            raise self.wrong("a tuple of one item needs a comma after it", self.at - 1)
        return tuple(items)

    def byte_string(self) -> bytes:
        """Read bytes: b and a string."""
        start = self.at
        self.at += 1
        try:
            return self.string().encode("latin-1")
        except UnicodeEncodeError:
            raise self.wrong("bytes must be written with characters up to \\u00ff", start) from None

    def ref(self) -> Ref:
        """Read the label of a value."""
        start = self.at
        return Ref(self.label(), start)

    def label(self) -> str:
        """Read ``%x``, ``%3``, ``%"a name"`` or ``$c0``, as it stands."""
        start = self.at
        self.at += 1
        if self.peek('"'):
            self.string()
        elif self.match(_LABEL) is None:
            raise self.expected("the name of a value")
        self.match(_AGAIN)
        return self.text[start : self.at]

    def plain(self) -> Any:
        """Read a number, a word, a dtype, an array or a size."""
        start = self.at
        word = IDENTIFIER.match(self.text, start)
        if word is None or word[0] in ("inf", "nan", "infj", "nanj"):
            return self.number_or_size()
        self.at = word.end()
        if word[0] in _WORDS:
            return _WORDS[word[0]]
        if word[0] in DTYPE_NAMES:
            dtype = DTYPE_NAMES[word[0]]
            return self.array(dtype) if self.peek("[") or self.peek("(") else dtype
        if word[0] == "size" and self.take("("):
            size = self.size()
            self.expect(")")
            return size
        if word[0] == "operand" and self.take("("):
            index = self.whole()
            self.expect(")")
            return Operand(index)
        self.at = start
        return self.size()

    def number_or_size(self) -> Any:
        """Read a number of Python's, or a size that begins with one."""
        start = self.at
        number = self.number() if _SIGNED.match(self.text, start) else None
        if number is None or (number.is_whole and _GOES_ON.match(self.text, self.at)):
            if not _SIZE_START.match(self.text, start):
                raise self.expected("a literal or a value")
            self.at = start
            return self.size()
        return number.python()

    def whole(self) -> int:
        """Read a whole number."""
        start = self.at
        number = self.number()
        if not number.is_whole:
            raise self.wrong("expected a whole number", start)
        return int(number.python())

    def number(self) -> Number:
        """Read a number; a complex one has two parts."""
        start = self.at
        first = self.match(_SIGNED)
        if first is None:
            raise self.expected("a number")
        second = None if first.endswith("j") else self.match(_IMAGINARY)
        if len(first) + len(second or "") > _DIGITS:
            raise self.wrong(f"a number must have at most {_DIGITS} digits", start)
        if first.endswith("j"):
            return Number("0.0", first[:-1])
        return Number(first, second[:-1] if second else None)

    def array(self, dtype: DType) -> Literal:
        """Read the rest of an array that is written out, after its dtype."""
        start = self.at
        shape = self.shape() if self.take("[") else ()
        self.expect("(")
        if not all(isinstance(s, int) for s in shape):
            raise self.wrong("an array must have known sizes", start)
        items = self.listed(lambda: b"" if self.take("...") else self.element(dtype))
        if len(items) == 2 and not items[1]:
            return Literal(self.filled(items[0], shape, dtype, start))
        if b"" in items:
            raise self.wrong("'...' must follow one element, which then is every element", start)
        if prod(shape) != len(items) or any(s < 0 for s in shape):
            wanted = f"an array of the shape {list(shape)} must have {prod(shape)} elements"
            raise self.wrong(f"{wanted}, got {len(items)}", start)
        return Literal(np.frombuffer(b"".join(items), dtype).reshape(shape))

    def filled(self, item: bytes, shape: tuple[int, ...], dtype: DType, start: int) -> Array:
        """An array of one number; its memory is that of the number alone."""
        if prod(shape) > FILLED or any(s < 0 for s in shape):
            raise self.wrong(f"an array that is written out must have at most {FILLED} elements", start)
        return np.broadcast_to(np.frombuffer(item, dtype)[0], shape)

    def element(self, dtype: DType) -> bytes:
        """Read one number of a dtype, as the bytes it is made of."""
        start = self.at
        word = IDENTIFIER.match(self.text, start)
        if kind(dtype) == "b":
            if word is None or word[0] not in ("True", "False"):
                raise self.expected("True or False")
            self.at = word.end()
            return np.asarray(word[0] == "True").tobytes()
        number = self.number()
        try:
            return number.data(dtype)
        except (ValueError, OverflowError):
            message = f"expected a number of {dtype.name}, got {self.text[start : self.at]}"
            raise self.wrong(message, start) from None

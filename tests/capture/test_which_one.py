"""``is`` of what only the run tells: answered where it can be, and else refused; truth values as masks."""

from __future__ import annotations

import enum
import linecache
import textwrap
from typing import Any

import pytest

import weft
from weft.errors import CaptureError

# ``x`` is a number, ``c`` decides, ``HELD`` is a list from outside
RIGHT = {
    "a flag of a while": """
        done = False
        while done is False:
            x = x * 2
            if x > c: done = True
        return x
    """,
    "a flag": """
        k = False
        if c > 0: k = True
        y = x if k is True else x * 2
        return y if k is not False else y * 5
    """,
    "None": """
        k = False
        if c > 0: k = True
        return x if k is None else x * 2
    """,
    "match": """
        match bool(c > 0):
            case True: return x
            case False: return x * 2
            case _: return x * 3
    """,
    "other lists": """
        a, b = [x], [x]
        if c > 0: a = [x * 2]
        return x if a is b else x * 2
    """,
    "members of an enumeration": """
        m = Level.LOW
        if c > 0: m = Level.HIGH
        return x * m
    """,
    "a member of an enumeration": """
        m = Level.LOW
        y = x * m
        if m is Level.LOW: y = y + 1
        if c > 0: y = y * Level.HIGH
        return y
    """,
    "a mask that is written": """
        y = weft.tensor([1.0, 2.0]) * x
        y[bool(c > 0)] = 9.0
        return y.sum()
    """,
    "a mask that is read": """
        y = weft.tensor([1.0, 2.0]) * x
        return y[bool(c > 0)].sum()
    """,
}
REFUSED = {
    "a list": """
        a = HELD
        if c > 0: a = [x]
        return x + 1 if a is HELD else x * 3
    """,
    "a tuple": """
        a = b = (x, 1)
        if c > 0: b = (x * 2, 2)
        return x if b is a else x * 2
    """,
    "a list of turns": """
        best = init = [x]
        for v in (c, c * 2):
            if v > x: best = [v]
        return x * 0 if best is init else best[0]
    """,
    "a list that a loop carries": """
        best = init = [x]
        for i in range(c):
            if i > x: best = [x * i]
        return x * 0 if best is init else best[0]
    """,
    "an item": """
        d = {"a": [x], "b": [x]}
        if c > 0: d["a"] = d["b"]
        return x if d["a"] is d["b"] else x * 2
    """,
    "an int": """
        n = 1
        if c > 0: n = 2
        return x if n is one else x * 2
    """,
    "an attribute that a class inherits": """
        if c > 9: Base.n += 1
        else: Derived.n += 1
        return x * Derived.n
    """,
}
HELD = [weft.tensor(2.0)]


class Base:
    """Counts."""

    n = 0


class Derived(Base):
    """Inherits the count."""


class Level(enum.IntEnum):
    """Numbers with names."""

    LOW = 1
    HIGH = 2


def _function(text: str) -> Any:
    body = textwrap.indent(textwrap.dedent(text), "    ")
    source, name = f"def f(x, c):\n{body}\n", f"<which one {hash(text)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"weft": weft, "HELD": HELD, "Level": Level, "one": 1}
    space |= {"Base": Base, "Derived": Derived}
    exec(compile(source, name, "exec"), space)  # noqa: S102 - the text is ours
    return space["f"]


@pytest.mark.parametrize("name", RIGHT)
def test_it_is_what_eager_code_says(name: str) -> None:
    f = _function(RIGHT[name])
    compiled = weft.compile(f)
    for c in (5.0, -1.0, 1.0, 3.0):
        given = weft.tensor(1.0), weft.tensor(c)
        assert float(compiled(*given)) == float(f(*given))


@pytest.mark.parametrize("name", REFUSED)
def test_what_nobody_knows_is_refused(name: str) -> None:
    with pytest.raises(CaptureError):
        weft.compile(_function(REFUSED[name]))(weft.tensor(1.0), weft.tensor(2))

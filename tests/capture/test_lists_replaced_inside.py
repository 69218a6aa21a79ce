"""A list in a place that branches replace is, after a call, the very one that eager code leaves there."""

from __future__ import annotations

import linecache
import textwrap
from types import SimpleNamespace
from typing import Any

import pytest

import weft
from weft.errors import CaptureError

# ``o`` has lists ``p`` and ``q`` from outside; ``a`` and ``b`` decide, ``x`` is a number
RIGHT = {
    "inner": """
        if a > 0:
            if b > 0: o.p = [x * 2]
    """,
    "inner, where others compute": """
        if a > 0:
            if b > 0: o.p = [x * 2]
            else: x = x * 3
        else:
            if b > 1: o.p = [x * 5]
        return x
    """,
    "three deep": """
        if a > 0:
            if b > 0:
                if b > 1: o.p = [x]
                else: x = x + 1
        return x
    """,
    "one after the other": """
        if a > 0: o.p = [x * 2]
        if b > 0: o.p = [x * 4]
        if b > 1: o.p = [x * 6]
    """,
    "inner ones after each other": """
        if a > 0:
            if b > 0: o.p = [x * 2]
            if b > 1: o.p = [x * 4]
            x = o.p[0] * 2
        if b > 2: o.p = [x]
        return x
    """,
    "in an inner branch twice": """
        if a > 0:
            o.p = [x]
            if b > 0: o.p = [x * 2]
    """,
    "new on both inner ways": """
        if a > 0:
            if b > 0: o.p = [x]
            else: o.p = [x * 2]
    """,
    "swapped": """
        if a > 0:
            if b > 0: o.p, o.q = o.q, o.p
    """,
    "read before": """
        r = o.p
        if a > 0:
            if b > 0: o.p = [x]
        return r, o.p
    """,
    "of a variable": """
        l = k = [x]
        if a > 0:
            if b > 0: l = [x * 2]
        return l, k
    """,
    "a dict": """
        if a > 0:
            if b > 0: o.d = {"k": x * 2}
        return o.d
    """,
    "whose tensors change": """
        if a > 0:
            if b > 0: o.p = [x * 2]
        o.p[0].mul_(3)
    """,
    "in a list": """
        if a > 0:
            if b > 0: o.rows[0] = [x]
    """,
    "with a loop": """
        if b > 0:
            for i in range(a): o.p = [x * i]
    """,
    "of two places": """
        l = [x]
        if a > 0:
            if b > 0: o.p = l
        o.q = l
    """,
    "empty in two places": """
        if a > 0: o.p = o.q = []
        else: o.p, o.q = [], []
    """,
    "of an object": """
        if a > 0:
            n = Node()
            n.l = [x]
            if b > 0: n.l = [x * 2]
            o.p[0] = n.l[0]
    """,
}
REFUSED = {
    "changed after": """
        if a > 0:
            if b > 0: o.p = [x * 2]
        o.p[0] = x * 9
    """,
    "one of three": """
        l, h = [x], [x * 3]
        k = l
        if a > 0:
            if b > 0: l = [x * 2]
            else: l = h
        return l, k, h
    """,
    "held where it is one of two": """
        if a > 0: o.p = [x]
        y = o.p
        if b > 0: o.p = [x * 2]
        return y
    """,
    "in turns": """
        for i in range(a):
            if b > i: o.p = [x * i]
    """,
}


def _left(text: str, compiled: bool) -> list[Any]:
    """What calls return and leave, and which lists are one."""
    body = textwrap.indent(textwrap.dedent(text), "    ")
    source, name = f"class Node: pass\ndef f(o, x, a, b):\n{body}\n", f"<{hash(text)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "program"}
    exec(compile(source, name, "exec"), space)  # noqa: S102 - the text is ours
    o = SimpleNamespace(p=[weft.tensor(1.0)], q=[weft.tensor(2.0)], d={"k": weft.tensor(3.0)})
    o.rows = [o.q, o.p]
    f = space["f"]
    step = (
        weft.compile(lambda *args: f(o, *args), backend="interpret")
        if compiled
        else (lambda *args: f(o, *args))
    )
    held = [o.p, o.q, o.d]
    found = []
    for a, b in ((1, 1), (1, 0), (0, 1), (2, 2), (1, 3), (0, 3), (1, 1)):
        out = step(weft.tensor(float(a + b)), weft.tensor(a), weft.tensor(b))
        held += [o.p, o.q, o.d, *o.rows, *_lists(out)]
        found.append([next(i for i, y in enumerate(held) if x is y) for x in held])
        found.append([_plain(x) for x in held])
    return found


def _lists(x: Any) -> list[Any]:
    return [y for y in (x if isinstance(x, tuple) else (x,)) if isinstance(y, list | dict)]


def _plain(x: Any) -> Any:
    return [y.item() for y in (x.values() if isinstance(x, dict) else x)]


@pytest.mark.parametrize("name", RIGHT)
def test_it_is_the_one_that_eager_code_leaves(name: str) -> None:
    assert _left(RIGHT[name], compiled=True) == _left(RIGHT[name], compiled=False)


@pytest.mark.parametrize("name", REFUSED)
def test_what_nobody_can_tell_is_refused(name: str) -> None:
    with pytest.raises(CaptureError, match="list of which only the run tells which one it is"):
        _left(REFUSED[name], compiled=True)

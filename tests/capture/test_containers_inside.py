"""Lists and dicts in lists and dicts where ways meet: which one it is, or a refusal."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

import pytest

import weft
from tests.capture.state_programs import check_source
from tests.capture.state_source import PREAMBLE
from weft.errors import CaptureError

ALIKE = {
    "a list that both ways put into another": """
        k = [a]
        t = [k, m[0]]
        if c > 0:
            t = [k, m[1]]
        t[0][0] = m[1] * 5.0
        return k[0], t[1]
    """,
    "likewise a dict": """
        k = {"h": a}
        if c > 0:
            t = {"k": k, "v": m[0]}
        else:
            t = {"k": k, "v": m[1]}
        t["k"]["h"] = m[1] * 5.0
        return k["h"], t["v"]
    """,
    "in a tuple": """
        k = [a]
        t = (k, m[0])
        if c > 0:
            t = (k, m[1])
        t[0].append(m[1] * 5.0)
        return k[-1], a * len(k)
    """,
    "in a loop": """
        k = [a]
        t = [k, m[0]]
        for i in range(n):
            t = [t[0], t[1] + 1.0]
        t[0][0] = m[1] * 5.0
        return k[0], t[1]
    """,
    "that the loop takes anew": """
        k = [a]
        t = [k, m[0]]
        for i in range(n):
            t = [k, t[1] + 1.0]
        t[0][0] = m[1] * 5.0
        return k[0], t[1]
    """,
    "one from outside": """
        t = [o.rows[0], m[0]]
        for i in range(n):
            t = [t[0], t[1] + 1.0]
        t[0][0] = m[1] * 5.0
        return t[0][0], t[1]
    """,
    "from outside, which was another on one way before": """
        if n > 1:
            o.rows[0] = o.rows[1]
        o.rows[0] = o.rows[1]
        return a, o.rows[0][0]
    """,
    "from outside, which was another if a loop had turns": """
        for i in range(n):
            o.rows[0] = o.rows[1]
        o.rows[0] = o.rows[1]
        o.rows[1][0] = m[0] * 2.0
        return a, o.rows[0][0]
    """,
    "what nobody else holds may change": """
        t, u = [a], {"h": m[0]}
        if c > 0:
            t, u = [m[1]], {"h": a * 2.0}
        t[0] = t[0] * 5.0
        t.append(u["h"])
        u["h"] = u["h"] + 1.0
        return t[0] + t[1], u["h"]
    """,
    "a second name of what was joined": """
        t = [a]
        if c > 0:
            t = [m[1]]
        u = t
        t[0] = t[0] * 5.0
        return u[0], t[0]
    """,
    "what a variable was a turn before": """
        t = u = [a]
        for i in range(n):
            u = t
            t = [t[0] + 1.0]
        return u[0], t[0]
    """,
}


@pytest.mark.parametrize("name", ALIKE)
def test_it_is_the_one_that_it_is(name: str) -> None:
    assert _check(name, ALIKE[name]) == {"same"}


# Dataclasses are containers, too


@dataclass
class Pair:
    h: Any
    items: list[Any]


WITH_PAIRS = "from tests.capture.test_containers_inside import Pair\n"
RECORDS = {
    "one that both ways put into a list": """
        s = Pair(a, [m[0]])
        t = [s, m[0]]
        if c > 0:
            t = [s, m[1]]
        t[0].h = m[1] * 5.0
        return s.h, t[1]
    """,
    "a list in one": """
        s = Pair(a, [m[0]])
        k = s.items
        for i in range(n):
            s = Pair(s.h + 1.0, s.items)
        s.items[0] = s.items[0] * 3.0
        return k[0], s.h
    """,
    "one that nobody else holds": """
        s = Pair(a, [m[0]])
        if c > 0:
            s = Pair(m[1], [a])
        s.h = s.h * 2.0
        s.items.append(s.h)
        return s.h + s.items[0], s.items[-1]
    """,
    "fields that turns change": """
        s = Pair(a, [m[0]])
        for i in range(n):
            s.h = s.h + 1.0
            s.items[0] = s.items[0] * 0.5
        return s.h, s.items[0]
    """,
}
DOUBTFUL = {
    "a new one, or another, which is read": """
        s = t = Pair(a, [m[0]])
        if c > 0:
            t = Pair(m[1], [m[1]])
        t.h = t.h * 3.0
        return s.h, t.h
    """,
    "one of two from outside": """
        o.pair, o.other = Pair(a, [m[0]]), Pair(m[1], [a * 2.0])
        t = o.pair
        if c > 0:
            t = o.other
        t.h = t.h * 3.0
        t.items[0] = t.items[0] + 1.0
        return o.pair.h + o.pair.items[0], o.other.h + o.other.items[0]
    """,
    "one that a turn changes and replaces": """
        s = t = Pair(a, [m[0]])
        for i in range(n):
            t.h = t.h + 1.0
            t = Pair(t.h * 2.0, t.items)
        return s.h, t.h
    """,
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_dataclass_is_the_one_that_it_is(name: str) -> None:
    assert _check(name, RECORDS[name], WITH_PAIRS) == {"same"}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_a_change_of_a_dataclass_reaches_the_one_that_it_is_or_is_refused(name: str) -> None:
    assert _check(name, DOUBTFUL[name], WITH_PAIRS) <= {"same", "refused"}


def test_one_of_two_dataclasses_from_outside() -> None:
    def changes_field(one: Pair, other: Pair, x: Any) -> None:
        t = one
        if x > 0:
            t = other
        t.h = t.h + x

    def changes_list(one: Pair, other: Pair, x: Any) -> None:
        t = one
        if x > 0:
            t = other
        t.items[0] = t.items[0] + x

    for change in (changes_field, changes_list):
        pairs = [Pair(weft.tensor(1.0), [weft.tensor(2.0)]), Pair(weft.tensor(3.0), [weft.tensor(4.0)])]

        def step(x: Any, change: Any = change, pairs: Any = pairs) -> Any:
            change(*pairs, x)
            return x * 1.0

        with pytest.raises(CaptureError, match="of which only the run tells which one it is"):
            weft.compile(step, backend="interpret")(weft.tensor(1.0))
        assert [(p.h.item(), p.items[0].item()) for p in pairs] == [(1.0, 2.0), (3.0, 4.0)]


# What nothing carries: a change must reach one of several.

JOINS = {
    "a new one, or one from outside": "t = o.rows[0]\nif c > 0:\n    t = [m[0]]\nk = o.rows[0]",
    "a part of a new one, or of another": "k = [a]\nd = {0: k}\nif c > 0:\n    d = {0: [m[0]]}\nt = d[0]",
    "a new one, or another": "k = t = [a]\nif c > 0:\n    t = [m[0]]",
    "one of two": "k, j = [a], [m[1]]\nt = k\nif c > 0:\n    t = j",
    "one that turns replace": "k = t = [a]\nfor i in range(n):\n    t = [t[0] + 1.0]",
}
CHANGES = {"of it": "t[0] = m[1] * 5.0", "of another": "k[0] = m[1] * 5.0"}
READS = {
    "an item": "v = t[0] + k[0]",
    "unpacked": "(v,) = k\n(w,) = t\nv = v + w",
    "in a display": "v = [*k][0] + [*t][0]",
    "as arguments": "v = (lambda x, y: x + y)(*k, *t)",
    "stacked": "v = weft.stack(k).sum(axis=0) + weft.stack(t)[0]",
    "summed": "v = sum(k) + sum(t)",
    "copied": "v = list(k)[0] + t[:][0]",
    "stored": "o.box = k\nv = t[0]",
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("join", JOINS)
def test_a_change_reaches_the_one_that_it_is_or_is_refused(join: str, change: str, read: str) -> None:
    program = f"{JOINS[join]}\n{CHANGES[change]}\n{READS[read]}\nreturn v, a"
    assert _check(f"{join}, {change}, {read}", program) <= {"same", "refused"}


TURNS = {
    "what is read before it changes": """
        k = [a]
        t = k
        if c > 0:
            t = [m[1]]
        s = a * 0.0
        for i in range(n):
            s = s + k[0]
            t[0] = t[0] * 2.0
        return s, t[0]
    """,
    "likewise, joined in each turn": """
        k = [a]
        s = a * 0.0
        for i in range(n):
            t = k
            if c > 0:
                t = [m[1]]
            s = s + k[0]
            t[0] = t[0] * 2.0
        return s, k[0]
    """,
    "what a turn changes and replaces": """
        k = t = [a]
        for i in range(n):
            t[0] = t[0] + 1.0
            t = [m[1]]
        return k[0], t[0]
    """,
}


@pytest.mark.parametrize("name", TURNS)
def test_turns_see_changes_of_turns_before_or_are_refused(name: str) -> None:
    assert _check(name, TURNS[name]) <= {"same", "refused"}


def test_a_list_from_outside_that_several_ifs_may_have_replaced_is_one_of_them() -> None:
    """What one `if` joins may be what another joined before: all that these may be count."""

    def told(wrap: Any, x: float) -> list[Any]:
        known = [[weft.tensor(1.0)], [weft.tensor(2.0)], [weft.tensor(3.0)]]
        rows = [*known]

        def step(x: Any) -> Any:
            if x > 0:
                rows[0], rows[1], rows[2] = rows[1], rows[2], rows[1]
            if x > 1:
                rows[0], rows[1], rows[2] = rows[1], rows[2], rows[1]
            if x > 2:
                rows[0], rows[1], rows[2] = rows[1], rows[2], rows[1]
            return x * 1.0

        wrap(step)(weft.tensor(x))
        return [[row is y for y in known] for row in rows]

    for x in (-0.5, 0.5, 1.5, 2.5):
        assert told(lambda f: weft.compile(f, backend="interpret"), x) == told(lambda f: f, x)


def test_a_list_that_is_one_of_two_new_ones_is_the_one_that_leaves_with_it() -> None:
    @weft.compile(backend="interpret")
    def step(x: Any) -> Any:
        one, other = [x], [x * 2.0]
        picked = one if x > 0 else other
        again = picked if x > 1 else other
        return one, other, picked, {"again": again}

    for x, firsts in ((2.0, [0, 0]), (0.5, [0, 1]), (-1.0, [1, 1])):
        *known, picked, held = step(weft.tensor(x))
        assert [picked is known[firsts[0]], held["again"] is known[firsts[1]]] == [True, True]


@pytest.mark.parametrize("form", ["for", "while"])
def test_a_list_that_turns_replace_is_the_one_before_where_there_are_none(form: str) -> None:
    def told(wrap: Any) -> list[Any]:
        held = {"rows": [weft.tensor(1.0)]}

        def by_for(n: Any) -> Any:
            first = rows = [n * 1.0]
            for _ in range(n):
                rows = [rows[0] * 2.0]
                held["rows"] = [held["rows"][0] + 1.0]
            return first, rows

        def by_while(n: Any) -> Any:
            first = rows = [n * 1.0]
            i = 0
            while i < n:
                i += 1
                rows = [rows[0] * 2.0]
                held["rows"] = [held["rows"][0] + 1.0]
            return first, rows

        call, log = wrap(by_for if form == "for" else by_while), []
        for n in (2, 0, 1, 0):
            old = held["rows"]
            first, rows = call(weft.tensor(n))
            log.append((rows is first, held["rows"] is old, rows[0].item(), held["rows"][0].item()))
        return log

    assert told(lambda f: weft.compile(f, backend="interpret")) == told(lambda f: f)


def test_a_list_that_inner_branches_replace_on_all_ways_or_change_is_right() -> None:
    def told(wrap: Any) -> list[Any]:
        held = {"rows": [weft.tensor(1.0)], "kept": [weft.tensor(1.0)]}

        def step(x: Any) -> Any:
            if x > 1:
                held["rows"] = [x]
            elif x > 0:
                held["rows"] = [x * 2.0]
                if x > 0.5:
                    held["kept"][0] = x
            else:
                held["rows"] = [x * 3.0]
            return x * 1.0

        step, before, log = wrap(step), held["kept"], []
        for x in (2.0, 0.75, 0.25, -1.0):
            step(weft.tensor(x))
            log.append((held["rows"][0].item(), held["kept"][0].item(), held["kept"] is before))
        return log

    assert told(lambda f: weft.compile(f, backend="interpret")) == told(lambda f: f)


def test_a_list_that_an_inner_branch_picks_and_that_others_have_is_refused() -> None:
    def step(x: Any) -> Any:
        one, other = [x], [x * 2.0]
        picked = one
        if x > 0 and x.sum() > 1:
            picked = other
        elif x < -1:
            for _ in range(int(x.sum())):
                picked = other
        return one, other, picked

    with pytest.raises(CaptureError, match="list of which only the run tells which one it is"):
        weft.compile(step, backend="interpret")(weft.tensor(0.5))


def _check(name: str, program: str, before: str = "") -> set[str]:
    body = textwrap.indent(textwrap.dedent(program).strip("\n"), " " * 8)
    source = f"{before}{PREAMBLE}{body}\n\n    return f\n"
    told = {
        check_source(source, f"<{name}>", gradients=g, shared=s) for g in (False, True) for s in (False, True)
    }
    return {"same" if x == "same" else "refused" if x.startswith("refused") else x for x in told}

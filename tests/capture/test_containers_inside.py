"""Lists and dicts in lists and dicts where ways meet: which one it is, or a refusal."""

from __future__ import annotations

import textwrap

import pytest

from tests.capture.state_programs import check_source
from tests.capture.state_source import PREAMBLE

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


def _check(name: str, program: str) -> set[str]:
    body = textwrap.indent(textwrap.dedent(program).strip("\n"), " " * 8)
    source = f"{PREAMBLE}{body}\n\n    return f\n"
    told = {
        check_source(source, f"<{name}>", gradients=g, shared=s) for g in (False, True) for s in (False, True)
    }
    return {"same" if x == "same" else "refused" if x.startswith("refused") else x for x in told}

"""Slices of lists in captured code: what is assigned to them, deleted from them, and who sees it."""

from __future__ import annotations

import textwrap

import pytest

from tests.capture.state_programs import check_source
from tests.capture.state_source import PREAMBLE

ALIKE = {
    "all items": "L[:] = [L[1], a]",
    "from a tensor's rows": "L[:] = m",
    "from a generator": "L[:] = (x * 0.5 for x in L)",
    "reversed": "L[:] = L[::-1]",
    "to every second": "L[::2] = [a]",
    "to a slice that goes down": "L[::-1] = [a, m[0]]",
    "one of them": "L[1:] = [a]",
    "none of them": "L[2:] = []",
    "in a branch": "if c > 0: L[:] = [L[1], a]",
    "on both ways": """
        if c > 0:
            L[:] = [L[1], a]
        else:
            L[0:1] = (m[0],)
    """,
    "in a loop": """
        for i in range(n):
            L[:] = [L[1] * 0.5, L[0] + a]
    """,
    "lists in a list": "o.rows[:] = o.rows[::-1]",
    "in an attribute, read after it": """
        o.rows[0][:] = [a * 2.0]
        z = o.rows[0][0] + z
    """,
    "in a dict": "D['box'][:] = [D['x']]",
    "itself": "L[:] = L",
    "a copy stays as it was": """
        b = L[:]
        L[:] = [a, b[0]]
        z = b[1] + b[0]
    """,
    "a local list may grow": """
        b = [*L]
        b[1:1] = [a, m[0]]
        b[:1] = []
        z = b[0] + b[1] * 2.0 + len(b)
    """,
    "and shrink": """
        b = [*L, a, m[0]]
        del b[1:3]
        del b[0]
        z = b[0] + len(b)
    """,
    "a local list in a branch": """
        b = [*L, a]
        if c > 0:
            b[:2] = [a, m[1]]
        z = b[0] * b[1]
    """,
}
REFUSED = {
    "longer": "L[:] = [a, a, m[0]]",
    "shorter": "o.rows[:] = [[a]]",
    "put between": "L[1:1] = [m[0]]",
    "deleted": "if len(o.rows) > 1: del o.rows[1]",
    "deleted in a branch": "if c > 0: del o.rows[0]",
    "a slice deleted": "del o.rows[:1]",
    "shorter in a branch": "if c > 0: L[:] = [a]",
}


def _told(name: str, program: str) -> set[str]:
    body = textwrap.indent(textwrap.dedent(program).strip("\n"), " " * 8)
    source = f"{PREAMBLE}{body}\n        return a * 1.0, z\n\n    return f\n"
    return {
        check_source(source, f"<{name}>", gradients=g, shared=s) for g in (False, True) for s in (False, True)
    }


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_assigned_to_a_slice_is_there_after_each_call(name: str) -> None:
    assert _told(name, ALIKE[name]) == {"same"}


@pytest.mark.parametrize("name", REFUSED)
def test_lists_from_outside_keep_their_length(name: str) -> None:
    assert all(x.startswith("refused: ") for x in _told(name, REFUSED[name]))

"""Operands of ``and``, ``or`` and chained comparisons change something where a run needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
from tests.capture.both_ways import check


class Counter:
    def __init__(self) -> None:
        self.n = 0

    def __contains__(self, x: Any) -> bool:
        self.n += 1
        return True


def bump(d: dict[str, int]) -> bool:
    d["n"] += 1
    return True


def grown(items: list[int]) -> bool:
    items.append(1)
    return True


def in_an_if(x: Any) -> Any:
    d = {"n": 0}
    if x > 2 and bump(d):
        pass
    return d


def alone(x: Any) -> Any:
    items: list[int] = []
    x > 2 and items.append(1)
    return len(items), x


def of_or(x: Any) -> Any:
    d = {"n": 0}
    kept = 1.0 if x <= 2 or bump(d) else 2.0
    return d, kept


def of_a_while(x: Any) -> Any:
    d, i = {"n": 0}, 0
    while i < x and bump(d):
        i += 1
    return d, i


def of_a_while_with_a_way(x: Any) -> Any:
    d, i = {"n": 0}, 0
    while x > 2 and bump(d) and i < 3:
        i += 1
    return d["n"], i


def of_an_assert(x: Any) -> Any:
    d = {"n": 0}
    assert x <= 2 or bump(d)
    return d


def of_a_chain(x: Any) -> Any:
    d = {"n": 0}

    def most() -> int:
        d["n"] += 1
        return 5

    return 2 < x <= most(), d


def in_a_loop(x: Any) -> Any:
    items: list[int] = []
    for _ in range(2):
        if x > 2 and grown(items):
            pass
    return len(items)


def of_an_object(x: Any) -> Any:
    o = Counter()
    if x > 2 and 3 in o:
        pass
    return o.n


def in_a_ternary(x: Any) -> Any:
    d = {"n": 0}
    found = bump(d) if x > 2 else False
    return d["n"], 1 if found else 2


PROGRAMS = [
    in_an_if,
    alone,
    of_or,
    of_a_while,
    of_a_while_with_a_way,
    of_an_assert,
    of_a_chain,
    in_a_loop,
    of_an_object,
    in_a_ternary,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_operand_changes_what_the_call_made_where_it_is_needed(program: Callable[..., Any]) -> None:
    for first in (1.0, 3.0):
        f = weft.compile(program, backend="interpret")
        for given in (first, 1.0, 3.0, 2.5, 1.0):
            assert _plain(f(weft.tensor(given))) == _plain(program(weft.tensor(given))), (first, given)


def _plain(x: Any) -> Any:
    """Values alone: truths that a run tells are tensors."""
    return [y.item() if isinstance(y, weft.Tensor) else y for y in weft.tree_leaves(x)]


def test_message_of_an_assertion_that_holds_changes_nothing() -> None:
    def make() -> Any:
        t, seen = weft.zeros(1), dict[str, int]()

        def note() -> str:
            t.add_(1.0)
            seen["n"] = seen.get("n", 0) + 1
            return "too large"

        def f(x: Any) -> Any:
            assert x < 2, note()
            return x * 2.0

        return f, [t, seen]

    check(make, (1.0,), (1.5,))


def test_message_of_an_assertion_that_fails_is_made_then() -> None:
    def f(x: Any) -> Any:
        items: list[str] = []
        assert x < 2, items.append("seen") or f"{len(items)} of them, {x.item():.1f}"  # type: ignore[func-returns-value]
        return items

    g = weft.compile(f)
    assert g(weft.tensor(1.0)) == []
    with pytest.raises(AssertionError, match=r"1 of them, 3\.0"):
        g(weft.tensor(3.0))

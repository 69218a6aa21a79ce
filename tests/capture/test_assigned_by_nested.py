"""Variables that nested functions assign, called where only a run decides it: they are as in eager code."""

from __future__ import annotations

import enum
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import CaptureError

Program = Callable[[Any, Any, Any], Any]
PROGRAMS: list[Program] = []


def program(function: Program) -> Program:
    PROGRAMS.append(function)
    return function


class Way(enum.IntFlag):
    """Two flags."""

    ONE = 1
    TWO = 2


@program
def in_expressions(o: Any, x: Any, n: Any) -> Any:
    last, count = x * 0, 0

    def note(v: Any) -> Any:
        nonlocal last, count
        last, count = v, count + 1
        return v.sum()

    one = note(x) if n > 1 else x.sum() * 2
    two = n > 2 and note(x * 2) > 0
    three = n > 0 or note(x * 3) > 0
    four = 0 < n < note(x * 4)
    return one, last, count, two, three, four


@program
def by_a_method_and_a_partial(o: Any, x: Any, n: Any) -> Any:
    count = 0

    class Counting:
        @property
        def value(self) -> Any:
            nonlocal count
            count += 1
            return x * 2

    c = Counting()
    y = c.value if n > 1 else x
    for _ in range(n):
        y = y + c.value
    return y, count


@program
def in_items(o: Any, x: Any, n: Any) -> Any:
    count = 0

    def doubled(v: Any) -> Any:
        nonlocal count
        count += 1
        return v * 2

    return [doubled(v) if v > 0 else v for v in x], count


@program
def in_an_assertion(o: Any, x: Any, n: Any) -> Any:
    count = 0

    def holds() -> Any:
        nonlocal count
        count += 1
        return x.sum() < 100

    assert n < 2 or holds()
    return count


@program
def in_control_calls(o: Any, x: Any, n: Any) -> Any:
    count, last = 0, x

    def note(v: Any) -> Any:
        nonlocal count, last
        count, last = count + 1, v * 3
        return v * 2

    def test(s: Any) -> Any:
        nonlocal count
        count += 1
        return s < n

    def step(s: Any, row: Any) -> Any:
        nonlocal last
        last = last + row
        return s + row, last

    one = weft.cond(n > 1, note, lambda v: v * 1, x)
    two = weft.switch(n, [lambda v: v * 1, note, note], x)
    three = weft.fori_loop(0, n, lambda i, v: note(v), x)
    four = weft.while_loop(test, lambda s: s + 1, weft.tensor(0))
    return one, two, three, four, count, last, weft.scan(step, x.sum(), x), last


@program
def in_the_test_of_a_loop(o: Any, x: Any, n: Any) -> Any:
    count, last, i = 0, x, 0

    def turns() -> Any:
        nonlocal count, last
        count, last = count + 1, last * 1.5
        return i

    while turns() < n:
        i += 1
    else:
        count += 10
    while last.sum() < 9 and turns() < 5:
        i += 1
    return count, last, i


@program
def text_of_inner_ways(o: Any, x: Any, n: Any) -> Any:
    o.word = "a" if n > 2 else ("b" if n > 0 else "c")
    if n > 1:
        key = 3
    else:
        key = 1 if o.word == "c" else 2
    return x * {"a": 2.0, "b": 3.0, "c": 4.0}[o.word], key


@program
def flags(o: Any, x: Any, n: Any) -> Any:
    if n > 1:
        o.way |= Way.TWO
    else:
        o.way &= ~Way.TWO
    return x + 1 if o.way & Way.TWO else x


def _left(function: Program, way: Callable[[Any], Any]) -> list[Any]:
    o, log = SimpleNamespace(word="", way=Way.ONE), []
    run = way(lambda x, n: function(o, x, n))
    for n in (3, 0, 1, 2, 0):
        found = weft.tree_leaves(run(weft.tensor([0.5, -1.0, 2.0]), weft.tensor(n)))
        log += [np.asarray(x.numpy() if isinstance(x, weft.Tensor) else x) for x in found]
        log += [np.asarray(o.word), np.asarray(int(o.way))]
    return log


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_they_hold_what_eager_code_leaves(function: Program) -> None:
    eager, compiled = (_left(function, way) for way in (lambda f: f, weft.compile))
    assert len(eager) == len(compiled)
    for x, y in zip(eager, compiled, strict=True):
        np.testing.assert_array_equal(y, x)


def first_over(x: Any) -> Any:
    found = any((last := v) > 0.6 for v in x)
    return found, last


def first_noted(x: Any) -> Any:
    last = x

    def note(v: Any) -> Any:
        nonlocal last
        last = v
        return v > 0.6

    return all(note(v) for v in x), last


def first_of_a_loop(x: Any) -> Any:
    for y in ((last := v * 2) for v in x):
        if y > 0.6:
            break
    return y, last


@pytest.mark.parametrize("function", [first_over, first_noted, first_of_a_loop], ids=lambda f: f.__name__)
def test_items_that_a_run_may_not_take_assign_nothing(function: Callable[[Any], Any]) -> None:
    with pytest.raises(CaptureError, match="change of last, which a run that ends before must not make"):
        weft.compile(function)(weft.tensor([0.5, 1.0, 2.0]))

"""Functions given to ``weft.cond`` and its like hand on and change what is outside, as an ``if`` may."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft

Program = Callable[[Any, Any], Any]
PROGRAMS: list[Program] = []


def program(function: Program) -> Program:
    PROGRAMS.append(function)
    return function


@program
def an_attribute_of_one_way(o: Any, n: Any) -> Any:
    def one() -> Any:
        o.b = o.b * 2
        return o.a * 3

    return weft.cond(n > 1, one, lambda: o.a + 1)


@program
def a_tensor_from_outside_that_is_changed_later(o: Any, n: Any) -> Any:
    out = weft.cond(n > 1, lambda: o.a, lambda: o.b)
    out += 1
    return out


@program
def an_operand_that_is_changed_later(o: Any, n: Any) -> Any:
    out = weft.cond(n > 1, lambda x: x, lambda x: x * 2, o.a)
    out += 1
    return out


@program
def in_each_other(o: Any, n: Any) -> Any:
    def inner() -> Any:
        return weft.cond(n > 2, lambda: o.rows[0], lambda: o.b)

    out = weft.cond(n > 1, inner, lambda: o.a)
    out *= 2
    return out


@program
def one_of_several(o: Any, n: Any) -> Any:
    def first() -> Any:
        o.count += 1
        return o.a

    def third() -> Any:
        o.rows[0] = o.rows[0] + 1
        return o.rows[0]

    return weft.switch(n, [first, lambda: o.b, third]) * 2


@program
def a_loop_that_counts(o: Any, n: Any) -> Any:
    def turn(x: Any) -> Any:
        o.count += 1
        o.b = o.b + x
        return x + 1

    return weft.while_loop(lambda x: x < n, turn, weft.tensor(0))


@program
def a_loop_along_numbers(o: Any, n: Any) -> Any:
    def turn(i: Any, x: Any) -> Any:
        o.b = o.b * 2
        return x + o.b * i

    return weft.fori_loop(0, n, turn, weft.tensor(0.0))


@program
def pairs(o: Any, n: Any) -> Any:
    one, (other, _) = weft.cond(n > 1, lambda: (o.a, (o.b, 1)), lambda: (o.b * 1, (o.a, 2)))
    one += 1
    other *= 2
    return one + other


def _left(function: Program, way: Callable[[Any], Any]) -> list[Any]:
    o = SimpleNamespace(a=weft.tensor(1.0), b=weft.tensor(2.0), count=0, rows=[weft.tensor(0.5)])
    o.c, o.first = o.b, o.rows[0]
    run, log = way(lambda n: function(o, n)), []
    for turns in (0, 1, 2, 3, 5, 0):
        out = run(weft.tensor(turns))
        held = [out, o.a, o.b, o.c, o.rows[0], o.first]
        log += [np.asarray([x.item() for x in held]), np.asarray(o.count)]
        log += [np.asarray([[x is y for y in held].index(True) for x in held])]
    return log


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_they_do_what_eager_code_does(function: Program) -> None:
    eager, compiled = (_left(function, way) for way in (lambda f: f, weft.compile))
    assert len(eager) == len(compiled)
    for k, (x, y) in enumerate(zip(eager, compiled, strict=True)):
        np.testing.assert_allclose(y, x, rtol=1e-6, err_msg=f"call {k // 3}")


def test_one_that_makes_new_tensors_stays_one_node() -> None:
    functions = [weft.sin, weft.exp, weft.square]
    graph = weft.make_graph(lambda x: weft.switch(x.argmax(), functions, x))(weft.ones(3))
    assert [n.op.name for n in graph.nodes if n.regions] == ["switch"]

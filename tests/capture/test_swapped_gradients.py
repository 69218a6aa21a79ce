"""Of two tensors that swap places in loops and branches, the one that requires grad is the one that does."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft

Program = Callable[[Any, Any, Any], Any]
PROGRAMS: list[Program] = []


def program(function: Program) -> Program:
    PROGRAMS.append(function)
    return function


@program
def swapped_twice(o: Any, a: Any, c: Any) -> None:
    x, y = a * 0.5, o.q
    for _ in range(2):
        x, y = y, x
    y.mul_(2.0)


@program
def swapped_as_often_as_a_tensor_says(o: Any, a: Any, c: Any) -> None:
    o.p = a * 0.5
    for _ in range(int(c)):
        o.q, o.p = o.p, o.q
    o.q[1] = c


@program
def changed_on_one_way(o: Any, a: Any, c: Any) -> None:
    x = a * 0.5
    for _ in range(2):
        o.q, x = x, o.q
    if c > 3:
        o.q = o.told
    else:
        o.q[1] = c


@program
def swapped_and_replaced_on_one_way(o: Any, a: Any, c: Any) -> None:
    x, y, z = a * 0.5, o.q, o.told
    for _ in range(2):
        y, x = x, y
    if c > 3:
        y, z = z, y
    y.mul_(2.0)
    o.p = x


@program
def swapped_three_times(o: Any, a: Any, c: Any) -> None:
    x = a * 0.5
    for _ in range(3):
        o.q, x = x, o.q
    if c > 1:
        o.q.mul_(c)


def _left(function: Program, way: Callable[[Any], Any]) -> list[Any]:
    """What tensors outside hold after each call, and which of them require grad."""
    log = []
    for number in (1.0, 0.0, 5.0, 2.0):
        o = SimpleNamespace(
            p=weft.tensor([0.5, 1.0]), q=weft.tensor([1.0, 2.0]), told=weft.tensor([4.0, 5.0])
        )
        held = [o.p, o.q, o.told]
        w = weft.tensor([1.0, -1.0], requires_grad=True)
        way(lambda a, c, o=o: function(o, a, c))(w * 1.0, weft.tensor(number))
        reached = [*held, o.p, o.q, o.told]
        log += [
            np.asarray([x.requires_grad for x in reached]),
            np.stack([x.detach().numpy() for x in reached]),
        ]
    return log


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_the_same_require_grad_as_in_eager_code(function: Program) -> None:
    eager, compiled = (_left(function, way) for way in (lambda f: f, weft.compile))
    for k, (x, y) in enumerate(zip(eager, compiled, strict=True)):
        np.testing.assert_allclose(y, x, rtol=1e-6, err_msg=f"call {k // 2}")

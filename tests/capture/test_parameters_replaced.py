"""Which parameter a module holds may hang on a tensor: each is then a version of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.errors import CaptureError

Program = Callable[[Any, Any, Any], Any]
PROGRAMS: list[Program] = []


def program(function: Program) -> Program:
    PROGRAMS.append(function)
    return function


class Pair(nn.Module):
    """Two parameters and a buffer."""

    buf: Any

    def __init__(self) -> None:
        super().__init__()
        self.w, self.u = nn.Parameter(weft.tensor([1.0, 2.0])), nn.Parameter(weft.tensor([4.0, 5.0]))
        self.rows = nn.ParameterList([weft.ones(2), weft.zeros(2)])
        self.register_buffer("buf", weft.ones(2))


@program
def swapped(m: Any, x: Any, n: Any) -> Any:
    if n > 1:
        m.w, m.u = m.u, m.w
    return x * m.w + m.u


@program
def swapped_in_turns(m: Any, x: Any, n: Any) -> Any:
    for _ in range(n):
        m.w, m.u = m.u, m.w
    return x * m.w + m.u


@program
def swapped_in_some_turns(m: Any, x: Any, n: Any) -> Any:
    for i in range(2):
        if x[i] * n > 1:
            m.w, m.u = m.u, m.w
    return x * m.w + m.u


@program
def tied(m: Any, x: Any, n: Any) -> Any:
    if n > 1:
        m.w = m.u
    return x * m.w * len(list(m.parameters()))


@program
def in_a_list(m: Any, x: Any, n: Any) -> Any:
    if n > 1:
        m.rows[0], m.rows[1] = m.rows[1], m.rows[0]
    return x * m.rows[0]


@program
def taken_away(m: Any, x: Any, n: Any) -> Any:
    w = m.w
    if n > 1:
        m.w = None
    y = x if m.w is None else x * m.w
    m.w = w
    return y + m.u


@program
def picked_by_a_variable(m: Any, x: Any, n: Any) -> Any:
    w = m.w if n > 1 else m.u
    return x * w * isinstance(w, nn.Parameter)


def _left(function: Program, way: Callable[[Any], Any]) -> list[Any]:
    m, log = Pair(), []
    known = [*m.parameters(), m.buf]
    run = way(lambda x, n: function(m, x, n))
    for n in (2, 0, 1, 3, 0):
        m.zero_grad()
        out = run(weft.tensor([1.0, -2.0]), weft.tensor(n))
        out.sum().backward()
        log += [out.detach().numpy().copy()]
        log += [np.asarray([any(x is y for y in m.parameters()) for x in known])]
        log += [np.asarray([x is y for x in known for y in (m.w, m.u, *m.rows)])]
        log += [np.zeros(2) if x.grad is None else x.grad.numpy().copy() for x in known]
    return log


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_they_hold_what_eager_code_leaves(function: Program) -> None:
    eager, compiled = (_left(function, way) for way in (lambda f: f, weft.compile))
    for x, y in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-6)


def test_whether_a_tensor_is_a_parameter_on_one_way_alone_is_refused() -> None:
    m = Pair()

    @weft.compile
    def f(n: Any) -> Any:
        w = m.w if n > 1 else m.buf
        return w * isinstance(w, nn.Parameter)

    with pytest.raises(CaptureError, match="Parameter on one way alone"):
        f(weft.tensor(1))

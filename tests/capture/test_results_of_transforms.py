"""What transforms inside of captured code give: the tensors of eager code, with the graph of arguments."""

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
def an_argument_beside_a_gradient(o: Any, x: Any) -> Any:
    return weft.grad(lambda w: ((w * w).sum(), (x, x * 2)), has_aux=True)(x.detach())


@program
def a_value_that_hangs_by_an_argument(o: Any, x: Any) -> Any:
    value, slope = weft.value_and_grad(lambda w: (w * x).sum())(x.detach())
    out, _ = weft.vjp(lambda w: w * x, o.a)
    return value, slope, out, weft.jvp(lambda w: w * x, (x.detach(),), (x,))


@program
def what_is_stored_beside(o: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        o.a = o.a + 1
        return (w * w).sum(), o.a

    slope, a = weft.grad(loss, has_aux=True)(x.detach())
    a += 1
    return slope, a


@program
def the_argument_itself(o: Any, x: Any) -> Any:
    slope, (same, doubled) = weft.grad(lambda w: ((w * w).sum(), (w, w * 2)), has_aux=True)(o.a)
    same += 1
    return slope, same, doubled


def _left(function: Program, way: Callable[[Any], Any], *, gradients: bool) -> list[Any]:
    o = SimpleNamespace(a=weft.tensor([1.0, 2.0]))
    run, log = way(lambda x: function(o, x)), []
    for k in range(3):
        leaf = weft.tensor([0.5 * k, -1.0], requires_grad=gradients)
        x = leaf * 1.0
        held = [*weft.tree_leaves(run(x)), x, o.a]
        log += [x.detach().numpy().copy() for x in held]
        log.append(np.asarray([[x is y for y in held].index(True) for x in held]))
        log.append(np.asarray([x.requires_grad for x in held]))
        if gradients:
            loss = sum((k + 1.0) * x.sum() for k, x in enumerate(held) if x.requires_grad)
            log.append(weft.autograd.grad(loss, leaf)[0].numpy())
    return log


@pytest.mark.parametrize("gradients", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_they_are_what_eager_code_gives(function: Program, gradients: bool) -> None:
    eager, compiled = (_left(function, way, gradients=gradients) for way in (lambda f: f, weft.compile))
    for x, y in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-6)

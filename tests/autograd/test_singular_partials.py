"""Ops whose partial may be infinite: no NaN from a branch not taken, and right second derivatives."""

from __future__ import annotations

import weft


def minimum(x: weft.Tensor) -> weft.Tensor:
    return (weft.sqrt(x) - 2.0) ** 2  # at x = 4 the gradient that arrives at sqrt is exactly 0


def test_second_derivative_at_a_minimum_keeps_the_partial() -> None:
    x = weft.tensor(4.0)
    assert weft.grad(weft.grad(minimum))(x).item() == 0.125
    assert weft.hessian(minimum)(x).item() == 0.125
    assert weft.jvp(weft.grad(minimum), (x,), (weft.tensor(1.0),))[1].item() == 0.125


def test_branch_not_taken_leaks_no_nan_to_second_order() -> None:
    def safe(x: weft.Tensor) -> weft.Tensor:
        return weft.where(x > 0, weft.sqrt(x), x * x)

    x = weft.tensor(0.0)
    assert weft.grad(safe)(x).item() == 0.0
    assert weft.grad(weft.grad(safe))(x).item() == 2.0

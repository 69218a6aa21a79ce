"""Changes in place under ``no_grad``, of views and by ``data``, in branches and loops: as in eager code."""

from __future__ import annotations

from typing import Any

import pytest

import weft
from tests.capture.recording_steps import Step, run_steps

T = weft.tensor


def view_iadd(w: Any, c: Any, x: Any) -> Any:
    b = weft.stack([w * 3, w * 2])
    with weft.no_grad():
        if c > 0:
            b[0] += x
    return (b * b).sum()


def view_inside(w: Any, c: Any, x: Any) -> Any:
    b = weft.stack([w * 3, w * 2])
    if c > 0:
        with weft.no_grad():
            b[1].mul_(x)
        b = b * w
    return b.sum()


def data_sub(w: Any, c: Any, x: Any) -> Any:
    if c > 0:
        w.data.sub_(0.1 * x)
    return w * w


def data_sub2(w: Any, c: Any, x: Any) -> Any:
    y = w * w
    if c > 0:
        w.data.mul_(0.5)
        y = w * x
    return y + w


def data_nonleaf(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    if c > 0:
        b.data.add_(x)
    return b * b


def data_loop(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    for _ in range(3):
        b.data.add_(x)
    return b * b


def detach_inplace(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    if c > 0:
        b.detach_()
    return b * w


def copy_(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    with weft.no_grad():
        if c > 0:
            b.copy_(x)
    return b * b


def helper(w: Any, c: Any, x: Any) -> Any:
    b = w * 3

    def upd(t: Any) -> None:
        with weft.no_grad():
            t.add_(x)

    if c > 0:
        upd(b)
    return b * b


def deco(w: Any, c: Any, x: Any) -> Any:
    @weft.no_grad()
    def upd(t: Any) -> None:
        if c > 0:
            t.add_(x)

    b = w * 3
    upd(b)
    return b * b


def fill(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    with weft.no_grad():
        while b < 20:
            b.mul_(2)
        if c > 0:
            b.fill_(4.0)
    return b * b


def mixed(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    for _ in range(2):
        if c > 0:
            with weft.no_grad():
                b += x
        else:
            b = b * w
    return b


def both(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    if c > 0:
        b *= w
        with weft.no_grad():
            b += x
        b *= w
    return b


def under_enable(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    with weft.no_grad():
        if c > 0:
            with weft.enable_grad():
                b *= w
    return b * b


def loop_enable(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    with weft.no_grad():
        for _ in range(3):
            b += x
            with weft.enable_grad():
                b = b * w
    return b


def tern(w: Any, c: Any, x: Any) -> Any:
    with weft.no_grad():
        k = w * 2
    y = w * k if c > 0 else k * x
    return y + w


def opt(w: Any, c: Any, x: Any) -> Any:
    y = w * w * x
    if c > 0:
        with weft.no_grad():
            w.sub_(0.1 * x)
    return y * w


def ngw(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    with weft.no_grad():
        while b < 10:
            if c > 0:
                b += x
            else:
                b += 2 * x
    return b * b


def int_state(w: Any, c: Any, x: Any) -> Any:
    n = T(0)
    with weft.no_grad():
        if c > 0:
            n += 2
    return w * n + w


STEPS: list[Step] = [
    view_iadd,
    view_inside,
    data_sub,
    data_sub2,
    data_nonleaf,
    data_loop,
    detach_inplace,
    copy_,
    helper,
    deco,
    fill,
    mixed,
    both,
    under_enable,
    loop_enable,
    tern,
    opt,
    ngw,
    int_state,
]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("compiled", ["forward", "step"])
@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.__name__)
def test_gradients_go_as_in_eager_code(step: Step, compiled: str) -> None:
    assert run_steps(step, compiled) == pytest.approx(run_steps(step, ""), rel=1e-4)

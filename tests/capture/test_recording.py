"""``no_grad``, ``enable_grad`` and their siblings in branches and loops: gradients go as in eager code.

A change in place while nothing records changes values only: the tensor keeps its place in the graph.
"""

from __future__ import annotations

from typing import Any

import pytest

import weft
from tests.capture.recording_steps import Step, run_steps

T = weft.tensor


def enable_in_branch(w: Any, c: Any, x: Any) -> Any:
    y = x * 1
    with weft.no_grad():
        if c > 0:
            with weft.enable_grad():
                y = w * x
    return y


def enable_in_both(w: Any, c: Any, x: Any) -> Any:
    with weft.no_grad():
        if c > 0:
            with weft.enable_grad():
                y = w * x
        else:
            with weft.enable_grad():
                y = w * w
    return y


def set_enabled_in_branch(w: Any, c: Any, x: Any) -> Any:
    y = w * 0.5
    with weft.set_grad_enabled(False):
        if c > 0:
            with weft.set_grad_enabled(True):
                y = w * w * x
    return y


def enable_beside_disabled(w: Any, c: Any, x: Any) -> Any:
    y = w * 1
    with weft.no_grad():
        z = w * 3
        if c > 0:
            z = w * 5
            with weft.enable_grad():
                y = w * x * z
    return y + z


def enable_in_inner_branch(w: Any, c: Any, x: Any) -> Any:
    y = w * 1
    with weft.no_grad():
        if c > 0:
            z = w * 2
            if x > 1:
                with weft.enable_grad():
                    y = w * w * z
    return y


def enable_in_loop(w: Any, c: Any, x: Any) -> Any:
    y = w * 1
    with weft.no_grad():
        for _ in range(3):
            with weft.enable_grad():
                y = y * w + c
    return y


def enable_in_while(w: Any, c: Any, x: Any) -> Any:
    y = w * 1
    with weft.no_grad():
        while y < 20:
            with weft.enable_grad():
                y = y * w
    return y


def decorated(w: Any, c: Any, x: Any) -> Any:
    @weft.enable_grad()
    def again(v: Any) -> Any:
        return v * w

    @weft.no_grad()
    def outer(v: Any) -> Any:
        y = w * 1
        if c > 0:
            y = again(v)
        return y

    return outer(x) + w


def inference_then_enable(w: Any, c: Any, x: Any) -> Any:
    y = w * 2
    with weft.inference_mode():
        if c > 0:
            y = w * x
        with weft.inference_mode(False):
            z = y * w
    return z


def kept_by_while(w: Any, c: Any, x: Any) -> Any:
    y = w * 2
    with weft.no_grad():
        while y < x * 3:
            y = y * 2
    return y * w


def kept_in_loop(w: Any, c: Any, x: Any) -> Any:
    y = w * 2
    with weft.no_grad():
        for _ in range(3):
            if c > 0:
                y = y + 1
    return y * w


def disabled_ternary(w: Any, c: Any, x: Any) -> Any:
    with weft.no_grad():
        y = w * x if c > 0 else w * w
    return y * w


def branch_iadd(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    with weft.no_grad():
        if c > 0:
            b += x
    return b * b


def iadd_inside_branch(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    if c > 0:
        with weft.no_grad():
            b += x
    return b * b


def iadd_then_use_inside(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    if c > 0:
        with weft.no_grad():
            b += x
        b = b * w
    return b


def iadd_on_both_ways(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    with weft.no_grad():
        if c > 0:
            b += x
        else:
            b *= x
    return b * b


def iadd_in_loop(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    with weft.no_grad():
        for _ in range(3):
            b += x
    return b * b


def iadd_inside_loop(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    for _ in range(3):
        with weft.no_grad():
            b += x
        b = b * w
    return b


def iadd_in_while(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    with weft.no_grad():
        while b < 20:
            b += x
    return b * b


def iadd_of_local(w: Any, c: Any, x: Any) -> Any:
    y = w * 1
    if c > 0:
        b = w * w
        with weft.no_grad():
            b += x
        y = b * w
    return y


def setitem_in_branch(w: Any, c: Any, x: Any) -> Any:
    b = weft.stack([w * 3, w * 2])
    with weft.no_grad():
        if c > 0:
            b[0] = x
    return (b * b).sum()


def leaf_in_branch(w: Any, c: Any, x: Any) -> Any:
    with weft.no_grad():
        if c > 0:
            w += 1
    return w * w


def leaf_inside_branch(w: Any, c: Any, x: Any) -> Any:
    y = w * 2
    if c > 0:
        with weft.no_grad():
            w -= 0.5
        y = w * w
    return y + w


def enable_after_change(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    y = w * 1
    with weft.no_grad():
        if c > 0:
            b += x
            with weft.enable_grad():
                y = b * w
    return y + b


def inner_branch_iadd(w: Any, c: Any, x: Any) -> Any:
    b = w * 3
    if c > -5:
        with weft.no_grad():
            if c > 0:
                b += x
        b = b * w
    return b


def detached_beside(w: Any, c: Any, x: Any) -> Any:
    d = (w * 3).detach()
    y = w * 2
    with weft.no_grad():
        if c > 0:
            d += x
    if c > 0:
        y = d * w
    return y + d


STEPS: list[Step] = [
    enable_in_branch,
    enable_in_both,
    set_enabled_in_branch,
    enable_beside_disabled,
    enable_in_inner_branch,
    enable_in_loop,
    enable_in_while,
    decorated,
    inference_then_enable,
    kept_by_while,
    kept_in_loop,
    disabled_ternary,
    branch_iadd,
    iadd_inside_branch,
    iadd_then_use_inside,
    iadd_on_both_ways,
    iadd_in_loop,
    iadd_inside_loop,
    iadd_in_while,
    iadd_of_local,
    setitem_in_branch,
    leaf_in_branch,
    leaf_inside_branch,
    enable_after_change,
    inner_branch_iadd,
    detached_beside,
]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("compiled", ["forward", "step"])
@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.__name__)
def test_gradients_go_as_in_eager_code(step: Step, compiled: str) -> None:
    assert run_steps(step, compiled) == pytest.approx(run_steps(step, ""), rel=1e-5)


def test_setting_recording_in_a_branch_is_refused() -> None:
    def f(x: Any) -> Any:
        if x > 0:
            weft.set_grad_enabled(False)
        return x * 2

    with pytest.raises(weft.errors.CaptureError, match="must leave recording as it was") as found:
        weft.compile(f)(T(1.0))
    assert "test_recording.py" in str(found.value)
    assert weft.is_grad_enabled()


@pytest.mark.parametrize("capture", ["source", "trace"])
def test_leaving_recording_off_is_refused(capture: str) -> None:
    def f(x: Any) -> Any:
        weft.set_grad_enabled(False)
        return x * 2

    with pytest.raises(weft.errors.CaptureError, match="must leave recording as it was"):
        weft.compile(f, capture=capture)(T(1.0))
    assert weft.is_grad_enabled()

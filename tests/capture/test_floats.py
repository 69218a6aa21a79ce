"""Floats among the arguments: one that changes from call to call becomes an input of one graph."""

from __future__ import annotations

import math
from typing import Any

import pytest

import weft

VALUES = [0.0, 0.5, -0.25, 1.5, 0.1]

ONE_GRAPH = {
    "product": lambda x, k: x * k,
    "result": lambda x, k: (x * k, k, k * 2.0 + 1.0, -k),
    "choice": lambda x, k: x * 2.0 if k > 0.25 else x - k,
    "mathematics": lambda x, k: x * math.exp(k) + math.sin(k),
    "tensors": lambda x, k: weft.full((2,), k) + weft.tensor([k, 1.0]) + x,
    "where": lambda x, k: weft.where(x > k, x, k),
    "bounds": lambda x, k: x * max(k, 0.3) + min(k, 1) + abs(k),
    "conversions": lambda x, k: x * float(k) * int(k * 10.0),
}
NEEDS_VALUES = {
    "key": lambda x, k: (x, {0.0: 1}.get(k, 2)),
    "text": lambda x, k: (x * k, f"{k:.2f}"),
    "size": lambda x, k: x[: int(abs(k)) + 1],
}


def check(program: Any, capture: str) -> Any:
    x = weft.tensor([1.0, 2.0])
    f = weft.compile(program, capture=capture)
    for value in (*VALUES, *VALUES):
        assert repr(f(x, value)) == repr(program(x, value))
    return f


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_changing_float_is_an_input_from_its_second_value_on(name: str) -> None:
    assert len(check(ONE_GRAPH[name], "source").versions) == 2


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", [*ONE_GRAPH, *NEEDS_VALUES])
@pytest.mark.parametrize("capture", ["source", "trace"])
def test_values_are_those_of_eager(name: str, capture: str) -> None:
    check({**ONE_GRAPH, **NEEDS_VALUES}[name], capture)


def test_only_floats_that_change_are_inputs() -> None:
    f = weft.compile(lambda x, a, b: x * a + b)
    x = weft.ones(1)
    for a, b in ((1.0, 2.0), (3.0, 2.0), (4.0, 2.0), (4.0, 5.0), (6.0, 7.0)):
        assert f(x, a, b=b).item() == a + b
    assert len(f.versions) == 3
    assert [v.name for v in f.graph.inputs] == ["x", "a", "b"]


def test_gradients_flow_past_a_changing_float() -> None:
    f = weft.compile(lambda x, k: (x * x * k).sum())
    for k in (1.0, 2.0, 3.0):
        x = weft.ones(2, requires_grad=True)
        f(x, k).backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2.0 * k, 2.0 * k]


def test_error_of_the_user_is_raised_for_a_changed_float_too() -> None:
    def f(x: Any, k: float) -> Any:
        if k > 1.0:
            raise ValueError(f"{k} is too large")
        return x * k

    compiled = weft.compile(f)
    compiled(weft.ones(1), 0.5)
    with pytest.raises(ValueError, match=r"2\.0 is too large"):
        compiled(weft.ones(1), 2.0)
    assert compiled(weft.ones(1), 0.25).item() == 0.25

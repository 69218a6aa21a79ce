"""``raise`` where a tensor decides: the run raises the user's exception, with its message and line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft.errors import CaptureError


class OwnError(Exception):
    pass


def message(x: Any) -> Any:
    if x < 0:
        raise ValueError(f"negative: {float(x)}")
    return x * 2.0


def classes(x: Any) -> Any:
    if x < 0:
        raise OwnError
    elif x > 10:
        raise KeyError("k")
    return x * 2.0


def both_ways(x: Any) -> Any:
    if x < 0:
        raise OwnError("a")
    else:
        raise KeyError("b")


def in_a_for(x: Any) -> Any:
    for i in range(5):
        x = x + i
        if x > 4:
            raise OverflowError("too big")
    return x


def in_a_while(x: Any) -> Any:
    while x < 10:
        if x < 0:
            raise ValueError("negative")
        x = x * 2.0 + 1.0
    return x


def all_of_a_body(x: Any) -> Any:
    while x > 3:
        raise ValueError("more than three")
    return x + 1.0


def handled_by_another(x: Any) -> Any:
    try:
        if x < 0:
            raise ValueError("negative")
        y = x
    except KeyError:
        y = x * 0.0
    return y


def handled_inside(x: Any) -> Any:
    if x < 0:
        try:
            raise ValueError("n")
        except ValueError:
            y = x * 0.0
    else:
        y = x + 1.0
    return y


def helper(x: Any) -> Any:
    if x > 3:
        if x > 5:
            raise RuntimeError("more than five")
        return x
    return -x


def in_a_function(x: Any) -> Any:
    return helper(x) + 1.0


def behind_and(x: Any) -> Any:
    return x if x > 0 and helper(x) > 0 else x * 0.0


def after_an_append(x: Any) -> Any:
    items = [x]
    if x < 0:
        items.append(x)
        raise ValueError
    items.append(x + 1.0)
    return weft.stack(items)


def with_a_cause(x: Any) -> Any:
    if x < 0:
        raise ValueError("a") from KeyError("b")
    return x * 1.0


def of_a_number(x: Any) -> Any:
    n = int(x)
    if n < 0:
        raise IndexError(f"{n} of {x}")
    return x * n


def inside_no_grad(x: Any) -> Any:
    with weft.no_grad():
        if x < 0:
            raise ValueError("negative")
    return x * 1.0


PROGRAMS = [
    message,
    classes,
    both_ways,
    in_a_for,
    in_a_while,
    all_of_a_body,
    handled_by_another,
    handled_inside,
    in_a_function,
    behind_and,
    after_an_append,
    with_a_cause,
    of_a_number,
    inside_no_grad,
]


def outcome(function: Callable[..., Any], x: float) -> Any:
    try:
        return function(weft.tensor(x)).tolist()
    except CaptureError:
        raise
    except Exception as error:
        return type(error), error.args


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_run_raises_what_eager_code_raises(program: Any) -> None:
    f = weft.compile(program)
    for x in (1.0, -1.0, 4.0, 20.0, 6.0, 0.0):
        assert outcome(f, x) == outcome(program, x)


def test_the_line_is_told() -> None:
    f = weft.compile(message)
    f(weft.tensor(1.0))
    with pytest.raises(ValueError, match=r"negative: -1\.0") as caught:
        f(weft.tensor(-1.0))
    assert "at test_raise.py:" in caught.value.__notes__[0]
    assert "raise ValueError(" in caught.value.__notes__[0]


def test_a_failed_call_changes_nothing() -> None:
    state = {"n": weft.tensor(0.0)}

    @weft.compile
    def f(x: Any) -> Any:
        state["n"] = state["n"] + 1.0
        if x < 0:
            state["n"] = state["n"] + 10.0
            raise ValueError("negative")
        return state["n"] + x

    assert f(weft.tensor(1.0)).item() == 2.0
    with pytest.raises(ValueError, match="negative"):
        f(weft.tensor(-1.0))
    assert state["n"].item() == 1.0
    assert f(weft.tensor(1.0)).item() == 3.0


def test_a_graph_holds_the_exception() -> None:
    graph = weft.make_graph(message)(weft.tensor(1.0))
    with pytest.raises(ValueError, match="negative"):
        graph(weft.tensor(-2.0))
    assert graph(weft.tensor(2.0)).item() == 4.0

"""Lists and dicts that differ by way in what no value of a graph can be: Python decides, by the value."""

from __future__ import annotations

import enum
from typing import Any

import pytest

import weft
from tests.capture.both_ways import check


class Mode(enum.Enum):
    IDLE = 1
    BUSY = 2


def test_early_stopping_keeps_the_best_weights_in_a_dict() -> None:
    def make() -> Any:
        state: dict[str, Any] = {"best": float("inf"), "bad": 0, "w": None}

        def f(loss: Any) -> bool:
            value = loss.item()
            if value < state["best"]:
                state["best"], state["bad"], state["w"] = value, 0, loss.clone()
            else:
                state["bad"] += 1
            return state["bad"] >= 2  # type: ignore[no-any-return]

        return f, state

    check(make, (3.0,), (2.0,), (4.0,), (5.0,), (1.0,))


def test_mode_in_an_item_is_switched_by_a_tensor() -> None:
    def make() -> Any:
        state = {"mode": Mode.IDLE, "n": 0}

        def f(x: Any) -> Any:
            if x > 2 and state["mode"] is Mode.IDLE:
                state["mode"] = Mode.BUSY
            elif x < 1:
                state["mode"] = Mode.IDLE
            return x * 2 if state["mode"] is Mode.BUSY else x

        return f, state

    check(make, (3.0,), (2.0,), (0.5,), (1.5,))


def test_gradient_is_kept_in_an_item_where_a_tensor_says_so() -> None:
    def make() -> Any:
        state: dict[str, Any] = {"g": None}

        def f(x: Any) -> Any:
            if x > 2:
                state["g"] = x * 0.5
            return x

        return f, state

    check(make, (1.0,), (3.0,), (4.0,))


def key_on_one_way(x: Any) -> Any:
    found = {"x": x}
    if x > 2:
        found["big"] = x * 2
    return found


def tuples_of_two_lengths(x: Any) -> Any:
    y: Any = (x, x) if x > 2 else (x,)
    return y


def nothing_in_a_list(x: Any) -> Any:
    found: list[Any] = [None, x]
    if x > 2:
        found[0] = x * 2
    return found


def nothing_in_a_loop(x: Any) -> Any:
    found: dict[str, Any] = {"last": None}
    for i in range(3):
        if x > i:
            found["last"] = x * i
    return found


@pytest.mark.parametrize(
    "program",
    [key_on_one_way, tuples_of_two_lengths, nothing_in_a_list, nothing_in_a_loop],
    ids=lambda f: f.__name__,
)
def test_container_that_differs_by_way_is_that_of_eager_code(program: Any) -> None:
    check(lambda: program, (1.0,), (3.0,), (2.5,))


def test_refusal_says_what_differs() -> None:
    def f(x: Any) -> Any:
        found = {"mode": Mode.IDLE, "x": x}
        if x > 2:
            found["mode"] = Mode.BUSY
        return found["mode"] is Mode.IDLE

    with pytest.raises(weft.errors.CaptureError, match=r"with a Mode where .* with another Mode"):
        weft.make_graph(f)(weft.ones(()))


class Kept:
    def __init__(self) -> None:
        self.items: list[Any] = []
        self.found: dict[str, Any] = {"a": None}


def test_list_of_an_object_that_a_branch_replaces_by_a_longer_one() -> None:
    def make() -> Any:
        kept, state = Kept(), dict[str, Any]()

        def f(x: Any) -> Any:
            if x > 2:
                kept.items = [x]
                kept.found["a"] = {"k": x}
            elif x < 0:
                kept.found["a"] = [x]
            state["items"], state["found"] = [*kept.items], dict(kept.found)
            return x * 1.0

        return f, state

    check(make, (1.0,), (3.0,), (-1.0,))


def keys_in_another_order(x: Any) -> Any:
    if x > 2:
        found = {"a": x, "b": 1}
    else:
        found = {"b": 1, "a": x}
    return [*found], found


def last_of_a_list(x: Any) -> Any:
    items = [3, 4]
    found = x > 0 and items.pop()
    return (found if isinstance(found, int) else "nothing"), items


@pytest.mark.parametrize("program", [keys_in_another_order, last_of_a_list], ids=lambda f: f.__name__)
def test_what_differs_by_way_in_order_or_kind_is_decided_by_python(program: Any) -> None:
    check(lambda: program, (1.0,), (3.0,), (-1.0,))

"""What fails on a way that a run does not take fails nothing, as in eager code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import weft
from tests.capture.both_ways import check

CONFIG: dict[str, float] = {}


def missing_key(x: Any) -> Any:
    if x > 2:
        return x * CONFIG["scale"]
    return x


def plain_assertion(x: Any) -> Any:
    k = 0
    if x > 2:
        assert k > 0, "k"
    return x


def in_a_loop(x: Any) -> Any:
    y = x
    for _ in range(3):
        if x > 2:
            y = y * CONFIG["scale"]
        y = y + 1
    return y


def in_a_loop_of_a_run(x: Any) -> Any:
    i = weft.tensor(0.0)
    while i < x:
        if i > 2:
            CONFIG["scale"]
        i = i + 1
    return i


def handled(x: Any) -> Any:
    y = x
    try:
        if x > 2:
            y = y * CONFIG["scale"]
    except KeyError:
        y = y * 100
    return y


def in_an_expression(x: Any) -> Any:
    return x * CONFIG["scale"] if x > 2 else x


def in_two_branches(x: Any) -> Any:
    y = x
    if y > 2:
        if y > 3:
            y = y * int("three")
        y = y + 1
    return y


def of_shapes(x: Any) -> Any:
    return weft.ones(2) @ weft.ones(3) if x > 2 else x


def of_nothing(x: Any) -> Any:
    found = None
    if x > 2:
        return found.shape  # type: ignore[attr-defined]
    return x


def of_a_module(x: Any) -> Any:
    if x > 2:
        import no_such_module  # noqa: F401
    return x


def unpacked(x: Any) -> Any:
    if x > 2:
        a, b = list[Any](x.reshape(1))
        return a + b
    return x


PROGRAMS = [
    missing_key,
    plain_assertion,
    in_a_loop,
    in_a_loop_of_a_run,
    handled,
    in_an_expression,
    in_two_branches,
    of_shapes,
    of_nothing,
    of_a_module,
    unpacked,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_error_comes_on_the_way_that_raises_it_alone(program: Callable[..., Any]) -> None:
    check(lambda: program, (1.0,), (2.5,), (3.5,))


def test_graph_of_types_alone_tells_of_the_error() -> None:
    with pytest.raises(KeyError, match="scale"):
        weft.make_graph(missing_key)(weft.ones(()))


def test_refusals_stay_where_a_value_could_decide() -> None:
    def f(x: Any) -> Any:
        y = x[:1] if x.sum() > 0 else x
        return y * 2.0

    with pytest.raises(weft.errors.CaptureError, match="must be the same on both ways"):
        weft.compile(f)(weft.ones(3))


def sizes_that_differ(x: Any, y: Any) -> Any:
    try:
        return x + y
    except Exception:
        return x


def sizes_of_a_product(x: Any, y: Any) -> Any:
    try:
        return x @ y
    except weft.errors.ShapeError:
        return "shape"


def sizes_that_are_suppressed(x: Any, y: Any) -> Any:
    found = x
    with contextlib.suppress(ValueError):
        found = x + y
    return found


def position_beyond_the_end(x: Any, y: Any) -> Any:
    try:
        return x[2] + y[0]
    except IndexError:
        return x[0] * 0.0


def handled_twice(x: Any, y: Any) -> Any:
    try:
        try:
            z = x + y
        except weft.errors.ShapeError:
            z = x + y[: len(x)]
    except ValueError:
        z = x
    return z


@pytest.mark.parametrize(
    "program",
    [
        sizes_that_differ,
        sizes_of_a_product,
        sizes_that_are_suppressed,
        position_beyond_the_end,
        handled_twice,
    ],
    ids=lambda f: f.__name__,
)
def test_errors_of_sizes_are_handled_for_each_size(program: Callable[..., Any]) -> None:
    two, three = [1.0, 2.0], [1.0, 2.0, 3.0]
    calls = ((two, two), (two, two), (two, three), (three, three), (two, two), ([4.0], three))
    check(lambda: program, *calls)


def test_handler_is_that_of_the_error_which_a_number_raises() -> None:
    def f(x: Any) -> int:
        try:
            return int(x)
        except ValueError:
            return -1
        except OverflowError:
            return -2

    check(lambda: f, (1.0,), (float("nan"),), (float("inf"),), (-float("inf"),))


def test_error_on_a_way_not_taken_is_not_handled() -> None:
    def f(x: Any) -> Any:
        try:
            if x > 2:
                return x * CONFIG["scale"]
            return x
        except KeyError:
            return x * 0 - 1

    check(lambda: f, (1.0,), (3.0,))


def of_cond(x: Any) -> Any:
    return weft.cond(x > 2, lambda v: v * CONFIG["scale"], lambda v: v * 2.0, x)


def of_cond_in_a_try(x: Any) -> Any:
    try:
        return weft.cond(x > 2, lambda v: v * [][0], lambda v: v * 2.0, x)
    except IndexError:
        return x * 0.0 - 1.0


def of_switch(x: Any) -> Any:
    try:
        return weft.switch(int(x), [lambda v: v, lambda v: v * 2.0, lambda v: v * CONFIG["scale"]], x)
    except KeyError:
        return x * 0.0 - 1.0


def of_a_while_loop(x: Any) -> Any:
    def body(v: Any) -> Any:
        return v * CONFIG["scale"] if v > 100 else v + 1.0

    try:
        return weft.while_loop(lambda v: v < 5, body, x)
    except KeyError:
        return x * 0.0 - 1.0


def of_no_turns(x: Any) -> Any:
    try:
        return weft.fori_loop(0, int(x), lambda i, v: v * CONFIG["scale"], x)
    except KeyError:
        return x * 0.0 - 1.0


def handled_in_a_branch(x: Any) -> Any:
    y = x
    if x > 0:
        try:
            if x > 2:
                y = x * CONFIG["scale"]
        except KeyError:
            y = x * 0.0 - 1.0
    return y


def handled_in_turns(x: Any) -> Any:
    y = x
    for _ in range(3):
        try:
            if x > 2:
                y = y * CONFIG["scale"]
        except KeyError:
            y = y * 0.0 - 1.0
        y = y + 1.0
    return y


@pytest.mark.parametrize(
    "program",
    [
        of_cond,
        of_cond_in_a_try,
        of_switch,
        of_a_while_loop,
        of_no_turns,
        handled_in_a_branch,
        handled_in_turns,
    ],
    ids=lambda f: f.__name__,
)
def test_error_of_a_function_that_weft_calls_comes_on_its_way_alone(program: Callable[..., Any]) -> None:
    check(lambda: program, (1.0,), (2.0,), (3.0,), (0.0,))


def test_error_that_some_examples_of_a_batch_raise_is_refused_where_it_is_handled() -> None:
    def f(v: Any) -> Any:
        try:
            return v * CONFIG["scale"] if v > 2 else v
        except KeyError:
            return v * 0.0 - 1.0

    with pytest.raises(weft.errors.CaptureError, match="whether it comes there, got KeyError"):
        weft.compile(weft.vmap(f))(weft.arange(4.0))


def sizes_of_turns(x: Any, y: Any) -> Any:
    found = []
    for i in range(3):
        try:
            found.append(x[:2] + x[: i + 1])
        except ValueError:
            found.append(x[:2] * 0.0)
    return found


def sizes_of_turns_from_the_end(x: Any, y: Any) -> Any:
    for i in range(2):
        try:
            x = x + y[: 2 - i]
        except ValueError:
            x = x * 2.0
    return x


@pytest.mark.parametrize("program", [sizes_of_turns, sizes_of_turns_from_the_end], ids=lambda f: f.__name__)
def test_errors_of_sizes_are_handled_in_each_turn(program: Callable[..., Any]) -> None:
    two, three = [1.0, 2.0], [1.0, 2.0, 3.0]
    check(lambda: program, (three, two), (two, two), (three, three))


def test_handled_errors_of_sizes_that_only_a_run_tells_are_refused() -> None:
    def f(x: Any) -> Any:
        kept = [v for v in x if v > 0]
        try:
            return x[:2] + x[: len(kept)]
        except ValueError:
            return x[:2] * 0.0

    with pytest.raises(weft.errors.CaptureError, match="sizes must be known where errors are handled"):
        weft.compile(f)(weft.tensor([1.0, 2.0, -1.0]))

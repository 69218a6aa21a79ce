"""``try``, ``suppress``, ``__exit__`` around what only a run knows to fail: handlers run as in eager code."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import weft
import weft.nn as nn
from weft.errors import CaptureError


class State:
    count = 0
    busy = False


state = State()


def helper(x: Any) -> Any:
    return 10 // int(x)


def divided(x: Any) -> Any:
    try:
        y = 10 // int(x)
    except ZeroDivisionError as error:
        return str(error)
    return y


def remainder(x: Any) -> Any:
    try:
        return 7.0 % float(x)
    except ArithmeticError as error:
        return str(error)


def by_all(x: Any) -> Any:
    try:
        return helper(x)
    except:  # noqa: E722
        return -1


def indexed(x: Any) -> Any:
    try:
        return weft.tensor([1.0, 2.0, 3.0])[int(x)] * 2.0
    except IndexError:
        return x * 0.0


def indexed_by_a_tensor(x: Any) -> Any:
    try:
        return weft.tensor([1.0, 2.0, 3.0])[x.astype("int64")] * 2.0
    except (KeyError, LookupError):
        return x * 0.0


def assigned(x: Any) -> Any:
    y = weft.zeros(2)
    try:
        y[int(x)] = 5.0
    except IndexError:
        y = y - 1.0
    return y


def root(x: Any) -> Any:
    try:
        return math.sqrt(float(x))
    except ValueError as error:
        return str(error)


def power(x: Any) -> Any:
    try:
        return float(x) ** -1.0
    except ZeroDivisionError as error:
        return str(error)


def whole(x: Any) -> Any:
    try:
        return int(x / (x - 1.0) - x / (x - 1.0)), int(1.0 / x)
    except (ValueError, OverflowError) as error:
        return type(error).__name__


def asserted(x: Any) -> Any:
    try:
        assert x > 0, f"got {float(x)}"
    except AssertionError as error:
        return str(error)[:7]
    return x * 1.0


def raised(x: Any) -> Any:
    try:
        if x < 0:
            raise ValueError(f"negative: {float(x)}")
        y = x * 2.0
    except ValueError as error:
        y = str(error)
    return y


def renamed(x: Any) -> Any:
    try:
        return helper(x)
    except ZeroDivisionError as error:
        raise KeyError("zero") from error


def in_a_branch(x: Any) -> Any:
    y = x * 0.0
    if x > -2:
        try:
            y = y + helper(x)
        except ZeroDivisionError:
            y = y + 100.0
    return y


def in_a_for(x: Any) -> Any:
    y = x * 0.0
    for i in range(4):
        try:
            y = y + 6 // (int(x) - i)
        except ZeroDivisionError:
            y = y + 100.0
            if i == 2:
                break
    return y


def in_a_long_for(x: Any) -> Any:
    y = x * 0.0
    for i in range(100):
        try:
            y = y + 6 // (int(x) - i)
        except ZeroDivisionError:
            continue
    return y


def in_a_for_of_open_length(x: Any) -> Any:
    y = 0
    for i in range(int(x)):
        try:
            y = y + 6 // (2 - i)
        except ZeroDivisionError:
            y = y + 100
    return y


def in_a_while(x: Any) -> Any:
    y = x * x
    while y < 20:
        try:
            y = y + 8 + 6 // int(y - 1)
        except ZeroDivisionError:
            y = y + 100.0
    return y


def around_loops(x: Any) -> Any:
    turns = 0
    try:
        while turns < 3:
            state.count += 1
            turns = turns + 1
            helper(x - turns)
        for i in range(3):
            state.count += 10
            helper(x + i)
    except ZeroDivisionError:
        return turns, -1
    return turns, 1


def suppressed(x: Any) -> Any:
    y = -1
    with contextlib.suppress(ZeroDivisionError):
        y = helper(x)
    return y


class Quiet:
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, *_: Any) -> bool:
        return kind is ZeroDivisionError


def suppressed_by_the_user(x: Any) -> Any:
    y = -1
    with Quiet():
        y = helper(x)
        y = y + 1
    return y


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    try:
        yield
    except ZeroDivisionError:
        state.count += 1


def suppressed_by_a_generator(x: Any) -> Any:
    y = -1
    with quiet():
        y = helper(x)
    return y


def expected_by_a_library(x: Any) -> Any:
    with pytest.raises(ZeroDivisionError):
        helper(x - x)
    with warnings.catch_warnings():
        return x * 2.0


def changed_before(x: Any) -> Any:
    state.count = 1
    try:
        state.count = 2
        helper(x)
        state.count = 3
    except ZeroDivisionError:
        return x * 1.0
    else:
        state.count += 10
    return x * 2.0


def in_a_generator(x: Any) -> Any:
    def numbers() -> Iterator[Any]:
        for i in range(2):
            try:
                yield helper(x - i)
            except ZeroDivisionError:
                yield -1

    return sum(numbers())


def returned_inside(x: Any) -> Any:
    state.busy = True
    try:
        return helper(x)
    except ZeroDivisionError:
        return -1
    finally:
        state.busy = False


w = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)


def with_a_gradient(x: Any) -> Any:
    w.grad = None
    try:
        (w[x.astype("int64")] * 2.0).backward()
    except IndexError:
        return w.sum() * 0.0
    return w.grad * 1.0


def classes(x: Any) -> Any:
    try:
        return nn.functional.cross_entropy(weft.ones((1, 3)), x.reshape(1).astype("int64"))
    except Exception:
        return x * 0.0


inner = weft.compile(helper)


def compiled_inside(x: Any) -> Any:
    try:
        return inner(x)
    except ZeroDivisionError:
        return -1


PROGRAMS = [
    divided,
    remainder,
    by_all,
    indexed,
    indexed_by_a_tensor,
    assigned,
    root,
    power,
    whole,
    asserted,
    raised,
    renamed,
    in_a_branch,
    in_a_for,
    in_a_long_for,
    in_a_for_of_open_length,
    in_a_while,
    around_loops,
    suppressed,
    suppressed_by_the_user,
    suppressed_by_a_generator,
    expected_by_a_library,
    changed_before,
    in_a_generator,
    returned_inside,
    with_a_gradient,
    classes,
    compiled_inside,
]


def outcome(function: Callable[..., Any], x: float) -> Any:
    state.count, state.busy, w.grad = 0, False, None
    try:
        found = function(weft.tensor(x))
    except CaptureError:
        raise
    except Exception as error:
        found = type(error), error.args
    found = found.tolist() if isinstance(found, weft.Tensor) else found
    return found, state.count, state.busy, None if w.grad is None else w.grad.tolist()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_a_handler_runs_as_in_eager_code(program: Any) -> None:
    f = weft.compile(program)
    for x in (2.0, 0.0, 5.0, 1.0, 0.0, -3.0, 2.0, 3.0):
        assert outcome(f, x) == outcome(program, x)


def test_what_does_not_fail_again_is_one_version() -> None:
    f = weft.compile(divided)
    assert [f(weft.tensor(x)) for x in (1.0, 2.0, 5.0)] == [10, 5, 2]
    assert len(f.versions) == 1


def raised_again(x: Any) -> Any:
    try:
        return helper(x)
    except ZeroDivisionError:
        raise


def of_another_class(x: Any) -> Any:
    try:
        return helper(x)
    except (KeyError, ValueError):
        return -1


@pytest.mark.parametrize("program", [raised_again, of_another_class], ids=lambda p: p.__name__)
def test_what_nobody_handles_is_left_to_the_run(program: Any) -> None:
    f = weft.compile(program)
    assert f(weft.tensor(2.0)) == 5
    with pytest.raises(ZeroDivisionError):
        f(weft.tensor(0.0))
    assert f(weft.tensor(5.0)) == 2
    assert len(f.versions) == 1


def factor(x: Any) -> Any:
    try:
        return weft.linalg.cholesky(x)
    except ValueError:
        return x * 0.0


def both_branches(x: Any) -> Any:
    try:
        return weft.cond(x.sum() > 3, lambda: x * helper(x.sum()), lambda: x * helper(x.sum()) + 1)
    except ZeroDivisionError:
        return x


def test_functions_of_cond_that_may_fail_are_chosen_by_python() -> None:
    f = weft.compile(both_branches)
    for rows in ([2.0, 0.0], [1.0, -1.0], [0.0, 0.0], [4.0, 1.0], [2.0, 0.5]):
        x = weft.tensor(rows)
        assert f(x).tolist() == both_branches(x).tolist()


def test_what_nobody_can_ask_for_is_refused() -> None:
    with pytest.raises(CaptureError, match="must not raise what captured code handles") as found:
        weft.compile(factor)(weft.tensor([[2.0, 0.0], [0.0, 1.0]]))
    assert "at test_handled.py:" in str(found.value)


def test_a_graph_of_types_alone_refuses_it() -> None:
    with pytest.raises(CaptureError, match=r"must not raise what captured code handles.*ZeroDivisionError"):
        weft.make_graph(divided)(weft.tensor(1.0))


def counted_in_finally(x: Any) -> Any:
    try:
        return helper(x)
    finally:
        state.count += 1


class Counting:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        state.count += 1


def counted_on_exit(x: Any) -> Any:
    with Counting():
        return helper(x)


@pytest.mark.parametrize("program", [counted_in_finally, counted_on_exit], ids=lambda p: p.__name__)
def test_what_a_failing_run_would_lose_is_refused(program: Any) -> None:
    with pytest.raises(CaptureError, match=r"finally: must not change what is outside, got .*'count'"):
        weft.compile(program)(weft.tensor(1.0))


def total(x: Any) -> Any:
    state.busy = True
    try:
        with Counting():
            return x * 2.0
    finally:
        state.busy = False


def test_a_finally_after_what_cannot_fail_may_change_anything() -> None:
    f = weft.compile(total)
    for x in (1.0, 2.0, 3.0):
        assert outcome(f, x) == outcome(total, x)

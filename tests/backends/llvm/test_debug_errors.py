"""Errors of compiled code: those of the interpreter, with the user's line; a failed run changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import weft
from weft.errors import BoundsError, CheckError, DomainError, WeftError


def element(x: Any, i: Any) -> Any:
    return x[i] * 2.0


def rows(x: Any, i: Any) -> Any:
    return weft.take(x, i, axis=1)


def along(x: Any, i: Any) -> Any:
    return weft.take_along_axis(x, i[:, None], axis=1)


def window(x: Any, i: Any) -> Any:
    return weft.tanh(x[i[0]][i[1]])


def written(x: Any, i: Any) -> Any:
    return weft.index_add(x, i, weft.ones((3, 4)), axis=0)


def replaced(x: Any, i: Any) -> Any:
    y = x * 2.0
    y[i] = weft.zeros(4)
    return y


def element_of_a_loop(x: Any, i: Any) -> Any:
    y = x * 1.0
    for k in range(3):
        y[i[k], 0] = y[i[k], 1] + 1.0
    return y


def with_several(x: Any, i: Any) -> Any:
    return x[i - i, i] * 2.0


def loss(x: Any, i: Any) -> Any:
    return weft.functional.cross_entropy(x, i)


def in_loop(x: Any, i: Any) -> Any:
    total = weft.zeros(4)
    for k in range(3):
        total = total + x[i[k]]
    return total


def in_branch(x: Any, i: Any) -> Any:
    if x.sum() > 0.0:
        return x[i]
    return x * 2.0


def asserted(x: Any, i: Any) -> Any:
    assert i.max() < 3, "an index that is too large"
    return x[i]


def both(f: Callable[..., Any], *args: Any) -> list[WeftError]:
    """The errors of a call, interpreted and compiled."""
    found = []
    for backend in ("interpret", "llvm"):
        with pytest.raises(WeftError) as caught:
            weft.compile(f, backend=backend)(*args)
        found.append(caught.value)
    return found


PROGRAMS = [
    element, rows, along, window, written, replaced, element_of_a_loop, with_several, loss, in_loop,
    in_branch, asserted,
]  # fmt: skip


@pytest.mark.rotating(3)
@pytest.mark.parametrize("f", PROGRAMS)
@pytest.mark.parametrize("wrong", [[0, 7, 1], [0, -9, 9]])
def test_error_is_the_one_of_the_interpreter(f: Any, wrong: list[int]) -> None:
    x, good, bad = weft.ones((3, 4)), weft.tensor([0, 1, 2]), weft.tensor(wrong)
    interpreted, compiled = both(f, x, bad)
    assert type(compiled) is type(interpreted)
    assert str(compiled) == str(interpreted)
    assert f"at {__file__.rpartition('/')[2]}:" in str(compiled)
    c = weft.compile(f, backend="llvm")
    with pytest.raises(type(interpreted)):
        c(x, bad)
    np.testing.assert_array_equal(c(x, good).numpy(), f(x, good).numpy())  # the next call works


def test_classes_of_errors() -> None:
    assert {type(e) for e in both(element, weft.ones(3), weft.tensor(5))} == {BoundsError}
    assert {type(e) for e in both(asserted, weft.ones(3), weft.tensor([5]))} == {CheckError}


def test_singular_matrix_is_named() -> None:
    def f(a: Any, b: Any) -> Any:
        return weft.linalg.solve_triangular(a, b, upper=False)

    a = np.stack([np.eye(3, dtype=np.float32)] * 4)
    a[2, 1, 1] = 0.0
    interpreted, compiled = both(f, weft.tensor(a), weft.ones((4, 3, 1)))
    assert (type(compiled), str(compiled)) == (type(interpreted), str(interpreted))


def test_failed_guard_is_captured_again_and_counts_once() -> None:
    count = weft.zeros(())

    @weft.compile(backend="llvm", capture="trace")
    def f(x: Any) -> Any:
        nonlocal count
        count += 1.0
        return x * 2.0 if x.sum() > 0.0 else x - 1.0

    for sign in (1.0, -1.0, 1.0, -1.0):
        assert f(weft.tensor([sign])).tolist() == [2.0 if sign > 0.0 else -2.0]
    assert count.item() == 4.0
    assert len(f.versions) == 2


def test_text_of_a_failed_assert_is_the_users() -> None:
    _, error = both(asserted, weft.ones(3), weft.tensor([5]))
    assert "an index that is too large" in str(error)
    assert "assert i.max() < 3" in str(error)


# State


class Model(weft.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = weft.nn.Parameter(weft.ones((4, 8)))
        self.weight = weft.nn.Parameter(weft.ones((8, 3)))
        self.count = weft.zeros(())

    def __call__(self, i: Any) -> Any:
        self.count = self.count + 1.0
        return weft.functional.dropout(self.table[i], 0.5) @ self.weight


def state_of(model: Any, optimizer: Any) -> list[Any]:
    grads = [None if p.grad is None else p.grad.numpy().copy() for p in model.parameters()]
    moments = [
        t.numpy().copy() for t in weft.tree_leaves(optimizer.state_dict()) if isinstance(t, weft.Tensor)
    ]
    values = [p.detach().numpy().copy() for p in model.parameters()]
    return [*values, *grads, *moments, model.count.numpy().copy(), weft.get_rng_state().numpy().copy()]


@pytest.mark.parametrize("wrong", ["index", "class"])
def test_failed_training_step_changes_nothing(wrong: str) -> None:
    weft.manual_seed(0)
    model = Model()
    optimizer = weft.optim.Adam(model.parameters(), lr=0.1)

    @weft.compile(backend="llvm")
    def step(i: Any, y: Any) -> Any:
        optimizer.zero_grad()
        value = weft.functional.cross_entropy(model(i), y)
        value.backward()
        optimizer.step()
        return value

    i, y = weft.tensor([0, 1, 3]), weft.tensor([0, 1, 2])
    for _ in range(3):
        step(i, y)
    assert step.versions[0].run.program.donated  # type: ignore[attr-defined] # updates are in place
    before = state_of(model, optimizer)
    with pytest.raises(WeftError):
        step(weft.tensor([0, 4, 1]), y) if wrong == "index" else step(i, weft.tensor([0, 3, 1]))
    for old, new in zip(before, state_of(model, optimizer), strict=True):
        np.testing.assert_array_equal(old, new)
    step(i, y)
    assert not np.array_equal(before[0], model.table.detach().numpy())


def test_first_of_several_failures_is_raised() -> None:
    f = weft.compile(lambda x, i, j: (x[i] + 1.0).sum() * x[j], backend="llvm")
    x = weft.ones(3)
    with pytest.raises(BoundsError, match=r"got (7|9)"):
        f(x, weft.tensor(7), weft.tensor(9))
    assert f(x, weft.tensor(1), weft.tensor(2)).item() == 2.0


def test_threads_that_fail_do_not_disturb_others() -> None:
    f = weft.compile(element, backend="llvm")
    x = weft.arange(3.0)
    f(x, weft.tensor(0))
    wrong: list[Any] = []

    def work(index: int) -> None:
        for _ in range(200):
            try:
                got: Any = f(x, weft.tensor(index)).item()
            except BoundsError as error:
                got = str(error).splitlines()[0]
            if got != expected[index]:
                wrong.append(got)

    expected = {1: 2.0, 2: 4.0, 5: "gather: index must be in -3..2 for axis 0 of size 3, got 5"}
    threads = [threading.Thread(target=work, args=(i,)) for i in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# Calls back into Python


def test_error_of_a_library_call_names_the_line() -> None:
    interpreted, compiled = both(lambda x: weft.linalg.cholesky(x) * 2.0, -weft.eye(65))
    assert (type(compiled), str(compiled)) == (type(interpreted), str(interpreted))
    assert "test_debug_errors.py" in str(compiled)


def test_error_in_a_call_back_keeps_class_and_traceback() -> None:
    def f(x: Any) -> Any:
        print(x)  # noqa: T201 - what is tested
        return x + 1.0

    c = weft.compile(f, backend="llvm")
    c(weft.ones(1))
    broken = patch("sys.stdout.write", side_effect=LookupError("no such thing"))
    with broken, pytest.raises(LookupError, match="no such thing") as caught:
        c(weft.ones(1))
    assert caught.traceback[-1].path.name == "mock.py"  # where it was raised, inside the call back
    assert c(weft.ones(1)).tolist() == [2.0]


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_only_what_stands_before_a_failure_has_effects(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def f(x: Any, i: Any) -> Any:
        print("before", i)  # noqa: T201 - what is tested
        y = x[i]
        print("after", i)  # noqa: T201 - what is tested
        return y

    c = weft.compile(f, backend=backend)
    with pytest.raises(BoundsError):
        c(weft.ones(3), weft.tensor([5]))
    text = capsys.readouterr().out
    assert "before" in text
    assert "after" not in text


def test_nan_check_fails_like_other_errors() -> None:
    f = weft.compile(lambda x: weft.log(x), backend="llvm", check_nan=True)
    with pytest.raises(DomainError, match="log: results must not be NaN"):
        f(-weft.ones(3))
    assert f(weft.ones(3)).tolist() == [0.0] * 3

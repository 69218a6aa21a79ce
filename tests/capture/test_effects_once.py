"""Effects of loops whose gradient runs them again: each happens once, as in eager code."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import weft
from tests.capture.both_ways import check


def printing(v: Any, s: Any) -> Any:
    s, i = s * 0.5, 0
    if v.sum() > 0:
        while i < 2 and v.mean() < 2.0:
            s = s * v[0]
            print("turn", s.item())  # noqa: T201 - what is tested
            i = i + 1
    return v * s


def printing_in_rows(v: Any, s: Any) -> Any:
    if v.sum() > 0:
        for x in weft.stack([v, v * 2.0, v * 3.0]):
            s = s * x[0]
            print("row", s.item())  # noqa: T201
    return v * s


def counting(v: Any, s: Any) -> Any:
    """Ints that a run tells are checked for overflow."""
    s, n, k, c = s * 0.5, 1, 2, weft.tensor(0)
    if v.sum() > 0:
        while c < 3 and v.mean() < 2.0:
            s = s * 1.5
            k = (k - n) % 7
            n += 2
            c = c + 1
    return v * s + v * (n + k)


def results(function: Callable[..., Any], capsys: pytest.CaptureFixture[str], start: float) -> list[Any]:
    v = weft.tensor([0.5, -0.25, start], requires_grad=True)
    s = weft.tensor(0.5, requires_grad=True)
    out = function(v, s)
    out.sum().backward()
    return [capsys.readouterr().out, *[x.tolist() for x in (out, v.grad, s.grad)]]


@pytest.mark.rotating(3)
@pytest.mark.parametrize("start", [1.0, -2.0])
@pytest.mark.parametrize("backend", ["interpret", None])
@pytest.mark.parametrize("function", [printing, printing_in_rows, counting])
def test_effects_happen_once(
    function: Callable[..., Any], backend: str | None, start: float, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = results(function, capsys, start)
    assert results(weft.compile(function, backend=backend), capsys, start) == expected


class Strange(UserWarning):
    pass


def warning_on_one_way(x: Any) -> Any:
    if x > 2:
        warnings.warn(f"large, {x.item():.1f}")  # noqa: B028 - the line of this is told
    return x


def warning_in_turns(x: Any) -> Any:
    for i in range(3):
        if x > i:
            warnings.warn("turn", RuntimeWarning)  # noqa: B028
    warnings.warn(Strange("before a size"))  # noqa: B028
    return weft.zeros(int(x))


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
@pytest.mark.parametrize("program", [warning_on_one_way, warning_in_turns], ids=lambda f: f.__name__)
def test_each_call_warns_on_the_way_that_it_takes(program: Callable[..., Any], backend: str) -> None:
    f = weft.compile(program, backend=backend)
    for given in (1.0, 3.0, 1.0, 3.5, 2.0):
        assert _warned(f, given) == _warned(program, given), given


def _warned(function: Callable[..., Any], given: float) -> list[Any]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function(weft.tensor(given))
    return [(str(w.message), w.category, w.filename, w.lineno) for w in found]


def test_warning_that_is_an_error_is_raised_by_the_run() -> None:
    f = weft.compile(warning_on_one_way)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(weft.tensor(1.0))
        with pytest.raises(UserWarning, match=r"large, 3\.0"):
            f(weft.tensor(3.0))


def printing_before_a_size(x: Any) -> Any:
    print("size of", x.item())  # noqa: T201
    return weft.zeros(int(x))


def printing_in_a_try(x: Any) -> Any:
    try:
        print("body")  # noqa: T201
        if x > 2:
            raise ValueError
    except ValueError:
        print("handler")  # noqa: T201
    return x


def printing_between_sizes(x: Any) -> Any:
    print("a")  # noqa: T201
    n = int(x)
    print("b", n)  # noqa: T201
    m = int(x * 10)
    print("c", m)  # noqa: T201
    return weft.zeros(n + m)


def printing_the_same_in_turns(x: Any) -> Any:
    for _ in range(3):
        print("turn")  # noqa: T201
    return weft.zeros(int(x * 3))


def printing_in_a_branch_before_a_size(x: Any) -> Any:
    if x > 2:
        print("large")  # noqa: T201
        y = x * 2
    else:
        print("small")  # noqa: T201
        y = x * 3
    print("then")  # noqa: T201
    return [0] * int(y)


def printing_in_turns_before_a_size(x: Any) -> Any:
    while x < 4:
        print("turn")  # noqa: T201
        x = x + 1
    return weft.zeros(int(x))


def printing_before_it_fails(x: Any) -> Any:
    print("before")  # noqa: T201
    assert x < 2.7
    print("after")  # noqa: T201
    return weft.zeros(int(x * 3))


def _said(x: Any) -> bool:
    print("asked", x.item())  # noqa: T201
    return bool(x > 2)


def printing_in_a_test(x: Any) -> Any:
    while _said(x):
        x = x - 3
    return x


def printing_in_a_part_of_a_test(x: Any) -> Any:
    i = 0
    while i < 3 and print("turn", i) is None:  # type: ignore[func-returns-value]  # noqa: T201
        i, x = i + 1, x + 1
    return x, i


def printing_in_a_test_of_numbers(x: Any) -> Any:
    i = 0
    while print("turn", i) is None and i < x:  # type: ignore[func-returns-value]  # noqa: T201
        i = i + 1
    return i


@pytest.mark.parametrize(
    "program",
    [
        printing_in_a_test,
        printing_in_a_part_of_a_test,
        printing_in_a_test_of_numbers,
        printing_before_a_size,
        printing_in_a_try,
        printing_between_sizes,
        printing_the_same_in_turns,
        printing_in_a_branch_before_a_size,
        printing_in_turns_before_a_size,
        printing_before_it_fails,
    ],
    ids=lambda f: f.__name__,
)
def test_what_is_printed_before_a_value_is_looked_at_is_printed_once(program: Callable[..., Any]) -> None:
    check(lambda: program, (1.0,), (3.0,), (2.2,), (2.3,))


def catches_what_it_warns_of(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            warnings.warn("caught")  # noqa: B028
        except UserWarning:
            return x * 2
    return x


def keeps_what_it_warns_of(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.warn("kept")  # noqa: B028
    return len(found), x


@pytest.mark.parametrize("program", [catches_what_it_warns_of, keeps_what_it_warns_of])
def test_warnings_that_captured_code_catches_itself_are_refused(program: Callable[..., Any]) -> None:
    with pytest.raises(weft.errors.CaptureError, match="catches or filters warnings itself"):
        weft.compile(program)(weft.tensor(1.0))


def silences_others(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x * 2


def prints_at_the_end(x: Any) -> Any:
    with contextlib.ExitStack() as stack:
        stack.callback(print, "end")
        print("begin")  # noqa: T201
    return x


def prints_by_map(x: Any) -> Any:
    return [*map(print, ["a", "b"])], x


@pytest.mark.parametrize("program", [silences_others, prints_at_the_end, prints_by_map])
def test_functions_that_tell_are_called_by_each_run(program: Callable[..., Any]) -> None:
    check(lambda: program, (1.0,), (3.0,))

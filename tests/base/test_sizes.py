"""Named sizes: their arithmetic is that of the integers that the names may stand for."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.of_code import examples
from weft.base.size_bounds import lower_bound, positive, range_length, size_max, size_min
from weft.base.size_text import parse_size, scan_size
from weft.base.sizes import Size, bind, is_known, named_size, size_names
from weft.errors import ParseError, ShapeError

NAMES = ("batch", "n", "m")
n, m, batch = named_size("n"), named_size("m"), named_size("batch")
Pair = tuple[Any, Callable[[dict[str, int]], int]]  # a size, and the same computed on plain integers

values_of_names = st.fixed_dictionaries({name: st.integers(0, 12) for name in NAMES})


def _leaf(draw: Any) -> Pair:
    if draw(st.booleans()):
        name = draw(st.sampled_from(NAMES))
        return named_size(name), lambda values: values[name]
    number = draw(st.integers(-5, 7))
    return number, lambda values: number


def _combined(draw: Any, depth: int) -> Pair:
    kind = draw(st.sampled_from(["add", "sub", "mul", "floordiv", "mod", "max", "min"]))
    left, left_value = _expression(draw, depth - 1)
    if kind in ("floordiv", "mod"):
        divisor = draw(st.integers(1, 6))
        function: Any = getattr(operator, kind)
        return function(left, divisor), lambda values: function(left_value(values), divisor)
    right, right_value = _expression(draw, depth - 1)
    on_sizes: Any = {"max": size_max, "min": size_min}.get(kind) or getattr(operator, kind)
    on_ints: Any = {"max": max, "min": min}.get(kind) or getattr(operator, kind)
    return on_sizes(left, right), lambda values: on_ints(left_value(values), right_value(values))


def _expression(draw: Any, depth: int) -> Pair:
    return _leaf(draw) if depth == 0 or draw(st.integers(0, 3)) == 0 else _combined(draw, depth)


@st.composite
def expressions(draw: Any) -> Pair:
    return _expression(draw, 3)


@examples(400, 100)
@given(expressions(), values_of_names)
def test_arithmetic_agrees_with_integers(pair: Pair, values: dict[str, int]) -> None:
    size, value = pair
    assert bind(size, values) == value(values)
    assert isinstance(bind(size, values), int)


@examples(300, 75)
@given(expressions(), values_of_names)
def test_text_parses_back_to_the_same_size(pair: Pair, values: dict[str, int]) -> None:
    size, value = pair
    again = parse_size(str(size))
    assert again == size
    assert hash(again) == hash(size)
    computed = eval(str(size), {"__builtins__": {"max": max}}, dict(values))  # noqa: S307 - our own text
    assert computed == value(values)


@examples(300, 75)
@given(expressions(), values_of_names, st.sampled_from(["lt", "le", "gt", "ge"]), st.integers(-3, 5))
def test_a_comparison_is_right_for_all_values_or_raises(
    pair: Pair, values: dict[str, int], name: str, number: int
) -> None:
    size, value = pair
    compare = getattr(operator, name)
    try:
        answer = compare(size, number)
    except ShapeError:
        return
    assert answer == compare(value(values), number)


@examples(300, 75)
@given(expressions(), values_of_names)
def test_the_lower_bound_is_never_above(pair: Pair, values: dict[str, int]) -> None:
    size, value = pair
    low = lower_bound(size)
    assert low is None or low <= value(values)


@examples(200, 50)
@given(expressions(), values_of_names)
def test_partial_substitution_is_substitution_in_steps(pair: Pair, values: dict[str, int]) -> None:
    size, value = pair
    partly = bind(size, {"n": values["n"]})
    assert "n" not in size_names([partly])
    assert bind(partly, values) == value(values)


@examples(200, 50)
@given(st.integers(0, 9), st.integers(-4, 9), st.integers(-4, 12), st.sampled_from([1, 2, 3, -1, -2, -3]))
def test_range_length_is_that_of_range(value: int, start: int, stop: int, step: int) -> None:
    assert range_length(start, stop, step) == len(range(start, stop, step))
    assert bind(range_length(start, n, step), {"n": value}) == len(range(start, value, step))
    assert bind(range_length(n, stop, step), {"n": value}) == len(range(value, stop, step))


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (2 * batch + 1, "2*batch+1"),
        (batch - 1, "batch-1"),
        (1 - batch, "-batch+1"),
        (n * m * 3 - n, "3*m*n-n"),
        (n // 2, "n//2"),
        (2 * (n // 2), "2*(n//2)"),
        (-(n // 2), "-(n//2)"),
        ((n + 5) // 2, "(n+1)//2+2"),
        ((n + m) // m, "n//m+1"),
        (n % 2, "n-2*(n//2)"),
        (positive(n - 1), "max(n-1,0)"),
        (size_min(n, 5), "n-max(n-5,0)"),
    ],
)
def test_text_of_a_size(size: Size, text: str) -> None:
    assert str(size) == text
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "size"),
    [("n%2", n % 2), ("3*n%4", (3 * n) % 4), ("n//2%m", (n // 2) % m), ("7%4", 3), ("n%1", 0)],
)
def test_remainders_in_a_text_are_those_of_python(text: str, size: Any) -> None:
    assert parse_size(text) == size


def test_a_remainder_by_zero_is_an_error() -> None:
    with pytest.raises(ParseError, match="no division by 0"):
        parse_size("n%0")


def test_what_has_no_name_left_is_an_int() -> None:
    for size in (n - n, n // n, 0 * n, (2 * n + 1) - n - n, (n * m) // n - m):
        assert type(size) is int


def test_what_divides_is_divided() -> None:
    assert (n * m) // n == m
    assert (4 * n + 2) // 2 == 2 * n + 1
    assert (4 * n + 3) // 4 == n
    assert (2 * n) // 4 == n // 2
    assert (n // 2) // 3 == n // 6
    assert (n * 6) // (2 * n) == 3


def test_parts_of_a_range_add_up_to_the_whole() -> None:
    assert size_min(n, 5) + range_length(5, n, 1) == n
    assert range_length(0, n - 3, 1) == positive(n - 3)


def test_max_with_zero_simplifies() -> None:
    assert positive(n) == n
    assert positive(n + 1) == n + 1
    assert positive(-n) == 0
    assert positive(positive(n - 1) - 2) == positive(n - 3)
    assert positive(n // 2) == n // 2


def test_decided_comparisons() -> None:
    assert n >= 0
    assert n + 1 > 0
    assert n + m + 3 > 2
    assert not n < 0
    assert n // 2 <= n
    assert n - n // 2 >= 0
    assert size_min(n, 5) >= 0
    assert bool(n + 1)
    assert not n + 1 < 1


@pytest.mark.parametrize(
    "ask", [lambda: n > 3, lambda: n < m, lambda: bool(n), lambda: n >= 1, lambda: n - 1 >= 0]
)
def test_an_open_comparison_is_an_error_that_names_the_size(ask: Callable[[], bool]) -> None:
    with pytest.raises(ShapeError, match=r"size: must be known here, got .*n.* in "):
        ask()


@pytest.mark.parametrize("use", [range, int, float, lambda s: [0] * s, lambda s: [1, 2][s]])
def test_use_as_a_number_is_an_error_that_names_the_size(use: Callable[[Any], Any]) -> None:
    with pytest.raises(ShapeError, match="must be known here, got n "):
        use(n)


def test_equality_is_of_structure() -> None:
    assert n == named_size("n")
    assert n != m
    assert n != 3
    assert (n + m) * 2 == 2 * m + 2 * n
    assert {n + 1: "x"}[1 + n] == "x"


def test_division_by_zero_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        n // 0
    with pytest.raises(ZeroDivisionError):
        bind(n // m, {"n": 3, "m": 0})


def test_binding_reaches_into_tuples_and_takes_sizes() -> None:
    assert bind((n, (2, m + 1), "same"), {"n": 4, "m": n}) == (4, (2, n + 1), "same")
    assert is_known((2, 3))
    assert not is_known((2, n))


def test_sizes_survive_pickling() -> None:
    size = 2 * (n // 2) + positive(m - 1)
    assert pickle.loads(pickle.dumps(size)) == size  # noqa: S301 - our own bytes


def test_scan_stops_where_the_size_ends() -> None:
    assert scan_size("f32[max(n-1,0),4]", 4) == (positive(n - 1), 14)
    assert scan_size("(2*n, 3)", 1) == (2 * n, 4)
    assert scan_size("7]") == (7, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a name or a number at column 1"),
        ("n+", "a name or a number at column 3"),
        ("(n", r"'\)' at column 3"),
        ("n)", r"must end here, got '\)'"),
        ("n//0", "no division by 0"),
        ("max(n)", "',' at column 6"),
        ("n m", "must end here, got ' m'"),
    ],
)
def test_text_that_is_no_size_is_an_error_that_says_where(text: str, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parse_size(text)

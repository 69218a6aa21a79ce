"""Ints that a run tells: their methods, and that they never wrap in silence."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import pytest

import weft
from tests.capture.both_ways import check
from weft.errors import CaptureError

LIMIT = 2**63


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        out = function(*[weft.tensor(a) for a in args])
    except OverflowError:
        return "overflow"
    leaves = weft.tree_leaves(out)
    if any(isinstance(x, int) and not -LIMIT <= x < LIMIT for x in leaves):
        return "overflow"
    return [x.tolist() if isinstance(x, weft.Tensor) else x for x in leaves]


def fibonacci(n: Any) -> Any:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def doubled(n: Any) -> Any:
    k = 1
    i = 0
    while i < n:
        k = k * 2
        i += 1
    return k


def doubled_by_addition(n: Any) -> Any:
    k = 1
    for _ in range(n):
        k += k
    return k


def factorial(n: Any) -> Any:
    k = 1
    for i in range(1, n + 1):
        k *= i
    return k


PROGRAMS: list[tuple[Any, list[Any]]] = [
    (lambda x: 2 ** int(x), [3, 10, 62, 63, 64, 200]),
    (lambda x: int(x) ** 3, [3, -7, 2_000_000, 3_000_000, -3_000_000]),
    (lambda x: int(x) * int(x), [3, 2**31, 2**32, -(2**31), 3_037_000_499, 3_037_000_500]),
    (lambda x: int(x) * 10, [LIMIT // 10, LIMIT // 10 + 1, -LIMIT // 10 - 1]),
    (lambda x: int(x) + int(x), [5, 2**62 - 1, 2**62, -(2**62), -(2**62) - 1]),
    (lambda x: int(x) - int(-x), [5, 2**62, -(2**62)]),
    (lambda x: 1 << int(x), [0, 5, 62, 63, 64, 100]),
    (lambda x: int(x.to(weft.float64) * 1e10), [5, 10**9, -(10**9)]),
    (fibonacci, [0, 1, 10, 91, 93, 150]),
    (doubled, [0, 1, 62, 63, 64, 128]),
    (doubled_by_addition, [0, 5, 62, 63, 100]),
    (factorial, [0, 5, 20, 21, 30]),
    (lambda x: int(x) * 3 + int(x) // 2 - 7 % (int(x) + 1), [1, 5, 100]),
]


@pytest.mark.parametrize("k", range(len(PROGRAMS)))
def test_an_int_that_leaves_64_bits_is_an_error_of_the_run(k: int) -> None:
    function, values = PROGRAMS[k]
    f = weft.compile(function)
    for value in values:
        assert outcome(f, value) == outcome(function, value), value


def test_the_error_tells_the_operator_and_the_line() -> None:
    f = weft.compile(lambda x: 2 ** int(x))
    assert f(weft.tensor(5)) == 32
    with pytest.raises(OverflowError, match=r"result of \*\* must be a whole number of 64 bits") as caught:
        f(weft.tensor(64))
    assert "at test_python_numbers.py:" in caught.value.__notes__[0]
    with pytest.raises(OverflowError, match="whole number"):
        f(weft.tensor(-1))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e30])
def test_a_float_that_is_no_int_of_64_bits_is_an_error(value: float) -> None:
    f = weft.compile(lambda x: int(x))
    assert f(weft.tensor(3.7)) == 3
    with pytest.raises(OverflowError, match="must be finite and fit"):
        f(weft.tensor(value))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: int(x).bit_length(),
        lambda x: int(x).bit_count(),
        lambda x: (int(x).numerator, int(x).denominator),
        lambda x: (int(x).real, int(x).imag, int(x).conjugate()),
        lambda x: int(x).to_bytes(8, "little", signed=True),
        lambda x: int(x).as_integer_ratio(),
        lambda x: float(x).as_integer_ratio(),
        lambda x: float(x).hex(),
        lambda x: float(x).is_integer(),
        lambda x: int(x).bit_length() if x > 2 else int(x).bit_count(),
    ],
)
def test_methods_of_numbers(function: Any) -> None:
    f = weft.compile(function)
    for value in (5, 0, -7, 1, 255, 2**40, -(2**40)):
        assert f(weft.tensor(value)) == function(weft.tensor(value))


def test_a_method_that_needs_the_value_has_a_branch_decided_by_python() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        if x > 0:
            y = y + float(x).as_integer_ratio()[0]
        return y

    compiled = weft.compile(f)
    for value in (1.0, -1.0, 2.5, 1.0, -3.0):
        assert compiled(weft.tensor(value)).item() == f(weft.tensor(value)).item()
    with pytest.raises(CaptureError, match="Python needs the value of a float here"):
        weft.make_graph(f)(weft.tensor(1.0))


def test_an_unknown_attribute_is_that_of_a_number() -> None:
    with pytest.raises(AttributeError, match="'int' object has no attribute 'nothing'"):
        weft.compile(lambda x: int(x).nothing)(weft.tensor(1))  # type: ignore[attr-defined]


def test_small_numbers_are_not_checked() -> None:
    def f(x: Any) -> Any:
        n = int((x > 0).sum())
        return x * (n + 1) * len(x)

    graph = weft.make_graph(f)(weft.ones(3))
    assert not any("check" in node.op.name for node in graph.nodes)


RAISING: list[tuple[Any, list[float]]] = [
    (lambda x: 1 / int(x), [2, 0, -1]),
    (lambda x: 1 // int(x), [2, 0, -1]),
    (lambda x: 5 % int(x), [2, 0, -3]),
    (lambda x: divmod(7, int(x)), [2, 0, -3]),
    (lambda x: 1.0 / float(x), [2, 0.0, -0.0]),
    (lambda x: 5.5 % float(x), [2, 0.0, -3]),
    (lambda x: 5.5 // float(x), [2, 0.0, -3]),
    (lambda x: float(x) / (int(x) - 2), [2, 0, 3]),
    (lambda x: int(x) / 0, [1]),
    (lambda x: 8 >> int(x), [2, 0, -1]),
    (lambda x: 8 << int(x), [2, 0, -1]),
    (lambda x: 0.0 ** float(x), [2, 0, -1, float("nan")]),
    (lambda x: float(x) ** -1, [2, 0, -1, float("inf")]),
    (lambda x: float(x) ** 400, [0.5, 10.0, float("inf")]),
    (lambda x: 0.9 ** int(x), [1, 1000, -3]),
    (lambda x: math.log(float(x)), [2, 0, -1, float("inf"), float("nan")]),
    (lambda x: math.log1p(float(x)), [2, -1, -2]),
    (lambda x: math.sqrt(float(x)), [2, 0, -1, float("nan")]),
    (lambda x: math.acos(float(x)), [0.5, 1, -2]),
    (lambda x: math.atanh(float(x)), [0.5, 1, -2]),
    (lambda x: math.sin(float(x)), [2, float("inf"), float("nan")]),
    (lambda x: math.exp(float(x)), [2, 1000, -1000, float("inf")]),
    (lambda x: math.cosh(float(x)), [2, 1000, -1000]),
    (lambda x: math.fmod(7, float(x)), [2, 0, float("inf")]),
    (lambda x: math.hypot(3.0, float(x)), [2, float("inf")]),
    (lambda x: math.tanh(float(x)), [2, float("inf")]),
    (lambda x: math.floor(float(x)), [2.5, -2.5, float("inf"), float("nan")]),
    (lambda x: math.ceil(float(x)), [2.5, -2.5, float("-inf"), float("nan")]),
    (lambda x: round(float(x)), [2.5, -2.5, float("inf"), float("nan")]),
    (lambda x: [k // (k + 1) + 6 // (k + 2) for k in range(int(x))], [0, 3]),
]


def left(function: Callable[..., Any], value: float) -> Any:
    """What a function gives, or which kind of error."""
    try:
        found = function(weft.tensor(value, dtype=weft.float64))
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, CaptureError):
            raise
        return ValueError if math.isnan(value) else type(error)  # floor(nan) is a ValueError in Python
    leaves = [float(x) for x in weft.tree_leaves(found)]
    return [None if math.isnan(x) else pytest.approx(x) for x in leaves]


@pytest.mark.parametrize("k", range(len(RAISING)))
@pytest.mark.parametrize("backend", ["llvm", "interpret"])
def test_arithmetic_that_python_refuses_is_an_error_of_the_run(k: int, backend: str) -> None:
    function, values = RAISING[k]
    f = weft.compile(function, backend=backend)
    for value in [*values, values[0]]:
        assert left(f, value) == left(function, value), value


def test_a_branch_that_is_not_taken_divides_by_nothing() -> None:
    @weft.compile
    def f(x: Any, n: Any) -> Any:
        k = int(n)
        if k != 0:
            x = x * (6 // k)
        return x

    assert [float(f(weft.tensor(2.0), weft.tensor(n))) for n in (0, 2, 0)] == [2.0, 6.0, 2.0]


def test_libraries_that_take_plain_numbers_get_them() -> None:
    @weft.compile
    def f(x: Any) -> Any:
        n = int(x)
        found = [Decimal(n), Fraction(n, 2), statistics.mean([1, 2]), timedelta(days=n).days, pow(n, 2, 7)]
        return [float(k) for k in found] + [random.Random(n).random(), len(json.dumps(n))]

    for value in (5, 12, 5):
        assert f(weft.tensor(value)) == f.__wrapped__(weft.tensor(value))


TIES = (
    1.115,
    2.675,
    1.005,
    0.285,
    0.125,
    0.375,
    5.015,
    -1.115,
    2.5,
    -3.5,
    0.5,
    1e15 + 0.3,
    66622833.818493485,
)
ROUNDED = (*TIES, 0.0, -0.0, 150.0, 250.0, 1234.5678, 1e300, 1e-300, 2.0**52 + 1, math.inf, math.nan)


@pytest.mark.parametrize("backend", ["llvm", "interpret"])
@pytest.mark.parametrize("digits", [0, 1, 2, 4, 8, -1, -2])
def test_round_to_digits_is_that_of_python(digits: int, backend: str) -> None:
    f = weft.compile(lambda x: round(x.item(), digits), backend=backend)
    drawn = Random(0)
    some = [drawn.uniform(-100, 100) for _ in range(20)]
    near = [(drawn.randrange(-(10**5), 10**5) + 0.5) / 10 ** max(digits, 0) for _ in range(40)]
    for value in (*ROUNDED, *some, *near):
        expected, found = round(value, digits), f(weft.tensor(value, dtype=weft.float64))
        assert found == expected or (math.isnan(found) and math.isnan(expected)), value


@pytest.mark.parametrize("digits", [2, 0, -1, -2])
def test_ints_are_rounded_to_tens(digits: int) -> None:
    f = weft.compile(lambda x: round(int(x), digits))
    for value in (0, 4, 5, 6, 15, 25, 149, 150, 151, 250, 350, -5, -15, -25, -150, -250):
        assert f(weft.tensor(value)) == round(value, digits)


@pytest.mark.parametrize("digits", [(), (1,), (-1,)])
@pytest.mark.parametrize("values", [2.65, -0.5, [1.26, 25.0]])
def test_round_of_a_tensor_is_a_tensor(values: Any, digits: tuple[int, ...]) -> None:
    x = weft.tensor(values)
    found, wanted = weft.compile(lambda x: round(x, *digits))(x), round(x, *digits)
    assert (type(found), found.dtype, found.shape) == (weft.Tensor, wanted.dtype, wanted.shape)
    assert found.tolist() == wanted.tolist()


def beside_exact_numbers(x: Any) -> Any:
    n = int(x)
    thirds = Fraction(1, 3) * n
    return Decimal(n) == n, n == Decimal(2), str(thirds), Fraction(n) < n + 1


def test_numbers_of_a_run_beside_decimals_and_fractions() -> None:
    check(lambda: beside_exact_numbers, (1.0,), (2.0,), (3.0,))

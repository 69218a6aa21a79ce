"""Numbers whose value only a run tells compute as Python's numbers do."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.capture.agree import check_agrees, compiled, ops_of, row
from weft.capture.runtime.number import Number, number_of
from weft.errors import CaptureError
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.transform.building import capturing

UP = (row(4, 2, 3),)
BINARY: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.eq,
    operator.ne,
]
WHOLE: list[Callable[[Any, Any], Any]] = [operator.and_, operator.or_, operator.xor]


def computed(function: Callable[..., Any], *values: Any) -> Any:
    """What a function of Numbers gives when the graph runs, as a Python number."""
    kinds = {bool: np.bool_, int: np.int64, float: np.float64}
    with capturing("numbers") as capture:
        given_ = [capture.input(TensorType((), np.dtype(kinds[type(v)]))) for v in values]
        out = function(*[Number(type(v), t) for v, t in zip(values, given_, strict=True)])
        value = capture.value_of(number_of(out).tensor)
        kind = number_of(out).kind
    graph = capture.graph(capture.inputs, [value])
    (array,) = interpret(graph, [np.asarray(v, kinds[type(v)]) for v in values])
    return kind(array.item())


numbers = st.one_of(
    st.booleans(),
    st.integers(-1000, 1000),
    st.floats(-100, 100, allow_nan=False).map(lambda x: x if abs(x) > 1e-3 else 1.5),
)


@settings(max_examples=60, deadline=None)
@given(numbers, numbers, st.sampled_from(BINARY))
def test_operators_give_what_python_gives(x: Any, y: Any, function: Callable[[Any, Any], Any]) -> None:
    if function in (operator.truediv, operator.floordiv, operator.mod) and y == 0:
        return
    expected = function(x, y)
    for found in (
        computed(function, x, y),
        computed(lambda a: function(a, y), x),
        computed(lambda b: function(x, b), y),
    ):
        assert type(found) is type(expected)
        assert found == pytest.approx(expected, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 500), st.integers(0, 500), st.sampled_from(WHOLE))
def test_bitwise_operators(x: int, y: int, function: Callable[[Any, Any], Any]) -> None:
    assert computed(function, x, y) == function(x, y)
    assert computed(function, x > 3, y > 3) is function(x > 3, y > 3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: -x,
        lambda x: +x,
        lambda x: abs(x),
        lambda x: x**2,
        lambda x: x**-1,
        lambda x: 2**x,
        lambda x: x**0.5,
        lambda x: divmod(x, 3)[0],
        lambda x: divmod(x, 3)[1],
        lambda x: x.is_integer(),
        lambda x: x.real + x.imag,
    ],
)
@pytest.mark.parametrize("value", [5, 2.5, 7])
def test_unary_operators_and_powers(function: Callable[[Any], Any], value: Any) -> None:
    expected = (
        function(value)
        if not isinstance(value, int) or "is_integer" not in function.__code__.co_names
        else True
    )
    found = computed(function, value)
    assert type(found) is type(expected)
    assert found == pytest.approx(expected, rel=1e-12)


def test_invert() -> None:
    assert computed(lambda x: ~x, 5) == ~5


def test_numbers_are_weak_next_to_tensors() -> None:
    def f(x: Any) -> Any:
        half, whole = x.astype(weft.float16), x.astype(weft.int32)
        for i in range(2):
            half = half * (i / 3) + i
            whole = whole + i
        k = float(x[0])
        return half, whole, whole * k, x + k, k * x, k - x, weft.maximum(x, k), weft.where(x > k, x, k), 1 / k

    check_agrees(f, UP, grad=False)


def test_builtins_on_numbers_and_tensors() -> None:
    def f(x: Any) -> Any:
        n, v = int(x[0]), float(x[1])
        return (
            round(v * 1.7),
            round(v * 1.234, 2),
            abs(-n),
            min(n, 3),
            max(v, 3.5, float(n)),
            pow(n, 2),
            divmod(n, 3),
            bool(n),
            int(v),
            float(n),
            isinstance(n, int),
            type(v) is float,
            len(x),
            n == 4 and v == 2.0,
        )

    check_agrees(f, UP, (row(3, 2.5, 1),), grad=False)


def test_math_functions_of_numbers_and_tensors() -> None:
    def f(x: Any) -> Any:
        v = float(x[1])
        return (
            math.sqrt(v),
            math.exp(v) + math.log(v) + math.sin(v) + math.atan2(v, 2),
            math.floor(v * 1.3),
            math.ceil(v * 1.3),
            math.isnan(v),
            math.hypot(v, 3),
            math.sqrt(x[2]),
            math.pi * v,
        )

    check_agrees(f, UP, grad=False)


def test_reductions_of_tensors_and_generators() -> None:
    def f(x: Any) -> Any:
        if any(v > 3 for v in x):
            x = x * 2
        if all(v > -1 for v in x) or any(x):
            x = x + 1
        ordered = sorted(x)
        return sum(x), max(x), min(v for v in x), max(x[0], x[1], 3), ordered[0] * 2 + ordered[-1]

    check_agrees(f, UP, (row(-4, 2, 3),))


def test_indexing_by_numbers() -> None:
    def f(x: Any) -> Any:
        m, s = weft.outer(x, x), x[0] * 0
        for i in range(2):
            s = s + m[i, i + 1] + m[i][-1] + m[..., i].sum() + m[i, :].sum() + m[None, i].sum()
            s = s + x[i : i + 2].prod() + m[i : i + 2, i : i + 2].sum() + m[1, i : i + 2].prod()
        return s

    check_agrees(f, UP)
    assert ops_of(f, *UP).count("scan") == 1


def test_writing_slices_by_numbers() -> None:
    def f(x: Any) -> Any:
        y = weft.concat([x, x])
        for i in range(0, 4, 2):
            y[i : i + 2] = y[i : i + 2] * 2 + i
            y[5 - i] = i
        return y

    check_agrees(f, UP)


def test_slice_of_unknown_length_is_run_by_python() -> None:
    def f(x: Any) -> Any:
        s = x[0] * 0
        for i in range(3):
            s = s + x[:i].sum() * x[i:].sum()
        return s

    check_agrees(f, UP)


def test_item_and_tolist_need_no_guard() -> None:
    def f(x: Any) -> Any:
        k = x[0].item()
        if k > 2:
            return x * k, weft.tensor(x.tolist()) * 2
        return x, weft.tensor([k, 2.0, x[1].item()])

    captured = compiled(f)
    for values in (row(4, 2, 3), row(1, 2, 3), row(5, 6, 7)):
        found, expected = captured(weft.tensor(values)), f(weft.tensor(values))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy())
    assert len(captured.versions) == 1


def test_python_use_outside_of_regions_is_guarded() -> None:
    def f(x: Any) -> Any:
        n = int(x[0])
        return weft.zeros(n) + [10.0, 20.0, "x"][n]

    captured = compiled(f)
    for value, expected in ((1.0, [20.0]), (0.0, []), (1.0, [20.0])):
        np.testing.assert_array_equal(captured(weft.tensor([value])).numpy(), np.array(expected, np.float32))
    assert len(captured.versions) == 2


def test_python_use_inside_a_branch_names_the_line() -> None:
    def f(x: Any) -> Any:
        n = int(x[0])
        if x[1] > 0:
            x = x + weft.zeros(n).sum()
        return x

    with pytest.raises(CaptureError, match="Python needs the value of an int here") as caught:
        weft.make_graph(f)(weft.tensor(UP[0]))
    assert "x = x + weft.zeros(n).sum()" in str(caught.value)


def test_float_index_is_the_error_of_python() -> None:
    def f(x: Any) -> Any:
        k = float(x[0])
        return x[k]

    with pytest.raises(TypeError):
        compiled(f)(weft.tensor(UP[0]))


def test_numbers_are_returned_as_python_numbers() -> None:
    def f(x: Any) -> Any:
        n = 0
        while x.sum() > 1:
            x, n = x * 0.5, n + 1
        return n, n > 2, n / 2

    found = compiled(f)(weft.tensor(UP[0]))
    assert found == f(weft.tensor(UP[0]))
    assert [type(v) for v in found] == [int, bool, float]

"""Operators and elementwise methods: all operands, in place, reflected, with NumPy, and what is refused."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, DtypeError, GradientError, ShapeError

BINARY = {
    operator.add: np.add,
    operator.sub: np.subtract,
    operator.mul: np.multiply,
    operator.truediv: np.divide,
    operator.floordiv: np.floor_divide,
    operator.mod: np.remainder,
    operator.pow: np.power,
    operator.eq: np.equal,
    operator.ne: np.not_equal,
    operator.lt: np.less,
    operator.le: np.less_equal,
    operator.gt: np.greater,
    operator.ge: np.greater_equal,
}
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
X = np.array([[1.5, -2.0, 3.25], [0.5, 4.0, -1.0]], np.float32)
Y = np.array([2.0, 0.5, 3.0], np.float32)


def check(actual: Any, expected: Any) -> None:
    assert isinstance(actual, weft.Tensor)
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.__name__)
def test_operator_takes_tensors_arrays_and_numbers_on_either_side(op: Callable[..., Any]) -> None:
    ufunc = BINARY[op]
    with np.errstate(all="ignore"):
        for left, right in [(X, X), (X, Y), (Y, X), (Y[:1], X), (X[0, 0], X), (X, X[0, 0])]:
            check(op(weft.tensor(left), weft.tensor(right)), ufunc(left, right))
            check(op(weft.tensor(left), np.asarray(right)), ufunc(left, right))
            check(op(np.asarray(left), weft.tensor(right)), ufunc(left, right))
        for number in (2, 3.0, np.float64(2.0), np.int32(3), np.float32(1.5)):
            check(op(weft.tensor(X), number), ufunc(X, np.float32(number)))
            check(op(number, weft.tensor(X)), ufunc(np.float32(number), X))


@pytest.mark.parametrize("op", BITS, ids=lambda op: op.__name__)
@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16"])
def test_bit_operators_work_on_integers(op: Callable[..., Any], dtype: str) -> None:
    x, y = np.array([1, 5, 7], dtype), np.array([3, 1, 2], dtype)
    np.testing.assert_array_equal(op(weft.tensor(x), weft.tensor(y)).numpy(), op(x, y))
    np.testing.assert_array_equal(op(weft.tensor(x), 2).numpy(), op(x, x.dtype.type(2)))
    np.testing.assert_array_equal(op(2, weft.tensor(x)).numpy(), op(x.dtype.type(2), x))


def test_unary_operators() -> None:
    x = weft.tensor(X)
    check(-x, -X)
    check(+x, X)
    check(abs(x), abs(X))
    assert (~weft.tensor([True, False])).tolist() == [False, True]
    assert (~weft.tensor([0, 5])).tolist() == [-1, -6]


def test_matmul_operator_and_its_reflection() -> None:
    x = weft.tensor(X)
    check(x @ weft.tensor(Y), X @ Y)
    check(X @ weft.tensor(Y), X @ Y)


# Bools: + is or, * is and, as in NumPy; what has no meaning is refused


def test_arithmetic_of_bools() -> None:
    x, y = weft.tensor([True, True, False]), weft.tensor([True, False, False])
    assert ((x + y).tolist(), (x * y).tolist()) == ([True, True, False], [True, False, False])
    assert (x & y).tolist() == [True, False, False]
    assert (x ^ y).tolist() == [False, True, False]
    assert weft.maximum(x, y).tolist() == [True, True, False]
    assert (x + 1).tolist() == [2, 2, 1]
    assert (x < y).tolist() == [False, False, False]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda b: b - b, "sub: dtype must be integer or floating or complex, got bool"),
        (lambda b: -b, "neg: dtype must be integer or floating or complex, got bool"),
        (lambda b: b // b, "floor_divide: dtype must be integer or floating, got bool"),
        (lambda b: b << b, "left_shift: dtype must be integer, got bool"),
        (lambda b: b & 1.0, "bitwise_and: dtype must be bool or integer, got float32"),
        (lambda b: ~(b * 1.0), "bitwise_invert: dtype must be bool or integer, got float32"),
        (lambda b: b * 1j < b, "less: dtype must be bool or integer or floating, got complex64"),
        (lambda b: weft.maximum(b * 1j, b), "maximum: dtype must be .* got complex64"),
    ],
)
def test_dtype_an_op_does_not_take_is_refused(call: Callable[..., Any], text: str) -> None:
    with pytest.raises(DtypeError, match=text):
        call(weft.tensor([True, False]))


# Integers


def test_integers_divided_by_zero_give_zero() -> None:
    x, zero = weft.tensor([1, -1, 0]), weft.tensor([0, 0, 0])
    assert (x // zero).tolist() == (x % zero).tolist() == [0, 0, 0]


def test_integers_to_negative_powers_are_rounded_towards_zero() -> None:
    x = weft.tensor([1, -1, -1, 2, 0])
    y = weft.tensor([-3, -3, -2, -1, -1])
    assert (x**y).tolist() == [1, -1, 1, 0, 0]
    assert (weft.tensor([2, 3]) ** 3).tolist() == [8, 27]
    assert (2 ** weft.tensor([0, 5])).tolist() == [1, 32]


def test_shifts_beyond_the_width_give_what_is_left() -> None:
    x = weft.tensor([1, -1], dtype=weft.int8)
    assert (x << 9).tolist() == [0, 0]
    assert (x >> 9).tolist() == [0, -1]


# In place


@pytest.mark.parametrize("op", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"])
def test_in_place_operator_rebinds_the_tensor(op: str) -> None:
    x = weft.tensor(X)
    alias = x
    before = x.clone()
    out = getattr(operator, f"i{op}")(x, 2.0)
    assert out is alias
    check(alias, getattr(operator, op)(X, np.float32(2.0)))
    check(before, X)


def test_in_place_operator_must_not_change_the_type() -> None:
    x = weft.tensor([1, 2])
    with pytest.raises(DtypeError, match="truediv: the result must stay int64 in place, got float32"):
        x /= 2
    with pytest.raises(DtypeError, match="add: the result must stay int64 in place, got float32"):
        x += 0.5
    with pytest.raises(ShapeError, match=r"add: the result must stay i64\[2\] in place, got i64\[3,2\]"):
        x += weft.ones((3, 2), dtype=weft.int64)
    assert x.tolist() == [1, 2]


def test_in_place_change_of_a_leaf_is_refused_and_leaves_it() -> None:
    x = weft.tensor([1.0], requires_grad=True)
    with pytest.raises(GradientError, match="a leaf that requires grad must not be changed in place"):
        x += 1
    assert x.tolist() == [1.0]
    with weft.no_grad():
        x += 1
    assert x.tolist() == [2.0]
    assert x.is_leaf
    assert x.requires_grad


def test_in_place_change_keeps_the_gradient_of_the_old_value() -> None:
    x = weft.tensor([3.0], requires_grad=True)
    y = x * 1
    z = y * y
    y *= 10
    (z + y).backward()
    assert x.grad.tolist() == [2 * 3.0 + 10.0]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: x.add_(1), [2.0, 3.0]),
        (lambda x: x.add_(1, alpha=3), [4.0, 5.0]),
        (lambda x: x.sub_(x, alpha=2), [-1.0, -2.0]),
        (lambda x: x.mul_(2), [2.0, 4.0]),
        (lambda x: x.div_(2), [0.5, 1.0]),
        (lambda x: x.pow_(2), [1.0, 4.0]),
        (lambda x: x.neg_(), [-1.0, -2.0]),
        (lambda x: x.exp_().log_(), [1.0, 2.0]),
        (lambda x: x.zero_(), [0.0, 0.0]),
        (lambda x: x.fill_(7), [7.0, 7.0]),
        (lambda x: x.copy_(weft.tensor(5)), [5.0, 5.0]),
        (lambda x: x.copy_([8, 9]), [8.0, 9.0]),
        (lambda x: x.clamp_(1.5, 1.75), [1.5, 1.75]),
        (lambda x: x.clip_(min=1.5), [1.5, 2.0]),
    ],
)
def test_method_in_place_rebinds_and_returns_the_tensor(
    call: Callable[..., Any], expected: list[float]
) -> None:
    x = weft.tensor([1.0, 2.0])
    assert call(x) is x
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-6)
    assert x.dtype == weft.float32


def test_copy_passes_the_gradient_to_its_source() -> None:
    source = weft.tensor(2.0, requires_grad=True)
    x = weft.zeros((3,))
    x.copy_(source)
    x.sum().backward()
    assert source.grad.item() == 3.0


# Methods and NumPy


def test_functions_are_methods_too() -> None:
    x = weft.tensor([0.25, 0.5])
    for name in ("abs", "exp", "log", "sqrt", "tanh", "erf", "sigmoid", "floor", "isnan", "lgamma"):
        np.testing.assert_array_equal(getattr(x, name)().numpy(), getattr(weft, name)(x).numpy())
    for name in ("add", "sub", "mul", "div", "pow", "maximum", "atan2", "eq", "lt", "logaddexp"):
        np.testing.assert_array_equal(getattr(x, name)(x).numpy(), getattr(weft, name)(x, x).numpy())
    assert x.clamp(max=0.3).tolist() == x.clip(None, 0.3).tolist()


@pytest.mark.parametrize(
    "name", ["sin", "exp", "absolute", "negative", "rint", "arctan", "isnan", "conjugate"]
)
def test_numpy_function_of_a_tensor_is_a_tensor(name: str) -> None:
    x = weft.tensor(X, requires_grad=True)
    check(getattr(np, name)(x), getattr(np, name)(X))


def test_numpy_function_of_a_tensor_has_a_gradient() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    (np.multiply(x, np.array([3.0, 4.0], np.float32)) + np.square(x)).sum().backward()
    assert x.grad.tolist() == [5.0, 8.0]


def test_numpy_function_that_weft_lacks_gives_an_array() -> None:
    assert isinstance(np.cbrt(weft.tensor([8.0])), np.ndarray)
    assert np.add.reduce(weft.tensor([1.0, 2.0])) == 3.0
    array = np.ones(2, np.float32)
    array += weft.tensor([1.0, 2.0])
    assert array.tolist() == [2.0, 3.0]


# Other operands


class Foreign:
    def __radd__(self, other: Any) -> str:
        return "radd"

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_operand_of_another_class_gets_its_turn() -> None:
    assert weft.ones(2) + Foreign() == "radd"
    assert (weft.ones(2) == Foreign()) is True  # type: ignore[comparison-overlap]
    with pytest.raises(TypeError, match="unsupported operand"):
        weft.ones(2) * Foreign()


@pytest.mark.parametrize("other", [None, "a", [1, 2], (), {}, object])
def test_nothing_else_equals_a_tensor(other: Any) -> None:
    assert (weft.ones(2) == other) is False
    assert (weft.ones(2) != other) is True
    assert (other == weft.ones(2)) is False


@pytest.mark.parametrize("other", [None, "a", [1, 2], {}])
def test_arithmetic_with_python_objects_is_refused(other: Any) -> None:
    with pytest.raises(ArgumentError, match=f"add: inputs must be tensors, got {type(other).__name__}"):
        weft.ones(2) + other
    with pytest.raises(TypeError):
        other + weft.ones(2)


def test_unknown_keyword_and_wrong_count_are_refused() -> None:
    x = weft.ones(2)
    with pytest.raises(ArgumentError, match="exp: takes no keywords, got axis="):
        weft.exp(x, axis=0)
    with pytest.raises(ArgumentError, match="add: takes 2 tensors, got 1"):
        weft.add(x)
    with pytest.raises(ArgumentError, match="add: takes 2 tensors, got 3"):
        weft.add(x, x, x)
    with pytest.raises(ArgumentError, match="clip: unknown keyword 'low'"):
        weft.clip(x, low=1)


def test_shapes_that_do_not_broadcast_are_refused() -> None:
    text = r"mul: shapes must broadcast together, got f32\[2\] and f32\[3\] \(2 vs 3 on axis 0\)"
    with pytest.raises(ShapeError, match=text):
        weft.ones(2) * weft.ones(3)


# The flat path: forms, constants, and what it must not confuse


def test_zero_keeps_its_sign_as_a_constant() -> None:
    x = weft.tensor([1.0])
    assert (x / 0.0).item() == np.inf
    assert (x / -0.0).item() == -np.inf
    assert (x / 0).item() == np.inf
    assert np.isnan((x * float("nan")).item())


def test_one_and_true_and_one_point_zero_do_not_mix_up() -> None:
    x, i = weft.tensor([2.5]), weft.tensor([2])
    assert [(x * n).dtype for n in (1, 1.0, True)] == [weft.float32] * 3
    assert [(i * n).dtype for n in (1, 1.0, True)] == [weft.int64, weft.float32, weft.int64]


def test_results_do_not_share_memory_with_constants() -> None:
    x = weft.tensor(1.0)
    y = x * 3.0
    y += 1
    assert (x * 3.0).item() == 3.0


def test_rebinding_to_another_shape_is_noticed_by_the_next_op() -> None:
    x = weft.ones(3) * 2
    x.data = weft.tensor([1.0, 2.0, 3.0])
    assert (x + weft.ones(3)).tolist() == [2.0, 3.0, 4.0]
    y = weft.ones((2, 3)) * 1
    y[0] = x
    assert (y + x).tolist() == [[2.0, 4.0, 6.0], [2.0, 3.0, 4.0]]


def test_0d_results_are_tensors_with_arrays() -> None:
    x = weft.tensor(2.0, requires_grad=True)
    y = x * x + 1.0
    assert isinstance(y.detach()._data, np.ndarray)
    assert y.shape == ()
    y.backward()
    assert x.grad.item() == 4.0


def test_broadcast_gradients_have_the_shapes_of_their_inputs() -> None:
    x = weft.ones((2, 3), requires_grad=True)
    row, column = weft.ones(3, requires_grad=True), weft.ones((2, 1), requires_grad=True)
    one, flat = weft.ones((1, 3), requires_grad=True), weft.ones((), requires_grad=True)
    ((x * row + column) * one - flat).sum().backward()
    shapes = [t.grad.shape for t in (x, row, column, one, flat)]
    assert shapes == [(2, 3), (3,), (2, 1), (1, 3), ()]
    assert row.grad.tolist() == [2.0, 2.0, 2.0]


def test_warnings_turned_into_errors_do_not_reach_the_user() -> None:
    x = weft.tensor([0.0, -1.0, 1e30], requires_grad=True)
    out = weft.log(x) - 1 / x + x * x
    assert out[0].item() == -np.inf
    assert np.isnan(out[1].item())
    assert out[2].item() == np.inf


def test_recording_is_off_only_in_its_own_thread() -> None:
    x = weft.ones(2, requires_grad=True)
    seen: list[bool] = []
    with weft.no_grad():
        assert not (x * x).requires_grad
        worker = threading.Thread(target=lambda: seen.append((x * 2.0).requires_grad))
        worker.start()
        worker.join()
    assert seen == [True]
    assert (x * x).requires_grad


def test_product_keeps_only_what_its_gradient_needs() -> None:
    x, mask = weft.ones(3, requires_grad=True), weft.ones(3)
    assert (x * mask).grad_fn.saved == (None, mask._data, None, None)
    assert (mask * x).grad_fn.saved == (mask._data, None, None, None)
    assert (x * weft.ones((2, 3))).grad_fn.saved[0] is None
    assert (x * 2.0).grad_fn.saved[0] is None
    assert (x + mask).grad_fn.saved == (None, None, None, None)

"""In-place changes: what a graph saved and what was copied does not change with them; views do."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import DtypeError, GradientError, ShapeError


def leaf(*values: float) -> weft.Tensor:
    return weft.tensor(list(values), requires_grad=True)


def add(x: Any) -> Any:
    x += 1.0
    return x


def subtract(x: Any) -> Any:
    x -= weft.ones(2)
    return x


def multiply(x: Any) -> Any:
    x *= 100.0
    return x


def divide(x: Any) -> Any:
    x /= 2.0
    return x


def power(x: Any) -> Any:
    x **= 2
    return x


def set_item(x: Any) -> Any:
    x[0] = 7.0
    return x


def set_slice(x: Any) -> Any:
    x[:] = weft.tensor([5.0, 6.0])
    return x


def set_mask(x: Any) -> Any:
    x[x > 0.0] = -1.0
    return x


def set_data(x: Any) -> Any:
    x.data = weft.tensor([8.0, 9.0])
    return x


CHANGES = [add, subtract, multiply, divide, power, set_item, set_slice, set_mask]


def new_values(change: Callable[..., Any]) -> list[float]:
    return change(weft.tensor([1.0, 2.0])).tolist()


# Leaves


@pytest.mark.parametrize("change", CHANGES)
def test_leaf_must_not_change_while_recording_and_stays_as_it_was(change: Callable[..., Any]) -> None:
    x = leaf(1.0, 2.0)
    x.grad = weft.ones(2)
    with pytest.raises(
        GradientError, match="a leaf that requires grad must not be changed in place"
    ) as caught:
        change(x)
    assert "weft.no_grad()" in str(caught.value)
    assert (x.tolist(), x.grad.tolist(), x.is_leaf, x.requires_grad) == ([1.0, 2.0], [1.0, 1.0], True, True)


@pytest.mark.parametrize("change", [*CHANGES, set_data])
def test_leaf_changed_under_no_grad_stays_a_leaf_with_its_grad_and_hooks(change: Callable[..., Any]) -> None:
    x = leaf(1.0, 2.0)
    x.register_hook(lambda g: g * 10.0)
    (x * 3.0).sum().backward()
    held = x.grad
    with weft.no_grad():
        same = change(x)
    assert same is x
    assert x.tolist() == new_values(change)
    assert x.is_leaf
    assert x.requires_grad
    assert x.grad is held
    x.grad = None
    (x * 3.0).sum().backward()
    assert x.grad.tolist() == [30.0, 30.0]


@pytest.mark.parametrize("change", [*CHANGES, set_data])
def test_graph_recorded_before_the_change_has_the_old_values(change: Callable[..., Any]) -> None:
    x = leaf(1.0, 2.0)
    y = (x * x).sum() + weft.exp(x).sum()
    with weft.no_grad():
        change(x)
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), [2.0 + np.exp(1.0), 4.0 + np.exp(2.0)], rtol=1e-6)


def test_tutorial_loop_with_no_grad() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(64, 3)).astype(np.float32)
    x, y = weft.tensor(inputs), weft.tensor(inputs @ np.array([1.0, -2.0, 0.5], np.float32))
    w = weft.zeros(3).requires_grad_()
    for _ in range(300):
        loss = ((x @ w - y) ** 2).mean()
        loss.backward()
        with weft.no_grad():
            w -= 0.1 * w.grad
            w.grad.zero_()
    assert w.is_leaf
    assert w.requires_grad
    np.testing.assert_allclose(w.detach().numpy(), [1.0, -2.0, 0.5], atol=1e-4)


def test_tutorial_loop_with_data() -> None:
    w = leaf(4.0)
    for _ in range(50):
        ((w - 1.0) ** 2).sum().backward()
        w.data -= 0.2 * w.grad.data
        w.zero_grad()
    assert abs(w.item() - 1.0) < 1e-4


# Results of ops


@pytest.mark.parametrize("change", CHANGES)
def test_change_of_a_result_is_recorded(change: Callable[..., Any]) -> None:
    def gradient(f: Callable[[Any], Any]) -> list[float]:
        x = weft.tensor([1.0, 2.0], dtype=weft.float64, requires_grad=True)
        (f(x * 1.0) * weft.tensor([3.0, 5.0], dtype=weft.float64) + x * 0.0).sum().backward()
        return x.grad.tolist()

    expected = {
        "add": [3.0, 5.0],
        "subtract": [3.0, 5.0],
        "multiply": [300.0, 500.0],
        "divide": [1.5, 2.5],
        "power": [6.0, 20.0],
        "set_item": [0.0, 5.0],
        "set_slice": [0.0, 0.0],
        "set_mask": [0.0, 0.0],
    }
    assert gradient(change) == pytest.approx(expected[change.__name__])


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_computed_before_the_change_keeps_its_values_and_gradient(
    change: Callable[..., Any],
) -> None:
    x = leaf(1.0, 2.0)
    y = x * 2.0
    z = y * y
    change(y)
    assert z.tolist() == [4.0, 16.0]
    z.sum().backward()
    assert x.grad.tolist() == [8.0, 16.0]


def test_assigned_tensor_gets_its_gradient() -> None:
    x, v = leaf(1.0, 2.0), weft.tensor(3.0, requires_grad=True)
    y = x * 2.0
    y[0] = v * v
    (y * weft.tensor([10.0, 1.0])).sum().backward()
    assert (v.grad.item(), x.grad.tolist()) == (60.0, [0.0, 2.0])


def test_constant_that_is_changed_by_a_recorded_tensor_joins_the_graph() -> None:
    w, c = leaf(3.0, 4.0), weft.ones(2)
    c *= w
    assert c.requires_grad
    assert not c.is_leaf
    c.sum().backward()
    assert w.grad.tolist() == [1.0, 1.0]


# Values are not shared


@pytest.mark.parametrize("change", [*CHANGES, set_data])
@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.clone(),
        lambda x: copy.copy(x),
        lambda x: copy.deepcopy(x),
        lambda x: x.reshape((2,), copy=True),
        lambda x: x[[0, 1]],
        lambda x: x * 1.0,
        lambda x: weft.tensor(x.numpy()),
    ],
)
def test_change_does_not_reach_a_copy_nor_back(change: Any, other: Any) -> None:
    x = weft.tensor([1.0, 2.0])
    y = other(x)
    change(x)
    assert (x.tolist(), y.tolist()) == (new_values(change), [1.0, 2.0])
    x = weft.tensor([1.0, 2.0])
    y = other(x)
    change(y)
    assert (y.tolist(), x.tolist()) == (new_values(change), [1.0, 2.0])


def test_array_used_in_an_op_may_change_before_backward() -> None:
    x = leaf(1.0, 2.0)
    array = np.array([3.0, 4.0], np.float32)
    y = (x * array).sum() + (array * x).sum()
    array[:] = 100.0
    y.backward()
    assert x.grad.tolist() == [6.0, 8.0]


def test_array_that_a_tensor_was_made_from_may_change() -> None:
    array = np.array([1.0, 2.0], np.float32)
    x = weft.tensor(array, requires_grad=True)
    array[:] = 100.0
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_array_that_a_tensor_gives_is_read_only() -> None:
    x = weft.tensor([1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 5.0
    array = x.numpy()
    x[0] = 5.0
    assert array.tolist() == [1.0, 2.0]


def test_saved_value_survives_a_change_through_the_gradient() -> None:
    x = leaf(1.0, 2.0)
    y = x * 1.0
    y.retain_grad()
    (y + x).sum().backward()
    y.grad[0] = 50.0
    assert x.grad.tolist() == [2.0, 2.0]


# Types stay


@pytest.mark.parametrize("other", [weft.ones((3, 2)), weft.ones((2, 2))])
def test_change_must_keep_the_shape(other: Any) -> None:
    x = weft.tensor([1.0, 2.0])
    with pytest.raises(ShapeError):
        x += other
    assert x.tolist() == [1.0, 2.0]


def test_change_must_keep_the_dtype() -> None:
    x = weft.tensor([1, 2])
    with pytest.raises(DtypeError):
        x += 0.5
    assert (x.tolist(), x.dtype) == ([1, 2], weft.int64)


def test_data_must_be_a_tensor_of_the_same_type() -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(ShapeError, match=r"must be a tensor of type f32\[2\], got f32\[3\]"):
        x.data = weft.ones(3)
    with pytest.raises(weft.errors.ArgumentError, match="must be a tensor, got list"):
        x.data = [1.0, 2.0]  # type: ignore[assignment]
    assert x.tolist() == [1.0, 2.0]


def test_detach_in_place_cuts_the_tensor_itself() -> None:
    x = leaf(2.0)
    y = x * x
    assert y.detach_() is y
    assert (y.requires_grad, y.is_leaf, y.tolist()) == (False, True, [4.0])


# Copies


def test_copy_of_a_leaf_is_a_leaf_of_its_own() -> None:
    x = leaf(1.0, 2.0)
    y = copy.copy(x)
    (x * 2.0 + y * 3.0).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([2.0, 2.0], [3.0, 3.0])


def test_copy_of_a_result_is_at_the_same_place_in_the_graph() -> None:
    x = leaf(1.0, 2.0)
    y = x * 2.0
    z = copy.copy(y)
    assert z.grad_fn is y.grad_fn
    z.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_deep_copy_carries_the_gradient_and_is_for_leaves() -> None:
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    y = copy.deepcopy([x, x])
    assert y[0] is y[1]
    assert y[0] is not x
    assert (y[0].grad.tolist(), y[0].requires_grad) == ([2.0, 4.0], True)
    y[0].grad[0] = 0.0
    assert x.grad.tolist() == [2.0, 4.0]
    with pytest.raises(GradientError, match="must be a leaf"):
        copy.deepcopy(x * 2.0)


def test_pickle_keeps_value_and_requires_grad() -> None:
    x = pickle.loads(pickle.dumps(leaf(1.0, 2.0)))  # noqa: S301 - our own bytes
    assert (x.tolist(), x.requires_grad, x.is_leaf, x.grad) == ([1.0, 2.0], True, True, None)
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]
    with pytest.raises(GradientError, match="must be a leaf"):
        pickle.dumps(x * 2.0)


def test_clone_lets_the_gradient_through() -> None:
    x = leaf(1.0, 2.0)
    y = x.clone()
    y += 1.0
    (y * 3.0).sum().backward()
    assert (x.grad.tolist(), x.tolist()) == ([3.0, 3.0], [1.0, 2.0])


# The gradient as an attribute


def test_gradient_may_be_set_replaced_and_deleted() -> None:
    x = leaf(1.0, 2.0)
    x.grad = weft.tensor([5.0, 5.0])
    (x * 3.0).sum().backward()
    assert x.grad.tolist() == [8.0, 8.0]
    del x.grad
    assert x.grad is None


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (weft.ones(3), ShapeError),
        (weft.ones(2, dtype=weft.float64), ShapeError),
        ([1.0, 1.0], weft.errors.ArgumentError),
    ],
)
def test_gradient_must_be_of_the_type_of_the_tensor(value: Any, error: type[Exception]) -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(error):
        x.grad = value
    with pytest.raises(GradientError, match="its own gradient"):
        x.grad = x
    assert x.grad is None


def test_gradient_of_integers_cannot_be_set() -> None:
    with pytest.raises(DtypeError):
        weft.tensor([1, 2]).grad = weft.tensor([1, 2])

"""Brackets on tensors: random keys against NumPy, values and gradients; assignment never changes others."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from weft.errors import (
    ArgumentError,
    BoundsError,
    DomainError,
    DtypeError,
    GradientError,
    ShapeError,
    WeftError,
)

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
ROUNDS = examples(250, 80)


def _integers(draw: Any, size: int) -> Any:
    """An index array; those of one key mostly broadcast together, to (2, 3)."""
    shape = draw(st.sampled_from([(), (1,), (3,), (2, 1), (2, 3), (0,)]))
    dtype = draw(st.sampled_from(["int64", "int32", "uint8"]))
    values = st.integers(0 if dtype == "uint8" else -size, max(size - 1, 0))
    count = int(np.prod(shape))
    return np.array(draw(st.lists(values, min_size=count, max_size=count)), dtype).reshape(shape)


def _slice(draw: Any, size: int) -> slice:
    bound = st.none() | st.integers(-size - 2, size + 2)
    return slice(draw(bound), draw(bound), draw(st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3])))


def _mask(draw: Any, shape: tuple[int, ...]) -> Any:
    count = int(np.prod(shape))
    values = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return np.array(values, bool).reshape(shape)


@st.composite
def keys(draw: Any, shape: tuple[int, ...]) -> Any:
    """A key for an array of a shape; most are valid."""
    items: list[Any] = []
    axis, dots = 0, False
    while len(items) < 7:
        kind = draw(
            st.sampled_from(["stop", "int", "slice", "array", "list", "mask", "none", "dots", "bool"])
        )
        left = len(shape) - axis
        if kind == "stop":
            break
        if kind == "none":
            items.append(None)
        elif kind == "bool":
            items.append(draw(st.sampled_from([True, False, np.True_, np.array(True)])))
        elif kind == "dots" and not dots:
            skipped = draw(st.integers(0, left))
            items.append(Ellipsis)
            axis, dots = axis + skipped, True
        elif kind == "mask" and left:
            rank = draw(st.integers(1, min(left, 2)))
            items.append(_mask(draw, shape[axis : axis + rank]))
            axis += rank
        elif left and kind in ("int", "slice", "array", "list"):
            size = shape[axis]
            axis += 1
            if kind == "int":
                items.append(draw(st.integers(-size, max(size - 1, 0))))
            elif kind == "slice":
                items.append(_slice(draw, size))
            else:
                array = _integers(draw, size)
                items.append(array.tolist() if kind == "list" and array.ndim else array)
    return items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)


@st.composite
def arrays_and_keys(draw: Any) -> tuple[Any, Any]:
    shape = draw(SHAPES)
    array = np.random.default_rng(0).standard_normal(shape)
    return array, draw(keys(shape))


def as_key(key: Any) -> Any:
    """A key with tensors in place of arrays."""
    if isinstance(key, tuple):
        return tuple(map(as_key, key))
    return weft.tensor(key) if isinstance(key, np.ndarray) else key


def picked(array: Any, key: Any) -> Any:
    """For each element of array[key] its place in the flattened array, or None where NumPy refuses."""
    try:
        return np.asarray(np.arange(array.size).reshape(array.shape)[key])
    except IndexError:
        return None


@ROUNDS
@given(arrays_and_keys(), st.booleans(), st.booleans())
def test_getitem_takes_what_numpy_takes(case: tuple[Any, Any], recorded: bool, as_tensors: bool) -> None:
    array, key = case
    x = weft.tensor(array, requires_grad=recorded)
    where = picked(array, key)
    given_key = as_key(key) if as_tensors else key
    if where is None:
        with pytest.raises(WeftError):
            x[given_key]
        return
    out = x[given_key]
    assert out.dtype == x.dtype
    np.testing.assert_array_equal(out.detach().numpy(), array[key])


@ROUNDS
@given(arrays_and_keys())
def test_gradient_of_getitem_is_the_sum_over_its_uses(case: tuple[Any, Any]) -> None:
    array, key = case
    where = picked(array, key)
    assume(where is not None)
    g = np.random.default_rng(1).standard_normal(where.shape)
    x = weft.tensor(array, requires_grad=True)
    x[as_key(key)].backward(weft.tensor(g))
    expected = np.bincount(where.ravel(), g.ravel(), array.size)[: array.size].reshape(array.shape)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-12, atol=1e-12)


@st.composite
def assignments(draw: Any) -> tuple[Any, Any, Any]:
    """An array, a key, and values that broadcast to the place it names."""
    array, key = draw(arrays_and_keys())
    where = picked(array, key)
    assume(where is not None)
    shape = where.shape
    drop = draw(st.integers(0, len(shape)))
    shape = tuple(1 if draw(st.booleans()) and draw(st.booleans()) else s for s in shape[drop:])
    return array, key, np.random.default_rng(2).standard_normal(shape)


def assigned(array: Any, where: Any, values: Any) -> Any:
    """array with values at flat places, written one after the other."""
    out = array.reshape(-1).copy()
    for place, value in zip(where.ravel(), np.broadcast_to(values, where.shape).ravel(), strict=True):
        out[place] = value
    return out.reshape(array.shape)


@ROUNDS
@given(assignments(), st.sampled_from(["in place", "shared", "recorded", "recorded value"]))
def test_setitem_writes_what_numpy_writes(case: tuple[Any, Any, Any], how: str) -> None:
    array, key, values = case
    x = weft.tensor(array, requires_grad=how == "recorded")
    x = x * 1 if how == "recorded" else x
    other = x.clone() if how == "shared" else None
    x[as_key(key)] = weft.tensor(values, requires_grad=how == "recorded value")
    expected = assigned(array, picked(array, key), values)
    np.testing.assert_array_equal(x.detach().numpy(), expected)
    assert x.dtype == weft.float64
    if other is not None:
        np.testing.assert_array_equal(other.numpy(), array)


@ROUNDS
@given(assignments())
def test_gradient_of_setitem_goes_to_what_was_written_last(case: tuple[Any, Any, Any]) -> None:
    array, key, values = case
    where = picked(array, key)
    x, v = weft.tensor(array, requires_grad=True), weft.tensor(values, requires_grad=True)
    y = x * 1
    y[as_key(key)] = v
    g = np.random.default_rng(3).standard_normal(array.shape)
    y.backward(weft.tensor(g))
    numbers = np.arange(where.size).reshape(where.shape)
    last = assigned(np.full(array.shape, -1), where, numbers).reshape(-1)
    kept = np.where(last.reshape(array.shape) < 0, g, 0)
    np.testing.assert_array_equal(np.zeros(array.shape) if x.grad is None else x.grad.numpy(), kept)
    taken = np.where(last[where] == numbers, g.reshape(-1)[where], 0)
    lead = taken.ndim - values.ndim
    ones = tuple(lead + i for i, s in enumerate(values.shape) if s == 1)
    expected = taken.sum(axis=(*range(lead), *ones)).reshape(values.shape)
    np.testing.assert_allclose(v.grad.numpy(), expected, rtol=1e-12, atol=1e-12)


# Assignment gives a tensor a new value and leaves others alone


def test_setitem_writes_in_place_when_nobody_shares_the_data() -> None:
    x = weft.zeros(1_000_000)
    x[0] = 1.0
    tracemalloc.start()
    for i in range(100):
        x[i] = 2.0
        x[i : i + 2] = weft.ones(2)
        x[weft.tensor([i, i + 1])] = 3.0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert float(x[99]) == 3.0


@pytest.mark.parametrize(
    "copy",
    [lambda x: x.clone(), lambda x: x.flip(0), lambda x: x[[0, 1, 2, 3, 4, 5]]],
)
def test_setitem_does_not_change_copies(copy: Any) -> None:
    x = weft.arange(6.0)
    other = copy(x)
    before = other.numpy().copy()
    x[2:4] = 100.0
    np.testing.assert_array_equal(other.numpy(), before)
    assert x.tolist() == [0, 1, 100, 100, 4, 5]
    y = weft.arange(6.0)
    other = copy(y)
    other[...] = -1.0
    assert y.tolist() == [0, 1, 2, 3, 4, 5]


def test_setitem_does_not_change_the_numpy_array_it_came_from() -> None:
    array = np.arange(3.0)
    x = weft.asarray(array)
    x[0] = 5.0
    assert array.tolist() == [0, 1, 2]
    back = x.numpy()
    x[1] = 7.0
    assert back.tolist() == [5, 1, 2]


def test_setitem_does_not_change_values_saved_for_backward() -> None:
    w = weft.tensor([2.0, 3.0], requires_grad=True)
    x = weft.tensor([5.0, 7.0])
    y = (w * x).sum()
    x[0] = 100.0
    y.backward()
    assert w.grad.tolist() == [5, 7]


def test_setitem_on_an_overlapping_part_of_itself_reads_before_it_writes() -> None:
    x = weft.arange(5)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3]


def test_setitem_of_a_leaf_that_requires_grad_is_an_error_while_recording() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(GradientError, match="leaf"):
        x[0] = 5.0
    assert x.tolist() == [1, 2]
    with weft.no_grad():
        x[0] = 5.0
    assert x.tolist() == [5, 2]
    assert x.requires_grad


def test_setitem_casts_values_to_the_dtype_of_the_tensor() -> None:
    x = weft.zeros(3, dtype=weft.int32)
    x[0] = 2.7
    x[1] = weft.tensor(3.9)
    x[2] = np.float64(-1.5)
    assert x.tolist() == [2, 3, -1]
    assert x.dtype == weft.int32


def test_setitem_of_a_failed_assignment_leaves_the_tensor_as_it_was() -> None:
    x = weft.arange(6).reshape(2, 3)
    for key, value in (((0, 5), 1), (slice(None), [1, 2]), (weft.tensor([0, 9]), 1), (0, "a"), (0, 1j)):
        with pytest.raises(WeftError):
            x[key] = value  # type: ignore[assignment]
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_row_assigned_in_a_loop_collects_gradients() -> None:
    w = weft.tensor(2.0, requires_grad=True)
    out = weft.zeros(3)
    for i in range(3):
        out[i] = w**i
    out.sum().backward()
    assert float(w.grad) == 0 + 1 + 2 * 2


# Under transforms


def test_vmap_of_getitem_takes_a_different_row_for_each_example() -> None:
    x = weft.arange(24.0).reshape(2, 3, 4)
    i = weft.tensor([2, 0])
    assert weft.vmap(lambda a, k: a[k])(x, i).tolist() == [x[0, 2].tolist(), x[1, 0].tolist()]
    assert weft.vmap(lambda k: x[:, k])(i).tolist() == [x[:, 2].tolist(), x[:, 0].tolist()]
    assert weft.vmap(lambda a: a[1, ::2])(x).tolist() == x[:, 1, ::2].tolist()


def test_vmap_of_setitem_makes_an_unbatched_tensor_a_batch() -> None:
    def place(v: Any, k: Any) -> Any:
        x = weft.zeros(3)
        x[k] = v
        return x

    out = weft.vmap(place)(weft.tensor([1.0, 2.0]), weft.tensor([0, 2]))
    assert out.tolist() == [[1, 0, 0], [0, 0, 2]]


def test_setitem_with_a_mask_inside_vmap_is_a_where() -> None:
    def clipped(row: Any) -> Any:
        row = row * 1
        row[row > 1] = 1.0
        return row

    assert weft.vmap(clipped)(weft.tensor([[0.0, 2.0], [3.0, 0.5]])).tolist() == [[0, 1], [1, 0.5]]


def test_second_derivative_through_getitem_and_setitem() -> None:
    def f(x: Any) -> Any:
        y = x * x
        y[0] = x[1] ** 3
        return (y[weft.tensor([0, 0, 2])] * x[0]).sum()

    x = weft.tensor([2.0, 3.0, 5.0], dtype=weft.float64)
    # f = x0 (2 x1^3 + x2^2)
    expected = [[0, 6 * 9, 2 * 5], [6 * 9, 12 * 3 * 2, 0], [2 * 5, 0, 2 * 2]]
    np.testing.assert_allclose(weft.hessian(f)(x).numpy(), expected)


# Errors

X = np.zeros((2, 3))
KINDS = "must be integers, slices, None, ... or integer or bool tensors"
LENGTHS = "shapes must broadcast together, got i64[2] and i64[3] (2 vs 3 on axis 0)"


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        (2, BoundsError, "index must be in -2..1 for axis 0 of size 2, got 2"),
        ((slice(None), -4), BoundsError, "index must be in -3..2 for axis 1 of size 3, got -4"),
        ((0, 0, 0), BoundsError, "there must be at most 2 indices for shape (2, 3), got 3"),
        (([0, 1], [0, 3]), BoundsError, "index must be in -3..2 for axis 1 of size 3, got 3"),
        ((slice(None), [-7]), BoundsError, "index must be in -3..2 for axis 1 of size 3, got -7"),
        (1.5, ArgumentError, f"{KINDS}, got 1.5"),
        ("a", ArgumentError, f"{KINDS}, got 'a'"),
        (np.zeros(2), DtypeError, f"{KINDS}, got float64"),
        ((..., ...), ArgumentError, "there must be at most one ..., got more"),
        (slice(None, None, 0), DomainError, "the step of a slice must not be 0"),
        (slice("a"), ArgumentError, "the bounds of a slice must be ints or None, got slice(None, 'a', None)"),
        (np.array([True]), BoundsError, "a mask must have the shape (2,) of the axes it covers, got bool[1]"),
        (([0, 1], [0, 1, 2]), ShapeError, LENGTHS),
    ],
)
def test_a_bad_key_is_named(key: Any, error: type[Exception], text: str, requires_grad: bool) -> None:
    x = weft.tensor(X, requires_grad=requires_grad)
    with pytest.raises(error) as caught:
        x[as_key(key)]
    assert str(caught.value).splitlines()[0] == f"index: {text}"
    y = x * 1
    with pytest.raises(error) as caught:
        y[as_key(key)] = 1.0
    assert str(caught.value).splitlines()[0] == f"index: {text}"


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(
    ("key", "value", "error", "text"),
    [
        (0, [1.0, 2.0], ShapeError, "setitem: values must broadcast to shape (3,), got f64[2]"),
        (
            ([0, 1], 0),
            np.ones((3, 2)),
            ShapeError,
            "setitem: values must broadcast to shape (2,), got f64[3,2]",
        ),
        (0, "a", DtypeError, "setitem: float64 must be able to hold the value, got 'a'"),
        (0, 1j, DtypeError, "setitem: float64 must be able to hold the value, got 1j"),
    ],
)
def test_a_bad_value_is_named(
    key: Any, value: Any, error: type[Exception], text: str, requires_grad: bool
) -> None:
    x = weft.tensor(X, requires_grad=requires_grad) * 1
    with pytest.raises(error) as caught:
        x[key] = value
    assert str(caught.value).splitlines()[0] == text


def test_index_out_of_bounds_of_gather_and_scatter_is_named() -> None:
    x, i = weft.zeros((2, 3)), weft.tensor([[0, 3]])
    for call in (lambda: weft.gather(x, 1, i), lambda: weft.scatter_add(x, 1, i, weft.ones((1, 2)))):
        with pytest.raises(BoundsError, match=r"must be in -3\.\.2 for axis 1 of size 3, got 3"):
            call()


def test_unpacking_and_iterating_give_rows() -> None:
    a, b = weft.tensor([[1, 2], [3, 4]])
    assert (a.tolist(), b.tolist()) == ([1, 2], [3, 4])
    assert [int(v) for v in a] == [1, 2]
    with pytest.raises(ArgumentError, match="0-d"):
        iter(weft.tensor(1.0))


JOINED = [
    lambda x, i: x[i, 0],
    lambda x, i: x[-1, i],
    lambda x, i: x[i, :, -2],
    lambda x, i: x[1, None, i],
    lambda x, i: x[..., i, 1],
    lambda x, i: x[i, 0, 1],
]


@pytest.mark.parametrize("select", JOINED)
def test_known_and_unknown_indices_select_what_numpy_does(select: Any) -> None:
    x = np.arange(27.0).reshape(3, 3, 3)
    graph = weft.make_graph(select)(weft.tensor(x), weft.tensor(1))
    for i in (0, 2, -1):
        np.testing.assert_array_equal(weft.compile(select)(weft.tensor(x), weft.tensor(i)), select(x, i))
    assert "slice" not in {node.op.name for node in graph.nodes}


def test_assignment_at_a_known_and_an_unknown_index_writes_one_element() -> None:
    def change(x: Any, i: Any) -> Any:
        x[i, -1] += 5.0
        return x

    graph = weft.make_graph(change)(weft.zeros((3, 4)), weft.tensor(1))
    assert [node.op.name for node in graph.nodes] == ["gather", "add", "scatter"]
    out = weft.compile(change)(weft.zeros((3, 4)), weft.tensor(-1))
    assert out.sum().item() == out[2, 3].item() == 5.0

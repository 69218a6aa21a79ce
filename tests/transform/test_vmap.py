from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.errors import ArgumentError, AxisError, DomainError, GradientError, ShapeError
from weft.testing import assert_close, check_vmap


class Pair(NamedTuple):
    left: Any
    right: Any


def array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def tensor(*shape: int, seed: int = 0) -> weft.Tensor:
    return weft.tensor(array(*shape, seed=seed))


# Values


def test_sees_one_example() -> None:
    seen = []

    def f(x: Any) -> Any:
        seen.append((x.shape, x.ndim, x.size, x.dtype, len(x)))
        return x.sum()

    x = array(5, 3, 2)
    assert_close(weft.vmap(f)(weft.tensor(x)), x.sum(axis=(1, 2)))
    assert seen == [((3, 2), 2, 6, weft.float64, 3)]


@pytest.mark.parametrize("in_axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("out_axis", [0, 1, -1, -2])
def test_axes_of_examples(in_axis: int, out_axis: int) -> None:
    x = array(2, 3, 4)
    expected = np.moveaxis(np.moveaxis(x, in_axis, 0) * 2, 0, out_axis)
    assert_close(weft.vmap(lambda a: a * 2.0, in_axes=in_axis, out_axes=out_axis)(weft.tensor(x)), expected)


def test_arguments_that_are_the_same_for_all_examples() -> None:
    x, y = array(4, 3), array(3)
    f = weft.vmap(lambda a, b: (a * b).sum(), in_axes=(0, None))
    assert_close(f(weft.tensor(x), weft.tensor(y)), x @ y)
    assert_close(f(weft.tensor(x), 2.0), x.sum(axis=1) * 2)


def test_argument_may_be_anything_where_it_is_not_mapped() -> None:
    x = tensor(4, 3)
    out = weft.vmap(lambda a, op, k: op(a) * k["scale"], in_axes=(0, None, None))(x, weft.exp, {"scale": 2})
    assert_close(out, np.exp(x.numpy()) * 2)


def test_keywords_are_the_same_for_all_examples() -> None:
    x, y = array(4, 3), array(4)
    out = weft.vmap(lambda a, *, b, scale=1.0: (a.sum() + b) * scale)(
        weft.tensor(x), b=weft.tensor(y), scale=3.0
    )
    assert_close(out, (x.sum(axis=1)[:, None] + y) * 3)


def test_arrays_are_taken_as_tensors() -> None:
    x = array(4, 3)
    assert_close(weft.vmap(lambda a: a.sum())(x), x.sum(axis=1))


def test_axes_as_trees() -> None:
    x, y, z = array(4, 3), array(3, 4), array(3)

    def f(d: Any, pair: Pair) -> Any:
        return {"sum": d["x"] + d["list"][0] + pair.left, "pair": Pair(d["x"].sum(), pair.right)}

    out = weft.vmap(
        f,
        in_axes=({"x": 0, "list": 1}, Pair(None, None)),
        out_axes={"sum": 1, "pair": Pair(0, None)},
    )({"x": weft.tensor(x), "list": [weft.tensor(y)]}, Pair(weft.tensor(z), weft.tensor(z)))
    assert_close(out["sum"], (x + y.T + z).T)
    assert_close(out["pair"].left, x.sum(axis=1))
    assert_close(out["pair"].right, z)
    assert type(out["pair"]) is Pair


def test_result_that_is_the_same_for_all_examples_is_repeated() -> None:
    x, y = tensor(4, 3), tensor(2)
    out, constant = weft.vmap(lambda a: (y * 2.0, weft.tensor(1)), out_axes=(1, 0))(x)
    assert_close(out, np.repeat(y.numpy()[:, None] * 2, 4, axis=1))
    assert_close(constant, np.ones(4, np.int64))
    assert_close(weft.vmap(lambda a: y, out_axes=None)(x), y)


@pytest.mark.parametrize("size", [0, 1])
def test_batches_of_none_and_one(size: int) -> None:
    x = array(size, 3)

    def f(a: Any) -> Any:
        return {"exp": weft.exp(a).sum(), "matrix": a.reshape((3, 1)) @ a.reshape((1, 3))}

    out = weft.vmap(f)(weft.tensor(x))
    assert_close(out, {"exp": np.exp(x).sum(axis=1), "matrix": x[:, :, None] * x[:, None, :]})
    assert weft.vmap(weft.grad(lambda a: (a * a).sum()))(weft.tensor(x)).shape == (size, 3)


@pytest.mark.parametrize("outer", [0, 1, 2])
@pytest.mark.parametrize("inner", [0, 1, None])
def test_vmap_of_vmap_with_different_axes(outer: int, inner: int | None) -> None:
    x, y = array(2, 3, 4), array(2, 3, 4, seed=1)
    f = weft.vmap(
        weft.vmap(lambda a, b: (a * b).sum(), in_axes=(0, inner))
        if inner is not None
        else lambda a, b: (a * b).sum(),
        in_axes=(outer, outer),
    )
    left, right = np.moveaxis(x, outer, 0), np.moveaxis(y, outer, 0)
    if inner is None:
        expected = (left * right).sum(axis=(1, 2))
        assert_close(f(weft.tensor(x), weft.tensor(y)), expected)
        return
    if left.shape[1] != np.moveaxis(right, inner + 1, 1).shape[1]:
        with pytest.raises(ShapeError, match="as many examples"):
            f(weft.tensor(x), weft.tensor(y))
        return
    assert_close(f(weft.tensor(x), weft.tensor(y)), (left * np.moveaxis(right, inner + 1, 1)).sum(axis=2))


def test_outer_product_by_two_levels() -> None:
    x, y = array(3), array(4)
    f = weft.vmap(weft.vmap(lambda a, b: a * b, in_axes=(None, 0)), in_axes=(0, None))
    assert_close(f(weft.tensor(x), weft.tensor(y)), np.outer(x, y))
    g = weft.vmap(weft.vmap(lambda a, b: a * b, in_axes=(0, None), out_axes=0), in_axes=(None, 0), out_axes=1)
    assert_close(g(weft.tensor(x), weft.tensor(y)), np.outer(x, y))


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 5, 100])
def test_chunks_give_the_same(chunk_size: int) -> None:
    x, y = tensor(5, 3), tensor(3, 5)

    def f(a: Any, b: Any) -> Any:
        return {"product": (a * b).sum(), "constant": weft.tensor(2.0), "both": a + b}

    options: Any = {"in_axes": (0, 1), "out_axes": {"product": 0, "constant": None, "both": -1}}
    assert_close(weft.vmap(f, **options, chunk_size=chunk_size)(x, y), weft.vmap(f, **options)(x, y))


def test_broadcasting_between_examples_of_different_rank() -> None:
    check_vmap(lambda a, b: a + b, (tensor(4), tensor(4, 3, 2)))
    check_vmap(lambda a, b: a * b, (tensor(4, 3, 1), tensor(4, 2)))
    check_vmap(lambda a, b: a * b, (tensor(4, 2), tensor(5, 4, 1, 2)), (0, 1))
    check_vmap(lambda a: a + tensor(5, 3), (tensor(4, 3),))
    check_vmap(lambda a: tensor(5, 3) - a, (tensor(4),))


def test_choice_by_where() -> None:
    x = tensor(6)
    assert_close(weft.vmap(lambda a: weft.where(a > 0.0, a, -a))(x), np.abs(x.numpy()))


def test_method_and_callable_object() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        def __call__(self, x: Any) -> Any:
            return x * self.by

        def apply(self, x: Any) -> Any:
            return self(x)

    x = tensor(4, 3)
    assert_close(weft.vmap(Scale(2.0))(x), x * 2.0)
    assert_close(weft.vmap(Scale(2.0).apply)(x), x * 2.0)


# Indexing


def test_item_is_set_inside() -> None:
    x = array(4, 3)

    def f(a: Any) -> Any:
        a[1] = a[0] * 10.0
        b = weft.zeros(3, dtype=weft.float64)
        b[2] = a.sum()
        return a, b

    given = weft.tensor(x)
    changed, made = weft.vmap(f)(given)
    expected = x.copy()
    expected[:, 1] = x[:, 0] * 10
    assert_close(changed, expected)
    assert_close(made[:, 2], expected.sum(axis=1))
    assert_close(given, x)  # the caller's tensor is another one


def test_indices_may_be_batched() -> None:
    x, i = array(4, 5), np.array([3, 0, -1, 2])
    rows = np.arange(4)
    assert_close(weft.vmap(lambda a, k: a[k])(weft.tensor(x), weft.tensor(i)), x[rows, i])
    assert_close(weft.vmap(lambda a, k: a[k], in_axes=(None, 0))(weft.tensor(x[0]), weft.tensor(i)), x[0][i])
    many = np.array([[0, 1], [2, 2], [4, 3], [1, 1]])
    assert_close(weft.vmap(lambda a, k: a[k])(weft.tensor(x), weft.tensor(many)), x[rows[:, None], many])

    def put(a: Any, k: Any) -> Any:
        a[k] = 0.0
        return a

    expected = x.copy()
    expected[rows, i] = 0
    assert_close(weft.vmap(put)(weft.tensor(x), weft.tensor(i)), expected)


def test_slices_and_new_axes() -> None:
    check_vmap(lambda a: (a[0], a[:, 1], a[..., None], a[1:, ::-1], a[None]), (tensor(4, 3, 2),))


# Randomness


def test_draws_must_be_said_to_be_same_or_different() -> None:
    x = tensor(3, 2)
    with pytest.raises(DomainError, match=r"vmap: what a random draw does .* randomness='error'"):
        weft.vmap(lambda a: a + weft.rand(2))(x)


def test_same_draw_for_all_examples() -> None:
    weft.manual_seed(0)
    drawn = weft.vmap(lambda a: a * 0.0 + weft.rand(2), randomness="same")(weft.zeros((3, 2)))
    weft.manual_seed(0)
    assert_close(drawn, np.tile(weft.rand(2).numpy(), (3, 1)))


def test_different_draw_for_each_example() -> None:
    drawn = weft.vmap(lambda a: a * 0.0 + weft.rand(2), randomness="different")(weft.zeros((3, 2))).numpy()
    assert len(np.unique(drawn)) == 6
    nested = weft.vmap(
        weft.vmap(lambda a: a + weft.rand(()), randomness="different"), randomness="different"
    )(weft.zeros((3, 2)))
    assert len(np.unique(nested.numpy())) == 6
    inner = weft.vmap(weft.vmap(lambda a: a + weft.rand(()), randomness="same"), randomness="different")
    assert len(np.unique(inner(weft.zeros((3, 2))).numpy())) == 3
    outer = weft.vmap(weft.vmap(lambda a: a + weft.rand(()), randomness="different"), randomness="same")
    assert len(np.unique(outer(weft.zeros((3, 2))).numpy())) == 2


def test_draw_from_a_key_of_each_example() -> None:
    keys = weft.random.split(weft.random.key(0), 3)
    drawn = weft.vmap(lambda k: weft.random.normal(k, (4,)))(keys)
    assert_close(drawn, np.stack([weft.random.normal(k, (4,)).numpy() for k in keys]))


def test_draws_outside_are_as_before_after_an_error_inside() -> None:
    with pytest.raises(DomainError):
        weft.vmap(lambda a: a + weft.rand(2))(tensor(3, 2))
    assert weft.rand(2).shape == (2,)


# Errors


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x: weft.vmap(lambda a, b: a)(x, {"w": [x.sum(axis=0)]}),
            ShapeError,
            r"vmap: all arguments must have as many examples, got 3 in argument 0 \(f64\[3,4\], axis 0\) and "
            r"4 in argument 1\['w'\]\[0\] \(f64\[4\], axis 0\)",
        ),
        (lambda x: weft.vmap(lambda a, b: a)(x, 2.0), ShapeError, "argument 1 must have an axis of examples"),
        (lambda x: weft.vmap(lambda a, b: a)(x, "s"), ArgumentError, "argument 1 must be a tensor, got str"),
        (
            lambda x: weft.vmap(lambda a: a, in_axes=2)(x),
            AxisError,
            r"in_axes must name an axis of argument 0, got 2 for f64\[3,4\]",
        ),
        (
            lambda x: weft.vmap(lambda a: a, in_axes=(0, 0))(x),
            ArgumentError,
            "in_axes must have one item for each argument, got 2 for 1",
        ),
        (lambda x: weft.vmap(lambda a: a, in_axes=None)(x), ArgumentError, "got none"),
        (lambda x: weft.vmap(lambda: weft.tensor(1.0))(), ArgumentError, "got none"),
        (lambda x: weft.vmap(lambda a: a, in_axes=True)(x), ArgumentError, "must be made of ints and None"),
        (lambda x: weft.vmap(lambda a: a, in_axes="0")(x), ArgumentError, "must be made of ints and None"),
        (
            lambda x: weft.vmap(lambda a: a["b"], in_axes=({"a": 0},))({"b": x}),
            ArgumentError,
            r"only in the first: \['a'\]; only in the second: \['b'\]",
        ),
        (
            lambda x: weft.vmap(lambda a: {"b": a}, out_axes=2)(x),
            AxisError,
            r"out_axes must be in -2\.\.1 for result\['b'\] of f64\[4\], got 2",
        ),
        (lambda x: weft.vmap(lambda a: a, out_axes=None)(x), AxisError, "out_axes may be None only"),
        (lambda x: weft.vmap(lambda a: a, out_axes=(0, 0))(x), ArgumentError, "tuple of 2 and Tensor"),
        (
            lambda x: weft.vmap(lambda a: (a, 1.0))(x),
            ArgumentError,
            r"must return tensors, got float at \[1\]",
        ),
        (lambda x: weft.vmap(lambda a: None)(x), ArgumentError, "must return tensors, got None"),
        (lambda x: weft.vmap(3), ArgumentError, "must be given a function, got int"),
        (lambda x: weft.vmap(lambda a: a, randomness="no")(x), DomainError, "randomness must be one of"),
        (lambda x: weft.vmap(lambda a: a, chunk_size=0)(x), DomainError, "chunk_size must be at least 1"),
        (lambda x: weft.vmap(lambda a: a if a.sum() > 0.0 else -a)(x), GradientError, "bool: .* inside vmap"),
        (lambda x: weft.vmap(lambda a: a.sum().item())(x), GradientError, "item: .* inside vmap"),
        (lambda x: weft.vmap(lambda a: float(a.sum()))(x), GradientError, "float: .* inside vmap"),
        (lambda x: weft.vmap(lambda a: a.numpy())(x), GradientError, "numpy: .* inside vmap"),
        (lambda x: weft.vmap(lambda a: a.tolist())(x), GradientError, "tolist: .* inside vmap"),
        (lambda x: weft.vmap(lambda a: np.asarray(a))(x), GradientError, "numpy: .* inside vmap"),
    ],
)
def test_mistake_is_reported_in_terms_of_vmap(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(tensor(3, 4))


def test_shapes_in_errors_are_those_of_one_example() -> None:
    with pytest.raises(ShapeError, match=r"add: shapes must broadcast together, got f64\[3\] and f64\[2\]"):
        weft.vmap(lambda a, b: a + b)(tensor(4, 3), tensor(4, 2))


def test_escaped_tensor_is_noticed() -> None:
    kept: list[Any] = []
    weft.vmap(lambda a: kept.append(a) or a)(tensor(3, 4))  # type: ignore[func-returns-value]
    with pytest.raises(GradientError, match="tensors of a vmap must not be used after it ended"):
        kept[0] * 2.0
    assert "inside vmap" in repr(kept[0])


# Against loops, at random


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_axes_equal_a_loop(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 3))
    shapes = [data.draw(st.lists(st.integers(1, 3), min_size=0, max_size=2)) for _ in range(2)]
    axes: list[int | None] = []
    args = []
    for k, shape in enumerate(shapes):
        batched = k == 0 or data.draw(st.booleans())
        axis = data.draw(st.integers(-len(shape) - 1, len(shape))) if batched else None
        full = list(shape)
        if axis is not None:
            full.insert(axis % (len(shape) + 1), size)
        axes.append(axis)
        args.append(tensor(*full, seed=k))

    def f(a: Any, b: Any) -> Any:
        return weft.tanh(a).sum() * b, weft.exp(a)

    check_vmap(f, tuple(args), tuple(axes))

"""``autograd.grad`` and ``backward``: several outputs and inputs, seeds, accumulation, what is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, DtypeError, FreedGraphError, GradientError, ShapeError

grad = weft.autograd.grad


def leaf(*values: float) -> weft.Tensor:
    return weft.tensor(list(values), requires_grad=True)


def test_grad_returns_a_tuple_and_leaves_every_grad_as_it_was() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    middle = x * y
    middle.retain_grad()
    out = grad(middle.sum(), [x, y])
    assert [g.tolist() for g in out] == [[3.0, 4.0], [1.0, 2.0]]
    assert (x.grad, y.grad, middle.grad) == (None, None, None)
    assert not out[0].requires_grad


def test_grad_sums_over_outputs() -> None:
    x = leaf(2.0)
    (g,) = grad([x * x, x * 3.0], x)
    assert g.tolist() == [7.0]


def test_grad_weighs_outputs_by_their_gradients() -> None:
    x = leaf(1.0, 2.0)
    (g,) = grad([x * x, x * 3.0], x, [weft.tensor([1.0, 10.0]), weft.tensor([1.0, 1.0])])
    assert g.tolist() == [5.0, 43.0]


def test_grad_takes_none_among_the_gradients_of_outputs() -> None:
    x = leaf(2.0)
    (g,) = grad([(x * x).sum(), x * 3.0], x, [None, weft.tensor([10.0])])
    assert g.tolist() == [34.0]


def test_grad_of_the_same_input_twice_gives_it_twice() -> None:
    x = leaf(2.0)
    a, b = grad(x * x, [x, x])
    assert a.tolist() == b.tolist() == [4.0]


def test_grad_of_an_output_by_itself_is_its_seed() -> None:
    x = leaf(2.0)
    y = x * x
    by_y, by_x = grad(y, [y, x], weft.tensor([3.0]))
    assert (by_y.tolist(), by_x.tolist()) == ([3.0], [12.0])


def test_grad_of_an_output_that_feeds_another_counts_both_ways() -> None:
    x = leaf(2.0)
    y = x * x
    z = y * 3.0
    (by_y,) = grad([z, y], y)
    assert by_y.tolist() == [4.0]


def test_grad_of_a_leaf_by_itself_is_its_seed() -> None:
    x = leaf(2.0)
    assert grad(x, x)[0].tolist() == [1.0]


def test_grad_by_non_leaves_stops_there() -> None:
    x = leaf(2.0)
    y = x * x
    z = weft.exp(y)
    (by_y,) = grad(z.sum(), y)
    assert by_y.tolist() == pytest.approx(np.exp([4.0]).tolist(), rel=1e-6)
    y.backward()  # the part below y is still there
    assert x.grad.tolist() == [4.0]


def test_grad_by_a_non_leaf_and_its_input_runs_through_both() -> None:
    x = leaf(2.0)
    y = x * x
    by_y, by_x = grad((y * y).sum(), [y, x])
    assert (by_y.tolist(), by_x.tolist()) == ([8.0], [32.0])


def test_grad_by_outputs_of_one_node_with_several() -> None:
    x = weft.tensor([[2.0, 0.0], [0.0, 3.0]], requires_grad=True)
    values, vectors = weft.linalg.eigh(x)
    assert values.grad_fn is vectors.grad_fn
    by_values, by_vectors = grad((values * values).sum() + vectors.sum(), [values, vectors])
    assert (by_values.tolist(), by_vectors.tolist()) == ([4.0, 6.0], [[1.0, 1.0], [1.0, 1.0]])


def test_unused_input_is_an_error_that_names_it() -> None:
    x, y = leaf(1.0), leaf(1.0, 2.0)
    with pytest.raises(GradientError, match=r"got input 1 of type f32\[2\]") as caught:
        grad(x * x, [x, y])
    assert "allow_unused=True" in str(caught.value)


def test_unused_input_may_give_none_or_zeros() -> None:
    x, y = leaf(1.0), leaf(1.0, 2.0)
    assert grad(x * x, [x, y], allow_unused=True)[1] is None
    assert grad(x * x, [x, y], materialize_grads=True)[1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("create_graph", [False, True])
def test_graph_is_freed_unless_retained(create_graph: bool) -> None:
    x = leaf(2.0)
    y = x * x
    grad(y, x, create_graph=create_graph)
    if create_graph:
        assert grad(y, x)[0].tolist() == [4.0]
    else:
        with pytest.raises(FreedGraphError):
            grad(y, x)


def test_retain_graph_false_frees_though_a_graph_is_created() -> None:
    x = leaf(2.0)
    y = x * x
    (g,) = grad(y, x, create_graph=True, retain_graph=False)
    assert grad(g, x)[0].tolist() == [2.0]
    with pytest.raises(FreedGraphError):
        grad(y, x)


def test_backward_of_several_tensors_accumulates_their_sum() -> None:
    x = leaf(2.0)
    weft.autograd.backward([x * x, x * 3.0], [None, weft.tensor([10.0])])
    assert x.grad.tolist() == [34.0]


def test_backward_into_inputs_leaves_other_leaves_alone() -> None:
    x, w = leaf(2.0), leaf(5.0)
    (x * w).sum().backward(inputs=[x])
    assert (x.grad.tolist(), w.grad) == ([5.0], None)


def test_backward_into_inputs_reaches_non_leaves() -> None:
    x = leaf(2.0)
    y = x * x
    (y * 3.0).sum().backward(inputs=[y, y])
    assert (y.grad.tolist(), x.grad) == ([3.0], None)


def test_backward_into_inputs_ignores_one_that_is_not_reached() -> None:
    x, w = leaf(2.0), leaf(5.0)
    (x * x).sum().backward(inputs=[x, w])
    assert (x.grad.tolist(), w.grad) == ([4.0], None)


def test_backward_on_a_leaf_adds_the_seed() -> None:
    x = leaf(2.0)
    x.backward()
    x.backward(weft.tensor([4.0]))
    assert x.grad.tolist() == [5.0]


def test_gradients_accumulate_over_calls() -> None:
    x = leaf(3.0)
    for _ in range(3):
        (x * x).sum().backward()
    assert x.grad.tolist() == [18.0]
    x.zero_grad()
    (x * x).sum().backward()
    assert x.grad.tolist() == [6.0]


def test_gradient_that_the_user_holds_does_not_change_as_more_accumulates() -> None:
    x = leaf(3.0)
    (x * x).sum().backward()
    held = x.grad
    (x * x).sum().backward()
    assert (held.tolist(), x.grad.tolist()) == ([6.0], [12.0])
    assert held is not x.grad


def test_changing_the_gradient_in_place_changes_what_the_next_backward_adds_to() -> None:
    x = leaf(3.0)
    (x * x).sum().backward()
    x.grad *= 0.0  # type: ignore[assignment]
    (x * x).sum().backward()
    assert x.grad.tolist() == [6.0]


def test_two_leaves_of_one_sum_do_not_share_their_gradient() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (x + y).sum().backward()
    x.grad[0] = 7.0
    assert y.grad.tolist() == [1.0, 1.0]


def test_gradient_does_not_share_memory_with_the_array_it_was_seeded_from() -> None:
    x = leaf(1.0, 2.0)
    seed = np.array([1.0, 1.0], np.float32)
    (x + 1.0).backward(seed)
    seed[:] = 9.0
    assert x.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("seed", "error"),
    [
        (weft.ones(3), ShapeError),
        (weft.ones((1, 2)), ShapeError),
        (weft.tensor([1j, 1j]), DtypeError),
        ("one", ArgumentError),
        (object(), ArgumentError),
    ],
)
def test_wrong_seed_is_an_error(seed: Any, error: type[Exception]) -> None:
    x = leaf(1.0, 2.0)
    y = x * x
    with pytest.raises(error):
        y.backward(seed)
    assert x.grad is None
    y.sum().backward()  # nothing was freed
    assert x.grad.tolist() == [2.0, 4.0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", [[1.0, 2.0], (1, 2), np.array([1, 2]), weft.tensor([1, 2])])
def test_seed_may_be_anything_that_becomes_the_type_of_the_output(seed: Any) -> None:
    x = leaf(1.0, 1.0)
    (x * 1.0).backward(seed)
    assert x.grad.tolist() == [1.0, 2.0]


def test_one_element_needs_no_seed_whatever_its_rank() -> None:
    x = weft.tensor([[[2.0]]], requires_grad=True)
    (x * x).backward()
    assert x.grad.tolist() == [[[4.0]]]


def test_complex_output_needs_a_seed() -> None:
    z = weft.tensor(1.0 + 2.0j, requires_grad=True)
    with pytest.raises(GradientError, match="complex"):
        (z * z).backward()
    (z * z).backward(weft.tensor(1.0 + 0.0j))
    assert z.grad.item() == pytest.approx(2.0 - 4.0j)


def test_gradient_of_a_gradient_tensor_flows_through_the_seed() -> None:
    x, seed = leaf(3.0), leaf(2.0)
    (g,) = grad(x * x, x, seed, create_graph=True)
    (by_seed,) = grad(g, seed)
    assert by_seed.tolist() == [6.0]


def test_backward_with_create_graph_gives_gradients_with_a_graph() -> None:
    x = leaf(3.0)
    (x * x * x).sum().backward(create_graph=True)
    first = x.grad
    assert first.requires_grad
    x.grad = None
    first.sum().backward()
    assert x.grad.tolist() == [18.0]  # type: ignore[attr-defined]


def test_gradient_penalty_reaches_the_parameter() -> None:
    w, x = leaf(2.0), leaf(3.0)
    (g,) = grad((w * x * x).sum(), x, create_graph=True)  # 2 w x
    ((g * g).sum()).backward()
    assert w.grad.tolist() == [2 * 12.0 * 6.0]


def test_grad_of_frozen_leaf_stays_and_earlier_graphs_skip_it() -> None:
    x, w = leaf(2.0), leaf(3.0)
    (x * w).sum().backward()
    y = x * w
    x.requires_grad_(False)
    y.sum().backward()
    assert (x.grad.tolist(), w.grad.tolist()) == ([3.0], [4.0])
    assert x.requires_grad_().grad.tolist() == [3.0]


def test_graph_outlives_the_leaf_that_nobody_holds() -> None:
    w = leaf(3.0)
    y = leaf(2.0) * w
    y.backward()
    assert w.grad.tolist() == [2.0]


def test_dtype_of_the_gradient_is_that_of_the_leaf() -> None:
    x = weft.tensor([1.0, 2.0], dtype=weft.float16, requires_grad=True)
    y = weft.tensor([1.0, 2.0], dtype=weft.float64, requires_grad=True)
    (x * y).sum().backward()
    assert (x.grad.dtype, y.grad.dtype) == (weft.float16, weft.float64)

"""The worked examples of the dynamic graph, as people know them from lectures."""

from __future__ import annotations

import pytest

import weft


def leaf(value: float) -> weft.Tensor:
    return weft.tensor([value], requires_grad=True)


def product() -> tuple[weft.Tensor, ...]:
    """``y = (x + w) * (w + 1)`` at w = 1, x = 2."""
    w, x = leaf(1.0), leaf(2.0)
    a = weft.add(w, x)
    b = weft.add(w, 1)
    return w, x, a, b, weft.mul(a, b)


def test_gradient_sums_over_both_paths_to_w() -> None:
    w, x, _, _, y = product()
    y.backward()
    assert w.grad.tolist() == [5.0]
    assert x.grad.tolist() == [2.0]


def test_leaves_are_the_tensors_that_the_user_made() -> None:
    assert [t.is_leaf for t in product()] == [True, True, False, False, False]


def test_gradients_of_non_leaves_are_not_kept() -> None:
    w, x, a, b, y = product()
    y.backward()
    assert [t.grad is None for t in (w, x, a, b, y)] == [False, False, True, True, True]


def test_retained_gradient_of_a_non_leaf_is_kept() -> None:
    _, _, a, b, y = product()
    a.retain_grad()
    y.backward()
    assert a.grad.tolist() == [2.0]
    assert b.grad is None


def test_grad_fn_names_the_operation() -> None:
    w, x, a, b, y = product()
    assert [repr(t.grad_fn) for t in (w, x, a, b, y)] == [
        "None",
        "None",
        "<AddBackward>",
        "<AddBackward>",
        "<MulBackward>",
    ]
    assert [f for f, _ in y.grad_fn.next_functions] == [a.grad_fn, b.grad_fn]


def test_square_plus_cube_at_one_has_slope_five() -> None:
    x = weft.tensor(1.0, requires_grad=True)
    out = x**2 + x**3
    out.backward()
    assert x.grad.item() == 5.0


def test_b_that_feeds_two_paths_gets_the_sum_of_both() -> None:
    a = weft.tensor(2.0, requires_grad=True)
    b = a * 3.0
    b.retain_grad()
    c = 2.0 * b
    d = 5.0 * b + 6.0
    (c * d).backward()  # e = 2b (5b + 6), de/db = 20 b + 12 at b = 6
    assert b.grad.item() == 132.0
    assert a.grad.item() == 396.0


def test_detach_cuts_one_path() -> None:
    b = weft.tensor(6.0, requires_grad=True)
    c = 2.0 * b
    d = 5.0 * b + 6.0
    (c.detach() * d).backward()  # only de/dd * dd/db = 2b * 5
    assert b.grad.item() == 60.0
    assert c.detach().grad_fn is None
    assert not c.detach().requires_grad


def test_stop_gradient_makes_constants_of_all_tensors_in_a_tree() -> None:
    x = weft.tensor(3.0, requires_grad=True)
    parts = weft.stop_gradient({"a": [x * 2.0, 5], "b": x})
    assert not parts["a"][0].requires_grad
    assert not parts["b"].requires_grad  # type: ignore[attr-defined]
    assert parts["a"][1] == 5
    (x * parts["b"]).backward()
    assert x.grad.item() == 3.0
    assert weft.grad(lambda t: t * weft.stop_gradient(t))(x.detach()).item() == 3.0
    assert weft.jvp(lambda t: t * weft.stop_gradient(t), (x.detach(),), (weft.tensor(1.0),))[1].item() == 3.0


def test_topological_numbers_on_a_diamond() -> None:
    x = weft.tensor(2.0, requires_grad=True)
    top = x * 1.0
    left = weft.exp(top)
    right = weft.exp(weft.exp(top))
    bottom = left + right
    numbers = [t.grad_fn.topological_nr for t in (top, left, right, bottom)]
    assert numbers == [1, 2, 3, 4]
    assert bottom.grad_fn.next_functions[0][0].topological_nr == 2
    assert top.grad_fn.next_functions[0][0].topological_nr == 0  # the leaf


def test_each_consumer_has_a_higher_number_than_its_producers() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    y = ((x * x).sum() + weft.tanh(x).sum()) * x
    waiting, seen = [y.grad_fn], set()
    while waiting:
        node = waiting.pop()
        for producer, _ in node.next_functions:
            if producer is not None and producer not in seen:
                assert producer.topological_nr < node.topological_nr
                seen.add(producer)
                waiting.append(producer)
    assert len(seen) >= 4


def test_second_backward_through_a_freed_graph_is_an_error() -> None:
    _, _, _, _, y = product()
    y.backward()
    with pytest.raises(weft.errors.FreedGraphError, match="second backward through mul"):
        y.backward()


def test_retained_graph_accumulates_on_the_second_backward() -> None:
    w, x, _, _, y = product()
    y.backward(retain_graph=True)
    y.backward()
    assert (w.grad.tolist(), x.grad.tolist()) == ([10.0], [4.0])


def test_graph_is_built_anew_in_each_step() -> None:
    w = weft.tensor(4.0, requires_grad=True)
    for _ in range(60):
        loss = (w - 1.0) ** 2
        loss.backward()
        with weft.no_grad():
            w -= 0.2 * w.grad
        w.grad = None
    assert w.is_leaf
    assert w.requires_grad
    assert abs(w.item() - 1.0) < 1e-5


def test_gradients_of_a_vector_need_the_gradient_of_the_output() -> None:
    x = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 2.0
    with pytest.raises(
        weft.errors.GradientError, match="must be given for a tensor of more than one element"
    ):
        y.backward()
    y.backward(weft.tensor([0.1, 1.0, 0.01]))
    assert x.grad.tolist() == pytest.approx([0.2, 2.0, 0.02])


def test_higher_order_gradients_of_a_power() -> None:
    x = weft.tensor(2.0, requires_grad=True)
    y = x**4
    expected = [32.0, 48.0, 48.0, 24.0]
    for value in expected:
        (y,) = weft.autograd.grad(y, x, create_graph=True)
        assert y.item() == value

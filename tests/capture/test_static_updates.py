"""Graphs that are written by hand: updates, random numbers, control flow and transforms in their block."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import weft
from tests.capture.test_static import array
from weft.errors import ArgumentError, GradientError, GraphError, ShapeError

# Updates


def test_fetching_an_update_applies_it() -> None:
    w = weft.tensor([1.0, 2.0])
    with weft.Graph("train") as g:
        x = weft.placeholder("x", ("n", 2))
        loss = ((x @ w - 1.0) ** 2).mean()
        (gw,) = weft.gradients(loss, w)
        train = weft.assign(w, w - 0.5 * gw)
    session = weft.Session(g)
    fed = {x: np.eye(2, dtype=np.float32)}
    before = session.run(loss, fed).item()
    assert w.numpy().tolist() == [1.0, 2.0]
    value, new = session.run([loss, train], fed)
    assert value.item() == before
    assert w.numpy().tolist() == new.numpy().tolist() == [1.0, 1.5]
    for _ in range(30):
        session.run(train, fed)
    np.testing.assert_allclose(w.numpy(), [1.0, 1.0], atol=1e-6)
    assert g.roles == ("arg", "state")


def test_updates_of_a_run_see_the_values_before_it() -> None:
    a, b = weft.tensor(1.0), weft.tensor(2.0)
    with weft.Graph("swap") as g:
        swap = weft.group(weft.assign(a, b), weft.assign(b, a))
    session = weft.Session(g)
    assert session.run(swap) is None
    assert (a.item(), b.item()) == (2.0, 1.0)
    session.run([swap, None])
    assert (a.item(), b.item()) == (1.0, 2.0)


def test_changes_in_place_become_updates() -> None:
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    count = weft.tensor(0)
    with weft.Graph("train") as g:
        x = weft.placeholder("x", (2,))
        (gw,) = weft.gradients((w * x).sum(), w)
        with weft.no_grad():
            w -= 0.5 * gw
        count += 1
        after = w * 1.0
        step = weft.group()
    assert w.detach().numpy().tolist() == [1.0, 2.0]
    assert w.requires_grad
    assert w.is_leaf
    session = weft.Session(g)
    assert session.run(after, {x: [1.0, 1.0]}).numpy().tolist() == [0.5, 1.5]
    assert w.detach().numpy().tolist() == [1.0, 2.0]
    session.run(step, {x: [1.0, 1.0]})
    session.run([], {x: [1.0, 1.0]}, updates=True)
    assert w.detach().numpy().tolist() == [0.0, 1.0]
    assert count.item() == 2
    assert len(g.updates) == 2
    (w * w).sum().backward()
    assert w.grad.numpy().tolist() == [0.0, 2.0]


def test_data_and_elements_can_be_set_in_the_block() -> None:
    w, v = weft.zeros(3), weft.zeros(3)
    with weft.Graph("f") as g:
        x = weft.placeholder("x", (3,))
        w.data = x * 2.0
        v[1] = x[0]
    g.run((), {x: [1.0, 2.0, 3.0]}, updates=True)
    assert w.numpy().tolist() == [2.0, 4.0, 6.0]
    assert v.numpy().tolist() == [0.0, 1.0, 0.0]


def test_a_run_that_fails_changes_nothing() -> None:
    w, v = weft.tensor(1.0), weft.tensor([1.0, 2.0])
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n",))
        both = weft.group(weft.assign(w, x[3]), weft.assign(v, v * 2.0))
    with pytest.raises(IndexError):
        g.run(both, {x: [1.0, 2.0]})
    assert w.item() == 1.0
    assert v.numpy().tolist() == [1.0, 2.0]


def test_what_cannot_be_assigned() -> None:
    w = weft.zeros(2)
    with weft.Graph("f") as g:
        x = weft.placeholder("x", (3,))
        with pytest.raises(ShapeError, match=r"the new value must be of type f32\[2\], got f32\[3\]"):
            weft.assign(w, x)
        with pytest.raises(GraphError, match="must be a tensor from outside the graph"):
            weft.assign(x, x)
        with pytest.raises(ArgumentError, match="takes updates, got float"):
            weft.group(1.0)  # type: ignore[arg-type]
        one, two = weft.assign(w, w + 1.0), weft.assign(w, w + 2.0)
    with pytest.raises(GraphError, match="a parameter must have one new value in a run"):
        g.run([one, two])
    g.run(two)
    assert w.numpy().tolist() == [2.0, 2.0]


def test_a_leaf_cannot_be_changed_while_recording() -> None:
    w = weft.ones(2, requires_grad=True)
    with weft.Graph("f"), pytest.raises(GradientError, match="must not be changed in place while recording"):
        w += 1.0


def test_updates_of_several_threads_are_all_counted() -> None:
    count = weft.tensor(0)
    with weft.Graph("f") as g:
        step = weft.assign(count, count + 1)
    session = weft.Session(g)

    def work() -> None:
        for _ in range(50):
            session.run(step)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert count.item() == 200


# Random numbers and control flow


def test_random_numbers_are_drawn_anew_in_each_run() -> None:
    generator = weft.Generator(3)
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n",))
        noise = weft.randn(x.shape, generator=generator)
        other = weft.rand(2, generator=generator)
        still = x * 2.0
    assert repr(generator) == "Generator(seed=3, draws=0)"
    eager = weft.Generator(3)
    session = weft.Session(g)
    for size in (3, 5):
        got = session.run([noise, other], {x: np.zeros(size)})
        assert got[0].numpy().tolist() == weft.randn(size, generator=eager).numpy().tolist()
        assert got[1].numpy().tolist() == weft.rand(2, generator=eager).numpy().tolist()
    before = repr(generator)
    session.run(still, {x: [1.0]})
    assert repr(generator) == before


def test_the_default_generator_and_dropout_draw_too() -> None:
    weft.manual_seed(0)
    with weft.Graph("f") as g:
        x = weft.placeholder("x", (1000,))
        y = weft.dropout(x, 0.5)
    first, second = (g.run(y, {x: np.ones(1000)}).numpy() for _ in range(2))
    assert (first != second).any()
    assert 400 < np.count_nonzero(first) < 600


def test_control_flow_in_the_block_with_gradients() -> None:
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n",))
        chosen = weft.cond(x.sum() > 0, lambda a: a * 2.0, lambda a: -a, x)
        grown = weft.while_loop(lambda a: a.sum() < 10, lambda a: a * 2.0, x)
        last, sums = weft.scan(lambda c, a: (c + a, c * a), weft.tensor(0.0), x)
        grads = [weft.gradients(y, x)[0] for y in (chosen, grown, sums)]
    out = g.run([chosen, grown, last, *grads], {x: [1.0, 2.0]})
    assert [o.numpy().tolist() for o in out] == [
        [2.0, 4.0],
        [4.0, 8.0],
        3.0,
        [2.0, 2.0],
        [4.0, 4.0],
        [2.0, 1.0],
    ]
    assert g.run(chosen, {x: [-1.0, -2.0, 0.0]}).numpy().tolist() == [1.0, 2.0, 0.0]


def test_vmap_and_function_transforms_in_the_block() -> None:
    w = weft.tensor([1.0, 2.0])
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n", 2))
        rows = weft.vmap(lambda row: (row * w).sum())(x)
        slopes = weft.vmap(weft.grad(lambda row: (row * row * w).sum()))(x)
        (gw,) = weft.gradients(rows, w)
    out = g.run([rows, slopes, gw], {x: [[1.0, 1.0], [2.0, 0.0]]})
    assert out[0].numpy().tolist() == [3.0, 2.0]
    assert out[1].numpy().tolist() == [[2.0, 4.0], [4.0, 0.0]]
    assert out[2].numpy().tolist() == [3.0, 1.0]


def test_a_size_alone_makes_a_placeholder_needed() -> None:
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n",))
        counted = weft.arange(x.shape[0])
    assert g.run(counted, {x: [5.0, 5.0]}).numpy().tolist() == [0, 1]
    with pytest.raises(GraphError, match="must be fed, got none for x"):
        g.run(counted)


def test_an_optimizer_can_take_its_step_in_the_block() -> None:
    model = weft.nn.Linear(2, 1)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
    with weft.Graph("train") as g:
        x = weft.placeholder("x", ("n", 2))
        y = weft.placeholder("y", ("n", 1))
        loss = weft.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        step = weft.group()
    session = weft.Session(g)
    fed = {x: array(8, 2), y: array(8, 1)}
    before = session.run(loss, fed).item()
    for _ in range(20):
        session.run(step, fed)
    assert session.run(loss, fed).item() < before
    assert weft.mse_loss(model(weft.tensor(fed[x])), weft.tensor(fed[y])).item() == pytest.approx(
        session.run(loss, fed).item(), rel=1e-5
    )

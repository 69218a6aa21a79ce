"""``weft.cuda.graph``: eager work captured once and replayed, on a card in NumPy and on a stand-in."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import weft
from tests.backends.cuda.blas import StandInBlas
from tests.backends.cuda.emulated import EmulatedDriver, emulated
from tests.of_code import turn_of
from weft.backends.cuda import choosing, cublaslt
from weft.backends.cuda.build import build_program
from weft.backends.cuda.card import card as the_card
from weft.backends.cuda.execute import CudaExecutable
from weft.errors import BoundsError, DeviceError
from weft.schedule.gpu.machine import Gpu as Machine
from weft.tensor.tensor import wrap


@pytest.fixture
def card() -> Iterator[EmulatedDriver]:
    """All that was there when the tests began stays frozen: to look through it takes longer than the test."""
    with patch("gc.unfreeze"), emulated() as found:
        yield found


@pytest.mark.rotating(2)
def test_frozen_tensors_are_among_those_that_replays_change() -> None:
    with emulated():
        w = weft.ones(3, device="cuda")
        gc.freeze()
        with weft.cuda.graph() as g:
            w += 1.0
        assert w.tolist() == [1.0] * 3
        g.replay()
        assert w.tolist() == [2.0] * 3


def rows(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape or (3, 4)).astype(np.float32)


def near(tensor: Any, expected: Any) -> None:
    np.testing.assert_allclose(tensor.detach().cpu().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_replay_computes_with_the_values_of_now(card: EmulatedDriver) -> None:
    x, w = weft.tensor(rows(1), device="cuda"), weft.tensor(rows(2, 4), device="cuda")
    with weft.cuda.graph() as g:
        y = weft.tanh(x * w + 1.0)
        z = y.sum(axis=1) * 2.0
    for seed in (1, 3, 4):
        x.copy_(weft.tensor(rows(seed), device="cuda"))
        g.replay()
        near(y, np.tanh(rows(seed) * rows(2, 4) + 1.0))
        near(z, np.tanh(rows(seed) * rows(2, 4) + 1.0).sum(1) * 2.0)
    w.copy_(weft.ones(4, device="cuda"))
    g.replay()
    near(y, np.tanh(rows(4) + 1.0))
    assert not card.errors


def test_results_cannot_be_read_before_a_replay(card: EmulatedDriver) -> None:
    x = weft.ones(3, device="cuda")
    with weft.cuda.graph() as g:
        y = x + 1.0
    for look in (lambda: y.tolist(), lambda: y * 2.0, lambda: str(y)):
        with pytest.raises(
            DeviceError, match=r"must be replayed before its results are read(.|\n)*g\.replay"
        ):
            look()
    g.replay()
    assert y.tolist() == [2.0] * 3


REFUSED: list[tuple[Any, str]] = [
    (lambda x: x.sum().item(), "a look at the values"),
    (lambda x: print(x), "a look at the values"),  # noqa: T201
    (lambda x: x.cpu(), "a look at the values"),
    (lambda x: bool(x.sum() > 0), "a look at the values"),
    (lambda x: weft.tensor([1.0, 2.0], device="cuda"), "from the cpu"),
    (lambda x: x + weft.rand(3, device="cuda"), "from the cpu"),
    (lambda x: weft.cuda.synchronize(), "a wait for the device"),
    (lambda x: weft.cuda.current_stream().synchronize(), "a wait for the device"),
    (lambda x: weft.cuda.Event().record(), "an event"),
    (lambda x: weft.cuda.Stream().__enter__(), "another stream"),
    (lambda x: weft.cuda.graph().__enter__(), "one inside another"),
]


@pytest.mark.filterwarnings("ignore:.*has no kernel for cuda:RuntimeWarning")
def test_what_cannot_be_captured_is_an_error_at_its_line_and_nothing_is_lost() -> None:
    with emulated() as card:  # and all that there was before: the generator of the process
        x, w = weft.ones(3, device="cuda"), weft.ones(3, device="cuda")
        weft.manual_seed(7)
        for wrong, text in turn_of(REFUSED, 3, name=lambda row: row[1]):  # each looks at all living tensors
            with pytest.raises(DeviceError, match=text) as raised, weft.cuda.graph():
                w += x
                wrong(x)
            assert "test_captured.py" in str(raised.value)
            assert w.tolist() == [1.0] * 3
            assert not card.notes
            assert weft.cuda.current_stream().capture is None
        near(weft.rand(2), weft.rand(2, generator=weft.Generator(7)))
        assert (x + w).tolist() == [2.0] * 3
        gc.collect()
        assert weft.cuda.memory_allocated() <= 16 * 512


def test_an_error_of_the_user_leaves_all_as_it_was(card: EmulatedDriver) -> None:
    w: Any = weft.ones(3, device="cuda").requires_grad_()
    (w * w).sum().backward()
    with pytest.raises(ZeroDivisionError), weft.cuda.graph():
        (w * 3.0).sum().backward()
        with weft.no_grad():
            w *= 5.0
        1 / 0  # noqa: B018
    assert w.tolist() == [1.0] * 3
    assert w.grad.tolist() == [2.0] * 3


def test_state_on_the_host_is_refused(card: EmulatedDriver) -> None:
    model = weft.nn.Linear(3, 1).to("cuda")
    optimizer = weft.optim.AdamW(model.parameters())
    x = weft.ones(4, 3, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    step()
    before = [p.tolist() for p in model.parameters()]
    count = next(iter(optimizer.state.values()))["step"]
    with (
        pytest.raises(DeviceError, match=r"replays must do all(.|\n)*f64\[\](.|\n)*weft\.compile"),
        weft.cuda.graph(),
    ):
        step()
    assert [p.tolist() for p in model.parameters()] == before
    assert count.item() == 1.0


@pytest.mark.rotating(2)
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_training_step_changes_weights_at_each_replay(card: EmulatedDriver, kind: str) -> None:
    def losses(captured: bool) -> list[float]:
        weft.manual_seed(0)
        model = weft.nn.Sequential(weft.nn.Linear(4, 5), weft.nn.Tanh(), weft.nn.Linear(5, 1)).to("cuda")
        settings: Any = {"lr": 0.1, "momentum": 0.9} if kind == "SGD" else {"lr": 0.1}
        optimizer = getattr(weft.optim, kind)(model.parameters(), **settings)
        x = weft.tensor(rows(1), device="cuda")

        def step() -> Any:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        first = step().item()
        if not captured:
            return [first, *[step().item() for _ in range(3)]]
        optimizer.to("cuda")
        with weft.cuda.graph() as g:
            assert weft.cuda.is_current_stream_capturing()
            loss = step()
        assert not weft.cuda.is_current_stream_capturing()
        found = [first]
        for _ in range(3):
            g.replay()
            found.append(loss.item())
        return found

    np.testing.assert_allclose(losses(True), losses(False), rtol=1e-5)
    assert not card.errors


def test_gradients_add_up_where_there_were_some(card: EmulatedDriver) -> None:
    w: Any = weft.ones(3, device="cuda").requires_grad_()
    (w * 2.0).sum().backward()
    held: Any = w.grad
    with weft.cuda.graph() as g:
        (w * 3.0).sum().backward()
    assert w.grad.tolist() == [2.0] * 3
    for total in (5.0, 8.0):
        g.replay()
        assert w.grad.tolist() == [total] * 3
    assert held.tolist() == [2.0] * 3
    w.grad = None
    g.replay()
    assert w.grad.tolist() == [3.0] * 3


def test_views_see_changes_and_others_keep_what_they_hold(card: EmulatedDriver) -> None:
    w = weft.arange(4.0, device="cuda")
    view, twin, apart = w[1:3], w.detach(), copy.copy(w)
    v: Any = weft.ones(4, device="cuda").requires_grad_()
    kept = (w * v).sum()  # keeps the values of w for its gradient
    with weft.cuda.graph() as g:
        w += 1.0
    assert w.tolist() == [0.0, 1.0, 2.0, 3.0]
    for times in (1, 2, 3):
        g.replay()
        assert w.tolist() == twin.tolist() == [times + i for i in range(4)]
        assert view.tolist() == [times + 1, times + 2]
    assert apart.tolist() == [0.0, 1.0, 2.0, 3.0]
    kept.backward()
    assert v.grad.tolist() == [0.0, 1.0, 2.0, 3.0]
    later = (w * v).sum()
    g.replay()
    w.copy_(weft.zeros(4, device="cuda"))
    g.replay()
    assert w.tolist() == [1.0] * 4
    assert view.tolist() == [1.0] * 2
    v.grad = None
    later.backward()
    assert v.grad.tolist() == [3.0, 4.0, 5.0, 6.0]


def test_tensors_that_change_places(card: EmulatedDriver) -> None:
    x, y = weft.ones(3, device="cuda"), weft.zeros(3, device="cuda")
    turned = weft.tensor(rows(1).T.copy(), device="cuda").T
    turned = turned.detach().requires_grad_(False)
    lone = copy.copy(turned)  # lies in another order, and is no view
    del turned
    with weft.cuda.graph() as g:
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        lone *= 2.0
    for times in (1, 2, 3):
        g.replay()
        assert [x.tolist()[0], y.tolist()[0]] == [(times + 1) % 2, times % 2]
        near(lone, rows(1) * 2.0**times)


def test_memory_of_a_graph_is_not_given_to_others(card: EmulatedDriver) -> None:
    x = weft.ones(1000, device="cuda")
    before = weft.cuda.memory_allocated()
    with weft.cuda.graph() as g:
        y = (x * 2.0 + 1.0) * 3.0
    held = weft.cuda.memory_allocated()
    assert held > before
    weft.cuda.empty_cache()
    others = [weft.full((1000,), 7.0, device="cuda") for _ in range(8)]
    g.replay()
    assert y.tolist() == [9.0] * 1000
    assert all(o.tolist() == [7.0] * 1000 for o in others)
    del g, others
    gc.collect()
    assert y.tolist() == [9.0] * 1000  # who holds a result holds the memory
    del y
    gc.collect()
    assert weft.cuda.memory_allocated() <= before + 3 * 512  # numbers that are kept


def test_failure_in_a_replay_raises_and_changes_nothing(card: EmulatedDriver) -> None:
    x, total = weft.arange(4.0, device="cuda"), weft.zeros(2, device="cuda")
    places = weft.tensor([0, 1], device="cuda")
    with weft.cuda.graph() as g:
        total += x[places]
    places.copy_(weft.tensor([2, 3], device="cuda"))
    g.replay()
    assert total.tolist() == [2.0, 3.0]
    places.copy_(weft.tensor([2, 9], device="cuda"))
    with pytest.raises(BoundsError):
        g.replay()
    assert total.tolist() == [2.0, 3.0]
    places.copy_(weft.tensor([0, 1], device="cuda"))
    g.replay()
    assert total.tolist() == [2.0, 4.0]


def test_replays_wait_for_other_streams(card: EmulatedDriver) -> None:
    x = weft.ones(8, device="cuda")
    with weft.cuda.graph() as g:
        y = x * 2.0
    side = weft.cuda.Stream()
    with side:
        x.copy_(weft.full((8,), 3.0, device="cuda"))
    g.replay()
    with side:
        z = y + 1.0
        g.replay()
    g.replay()
    assert z.tolist() == [7.0] * 8  # the stand-in would say if one had not waited
    assert y.tolist() == [6.0] * 8


def test_shapes_must_stay(card: EmulatedDriver) -> None:
    x = weft.ones(8, device="cuda")
    with weft.cuda.graph() as g:
        y = x * 2.0
    x.data = weft.ones(8, device="cuda") * 4.0
    g.replay()
    assert y.tolist() == [8.0] * 8
    with pytest.raises(DeviceError, match="captured once"), g:
        pass
    with pytest.raises(DeviceError, match="must be captured before"):
        weft.cuda.graph().replay()


def test_compiled_functions_are_captured_as_their_launches(card: EmulatedDriver) -> None:
    @weft.compile
    def f(x: Any) -> Any:
        return weft.softmax(x.tanh() @ x.T, axis=1)

    x = weft.tensor(rows(1), device="cuda")
    for _ in range(4):
        f(x)
    with weft.cuda.graph() as g:
        y = f(x) * 2.0
    x.copy_(weft.tensor(rows(5), device="cuda"))
    g.replay()
    near(y, weft.softmax(weft.tensor(rows(5)).tanh() @ weft.tensor(rows(5)).T, axis=1).numpy() * 2.0)


def test_one_graph_goes_on_with_what_another_has_made(card: EmulatedDriver) -> None:
    x = weft.ones(4, device="cuda")
    with weft.cuda.graph() as first:
        y = x * 2.0
    with weft.cuda.graph() as second:
        y += 1.0
        z = y * 10.0
    with pytest.raises(DeviceError, match="must be replayed before"):
        second.replay()
    first.replay()
    second.replay()
    assert (y.tolist(), z.tolist()) == ([3.0] * 4, [30.0] * 4)
    second.replay()
    assert (y.tolist(), z.tolist()) == ([4.0] * 4, [40.0] * 4)
    first.replay()
    assert y.tolist() == [2.0] * 4


def test_products_of_libraries_are_captured_and_chosen_beside(
    card: EmulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    blas = StandInBlas(card)
    monkeypatch.setattr(cublaslt, "load_functions", lambda: blas)
    monkeypatch.setattr(choosing, "_WORTH", 0)  # trials, while work of this thread is noted
    machine = Machine(libraries=True, least_product=0)
    graph = weft.make_graph(lambda x, y: weft.tanh(x @ y) @ y.T)(weft.ones(3, 4), weft.ones(4, 5)).optimize()
    run = CudaExecutable(the_card(0, "test"), build_program(graph, machine=machine), graph)
    x, y = (weft.tensor(a, device="cuda") for a in (rows(1), rows(2, 4, 5)))
    with weft.cuda.graph() as g:
        z = wrap(run([x._data, y._data])[0]) * 2.0
    assert set(blas.used) == {1, 2, 3}
    other = weft.cuda.Stream()
    for seed in (3, 4, 5):
        x.copy_(weft.tensor(rows(seed), device="cuda"))
        with other if seed == 4 else nullcontext():
            g.replay()
            near(z, np.tanh(rows(seed) @ rows(2, 4, 5)) @ rows(2, 4, 5).T * 2.0)
    assert not card.errors


def test_control_flow_that_looks_at_values_is_refused_and_counting_loops_are_not(
    card: EmulatedDriver,
) -> None:
    @weft.compile
    def halved(x: Any) -> Any:
        while x.sum() > 1.0:
            x = x * 0.5
        return x

    @weft.compile
    def powers(x: Any) -> Any:
        return weft.scan(lambda c, _: (c * x, c + 1.0), x, length=4)[1]

    x = weft.full((3,), 8.0, device="cuda")
    for _ in range(4):
        assert halved(x).tolist() == [0.25] * 3
    with pytest.raises(DeviceError, match="while a graph is captured"), weft.cuda.graph():
        halved(x)
    assert halved(x).tolist() == [0.25] * 3
    with weft.cuda.graph() as g:
        y = powers(x)
    x.copy_(weft.full((3,), 2.0, device="cuda"))
    g.replay()
    assert y[:, 0].tolist() == [3.0, 5.0, 9.0, 17.0]


def test_work_on_another_device_is_no_part_of_a_graph(card: EmulatedDriver) -> None:
    card.devices = 2
    x, far = weft.ones(3, device="cuda"), weft.ones(3, device="cuda:1")
    for wrong in (lambda: far * 2.0, lambda: x.to("cuda:1"), lambda: far.sum(), lambda: far.add_(1.0)):
        with pytest.raises(DeviceError, match="got work on cuda:1"), weft.cuda.graph():
            wrong()
    with weft.cuda.graph("cuda:1") as g:
        y = far * 2.0
    far.copy_(weft.full((3,), 4.0, device="cuda:1"))
    g.replay()
    assert (y.tolist(), (x + 1.0).tolist()) == ([8.0] * 3, [2.0] * 3)


def test_functions_of_the_host_run_while_a_graph_is_captured(card: EmulatedDriver) -> None:
    f = weft.compile(lambda x: weft.tanh(x) * 2.0)
    there, here = weft.ones(3, device="cuda"), weft.ones(3)
    for _ in range(4):
        f(there)
    with weft.cuda.graph() as g:
        on_host = f(here)
        y = f(there)
    near(on_host, np.tanh(np.ones(3)) * 2.0)
    g.replay()
    near(y, np.tanh(np.ones(3)) * 2.0)


def test_failure_in_a_loop_that_is_captured_and_numbers_of_compiled_functions(card: EmulatedDriver) -> None:
    @weft.compile
    def summed(x: Any, places: Any) -> Any:
        return weft.scan(lambda c, i: (c + x[i], c), x.sum() * 0.0, places)[0]

    x, places = weft.arange(4.0, device="cuda"), weft.tensor([1, 3], device="cuda")
    with weft.cuda.graph() as g:
        y = summed(x, places) * 2.0
    g.replay()
    assert y.item() == 8.0
    places.copy_(weft.tensor([1, 9], device="cuda"))
    with pytest.raises(BoundsError, match="got 9"):
        g.replay()
    places.copy_(weft.tensor([3, 3], device="cuda"))
    g.replay()
    assert y.item() == 12.0
    scaled = weft.compile(lambda x, k: x * k)
    for k in (0.1, 0.2, 0.3):
        scaled(x, k)
    with pytest.raises(DeviceError, match=r"float64\[\] from the cpu"), weft.cuda.graph():
        scaled(x, 0.5)
    assert not card.errors

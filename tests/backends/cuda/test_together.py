"""Graphs compiled for a GPU and run by the runtime: the PTX that ships, on a card in NumPy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.emulated import EmulatedDriver, emulated
from tests.backends.cuda.standin import standing_in


class TwoCards(EmulatedDriver):
    """The same with a second device, in the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.devices = 2


@pytest.fixture
def card() -> Iterator[EmulatedDriver]:
    with emulated() as found:
        yield found


FUNCTIONS: list[Any] = [
    lambda t: t + t,
    lambda t: t * 2.0 - 1.0,
    lambda t: t.exp().tanh(),
    lambda t: t.sum(axis=1),
    lambda t: t @ t.T,
    lambda t: (t > 0.5).astype(weft.int32),
    lambda t: t[:, ::-1] * t,
    lambda t: weft.softmax(t, axis=1),
    lambda t: weft.concat([t, t[:1]]),
]


@pytest.mark.rotating(3)
@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_eager_ops_give_what_the_host_gives(number: int, card: EmulatedDriver) -> None:
    function = FUNCTIONS[number]
    x: Any = weft.rand(3, 4, generator=weft.Generator().manual_seed(1)).requires_grad_()
    there = x.detach().cuda().requires_grad_()
    results = []
    for t in (x, there):
        out = function(t)
        if out.requires_grad:
            (out * out).sum().backward()
        results.append((out.detach().cpu().numpy(), None if t.grad is None else t.grad.cpu().numpy()))
    for ours, theirs in zip(*results, strict=True):
        if ours is not None:
            np.testing.assert_allclose(theirs, ours, rtol=2e-5, atol=1e-6)
    assert not card.errors


def test_compiled_function_gives_what_the_host_gives(card: EmulatedDriver) -> None:
    def f(x: Any, w: Any) -> Any:
        return weft.softmax(weft.tanh(x @ w) * 2.0 + 1.0, axis=1).sum(axis=0)

    x, w = (weft.rand(3, 4, generator=weft.Generator().manual_seed(i)) for i in (1, 2))
    compiled = weft.compile(f)
    for _ in range(4):  # as a list, then as a graph
        found = compiled(x.cuda(), w.T.cuda())
        assert found.device == "cuda"
        np.testing.assert_allclose(found.cpu().numpy(), f(x, w.T).numpy(), rtol=2e-5)
    assert not card.errors


def newton(a: Any) -> Any:
    x = 0.5 * (a + 1.0)
    while abs(x * x - a).max() > 1e-3:
        x = 0.5 * (x + a / x)
    return x


def either(a: Any) -> Any:
    return weft.cond(a.sum() > 0.0, lambda a: a * 2.0, lambda a: weft.exp(a) - 1.0, a)


def nested(a: Any) -> Any:
    x = a
    for _ in range(2):
        while (x > 1.0).any():
            if x.sum() > 20.0:
                x = x / 4.0
            else:
                x = x / 2.0
        x = x * 5.0
    return x


def recurrent(xs: Any, w: Any) -> Any:
    def loss(xs: Any, w: Any) -> Any:
        h = weft.zeros(3)
        for x in xs:
            h = weft.tanh(x + h @ w)
        return (h * h).sum()

    return weft.grad(loss, argnums=1)(xs, w)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("function", [newton, either, nested])
def test_compiled_control_flow_is_decided_by_the_device(function: Any, card: EmulatedDriver) -> None:
    compiled, here = weft.compile(function), weft.compile(function)
    for turn in range(5):
        x = weft.tensor([0.5, 7.0 + turn, 3.0]) * (-1.0 if function is either and turn % 2 else 1.0)
        there = x.cuda()
        before = card.names().count("cuStreamSynchronize")
        found = compiled(there)
        assert turn < 2 or card.names().count("cuStreamSynchronize") == before
        np.testing.assert_allclose(found.cpu().numpy(), here(x).numpy(), rtol=2e-5)
    assert card.names().count("cuGraphLaunch") == 3
    assert not card.errors


@pytest.mark.rotating(2)
def test_compiled_loop_with_gradients_is_one_graph(card: EmulatedDriver) -> None:
    compiled = weft.compile(recurrent)
    xs, w = (weft.rand(*s, generator=weft.Generator().manual_seed(1)) for s in ((4, 3), (3, 3)))
    for _ in range(4):
        found = compiled(xs.cuda(), w.cuda())
    np.testing.assert_allclose(found.cpu().numpy(), recurrent(xs, w).numpy(), rtol=2e-5, atol=1e-6)
    assert card.names().count("cuGraphLaunch") == 2
    assert not card.errors


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_compiled_step_changes_state_in_place_and_keeps_what_is_held(name: str, card: EmulatedDriver) -> None:
    def losses(device: str) -> tuple[list[Any], list[Any]]:
        model = weft.nn.Linear(3, 1)
        model.weight.data, model.bias.data = weft.ones(1, 3) * 0.5, weft.zeros(1)
        model.to(device)
        optimizer = getattr(weft.optim, name)(model.parameters(), lr=0.1)

        @weft.compile
        def step(x: Any) -> Any:
            loss = ((model(x) - 1.0) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        kept, gradients, places = [], [], set()
        for i in range(9):
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + i // 3)
            kept.append(step((weft.arange(6.0) * 0.1 + i).reshape(2, 3).to(device)))
            gradients.append(model.weight.grad)
            places |= {model.weight._data.pointer} if device == "cuda" and i else set()
        assert len(places) == (device == "cuda")  # the weights stay where they are
        before, value = model.weight._data, model.weight.detach().cpu().numpy()
        step(weft.ones(2, 3).to(device))  # while somebody holds the old ones
        held = before if device == "cpu" else before.to_host()
        np.testing.assert_array_equal(held, value)
        return [t.item() for t in kept], [g.cpu().numpy() for g in gradients]

    there, here = losses("cuda"), losses("cpu")
    np.testing.assert_allclose(there[0], here[0], rtol=1e-4)
    for ours, theirs in zip(there[1], here[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    assert card.names().count("cuGraphLaunch") >= 5
    assert not card.errors


def test_failed_compiled_step_changes_nothing_and_names_the_line(card: EmulatedDriver) -> None:
    table = weft.zeros(4, 2, device="cuda")

    @weft.compile
    def step(rows: Any) -> Any:
        picked = table[rows]
        table.add_(1.0)
        return picked.sum()

    good, bad = weft.tensor([1, 2], device="cuda"), weft.tensor([1, 77], device="cuda")
    count = 0
    for turn in range(8):
        if turn % 3 == 2:
            with pytest.raises(weft.errors.BoundsError) as found:
                step(bad)
            assert "picked = table[rows]" in str(found.value)
        else:
            assert step(good).item() == 4 * count
            count += 1
        np.testing.assert_array_equal(table.cpu().numpy(), np.full((4, 2), count))
    assert card.names().count("cuGraphLaunch") >= 4
    assert not card.errors


def test_function_runs_where_its_tensors_are(card: EmulatedDriver) -> None:
    f = weft.compile(lambda x: weft.exp(x) * 2.0)
    x = weft.ones(3)
    for device in ("cuda", "cpu", "cuda", "cpu"):
        found = f(x.to(device))
        assert found.device == device
        np.testing.assert_allclose(found.cpu().numpy(), np.exp(np.ones(3)) * 2, rtol=1e-6)


def test_assertions_and_nan_checks_raise_from_a_graph_and_change_nothing(card: EmulatedDriver) -> None:
    count = weft.zeros(3, device="cuda")

    @weft.compile
    def asserted(x: Any) -> Any:
        assert (x > 0.0).all(), "must be positive"
        count.add_(x)
        return weft.exp(x).sum() + x

    @weft.compile(check_nan=True)
    def checked(x: Any) -> Any:
        y = weft.log(x) * 2.0
        count.add_(x)
        return y + count

    good, bad = weft.ones(3, device="cuda"), weft.tensor([1.0, -1.0, 1.0], device="cuda")
    for step, error, line in (
        (asserted, AssertionError, "must be positive"),
        (checked, weft.errors.WeftError, "y = weft.log(x)"),
    ):
        for turn in range(9):
            before = count.cpu().numpy()
            if turn % 4 == 3:
                with pytest.raises(error) as found:
                    step(bad)
                assert line in str(found.value)
                np.testing.assert_array_equal(count.cpu().numpy(), before)
            else:
                step(good)
                np.testing.assert_array_equal(count.cpu().numpy(), before + 1.0)
        assert card.names().count("cuGraphLaunch") >= 5
        card.calls.clear()
    assert not card.errors


@pytest.mark.rotating(2)
def test_open_sizes_have_graphs_of_their_own(card: EmulatedDriver) -> None:
    def function(x: Any, s: float) -> Any:
        return weft.tanh(weft.softmax(x * s, axis=1) @ weft.ones(4, 4)) @ weft.ones(4, 2)

    f = weft.compile(function)
    for turn in range(12):
        rows = (2, 3, 5)[turn % 3]
        x = weft.rand(rows, 4, generator=weft.Generator().manual_seed(turn))
        found = f(x.cuda(), 0.5 + turn)  # a number of the host that is another one each time
        np.testing.assert_allclose(found.cpu().numpy(), function(x, 0.5 + turn).numpy(), rtol=2e-5)
    assert card.names().count("cuGraphLaunch") >= 2
    assert not card.errors


def test_model_may_move_from_device_to_device() -> None:
    from weft.backends.cuda.compiling import compile_for_device
    from weft.backends.cuda.eager import set_build

    with standing_in(TwoCards()) as card:
        set_build(compile_for_device)
        model = weft.nn.Linear(3, 2)
        f = weft.compile(lambda: model(weft.ones(2, 3, device=model.weight.device)).sum())
        expected = model(weft.ones(2, 3)).sum().item()
        for device in ("cpu", "cuda:0", "cuda:1", "cpu", "cuda:0"):
            model.to(device)
            for _ in range(4):
                assert f().item() == pytest.approx(expected, rel=1e-5)
        assert not card.errors


@pytest.mark.rotating(2)
def test_random_numbers_are_drawn_on_the_device_and_are_those_of_the_host(card: EmulatedDriver) -> None:
    """To the last bit, and without a copy of as many numbers to the device."""

    def drawn(device: str) -> list[Any]:
        weft.manual_seed(3)
        many = (1 << 14) + 5
        out = [
            weft.rand(many, device=device),
            weft.randint(0, 1000, (many,), device=device),
            weft.rand(3, 4, device=device),
        ]
        out.append(weft.dropout(weft.ones(70, 3, device=device), 0.5))
        return [t.cpu().numpy() for t in out]

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing goes through the host
        on_device = drawn("cuda")
    assert card.card.launches >= 4
    for x, y in zip(on_device, drawn("cpu"), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.rotating(2)
def test_kernels_of_the_host_stay_there_while_a_graph_is_built_for_a_device(card: EmulatedDriver) -> None:
    large = weft.ones(1 << 17)

    @weft.compile
    def f(x: Any) -> Any:
        return x + weft.exp(large * 0.0).sum() * 0.0  # large constants are folded on the host

    for _ in range(2):
        np.testing.assert_array_equal(f(weft.ones(3, device="cuda")).cpu().numpy(), np.ones(3))
    before = len(card.calls)
    np.testing.assert_allclose(weft.exp(large)[:3].numpy(), np.full(3, np.e), rtol=1e-6)
    assert len(card.calls) == before


def test_failures_are_told_while_the_rest_of_a_graph_goes_on(card: EmulatedDriver) -> None:
    """What was noted is copied to the host after the last kernel that can fail, not after all of them."""

    def f(table: Any, i: Any, w: Any) -> Any:
        x = table[i]
        for _ in range(4):
            x = weft.tanh(x @ w)
        return x

    table, w = (weft.rand(6, 6, generator=weft.Generator().manual_seed(i)) for i in (1, 2))
    compiled, there = weft.compile(f), (table.cuda(), w.cuda())
    for number in (1, 2, 3, 4, 5):
        i = weft.tensor([number])
        found = compiled(there[0], i.cuda(), there[1])
        np.testing.assert_allclose(found.cpu().numpy(), f(table, i, w).numpy(), rtol=2e-5)
    with pytest.raises(weft.errors.BoundsError, match=r"index must be in -6\.\.5"):
        compiled(there[0], weft.tensor([6]).cuda(), there[1])
    found = compiled(there[0], weft.tensor([-1]).cuda(), there[1])  # what was noted is forgotten
    np.testing.assert_allclose(found.cpu().numpy(), f(table, weft.tensor([5]), w).numpy(), rtol=2e-5)
    graphs = [g for g, nodes in card.graphs.items() if any(kind == "kernel" for kind, _ in nodes)]
    nodes, edges = card.graphs[graphs[-1]], card.edges[graphs[-1]]
    copies = [n for n, (kind, p) in enumerate(nodes) if kind == "copy" and p.dstMemoryType == 1]
    assert len(copies) == 2
    waited: set[int] = set()
    stack = copies[:1]
    while stack:
        new = set(edges[stack.pop()]) - waited
        waited |= new
        stack += new
    kernels = [n for n, (kind, _) in enumerate(nodes) if kind == "kernel"]
    assert len(waited & set(kernels)) == 1 < len(kernels)
    assert edges[copies[1]] == copies[:1]  # the word that tells that all is there comes last
    assert not card.errors

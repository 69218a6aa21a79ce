"""States written in place: only where nobody else holds the old array, and never where a run fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.backends import Executable, backend_named
from weft.errors import CheckError

pytestmark = pytest.mark.host


class InPlace(Executable):
    """The reference backend, which then copies what it may into the arrays that are given."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self._run = backend_named("interpret")(graph)
        count = len(graph.outputs)
        self.donated = tuple((graph.inputs.index(old), count + k) for k, (old, _) in enumerate(graph.updates))
        self.flags: list[Sequence[bool]] = []

    def __call__(self, arrays: Sequence[Any]) -> Sequence[Any]:
        return self._run(arrays)

    def donating(self, arrays: Sequence[Any], flags: Sequence[bool]) -> Sequence[Any]:
        self.flags.append(flags)
        results = [r.copy() for r in self._run(arrays)]
        for given, result in self.donated:
            if flags[given]:
                arrays[given][...] = results[result]
                results[result] = arrays[given]
        return results


def counter() -> tuple[Any, Any]:
    """A parameter, and a compiled function that adds to it."""
    p = weft.tensor([1.0, 2.0])

    @weft.compile(backend=InPlace)
    def add(x: Any) -> Any:
        nonlocal p
        p += x
        return p.sum()

    add(weft.ones(2))
    return p, add


def test_state_that_nobody_else_holds_stays_in_its_memory() -> None:
    p, add = counter()
    place = id(p._data)
    for _ in range(3):
        add(weft.ones(2))
    assert p.tolist() == [5.0, 6.0]
    assert id(p._data) == place
    assert add.versions[0].run.flags[-1] == (False, True)


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda p: p.detach().numpy(),
    "view of numpy": lambda p: p.detach().numpy()[:],
    "memoryview": lambda p: memoryview(p.detach().numpy()),
    "dlpack": lambda p: np.from_dlpack(p.detach()),
    "copy": lambda p: p.__copy__(),
    "clone": lambda p: p.detach().clone(),
}
VIEWS: dict[str, Callable[[Any], Any]] = {
    "detach": lambda p: p.detach(),
    "data": lambda p: p.data,
    "view": lambda p: p.detach().reshape(1, 2),
    "slice": lambda p: p.detach()[:],
    "elements": lambda p: [p[0], p[1]],
    "astype": lambda p: p.detach().astype(weft.float32, copy=False),
}


@pytest.mark.parametrize("name", sorted(HOLDERS))
def test_what_was_taken_before_keeps_its_values(name: str) -> None:
    p, add = counter()
    held = HOLDERS[name](p)
    add(weft.ones(2))
    assert p.tolist() == [3.0, 4.0]
    assert np.ravel(np.asarray(held)).tolist() == [2.0, 3.0]
    del held
    place = id(p._data)
    add(weft.ones(2))
    assert (p.tolist(), id(p._data)) == ([4.0, 5.0], place)


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_views_show_the_change_of_a_state(name: str) -> None:
    p, add = counter()
    held = VIEWS[name](p)
    for expected in ([3.0, 4.0], [4.0, 5.0]):
        add(weft.ones(2))
        assert p.tolist() == expected
        assert np.ravel([np.asarray(x) for x in held]).tolist() == expected
    del held
    add(weft.ones(2))  # which finds nobody left
    place = id(p._data)
    add(weft.ones(2))
    assert (p.tolist(), id(p._data)) == ([6.0, 7.0], place)


def test_only_states_that_are_held_get_new_arrays() -> None:
    p, q = weft.zeros(2), weft.zeros(3)

    @weft.compile(backend=InPlace)
    def add(x: Any) -> None:
        nonlocal p, q
        p += x
        q += x.sum()

    add(weft.ones(2))
    held, places = p.detach().numpy(), [id(p._data), id(q._data)]
    add(weft.ones(2))
    assert [id(p._data) == places[0], id(q._data) == places[1]] == [False, True]
    assert add.versions[0].run.flags[-1] == (False, False, True)  # type: ignore[attr-defined]
    assert (held.tolist(), p.tolist(), q.tolist()) == ([1.0, 1.0], [2.0, 2.0], [4.0, 4.0, 4.0])


def test_argument_that_is_changed_is_written_in_place() -> None:
    @weft.compile(backend=InPlace)
    def add(x: Any, y: Any) -> None:
        x += y

    x, y = weft.zeros(2), weft.ones(2)
    add(x, y)
    place, held = id(x._data), None
    for expected in (2.0, 3.0, 4.0):
        add(x, y)
        assert x.tolist() == [expected] * 2
        assert (id(x._data) == place) is (held is None)
        held, place = x.detach(), id(x._data)


def test_memory_that_a_backend_lent_may_be_written() -> None:
    class Lease(np.ndarray):  # type: ignore[type-arg]
        is_lease = True

    p, add = counter()
    p._data, p._form = np.ndarray((2,), np.float32, Lease((8,), np.uint8, bytearray(8))), None
    place = id(p._data)
    add(weft.ones(2))
    assert (p.tolist(), id(p._data)) == ([1.0, 1.0], place)
    view = p.detach().numpy()
    add(weft.ones(2))
    assert (p.tolist(), view.tolist()) == ([2.0, 2.0], [1.0, 1.0])


def test_array_that_a_graph_saved_for_backward_is_not_written() -> None:
    p, add = counter()
    x = weft.ones(2, requires_grad=True)
    y = (x * p).sum()
    add(weft.ones(2))
    y.backward()
    assert (p.tolist(), x.grad.tolist()) == ([3.0, 4.0], [2.0, 3.0])


def test_tensor_that_took_over_the_data_of_another_follows_it() -> None:
    p, add = counter()
    other = weft.zeros(2)
    view = other[:1]
    other.data = p
    add(weft.ones(2))
    assert (p.tolist(), other.tolist(), view.tolist()) == ([3.0, 4.0], [3.0, 4.0], [0.0])


def test_array_in_the_memory_of_another_is_not_written() -> None:
    memory = np.arange(4.0, dtype=np.float32)
    p = weft.zeros(2)

    @weft.compile(backend=InPlace)
    def add(x: Any) -> None:
        nonlocal p
        p += x

    add(weft.ones(2))
    p._data, p._form = memory[1:3], None
    add(weft.ones(2))
    assert (p.tolist(), memory.tolist()) == ([2.0, 3.0], [0.0, 1.0, 2.0, 3.0])


def test_returned_new_value_is_not_overwritten_by_the_next_call() -> None:
    p = weft.zeros(2)

    @weft.compile(backend=InPlace)
    def add(x: Any) -> Any:
        nonlocal p
        p += x
        return p.detach().clone()

    found = [add(weft.ones(2)) for _ in range(3)]
    assert [x.tolist() for x in found] == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]


def test_returned_old_value_is_the_old_one() -> None:
    p = weft.zeros(2)

    @weft.compile(backend=InPlace)
    def add(x: Any) -> Any:
        nonlocal p
        old = p.clone()
        p += x
        return old

    assert [add(weft.ones(2)).tolist() for _ in range(3)] == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]


def test_states_of_a_graph_with_a_backward_graph_are_kept_for_it() -> None:
    mean = weft.ones(2)
    w = weft.tensor([1.0, 2.0], requires_grad=True)

    @weft.compile(backend=InPlace)
    def f(x: Any) -> Any:
        nonlocal mean
        y = (x * w * mean).sum()
        mean += x
        return y

    x = weft.ones(2)
    first, second = f(x), f(x)
    first.backward()
    assert w.grad.tolist() == [1.0, 1.0]
    w.grad = None
    second.backward()
    assert w.grad.tolist() == [2.0, 2.0]  # type: ignore[attr-defined]
    assert not any(version.run.flags for version in f.versions)  # type: ignore[attr-defined]


def test_failing_run_changes_nothing() -> None:
    p, count = weft.zeros(2), weft.zeros(())

    @weft.compile(backend=InPlace)
    def add(x: Any) -> None:
        nonlocal p, count
        count += 1.0
        assert (x > 0).all()
        p += x

    add(weft.ones(2))
    with pytest.raises((AssertionError, CheckError)):
        add(-weft.ones(2))
    assert (p.tolist(), count.item()) == ([1.0, 1.0], 1.0)


def test_training_step_in_place_agrees_with_eager() -> None:
    def train(backend: Any) -> tuple[list[float], list[Any]]:
        weft.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = optim.Adam(model.parameters(), lr=0.1)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = step if backend is None else weft.compile(step, backend=backend)
        x, y = weft.randn(8, 3), weft.randn(8, 1)
        losses, kept = [], []
        for i in range(6):
            losses.append(run(x, y).item())
            kept.append([p.detach() for p in model.parameters()] if i % 2 else None)
        if backend is not None:
            assert any(any(flags) for flags in run.versions[0].run.flags)  # type: ignore[attr-defined]
        return losses, [p.numpy() for old in kept if old for p in old]

    (eager, before), (compiled, after) = train(None), train(InPlace)
    np.testing.assert_allclose(compiled, eager, rtol=1e-5)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_a_state_that_is_an_argument_too_is_known_for_one() -> None:
    def run(wrap: Any) -> list[Any]:
        w = weft.tensor([1.0, 2.0])

        def step(a: Any) -> Any:
            a.add_(1.0)
            w.mul_(2.0)
            return a + w

        f = wrap(step)
        arguments = (weft.tensor([5.0, 5.0]), w, weft.tensor([5.0, 5.0]), w[:], w)
        return [*[f(a).tolist() for a in arguments], w.tolist()]

    assert run(weft.compile) == run(lambda f: f)


def test_weights_that_show_one_flat_buffer_are_trained_in_it() -> None:
    def run(wrap: Any) -> list[Any]:
        flat = weft.arange(6).astype(weft.float32)
        layer = weft.nn.Linear(2, 2)
        layer.weight.data, layer.bias.data = flat[:4].view(2, 2), flat[4:]
        optimizer = weft.optim.SGD(layer.parameters(), lr=0.125)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = layer(x).sum()
            loss.backward()
            optimizer.step()
            return loss

        f = wrap(step)
        return [*[f(weft.ones(1, 2)).tolist() for _ in range(3)], flat.tolist(), layer.weight.tolist()]

    assert run(weft.compile) == run(lambda f: f)

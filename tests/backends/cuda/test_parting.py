"""Who sees what replays of a captured graph write, and who keeps the values that were there."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import weft
from tests.backends.cuda.emulated import EmulatedDriver, emulated
from weft.backends.cuda import parting
from weft.errors import DeviceError


@pytest.fixture(autouse=True)
def card() -> Iterator[EmulatedDriver]:
    """All that was there when the tests began stays frozen: to look through it takes longer than the test."""
    with patch("gc.unfreeze"), emulated() as found:
        yield found


def there(*values: float) -> Any:
    return weft.tensor(list(values), device="cuda")


class Foreign:
    """Memory of a tensor as that of another library."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def test_results_that_were_changed_show_those_of_the_next_replay() -> None:
    x = there(1.0, 2.0)
    with weft.cuda.graph() as g:
        y = x * 2.0
        part = y[1:]
    g.replay()
    y.add_(100.0)
    part.mul_(2.0)
    assert y.tolist() == [102.0, 208.0]
    g.replay()
    assert (y.tolist(), part.tolist()) == ([2.0, 4.0], [4.0])


def test_gradients_that_are_clipped_between_replays_are_those_of_each_replay() -> None:
    def weights(captured: bool) -> Any:
        weft.manual_seed(0)
        model = weft.nn.Linear(3, 2).to("cuda")
        optimizer = weft.optim.SGD(model.parameters(), lr=0.5)
        x = weft.arange(6.0, device="cuda").reshape(2, 3)

        def compute() -> None:
            optimizer.zero_grad()
            (model(x) ** 2).mean().backward()

        compute()
        optimizer.zero_grad()
        run: Callable[[], None] = compute
        if captured:
            with weft.cuda.graph() as g:
                compute()
            run = g.replay
        for _ in range(3):
            run()
            weft.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()  # the next replay sets them again
        return model.weight.detach().cpu().numpy()

    np.testing.assert_allclose(weights(True), weights(False), rtol=1e-5)


SHARING: dict[str, Callable[[Any], Any]] = {
    "a stack of one": lambda t: weft.stack([t]),
    "one that is concatenated": lambda t: weft.concat([t]),
    "a shallow copy": copy.copy,
    "all elements assigned": lambda t: _assigned(t),
    "data of another": lambda t: _with_data(t),
}


def _assigned(t: Any) -> Any:
    out = weft.zeros_like(t)
    out[:] = t
    return out


def _with_data(t: Any) -> Any:
    out = weft.zeros_like(t)
    out.data = t.clone()
    return out


@pytest.mark.parametrize("way", SHARING.values(), ids=SHARING)
def test_others_that_share_memory_keep_their_values(way: Callable[[Any], Any]) -> None:
    w, x = there(1.0, 2.0), there(1.0, 1.0)
    early = way(w)
    with weft.cuda.graph() as g:
        w.add_(x)
        y = w * 10.0
    for count in (1.0, 2.0, 3.0):
        kept = [way(w), way(y), w.tolist()] if count > 1.0 else []
        g.replay()
        assert w.tolist() == [1.0 + count, 2.0 + count]
        assert y.tolist() == [10.0 * v for v in w.tolist()]
        assert np.ravel(early.tolist()).tolist() == [1.0, 2.0]
        if kept:
            assert np.ravel(kept[0].tolist()).tolist() == kept[2]
            assert np.ravel(kept[1].tolist()).tolist() == [10.0 * v for v in kept[2]]
        x = there(1.0, 1.0) if count == 2.0 else x  # another tensor; the graph goes on with the old one


def test_inputs_that_share_memory_with_others_are_written_to_alone() -> None:
    number = weft.tensor(1.0).cuda()
    x, ones = weft.stack([number]), there(1.0, 1.0)
    with weft.cuda.graph() as g:
        y = x * ones
    x.copy_(there(5.0))
    g.replay()
    assert y.tolist() == [5.0, 5.0]
    assert (number.item(), weft.tensor(1.0).cuda().item()) == (1.0, 1.0)


def test_tensors_that_share_memory_before_the_block_are_apart_in_its_graph() -> None:
    w = there(0.0, 1.0)
    alike, view = copy.copy(w), w[1:]
    of_alike = alike[1:]
    with weft.cuda.graph() as g:
        w.add_(1.0)
        y = alike * 1.0
    for count in (1.0, 2.0):
        g.replay()
        assert (w.tolist(), view.tolist(), y.tolist()) == ([count, 1.0 + count], [1.0 + count], [0.0, 1.0])
    alike.mul_(3.0)
    g.replay()
    assert (y.tolist(), of_alike.tolist()) == ([0.0, 3.0], [3.0])


def test_views_that_a_backward_pass_keeps_keep_their_values() -> None:
    w, x = weft.arange(4.0, device="cuda"), weft.ones(4, device="cuda")
    p: Any = weft.ones(2, 2, device="cuda").requires_grad_()
    before = (w.reshape(2, 2).T * p).sum()
    with weft.cuda.graph() as g:
        w.add_(x)
        y = w * 2.0
    g.replay()
    between, of_result = (w.reshape(2, 2) * p).sum(), (y.reshape(2, 2)[1] * p[1]).sum()
    for _ in range(3):
        g.replay()
    found = []
    for loss in (before, between, of_result):
        p.grad = None
        loss.backward()
        found.append(p.grad.tolist())
    assert found == [[[0.0, 2.0], [1.0, 3.0]], [[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [6.0, 8.0]]]


def test_backward_outside_of_what_was_captured_takes_the_values_of_the_last_replay() -> None:
    x: Any = weft.arange(3.0, device="cuda")
    w: Any = weft.ones(3, device="cuda").requires_grad_()
    with weft.cuda.graph() as g:
        y = weft.exp(x * w).sum()
    for scale in (1.0, 2.0, 0.5):
        x.copy_(weft.arange(3.0, device="cuda") * scale)
        g.replay()
        w.grad = None
        y.backward(retain_graph=True)
        at = np.arange(3.0) * scale
        np.testing.assert_allclose(w.grad.cpu().numpy(), at * np.exp(at), rtol=1e-5)


def test_gradients_that_a_replay_sets_are_no_others_than_those_that_are_held() -> None:
    w: Any = there(1.0, 2.0).requires_grad_()
    with weft.cuda.graph() as g:
        (w * w).sum().backward()
    g.replay()
    assert w.grad.tolist() == [2.0, 4.0]
    w.grad = None
    (w * 5.0).sum().backward()
    held = w.grad
    g.replay()
    assert (w.grad.tolist(), held.tolist()) == ([2.0, 4.0], [5.0, 5.0])
    w.grad.mul_(2.0)
    g.replay()
    assert w.grad.tolist() == [2.0, 4.0]


def test_memory_of_another_library_is_not_written_to() -> None:
    x = weft.from_dlpack(Foreign(there(1.0, 2.0)))
    with weft.cuda.graph() as g:
        y = x * 2.0
    g.replay()
    assert y.tolist() == [2.0, 4.0]
    x.copy_(there(5.0, 6.0))
    with pytest.raises(DeviceError, match="memory of another library"):
        g.replay()


def test_memory_that_another_library_has_stays_where_it_is() -> None:
    w = there(1.0, 2.0)
    with weft.cuda.graph() as g:
        w.add_(1.0)
    theirs = weft.from_dlpack(Foreign(w))
    g.replay()
    assert (w.tolist(), theirs.tolist()) == ([2.0, 3.0], [2.0, 3.0])
    place = theirs._data.pointer  # type: ignore[union-attr]
    del g, w
    gc.collect()
    assert all(there(9.0, 9.0)._data.pointer != place for _ in range(4))
    assert theirs.tolist() == [2.0, 3.0]


def test_who_else_has_memory_is_looked_for_where_counts_have_changed() -> None:
    model = weft.nn.Linear(3, 2).to("cuda")
    optimizer = weft.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    x: Any = weft.ones(2, 3, device="cuda")

    def step() -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    step()
    with weft.cuda.graph() as g:
        loss = step()
    x.copy_(weft.zeros(2, 3, device="cuda"))
    g.replay()
    with patch.object(parting, "_move_others", wraps=parting._move_others) as looked:
        for k in range(4):
            x.copy_(weft.full((2, 3), float(k), device="cuda"))
            g.replay()
            loss.item()
        assert looked.call_count == 0
        held = weft.stack([model.bias.detach()])
        g.replay()
        assert looked.call_count == 1
    assert held.tolist() != model.bias.tolist()

"""Compiled training steps write gradients where those of the last step lie, if nobody needs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.emulated import EmulatedDriver, emulated
from weft.errors import BoundsError

STEPS = 5  # the first two are lists of launches, the others a graph


@pytest.fixture
def card() -> Iterator[EmulatedDriver]:
    with emulated() as found:
        yield found


class Training:
    """A layer, and a compiled step; where it can fail, on rows of a table, and in half precision.

    What is computed in half precision is made a gradient by the kernel that uses it, after all that may fail.
    """

    def __init__(
        self, device: str, *, fails: bool = False, keeps: bool = False, compiled: bool = True
    ) -> None:
        rng = np.random.default_rng(0)
        self.device, self.fails = device, fails
        table = weft.tensor(rng.standard_normal((6, 4)).astype(np.float32), device=device)
        self.weight = self._tensor(rng.standard_normal((4, 3)))
        self.bias = self._tensor(np.zeros(3))
        optimizer = weft.optim.AdamW([self.weight, self.bias], lr=0.1)

        def step(numbers: Any) -> Any:
            if not keeps:
                optimizer.zero_grad()
            with weft.autocast(weft.bfloat16, enabled=fails):
                rows = table[numbers] if fails else table[:3] * numbers.astype(weft.float32).unsqueeze(1)
                loss = (weft.tanh(rows @ self.weight + self.bias) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        self.step: Any = weft.compile(step) if compiled else step

    def _tensor(self, array: Any) -> Any:
        return weft.tensor(array.astype(np.float32), device=self.device).requires_grad_()

    def run(self, *numbers: int) -> float:
        return float(self.step(weft.tensor(list(numbers), device=self.device)))

    def gradients(self) -> list[Any]:
        return [p.grad.cpu().numpy() for p in (self.weight, self.bias)]

    def places(self) -> list[int]:
        return [p.grad._data.pointer for p in ((self.weight,) if self.fails else (self.weight, self.bias))]


@pytest.mark.parametrize("keeps", [False, True])
def test_gradients_are_those_of_the_host(card: EmulatedDriver, keeps: bool) -> None:
    there, here = Training("cuda", keeps=keeps), Training("cpu", keeps=keeps, compiled=False)
    for k in range(STEPS):
        numbers = k % 6, 2, (k + 3) % 6
        assert there.run(*numbers) == pytest.approx(here.run(*numbers), rel=1e-5)
        for a, b in zip(there.gradients(), here.gradients(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("fails", [False, True])
def test_gradients_of_late_results_stay_where_they_are(card: EmulatedDriver, fails: bool) -> None:
    training = Training("cuda", fails=fails)
    training.run(0, 1, 2)
    first = training.places()
    for k in range(STEPS):
        training.run(k, 1, 2)
        assert training.places() == first


@pytest.mark.parametrize("warm", [1, STEPS])
def test_gradient_that_somebody_holds_is_not_written_over(card: EmulatedDriver, warm: int) -> None:
    training = Training("cuda")
    for k in range(warm):
        training.run(k, 1, 2)
    whole, part, shared = training.weight.grad, training.bias.grad[1:], training.bias.grad.detach()
    before = [t.cpu().numpy().copy() for t in (whole, part, shared)]
    training.run(5, 3, 3)
    for t, values in zip((whole, part, shared), before, strict=True):
        np.testing.assert_array_equal(t.cpu().numpy(), values)
    assert not np.array_equal(training.weight.grad.cpu().numpy(), before[0])


@pytest.mark.parametrize("warm", [1, STEPS])
def test_failed_step_leaves_gradients_and_weights(card: EmulatedDriver, warm: int) -> None:
    training = Training("cuda", fails=True)
    for k in range(warm):
        training.run(k, 1, 2)
    assert 1 in training.step.versions[0].run.late  # the gradient of the weights
    before = [*training.gradients(), training.weight.detach().cpu().numpy()]
    with pytest.raises(BoundsError):
        training.run(1, 6, 2)
    after = [*training.gradients(), training.weight.detach().cpu().numpy()]
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.isfinite(training.run(1, 5, 2))


def test_steps_need_no_more_memory_than_the_first(card: EmulatedDriver) -> None:
    training = Training("cuda")
    training.run(0, 1, 2)
    training.run(1, 1, 2)
    held = weft.cuda.memory_allocated()
    training.run(2, 1, 2)
    assert weft.cuda.memory_allocated() == held


def test_gradient_of_a_lookup_leaves_it_to_the_lookup_to_fail(card: EmulatedDriver) -> None:
    table = weft.tensor(np.arange(12, dtype=np.float32).reshape(4, 3), device="cuda").requires_grad_()
    optimizer = weft.optim.SGD([table], lr=1.0)

    def training(numbers: Any) -> Any:
        optimizer.zero_grad()
        loss = (table[numbers] * 2.0).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step: Any = weft.compile(training)

    def run(*numbers: int) -> float:
        return float(step(weft.tensor(list(numbers) * 20, device="cuda")))  # enough to be shared out

    for _ in range(STEPS):
        run(0, 3)
    expected = np.arange(12, dtype=np.float32).reshape(4, 3)
    expected[[0, 3]] -= 40.0 * STEPS
    np.testing.assert_array_equal(table.detach().cpu().numpy(), expected)
    with pytest.raises(BoundsError, match="7"):
        run(1, 7)
    np.testing.assert_array_equal(table.detach().cpu().numpy(), expected)
    notes = [line for line in str(step.versions[0].run.program).splitlines() if "(context" in line]
    assert notes
    assert not any("scatter_add" in line for line in notes)


def test_loss_that_is_kept_needs_no_third_set_of_gradients(
    card: EmulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.backends.cuda.replay._MUCH", 1)
    training = Training("cuda", fails=True)
    numbers = weft.tensor([0, 1, 2], device="cuda")
    for _ in range(STEPS):
        training.step(numbers)
    kept = training.step(numbers)
    value, lasts = float(kept), []
    for _ in range(4):
        last = training.step(numbers)  # held while the next one runs, as its gradients are
        lasts.append(float(last))
    assert float(kept) == value
    assert len({value, *lasts}) == 5
    (replay,) = next(iter(training.step.versions[0].run._plans.values())).replays.values()
    assert len(replay.ring) == 2

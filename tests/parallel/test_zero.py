"""ZeRO by placement: memory by the formula, the bits of one process, and the messages that it takes."""

from __future__ import annotations

import functools
from collections import Counter
from math import prod
from typing import Any

import numpy as np
import pytest

import weft
from tests.parallel.training import classify, digest
from weft import nn
from weft import parallel as par
from weft.errors import DomainError


class Net(nn.Module):
    """Sizes that 4 ranks divide, and ones that they do not."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 5))

    def forward(self, x: Any) -> Any:
        """Scores of each row."""
        return self.layers(x)


def train(zero: int, steps: int = 3, clip: float = 0.5, **settings: Any) -> dict[str, Any]:
    """Train a few steps; digests, losses, bytes that this rank holds, and the messages of a step."""
    mesh = par.mesh(data=-1)
    weft.manual_seed(0)
    model = Net()
    optimizer = weft.optim.AdamW(model.parameters(), lr=1e-2)

    run = weft.compile(classify(model, optimizer, clip=clip), mesh=mesh, zero=zero, **settings)
    losses = []
    for k in range(steps):
        rng = np.random.default_rng(k)
        x, y = rng.standard_normal((16, 8)).astype(np.float32), rng.integers(0, 5, 16)
        losses.append(float(run(weft.tensor(x), weft.tensor(y))))
    params = list(model.parameters())
    grads = [p.grad for p in params]
    state = [t for p in params for t in optimizer.state[p].values() if t.ndim]
    arrays = [t.detach().full().numpy() for t in (*params, *grads, *state)]  # type: ignore[union-attr]
    return {
        "losses": losses,
        "digest": digest(arrays),
        "arrays": arrays,
        "held": tuple(map(par.held_bytes, (params, grads, state))),
        "messages": Counter(node.op.name.removeprefix("start_") for node in run.lowered.nodes),
    }


@functools.cache
def alone() -> dict[str, Any]:
    """The same in a world of one, without anything cut."""
    found: dict[str, Any] = par.simulate(train, 1, 0)[0]
    return found


def part(count: int) -> int:
    """Bytes of a rank's part of all parameters: the largest even dimension is cut, else one is padded."""
    total = 0
    for shape in ((16, 8), (16,), (5, 16), (5,)):
        even = any(s % count == 0 for s in shape)
        total += prod(shape) // count if even else -(-shape[0] // count)
    return 4 * total


@pytest.mark.rotating(2)
@pytest.mark.parametrize(("n", "zeros"), [(2, (1, 2)), (4, (3,))])
def test_bits_are_those_of_one_process_and_memory_follows_the_formula(n: int, zeros: tuple[int, ...]) -> None:
    expected = alone()
    whole, cut = 4 * 229, part(n)
    for zero in zeros:
        for found in par.simulate(train, n, zero):
            assert found["losses"] == expected["losses"]
            assert found["digest"] == expected["digest"]
            held = (cut if zero >= 3 else whole, cut if zero >= 2 else whole, 2 * cut)
            assert found["held"] == held


@pytest.mark.rotating(2)
def test_gradients_come_in_parts_where_nobody_needs_more() -> None:
    """With no norm of all gradients: a sum for each rank's part alone, and parameters gathered once."""
    (first, second) = (par.simulate(train, 2, zero, 1, 0.0)[0]["messages"] for zero in (1, 2))
    assert first["reduce_scatter"] == 0
    assert second["reduce_scatter"] == 1  # joined; the bias of 5 is gathered for its step
    assert second["all_gather"] >= 1


@pytest.mark.rotating(2)
def test_native_sums_with_zero_are_close_and_clip_by_the_norm_of_all() -> None:
    expected = alone()["arrays"]
    for found in par.simulate(lambda: train(3, reproducible=False), 2):
        for a, b in zip(found["arrays"], expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-5)


def test_pass_may_be_left_out() -> None:
    found = par.simulate(lambda: train(3, disable=["place_state"]), 2)[0]
    assert found["held"][0] == 4 * 229
    assert found["digest"] == alone()["digest"]


def test_gradients_that_accumulate_stay_in_parts() -> None:
    def program(zero: int) -> Any:
        mesh = par.mesh(data=-1)
        w = weft.ones(4, 6, requires_grad=True)

        def add(x: Any) -> None:
            weft.tanh(par.shard(x, "data") @ w).sum().backward()

        run = weft.compile(add, mesh=mesh, zero=zero)
        for k in range(3):
            run(weft.arange(64.0).reshape(16, 4) * (k + 1) * 0.01)
        assert w.grad is not None
        return par.held_bytes([w.grad]), w.grad.full().numpy().tobytes()

    expected = par.simulate(program, 1, 0)[0]
    assert par.simulate(program, 2, 2) == [(48, expected[1])] * 2


def test_wrong_stages_are_refused() -> None:
    mesh = par.mesh(data=1)
    for zero in (4, -1, True, "1"):
        with pytest.raises(DomainError, match="zero must be 0, 1, 2 or 3, got"):
            weft.compile(lambda x: x, mesh=mesh, zero=zero)  # type: ignore[call-overload]
    with pytest.raises(DomainError, match="zero needs a mesh with the axis 'data'"):
        weft.compile(lambda x: x, mesh=par.mesh(model=1), zero=1)

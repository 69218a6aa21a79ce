"""Training steps on a mesh whose tensors are on devices: ranks are threads, each with an emulated card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.collect import emulated_ranks
from weft import nn
from weft import parallel as par

X = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((8, 3)).astype(np.float32)


def trained(zero: int, device: str, path: Path | None = None) -> list[Any]:
    """The losses of steps on a batch that the ranks share, and the weights after them."""
    mesh = par.mesh(data=-1)
    weft.manual_seed(0)
    model = nn.Linear(6, 3)
    place = device.replace("?", str(par.rank()))
    model.to(place)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        x, y = par.shard(x, "data", None), par.shard(y, "data", None)
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    compiled = weft.compile(step, mesh=mesh, zero=zero)
    x, y = weft.tensor(X).to(place), weft.tensor(Y).to(place)
    losses = [float(compiled(x, y)) for _ in range(3)]
    if path is not None:
        weft.save(model.state_dict(), path)
    return [*losses, *[p.detach().full().cpu().numpy() for p in model.parameters()]]


@pytest.mark.parametrize("zero", [0, 3])
def test_batches_on_devices_are_cut_as_those_of_processors(zero: int, tmp_path: Path) -> None:
    expected = par.simulate(lambda: trained(zero, "cpu"), 2)
    with emulated_ranks(2):
        found = par.simulate(lambda: trained(zero, "cuda:?", tmp_path / "model.weft"), 2)
    for ours, theirs in zip(found, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    saved = weft.load(tmp_path / "model.weft", device="cpu")
    for a, b in zip(saved.values(), expected[0][3:], strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-5, atol=1e-6)


def test_uneven_parts_of_a_tensor_on_a_device() -> None:
    def program() -> Any:
        mesh = par.mesh(data=-1)
        x = weft.arange(10.0).reshape(5, 2).to(f"cuda:{par.rank()}")
        placed = par.place(x, par.P("data", None), mesh)
        return placed.full().cpu().numpy()

    with emulated_ranks(2):
        for whole in par.simulate(program, 2):
            np.testing.assert_array_equal(whole, np.arange(10.0).reshape(5, 2))


def test_parts_go_from_device_to_device() -> None:
    def program() -> Any:
        x = par.place(weft.arange(8.0).reshape(4, 2), par.P("data", None), par.mesh(data=-1))
        there = x.to(f"cuda:{par.rank()}")
        assert (str(x.device), str(there.device)) == ("cpu", f"cuda:{par.rank()}")
        return [y.cpu().numpy() for y in (there.full(), there.cpu().full())]

    with emulated_ranks(2):
        for found in par.simulate(program, 2):
            for whole in found:
                np.testing.assert_array_equal(whole, np.arange(8.0).reshape(4, 2))

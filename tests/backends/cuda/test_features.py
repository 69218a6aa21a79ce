"""What users do with tensors, on a card in NumPy: the same values as on the host, on the device."""

# ruff: noqa: T201 - what is printed is looked at
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn as nn
from tests.backends.cuda.emulated import EmulatedDriver, emulated
from weft import data
from weft.backends.cuda import driver

pytestmark = pytest.mark.filterwarnings("ignore:.*has no kernel for cuda:RuntimeWarning")


@pytest.fixture
def card() -> Iterator[EmulatedDriver]:
    with emulated() as found:
        yield found


def rows(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def leaves(out: Any) -> list[Any]:
    return [t for t in weft.tree_leaves(out) if isinstance(t, weft.Tensor)]


def agree(run: Callable[[Any], Any], x: Any, name: str) -> None:
    """A function gives the same on both devices, and gradients, where there are some."""
    found = []
    for device in ("cpu", "cuda"):
        t: Any = weft.tensor(x, device=device)
        if t.dtype.kind == "f":
            t.requires_grad_()
        outs = leaves(run(t))
        assert all(o.device == device for o in outs), name
        flowing = [o for o in outs if o.requires_grad]
        if flowing:
            sum((o * o).sum() for o in flowing).backward()
        found.append([o.detach().cpu().numpy() for o in outs] + ([t.grad.cpu().numpy()] if flowing else []))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=1e-5, err_msg=name)


def _sum(t: Any) -> Any:
    return weft.tanh(t * t).sum()


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda t: weft.grad(_sum)(t.detach()),
    "value and grad": lambda t: weft.value_and_grad(_sum)(t.detach()),
    "vmap": lambda t: weft.vmap(lambda r: weft.softmax(r, axis=0))(t.detach()),
    "vmap with a number": lambda t: weft.vmap(lambda r, s: r * s, in_axes=(0, None))(t.detach(), 2.0),
    "jvp": lambda t: weft.jvp(_sum, (t.detach(),), (t.detach(),)),
    "vjp": lambda t: weft.vjp(lambda r: r * r, t.detach())[1](t.detach()),
    "hessian": lambda t: weft.hessian(_sum)(t.detach()[0]),
    "jacrev": lambda t: weft.jacrev(lambda r: weft.sin(r) * r)(t.detach()[0]),
    "jacfwd": lambda t: weft.jacfwd(lambda r: weft.sin(r) * r)(t.detach()[0]),
    "jacrev of one": lambda t: weft.jacrev(_sum)(t.detach()),
    "vmap of grad": lambda t: weft.vmap(weft.grad(lambda r: (r**3).sum()))(t.detach()),
    "recompute": lambda t: weft.checkpoint(lambda r: weft.tanh(r @ r.T), t),
    "double backward": lambda t: weft.autograd.grad((t**3).sum(), [t], create_graph=True)[0],
}


COUNTED: dict[str, Callable[[Any], Any]] = {
    "nonzero": lambda t: weft.nonzero(t),
    "argwhere": lambda t: weft.argwhere(t),
    "mask": lambda t: t[t > 1],
    "masked_select": lambda t: weft.masked_select(t, t > 1),
    "places of others": lambda t: t[weft.nonzero(t)[0]],
    "unique": lambda t: weft.unique(t, return_inverse=True, return_counts=True),
    "unique along an axis": lambda t: weft.unique(t.reshape(3, 2), axis=0, return_counts=True),
    "unique_all": lambda t: tuple(weft.unique_all(t)),
    "unique_consecutive": lambda t: weft.unique_consecutive(t, return_inverse=True, return_counts=True),
    "bincount": lambda t: weft.bincount(t),
    "interpreted": lambda t: weft.compile(lambda x: x * 2 + 1, backend="interpret")(t),
}


def test_what_depends_on_values_stays_on_the_device(card: EmulatedDriver) -> None:
    for name, run in COUNTED.items():
        agree(run, np.array([1, 0, 2, 2, 1, 0]), name)
    assert not card.errors


@pytest.mark.rotating(2)
def test_transforms_stay_on_the_device(card: EmulatedDriver) -> None:
    for name, run in TRANSFORMS.items():
        agree(run, rows(1, 3, 4), name)
    assert not card.errors


def _sparse(t: Any) -> Any:
    places = weft.tensor([[0, 1, 1], [2, 0, 2]], device=t.device)
    return weft.sparse_coo_tensor(places, t[0], (2, 3))


CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "sparse to dense": lambda t: _sparse(t).to_dense(),
    "sparse product": lambda t: _sparse(t) @ weft.ones(3, 2, device=t.device),
    "sparse sum": lambda t: _sparse(t).sum(),
    "sparse scaled": lambda t: (_sparse(t) * 2.0).coalesce().values,
    "ragged sum": lambda t: weft.ragged_from_splits(t, [0, 2, 2, 3]).sum(),
    "ragged padded": lambda t: weft.ragged_from_splits(t, [0, 2, 2, 3]).to_padded(1.5),
    "ragged softmax": lambda t: weft.ragged_from_splits(t, [0, 1, 3]).softmax().values,
    "ragged scaled": lambda t: weft.multiply(weft.ragged_from_splits(t, [0, 1, 3]), 2.0).mean(),
}


@pytest.mark.rotating(2)
def test_sparse_and_ragged_tensors_compute_on_the_device(card: EmulatedDriver) -> None:
    for name, run in CONTAINERS.items():
        agree(run, rows(1, 3, 3), name)
    assert not card.errors


def test_sparse_and_ragged_tensors_move(card: EmulatedDriver) -> None:
    sparse = weft.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)).requires_grad_()
    ragged = weft.ragged([[1.0, 2.0], [3.0]])
    for x in (sparse, ragged):
        there = x.to("cuda")
        assert there.device == "cuda"
        assert there.cuda() is there
        assert there.cpu().device == "cpu"
    sparse.cuda().to_dense().sum().backward()
    assert sparse.grad is not None
    assert sparse.grad.values.tolist() == [1.0, 1.0]
    batch = next(iter(data.from_dataset([[1, 2], [3]]).batch(2, ragged=True).to("cuda")))
    assert batch.device == "cuda"
    assert [r.tolist() for r in batch.cpu()] == [[1, 2], [3]]


@pytest.mark.rotating(2)
def test_files_and_states_load_on_either_device(card: EmulatedDriver, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to("cuda")
    optimizer = weft.optim.Adam(model.parameters())
    x = weft.tensor(rows(1, 5, 3), device="cuda")
    model(x).sum().backward()
    optimizer.step()
    weft.save(model.state_dict(), tmp_path / "model.weft")
    weft.save({"optimizer": optimizer.state_dict()}, tmp_path / "all.weft")
    expected = [t.cpu().numpy() for t in model.state_dict().values()]
    for device in ("cpu", "cuda"):
        found = weft.load(tmp_path / "model.weft", device=device)
        assert all(t.device == device for t in found.values())
        for other in ("cpu", "cuda"):
            fresh = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(other)
            fresh.load_state_dict(found)
            for a, b in zip(fresh.state_dict().values(), expected, strict=True):
                assert a.device == other
                np.testing.assert_array_equal(a.cpu().numpy(), b)
            again = weft.optim.Adam(fresh.parameters())
            again.load_state_dict(weft.load(tmp_path / "all.weft", device=device)["optimizer"])
            fresh(x.to(other)).sum().backward()
            again.step()


def test_trees_of_all_kinds_load_on_a_device(card: EmulatedDriver, tmp_path: Path) -> None:
    sparse = weft.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)).cuda()
    ragged = weft.ragged([[1.0, 2.0], [3.0]]).cuda()
    weft.save({"s": sparse, "r": ragged, "n": 3, "z": weft.tensor([1 + 2j], device="cuda")}, tmp_path / "t")
    for device in ("cpu", "cuda"):
        found = weft.load(tmp_path / "t", device=device)
        assert {found[name].device.type for name in "srz"} == {device}
        assert found["s"].to_dense().tolist() == [[0.0, 0.0, 3.0], [4.0, 0.0, 0.0]]
        assert [r.tolist() for r in found["r"].cpu()] == [[1.0, 2.0], [3.0]]
        assert found["z"].tolist() == [1 + 2j]
        with weft.default_device(device):
            assert weft.load(tmp_path / "t")["z"].device == device


def test_graph_files_run_on_either_device(card: EmulatedDriver, tmp_path: Path) -> None:
    x = rows(1, 2, 3)
    for device in ("cpu", "cuda"):
        model = nn.Linear(3, 4).to(device)
        expected = model(weft.tensor(x, device=device)).detach().cpu().numpy()
        traced = weft.jit.trace(model, weft.tensor(x, device=device))
        traced.save(tmp_path / "linear.weft")
        for target in ("cuda", "cpu"):
            loaded = weft.load_graph(tmp_path / "linear.weft", device=target)
            for given in (weft.tensor(x), weft.tensor(x, device=target)):
                found = loaded(given)
                assert found.device == target
                np.testing.assert_allclose(found.detach().cpu().numpy(), expected, rtol=1e-5)
            loaded.save(tmp_path / "again.weft")
            np.testing.assert_allclose(
                weft.load_graph(tmp_path / "again.weft")(weft.tensor(x)).detach().numpy(), expected, rtol=1e-5
            )


def test_served_graph_runs_on_the_device(card: EmulatedDriver, tmp_path: Path) -> None:
    from weft.io.interface import Interface
    from weft.serve.model import load_models
    from weft.serve.settings import Settings

    model = nn.Linear(3, 4)
    x = rows(1, 2, 3)
    weft.jit.trace(model, weft.tensor(x)).save(tmp_path / "linear.weft")
    (served,) = load_models(str(tmp_path / "linear.weft"), Settings(), None, "cuda")
    card.calls.clear()
    (found,) = Interface(served.interface.loaded).run([x])
    assert "cuLaunchKernel" in card.names()
    np.testing.assert_allclose(found, model(weft.tensor(x)).detach().numpy(), rtol=1e-5)


def _trained(device: str, tmp_path: Path, **settings: Any) -> tuple[list[Any], Any]:
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    x = rows(1, 10, 3)
    optimizer = weft.optim.Adam(model.parameters(), lr=0.02)
    trainer = weft.Trainer(
        model,
        weft.cross_entropy,
        optimizer,
        data.from_arrays(x, x.argmax(axis=1)).shuffle(seed=3).batch(5),
        [(x[:5], x[:5].argmax(axis=1))],
        metrics=["accuracy"],
        scheduler=weft.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.8),
        clip_norm=1.0,
        ema=weft.optim.EMA(model, decay=0.9),
        directory=tmp_path / device,
        logs=("csv",),
        progress=False,
        device=device,
        **settings,
    )
    history = trainer.fit(epochs=1)
    assert all(p.device == device for p in model.parameters())
    return [[row[k] for k in ("loss", "val_loss", "val_accuracy")] for row in history], trainer


@pytest.mark.rotating(3)
def test_trainer_takes_a_device(card: EmulatedDriver, tmp_path: Path) -> None:
    for settings in ({}, {"compile": False, "accumulate": 2}):
        (expected, _), (found, trainer) = (
            _trained(device, tmp_path / str(len(settings)), **settings) for device in ("cpu", "cuda")
        )
        np.testing.assert_allclose(found, expected, rtol=1e-3)
        assert trainer.step in (1, 2)
    assert not card.errors


@pytest.mark.rotating(2)
def test_compiled_code_prints_what_eager_code_prints(
    card: EmulatedDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    w = weft.tensor([1.0, 2.0], device="cuda", requires_grad=True)

    def f(x: Any) -> Any:
        print(w, (x * w).sum(), x.astype("float16"), sep="\n")
        for i in range(2):
            print(f"{i}: {x[i]} of {x.sum():.2f}")
        assert x.sum() > 0, f"the sum must be positive: {x}"
        return x * 2.0

    def printed(run: Callable[[Any], Any]) -> str:
        run(weft.tensor([1.0, 3.0], device="cuda"))
        with pytest.raises(AssertionError, match=r"positive: tensor\(\[-1., -3.\], device='cuda:0'\)"):
            run(weft.tensor([-1.0, -3.0], device="cuda"))
        return capsys.readouterr().out

    expected = printed(f)
    assert expected.count("device='cuda:0'") == 2 * 3
    assert printed(weft.compile(f)) == expected


def test_a_forked_process_gives_nothing_back(card: EmulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    x = weft.ones((1 << 18) + 128, device="cuda")  # large enough to go to the driver
    monkeypatch.setattr(driver.Life, "ending", False)
    driver._in_child()  # what a child of a fork does first
    card.calls.clear()
    del x
    assert card.calls == []
    monkeypatch.setattr(driver.Life, "ending", False)
    driver.found.forked = False

"""Trainers on a mesh: the bits of one process, parts in memory and in checkpoints, and who writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft import parallel as par
from weft.errors import ArgumentError, DomainError
from weft.train import Callback


def batches() -> list[tuple[Any, Any]]:
    """Two batches that the virtual shards divide, and a shorter one at the end."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((44, 6)).astype(np.float32), rng.integers(0, 3, 44)
    return [(x[i : i + 16], y[i : i + 16]) for i in range(0, 44, 16)]


class Fails(Callback):
    """An error of one rank, after a step."""

    def on_step(self, trainer: Any, row: Any) -> None:
        """Fail at the second one."""
        if trainer.step == 2 and par.rank() == 1:
            raise ValueError("an error of rank 1")


def run(directory: Path | None, steps: int, zero: int = 0, **more: Any) -> tuple[Any, bytes, int]:
    """Losses of the epochs that ended, all weights, and the bytes that this rank holds of them."""
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 3))
    optimizer = weft.optim.AdamW(model.parameters(), lr=0.02)
    settings: dict[str, Any] = {"clip_norm": 0.5, "metrics": ["accuracy"], "progress": False, **more}
    parts = model, weft.cross_entropy, optimizer, batches(), batches()
    mesh = par.mesh(data=-1)
    trainer = weft.Trainer(*parts, mesh=mesh, zero=zero, directory=directory, logs=("csv",), **settings)
    if directory is not None:
        trainer.resume()
    history = trainer.fit(steps=steps)
    rows = [[row[k] for k in ("loss", "val_loss", "val_accuracy")] for row in history]
    weights = b"".join(p.detach().full().cpu().numpy().tobytes() for p in model.parameters())
    return rows, weights, par.held_bytes(model.parameters())


@pytest.mark.rotating(2)
def test_run_goes_on_with_other_ranks_and_has_the_bits_of_one(tmp_path: Path) -> None:
    whole = par.simulate(run, 1, None, 4)[0]
    assert len(whole[0]) == 1
    par.simulate(run, 2, tmp_path, 2, 3)
    names = [p.name for p in tmp_path.iterdir()]
    assert sum(name.startswith("step-") and name.endswith(".safetensors") for name in names) == 1
    assert sum(name.endswith(".00001") for name in names) == 1
    for rows, weights, held in par.simulate(run, 4, tmp_path, 4, 3):
        assert (rows, weights) == whole[:2]
        assert held == 84
    log = (tmp_path / "log.csv").read_text().splitlines()
    assert len(log) == len(set(log))  # one rank writes


@pytest.mark.rotating(2)
def test_steps_of_several_batches_with_gradients_in_parts() -> None:
    whole = par.simulate(lambda: run(None, 1, accumulate=2), 1)[0]
    for _, weights, _ in par.simulate(lambda: run(None, 1, 2, accumulate=2), 2):
        assert weights == whole[1]


def test_old_checkpoints_go_with_their_slices(tmp_path: Path) -> None:
    par.simulate(lambda: run(tmp_path, 2, 1, checkpoint_every=1, keep=1), 2)
    names = sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("step-"))
    assert [name[:13] for name in names] == ["step-00000002"] * 3


def test_error_of_one_rank_is_told_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="an error of rank 1"):
        par.simulate(lambda: run(tmp_path, 3, 3, callbacks=[Fails()]), 2)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(DomainError, match="steps on a mesh must be compiled"):
        run(None, 1, compile=False)
    with pytest.raises(DomainError, match="zero must be 0, 1, 2 or 3, got 7"):
        run(None, 1, 7)
    model = nn.Linear(1, 1)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ArgumentError, match=r"mesh must be made by par\.mesh, got str"):
        weft.Trainer(model, weft.mse_loss, optimizer, [], mesh="data=2")

"""Rows of ``make bench-gpu`` where there is no card: weft's programs on the host, limits, and the table."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.gpu import __main__ as command
from bench.gpu import decode, gpt, kernels, loops, networks, row, worker
from bench.gpu.row import TORCH, WEFT, Row
from bench.gpu.rows import ROWS

TINY = gpt.Size(layers=1, width=16, heads=2, length=8, batch=2, vocabulary=11)


@pytest.fixture(autouse=True)
def _on_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (row, decode, kernels, loops, networks):
        monkeypatch.setattr(module, "DEVICE", "cpu")


def test_rows_have_names_of_their_own_and_weft_among_their_frameworks() -> None:
    assert len({r.name for r in ROWS}) == len(ROWS) == 16
    assert all(WEFT in r.makers and (r.goal is None or r.goal > 0) for r in ROWS)


@pytest.mark.rotating(2)
def test_steps_of_weft_run() -> None:
    newton = next(r for r in ROWS if r.name == "newton").makers[WEFT]()
    np.testing.assert_allclose(newton().numpy() ** 2, loops._numbers(), rtol=1e-3)
    step = gpt.weft_step(TINY, "cpu")
    losses = [float(step()) for _ in range(3)]
    assert losses[0] == pytest.approx(np.log(TINY.vocabulary), rel=0.05)
    assert losses[2] < losses[0]


def test_chain_of_small_ops_is_a_power_and_its_gradient() -> None:
    forward, both = (next(r for r in ROWS if r.name == n).makers[WEFT]() for n in ("ops", "ops-gradient"))
    rng = np.random.default_rng(0)
    x, w, b = (rng.uniform(0.9, 1.1, 100).astype(np.float32).astype(np.float64) for _ in range(3))
    power = w ** (kernels.OPS // 2)
    np.testing.assert_allclose(both().numpy(), x * w * power, rtol=1e-3)
    np.testing.assert_allclose(
        forward().detach().numpy(), x * power + (b - 1) * (power - 1) / (w - 1), rtol=5e-3, atol=1e-3
    )


def test_figures_of_a_row() -> None:
    quick = Row("quick", "quick", 1.0, {WEFT: lambda: lambda: 0.5}, turns=3, losses=4)
    found = worker.measure(quick, WEFT)
    assert found["losses"] == [0.5] * 4
    assert 0 < found["us"] < 1e5
    own = Row("own", "own", 1.0, {WEFT: lambda: lambda: 125.0}, own_time=True)
    assert worker.measure(own, WEFT) == {"us": 125.0}


def test_time_of_a_chain_is_that_of_one_operation() -> None:
    chain = Row("chain", "chain", None, {WEFT: lambda: lambda: time.sleep(0.01)}, turns=2, ops=1000)
    assert 10 <= worker.measure(chain, WEFT)["us"] < 1000


def test_what_fails_or_takes_too_long_is_said_in_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(command.run_one("no such row", WEFT, 60)).startswith("failed: ")
    begin = time.monotonic()
    assert command.run_one("softmax", WEFT, 0.05) == "more than 0 s"
    assert time.monotonic() - begin < 30


def test_rows_that_were_not_run_keep_their_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    both: dict[str, Any] = {
        WEFT: {"us": 30.0, "losses": [2.0, 1.0]},
        TORCH: {"us": 4e4, "losses": [2.0, 1.1]},
    }
    command.write({"gpt2": both})
    command.write({"tiny": {WEFT: "failed: a | b"}})
    known = json.loads((tmp_path / "gpu.json").read_text())
    assert known["rows"]["gpt2"] == both
    text = (tmp_path / "gpu.md").read_text()
    assert "| 28 ms | 30 µs | 40 ms |" in text
    assert "9.1e-02" in text  # losses apart
    assert "failed: a / b" in text
    assert "backward() |  |" in text  # no goal

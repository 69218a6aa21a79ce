"""Profiles of memory: who holds what when most of it is in use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.ops.op import intercepted
from weft.profiler.log import trackers
from weft.profiler.memory import draw

MB = 1 << 20
SIZE = (512, 512)  # of float32: 1 MB


def line_of(text: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"{Path(__file__).name}:{next(i for i, line in enumerate(lines, 1) if text in line)}"


def test_arrays_that_live_together_are_the_peak() -> None:
    x = weft.ones(SIZE)
    with weft.memory_profile() as m:
        a = weft.exp(x)
        b = weft.sin(x)
        del a
        c = weft.cos(x)
        del b, c
    assert m.peak == 2 * MB
    assert [(a.op, a.bytes) for a in m.allocations] == [("exp", MB), ("sin", MB), ("cos", MB)]
    assert {a.op for a in m.at_peak} == {"exp", "sin"}
    assert [total for _, total in m.timeline] == [MB, 2 * MB, MB, 2 * MB, MB, 0]


def test_who_holds_the_peak_by_line() -> None:
    x = weft.ones(SIZE)
    with weft.memory_profile() as m:
        kept = [weft.exp(x) for _ in range(3)]  # the line that keeps
        for _ in range(5):
            weft.sin(x)  # the line that does not
    rows = {row.name: row for row in m.rows("line")}
    keeps, drops = rows[line_of("# the line that keeps")], rows[line_of("# the line that does not")]
    assert keeps.peak == 3 * MB
    assert drops.peak == MB
    assert (drops.bytes, drops.count) == (5 * MB, 5)
    assert keeps.share == pytest.approx(3 / 4)
    assert keeps.text.startswith("kept = ")
    assert len(kept) == 3


def test_views_take_no_memory() -> None:
    x = weft.ones(SIZE)
    with weft.memory_profile() as m:
        y = weft.exp(x)
        views = [y.reshape(-1), y.mT, y[10:], x.reshape(2, -1)]
    assert len(views) == 4
    assert m.peak == MB


def test_what_a_backward_saves_is_there_until_it_ran() -> None:
    x = weft.ones(SIZE, requires_grad=True)
    with weft.memory_profile() as m:
        loss = weft.exp(weft.sin(x)).sum()
        loss.backward()
    assert {"sin", "exp", "exp backward", "sin backward"} <= {a.op for a in m.allocations}
    by_op = {row.name: row for row in m.rows()}
    assert by_op["exp"].peak == MB  # its result is saved
    assert 2 * MB <= m.peak < 2 * MB + 100  # two large arrays at a time, and the loss
    assert MB <= m.timeline[-1][1] < MB + 100  # the gradient


def test_modules_hold_memory() -> None:
    net = nn.Sequential(nn.Linear(512, 512), nn.Tanh())
    with weft.memory_profile() as m:
        out = net(weft.ones(SIZE))
    assert out.shape == SIZE
    assert {row.name for row in m.rows("module")} == {"(top)", "0", "1"}


def test_new_tensors_are_followed() -> None:
    with weft.memory_profile() as m:
        x = weft.zeros(SIZE)
        y = weft.ones(SIZE)
    assert x.shape == y.shape
    assert m.peak == 2 * MB


def test_compiled_functions_have_their_plan() -> None:
    @weft.compile
    def f(x: Any) -> Any:
        return weft.tanh(x @ x) @ x

    x = weft.ones(SIZE)
    with weft.memory_profile() as m:
        y = f(x)
    [plan] = m.plans
    assert plan.name == "f"
    assert plan.arena >= MB
    assert m.peak == plan.arena + y.nbytes
    assert {a.op for a in m.at_peak} == {"f", "f (arena)"}
    assert m.timeline[-1][1] == y.nbytes


def test_state_that_is_overwritten_takes_no_new_memory() -> None:
    w = weft.ones(SIZE)

    @weft.compile
    def step() -> None:
        w[:] = w * 2.0

    step()
    with weft.memory_profile() as m:
        step()
    np.testing.assert_array_equal(w.numpy()[0, 0], 4.0)
    assert m.peak < MB


def test_nothing_is_left_behind_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), weft.memory_profile() as m:
        weft.exp(weft.ones(SIZE))
        1 / 0  # noqa: B018 - it raises
    assert not trackers
    assert type(intercepted.threads) is set
    assert m.peak >= MB


def test_both_profiles_at_once() -> None:
    x = weft.ones(SIZE)
    with weft.profile() as p, weft.memory_profile() as m:
        weft.exp(x)
    assert [e.name for e in p.events if e.kind == "op"] == ["exp"]
    assert m.peak == MB


def test_tables_pictures_and_files(tmp_path: Path) -> None:
    x = weft.ones(SIZE)
    with weft.memory_profile() as m:
        y = weft.exp(x)
    assert y is not None
    lines = str(m).splitlines()
    assert lines[0] == "1.0 MB at the peak, by op"
    assert lines[2].split() == ["1.0", "MB", "100.0%", "1.0", "MB", "1", "exp"]
    m.save(tmp_path / "memory.json")
    records = json.loads((tmp_path / "memory.json").read_text())["traceEvents"]
    assert [r["args"]["bytes"] for r in records if r["ph"] == "C"] == [MB]
    assert repr(m) == "<memory profile: 1.0 MB at the peak, 1 arrays>"


def test_the_picture_of_a_timeline() -> None:
    rows = draw([(0.0, 800), (0.5, 400), (0.75, 0)], 1.0).splitlines()
    counts = [row.count("#") for row in rows[:8]]
    assert counts == [36] * 4 + [54] * 4
    assert draw([], 0.0).count("#") == 0


def test_it_must_have_run() -> None:
    with pytest.raises(weft.errors.ArgumentError, match="memory_profile: the block must have ended"):
        weft.memory_profile().rows()
    with pytest.raises(weft.errors.ArgumentError, match="by must be one of op, line, module, got 'thread'"):
        with weft.memory_profile() as m:
            pass
        m.rows("thread")

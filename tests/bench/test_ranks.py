"""The rows of two ranks: which lines there are, what they compare, and what is told when a program fails."""

from __future__ import annotations

import pytest

from bench import ranks
from bench.__main__ import parse
from bench.line import Line, Settings

STEP = {"weft": [2.0], "weft any order": [1.9], "one rank": [3.0]}
PYTHONS = {"weft": "python", "torch": "python"}


def lines(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, *rows: str, broken: bool = False
) -> dict[str, Line]:
    def run(label: str, what: str, settings: Settings) -> dict[str, list[float]]:
        if label == "torch" and broken:
            raise RuntimeError("no gloo")
        if what in ranks.SUMS:
            return {"torch gloo": [1.0]} if label == "torch" else {"weft": [2.0], "mpi4py": [3.0]}
        return {"torch ddp": [4.0]} if label == "torch" else STEP

    monkeypatch.setattr(ranks, "_run", run)
    return {line.name: line for line in ranks.measure_ranks(settings, rows)}


def test_steps_are_beside_one_rank_any_order_and_ddp(monkeypatch: pytest.MonkeyPatch) -> None:
    found = lines(monkeypatch, Settings(PYTHONS), "ranks gpt")
    assert list(found) == ["ranks gpt", "ranks gpt equal bits", "ranks gpt DDP"]
    assert [line.ratio() for line in found.values()] == [1.5, 0.95, 2.0]
    assert found["ranks gpt"].samples["weft"] == [2.0, 2.0]


def test_gloo_is_told_beside_the_sum_to_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    found = lines(monkeypatch, Settings(PYTHONS))
    assert len(found) == 9
    line = found["ranks all_reduce 1kB"]
    assert line.best_peer() == "mpi4py"
    assert "torch gloo" in line.samples


def test_a_peer_that_fails_or_is_not_there_takes_nothing_away(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = lines(monkeypatch, Settings(PYTHONS), "ranks gpt", broken=True)
    assert broken["ranks gpt DDP"].failed == {"torch": "no gloo"}
    assert broken["ranks gpt"].ratio() == 1.5
    assert list(lines(monkeypatch, Settings({"weft": "python"}), "ranks gpt")) == [
        "ranks gpt", "ranks gpt equal bits",
    ]  # fmt: skip


def test_lines_can_be_named() -> None:
    assert parse(["ranks gpt", "ranks"]).rows == ["ranks gpt", "ranks"]
    with pytest.raises(SystemExit):
        parse(["ranks gpt2"])

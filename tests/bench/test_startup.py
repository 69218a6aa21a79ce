"""The row of the first answer: new processes, timed from their start, whose answers agree."""

from __future__ import annotations

import sys

import pytest

from bench import first_answer, startup
from bench.line import Settings


@pytest.mark.rotating(2)
def test_first_answer_is_timed_with_and_without_a_cache() -> None:
    warm, cold = startup.measure_startup(Settings({"weft": sys.executable}, rounds=1))
    assert (warm.name, cold.name) == ("startup", "startup cold")
    assert warm.failed == {}
    assert 0 < warm.median("weft") < 60
    assert 0 < cold.median("weft") < 60


def test_program_that_fails_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "_PROGRAM", "no_such_program.py")
    warm, _ = startup.measure_startup(Settings({"weft": sys.executable}, rounds=1))
    assert "no_such_program.py" in warm.failed["weft"]
    assert warm.samples == {}


def test_every_framework_has_both_halves_of_the_program() -> None:
    for label in startup.LABELS:
        assert callable(getattr(first_answer, f"make_{label}"))
        assert callable(getattr(first_answer, f"run_{label}"))

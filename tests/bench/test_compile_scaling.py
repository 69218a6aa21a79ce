"""The row on how compile time grows: what it measures, and what it makes of it."""

from __future__ import annotations

import time

import pytest

from bench import report
from bench.compile_scaling import MOST, Phases, exponent, measure_apart, table
from bench.line import Line
from bench.rows import row_names


def test_row_is_there_and_its_goals_are_seconds_at_most() -> None:
    assert "compile_scaling" in row_names()
    line = Line("compile scaling layers 96", None, most=MOST["layers 96"], samples={"weft": [5.5]})
    assert report.verdict(line) == "goal ≤ 6 s: reached"
    line.samples["weft"] = [6.5]
    assert report.verdict(line) == "goal ≤ 6 s: MISSED"


def test_time_of_a_phase_inside_another_counts_for_the_inner_one() -> None:
    phases = Phases()

    def work(until: float) -> None:
        while time.thread_time() < until:
            pass

    inner = phases.around("inner", lambda: work(time.thread_time() + 0.02))
    phases.around("outer", inner)()
    assert phases.seconds["inner"] >= 0.02 > 0.01 > phases.seconds["outer"]


def test_growth_is_the_power_of_the_size() -> None:
    assert exponent([1, 4], [2.0, 8.0]) == 1.0
    assert exponent([1, 10, 20], [9.0, 1.0, 4.0]) == 2.0


@pytest.mark.rotating(2)
def test_program_is_measured_by_phase_in_a_process_of_its_own() -> None:
    found = measure_apart("gradient", 40, phases=True)
    assert found["nodes"] > 80
    assert {"capture", "backward", "simplify", "fusion", "kernels", "main text", "link"} <= found[
        "phases"
    ].keys()
    assert 0 < sum(found["phases"].values()) < 1.5 * found["processor"]
    text = table("gradient", [20, 40], [found, found])
    assert "| capture |" in text

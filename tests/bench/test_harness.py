"""The harness of the benchmark: comparison of results, ratios, workers that fail or take too long."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from bench import report
from bench.line import Line, Settings
from bench.measure import disagreeing, measure_case
from bench.process import FailedError, Worker
from bench.rows import COMPILED, MEMORY, all_cases, case_named, row_names

MACHINE = {
    "processor": "a processor",
    "system": "a system",
    "python": "3",
    "load": 0,
    "flops": 1e9,
    "bandwidth": 1e9,
}


def line(**medians: float) -> Line:
    found = Line("row", 2.0, flops=1e6, bytes=5e6)
    found.samples = {name.replace("_", " "): [value] for name, value in medians.items()}
    return found


def test_every_case_is_written_in_weft_and_a_peer() -> None:
    for case in all_cases():
        assert "weft" in case.builders
        assert len(case.builders) > 1
        assert case.goal is not None


def test_names_of_cases_differ_and_all_rows_are_there() -> None:
    names = [case.name for case in all_cases()]
    assert len(set(names)) == len(names)
    assert {"loops", "compile", "memory"} <= set(row_names())
    assert {*COMPILED, MEMORY} <= set(names)


def test_loops_are_written_in_c_too() -> None:
    assert all("c" in case.builders for case in all_cases() if case.row == "loops")


def test_results_that_differ_are_named_with_the_distance() -> None:
    right, close, far = np.ones(20), np.full(20, 1.0005), np.full(20, 1.01)
    found = disagreeing({"weft": far, "torch": right, "jax": close})
    assert found == {"weft": "results differ from those of torch by 1.0e-02"}


def test_results_with_nan_or_another_shape_differ() -> None:
    found = disagreeing({"torch": np.ones(3), "weft": np.full(3, np.nan), "jax": np.ones(2)})
    assert set(found) == {"weft", "jax"}


def test_ratio_is_the_best_peers_time_over_wefts() -> None:
    found = line(weft=1.0, torch=3.0, jax=2.0, c=0.5)
    assert found.best_peer() == "jax"
    assert found.ratio() == 2.0
    assert report.verdict(found) == "2.00 (goal 2): reached; 2.00 × C (goal ≤ 2): reached"


def test_labels_beside_do_not_count_as_peers() -> None:
    found = line(weft=1.0, torch=1.5, onnxruntime_bound=0.5)
    found.beside = ("onnxruntime bound",)
    assert report.verdict(found) == "1.50 (goal 2): MISSED"


def test_table_tells_limit_failures_and_goals() -> None:
    found = line(weft=1e-2, jax=3e-2)
    found.failed["torch"] = "build: it broke"
    text = report.table([found], MACHINE)
    assert "| row | 10 ms | failed |  | 30 ms |  | 5 ms | 3.00 (goal 2): reached |" in text
    assert "- row, torch: build: it broke" in text


def test_line_without_a_result_of_weft_says_so() -> None:
    assert report.verdict(line(jax=1.0)) == "weft: no result"


@pytest.mark.rotating(2)
def test_case_is_measured_in_a_process_of_its_own() -> None:
    settings = Settings({"weft": sys.executable}, rounds=2, burst=0.005)
    found = measure_case(case_named("newton while"), settings)
    assert found.failed == {}
    assert len(found.samples["weft"]) == 2
    assert 0 < found.median("weft") < 1


def test_worker_that_takes_too_long_has_failed() -> None:
    worker = Worker("weft", sys.executable)
    with pytest.raises(FailedError, match="start: took over 0 s"):
        worker.ask("start", limit=0.0)
    assert worker.process.poll() is not None


def test_worker_answers_with_the_error_of_the_framework() -> None:
    worker = Worker("weft", sys.executable)
    try:
        with pytest.raises(FailedError, match=r"build: FileNotFoundError: .*nowhere"):
            worker.ask("build", limit=60.0, case="newton while", arrays="/nowhere.npz")
    finally:
        worker.close()

"""The kernels of ``make bench ROWS=npbench`` at tiny sizes, compiled, beside NumPy; and their table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from bench.case import Run
from bench.kernels import kernel_table, summary
from bench.line import Line
from bench.rows import all_cases
from bench.serve import Server, all_numbers
from bench.workloads.npbench import CASES
from bench.workloads.npbench.kernel import Kernel, distance, results_of
from bench.workloads.npbench.table import KERNELS, kernel_named
from tests.of_code import part_of


@pytest.fixture(autouse=True)
def numbers_as_in_numpy() -> Iterator[None]:
    before = weft.get_default_dtype()
    weft.set_default_dtype(weft.float64)
    yield
    weft.set_default_dtype(before)


def in_numpy(kernel: Kernel) -> list[np.ndarray]:
    arguments = kernel.data(kernel.tiny)
    return results_of(kernel, kernel.function(np)(*arguments), arguments)


def in_weft(kernel: Kernel, function: Any) -> list[np.ndarray]:
    data = kernel.data(kernel.tiny)
    arguments = tuple(weft.tensor(x) if isinstance(x, np.ndarray) else x for x in data)
    return results_of(kernel, function(*arguments), arguments)


@pytest.mark.rotating(4)
@pytest.mark.parametrize("kernel", part_of(KERNELS, 3), ids=lambda kernel: kernel.name)
def test_kernel_compiled_gives_what_numpy_gives(kernel: Kernel) -> None:
    function = weft.compile(kernel.function(weft))
    expected = in_numpy(kernel)
    assert distance(in_weft(kernel, function), expected) <= kernel.tolerance
    assert distance(in_weft(kernel, function), expected) <= kernel.tolerance  # what was changed is given anew


@pytest.mark.parametrize("name", ["gemver", "durbin", "hdiff", "floyd_warshall", "azimint_hist", "nbody"])
def test_kernel_run_at_once_gives_what_numpy_gives(name: str) -> None:
    kernel = kernel_named(name)
    assert distance(in_weft(kernel, kernel.function(weft)), in_numpy(kernel)) <= kernel.tolerance


def test_there_are_the_54_kernels_of_the_suite_each_once() -> None:
    names = [kernel.name for kernel in KERNELS]
    assert len(names) == len(set(names)) == 54
    assert {case.name for case in CASES} == {
        f"{row} {name}" for row in ("npbench", "npbench_m") for name in names
    }


def test_kernels_of_preset_m_run_only_on_request() -> None:
    rows = {case.row for case in all_cases() if case.on_request}
    assert rows == {"npbench_m"}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_presets_name_the_same_sizes_and_grow(kernel: Kernel) -> None:
    assert kernel.small.keys() == kernel.medium.keys() == kernel.tiny.keys()
    whole = [
        np.prod([float(v) for v in sizes.values()]) for sizes in (kernel.tiny, kernel.small, kernel.medium)
    ]
    assert abs(whole[0]) < abs(whole[1]) < abs(whole[2])


def test_distance_tells_other_shapes_and_other_places_that_are_not_finite() -> None:
    one = np.ones(2)
    assert distance([one], [one]) == 0
    assert distance([one], [np.ones(3)]) == np.inf
    assert distance([np.array([np.nan, 1.0])], [one]) == np.inf
    assert distance([np.array([np.nan, 1.0])], [np.array([np.nan, 1.0])]) == 0
    assert distance([one * 1.5], [one]) == pytest.approx(0.5)


def test_what_a_step_changes_is_made_anew_outside_of_its_time() -> None:
    calls: list[str] = []
    server = Server("numpy")
    server.run = Run(lambda: calls.append("step"), before=lambda: calls.append("before"))
    server.burst(2)
    assert calls == ["before", "step", "before", "step"]


def test_both_parts_of_complex_results_are_compared() -> None:
    np.testing.assert_array_equal(all_numbers(np.array([1.0 + 2.0j, 3.0])), [1.0, 3.0, 2.0, 0.0])


def line(name: str, numpy: float, ours: float | None, numba: float | None = None, first: float = 1.0) -> Line:
    out = Line(f"npbench {name}", 1.0, beside=("numba",))
    out.samples["numpy"] = [numpy]
    if ours is None:
        out.failed["weft"] = "results: took over 45 s"
    else:
        out.samples["weft"], out.first["weft"] = [ours], first
    if numba is not None:
        out.samples["numba"] = [numba]
    return out


def test_summary_has_mean_those_behind_and_slow_first_calls() -> None:
    text = summary([line("a", 8.0, 1.0, 2.0), line("b", 1.0, 2.0, 1.0, first=4.0), line("c", 1.0, None)])
    assert text == (
        "2 of 3 kernels have a result; the geometric mean of NumPy's time over weft's is 2.00. "
        "Slower than NumPy: 1 (b). First call over 3 s: 1 (b). "
        "At least as fast as Numba: 1 of the 2 that Numba runs."
    )


def test_table_begins_with_the_slowest_and_names_what_failed() -> None:
    text = kernel_table([line("a", 8.0, 1.0, 2.0), line("b", 1.0, 2.0), line("c", 1.0, None)])
    rows = [row.split(" | ")[0].strip("| ") for row in text.splitlines()[2:4]]
    assert rows == ["b", "a"]
    assert text.endswith("- c, weft: results: took over 45 s")
    assert "| a | 8 s | 1 s | 2 s | 8.00 | 2.00 | 1 s |" in text

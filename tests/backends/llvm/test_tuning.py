"""Figures of processors: any that are allowed give right products, and those that were measured hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.backends.llvm import tuner as tuner_module
from weft.backends.llvm.fingerprint import fingerprint
from weft.backends.llvm.target import host_target
from weft.backends.llvm.tuned import trying, tuning_of
from weft.backends.llvm.tuner import ProcessorTuner
from weft.cli import main
from weft.schedule.cpu.tuning import FAMILIES, LIMITS, Tuning, built_in, family_of

HERE = host_target().cpu


def tunings() -> Any:
    return st.builds(Tuning, **{name: st.integers(*limits) for name, limits in LIMITS.items()})


@given(tunings(), st.integers(1, 90), st.integers(1, 90), st.integers(1, 300), st.data())
@settings(max_examples=25, deadline=None)
def test_products_are_right_by_any_tuning(tuning: Tuning, m: int, n: int, k: int, data: Any) -> None:
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    turned = data.draw(st.tuples(st.booleans(), st.booleans()))
    rng = np.random.default_rng(k)
    x, y = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    sides = [np.ascontiguousarray(a.T) if t else a for a, t in zip((x, y), turned, strict=True)]

    def product(a: Any, b: Any) -> Any:
        return (a.T if turned[0] else a) @ (b.T if turned[1] else b) + 1.0

    with trying(tuning):
        found = weft.compile(product)(*map(weft.tensor, sides))
    wide = x.astype(np.float64) @ y.astype(np.float64) + 1.0
    error = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(found.numpy(), wide, rtol=error, atol=error * k)


@pytest.mark.parametrize("large", [False, True])
def test_products_are_right_at_the_limits(large: bool) -> None:
    tuning = Tuning(**{name: limits[large] for name, limits in LIMITS.items()})
    x = np.random.default_rng(0).standard_normal((600, 700)).astype(np.float32)
    with trying(tuning):
        found = weft.compile(lambda x: (x @ x.T, x.T @ x, x[:5] @ x.T))(weft.tensor(x))
    wide = x.astype(np.float64)
    for got, expected in zip(found, (wide @ wide.T, wide.T @ wide, wide[:5] @ wide.T), strict=True):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=2e-3)


def test_every_family_has_figures_within_the_limits() -> None:
    for starts, tuning in FAMILIES.values():
        assert all(LIMITS[name][0] <= v <= LIMITS[name][1] for name, v in tuning._asdict().items())
        assert all(built_in(start) == tuning for start in starts)
    assert family_of("cortex-a53") == "other"


def test_what_was_measured_holds_for_its_processor_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "deep" / "tuning.json"
    monkeypatch.setenv("WEFT_TUNING", str(path))
    before = fingerprint()
    kept = built_in(HERE)._replace(near_bytes=12345)
    assert ProcessorTuner().write(kept) == str(path)
    assert tuning_of(HERE) == (kept, f"measured here: {path}")
    assert tuning_of("neoverse-v2").tuning == built_in("neoverse-v2")
    assert before is None or before != fingerprint()  # programs from disk are of the other one
    ProcessorTuner().write(None)
    assert tuning_of(HERE).tuning == built_in(HERE)


DAMAGED = [
    "",
    "[]",
    "{}",
    '{"format": "weft tuning 1"}',
    '{"format": "weft tuning 1", "processors": {"HERE": 3}}',
    '{"format": "weft tuning 1", "processors": {"HERE": {"near_bytes": 1}}}',
    '{"format": "weft tuning 1", "processors": {"HERE": {"near_bytes": 1e5}}}',
    '{"format": "weft tuning 1", "processors": {"HERE": {"near_bytes": true}}}',
    '{"format": "weft tuning 1", "processors": {"HERE": {"fastest": 1}}}',
]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_file_that_makes_no_sense_is_said_to_be_so_once(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(text.replace("HERE", HERE))
    monkeypatch.setenv("WEFT_TUNING", str(path))
    with pytest.warns(RuntimeWarning, match="holds no tuning that weft knows") as warned:
        assert [tuning_of(HERE).tuning for _ in range(2)] == [built_in(HERE)] * 2
    assert len(warned) == 1


def test_figures_that_a_file_does_not_name_are_those_of_the_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps({"format": "weft tuning 1", "processors": {"znver3": {"blas_single": 64}}}))
    monkeypatch.setenv("WEFT_TUNING", str(path))
    assert tuning_of("znver3").tuning == built_in("znver3")._replace(blas_single=64)


class Machine:
    """Stands for what is measured: times that a formula gives for a tuning."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: Any) -> None:
        def ratio(search: Any, one: Tuning, other: Tuning, graphs: Any, budget: float) -> float:
            times = [[seconds(t, g) for g in graphs] for t in (one, other)]
            return float(np.exp(np.mean(np.log(times[0]) - np.log(times[1]))))

        monkeypatch.setattr(tuner_module._Search, "_ratio", ratio)


def least_size(graph: Any) -> int:
    return int(min(size for shape in graph[1] for size in shape))


def test_a_search_finds_where_the_library_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    now = ProcessorTuner().told.tuning
    single = 128 if now.blas_single != 128 else 64
    double = 256 if now.blas_double != 256 else 192

    def seconds(tuning: Tuning, graph: Any) -> float:
        by_library = least_size(graph) >= (tuning.blas_single if graph[2] == "f32" else tuning.blas_double)
        faster = least_size(graph) >= (single if graph[2] == "f32" else double)
        return 1.0 if by_library == faster else 1.3

    Machine(monkeypatch, seconds)
    told: list[Any] = []
    found = ProcessorTuner().search(0.0, told.append)
    assert (found.blas_single, found.blas_double) == (single, double)
    assert {m.name: m.gain for m in told}["blas_single"] == pytest.approx(1.3)
    assert found._replace(blas_single=now.blas_single, blas_double=now.blas_double) == now


def test_a_search_keeps_what_is_not_clearly_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    Machine(monkeypatch, lambda tuning, graph: 1.0 + 0.01 * rng.random())
    assert ProcessorTuner().search(0.0) == ProcessorTuner().told.tuning


def test_a_search_finds_the_best_tile_and_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(tuning: Tuning, graph: Any) -> float:
        return 1.0 + 0.1 * abs(tuning.tile_vectors - 4) + abs(tuning.near_bytes - (64 << 10)) / (64 << 10)

    Machine(monkeypatch, seconds)
    found = ProcessorTuner().search(0.0)
    assert (found.tile_vectors, found.near_bytes) == (4, 64 << 10)


# The command


def test_command_tells_measures_and_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tuning.json"
    monkeypatch.setenv("WEFT_TUNING", str(path))
    Machine(monkeypatch, lambda tuning, graph: 1.0 if tuning.panel_bytes == 1 << 19 else 2.0)
    assert main(["tune", "--dry-run"]) == 0
    assert not path.exists()
    assert "panel_bytes    262,144 -> 524,288: 2.00 times as fast" in capsys.readouterr().out
    assert main(["tune", "--seconds", "0"]) == 0
    assert tuning_of(HERE).tuning.panel_bytes == 1 << 19
    assert main(["tune", "--show"]) == 0
    assert f"figures for {HERE}: measured here: {path}" in capsys.readouterr().out
    assert main(["tune", "--forget"]) == 0
    assert tuning_of(HERE).tuning == built_in(HERE)


def test_command_needs_a_file_before_it_measures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WEFT_TUNING", "")
    assert main(["tune"]) == 1
    assert (
        "there must be a file for what is measured, got none (name one by WEFT_TUNING)"
        in capsys.readouterr().err
    )


def test_a_real_search_gives_figures_that_are_allowed() -> None:
    monkey = tuner_module._TILES[2:3]
    search = tuner_module._Search(Tuning(), 0.2, lambda m: None)
    search.measure_noise()
    search.choose("near_bytes", (24 << 10,), monkey)
    assert search.tuning.near_bytes in (24 << 10, 40 << 10)

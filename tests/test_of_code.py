"""The part of a large table that a run takes: the same for the same code, and in time everything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import of_code
from tests.of_code import is_turn, one_of, part_of, part_of_product, turn_of

CASES = [f"case {i}" for i in range(60)]


def met(chosen: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, codes: int) -> list[list[Any]]:
    """What is taken of so many codes."""
    monkeypatch.setattr(of_code, "ALL", False)
    found = []
    for seed in range(codes):
        monkeypatch.setattr(of_code, "seed_of_code", lambda seed=seed: seed)
        found.append(chosen())
        assert chosen() == found[-1]  # twice the same for one code
    return found


@pytest.mark.parametrize("parts", [2, 4])
def test_the_first_is_always_taken_and_of_the_others_a_part(
    parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = met(lambda: turn_of(CASES, parts), monkeypatch, 40)
    assert all(taken[0] == CASES[0] for taken in found)
    assert {case for taken in found for case in taken} == set(CASES)
    mean = sum(map(len, found)) / len(found)
    assert abs(mean - len(CASES) / parts) < len(CASES) / 10


def test_each_code_takes_one_way_and_all_codes_take_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = ["scalar", "narrow", "wide"]
    found = met(lambda: one_of(ways, "add float32"), monkeypatch, 40)
    assert all(len(taken) == 1 for taken in found)
    assert {taken[0] for taken in found} == set(ways)


def test_parts_in_turn_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    found = met(lambda: part_of(CASES, 4), monkeypatch, 4)
    assert sorted(case for taken in found for case in taken) == sorted(CASES)


def test_everything_is_taken_where_all_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_code, "ALL", True)
    assert turn_of(CASES, 4) == part_of(CASES, 4) == one_of(CASES, "x") == CASES
    assert is_turn("anything", 1000)


def test_two_names_have_turns_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = met(lambda: [is_turn(name, 2) for name in ("a", "b")], monkeypatch, 40)
    assert {tuple(t) for t in turns} == {(False, False), (False, True), (True, False), (True, True)}


PRODUCT = {f"{x}{y}": {"x": x, "y": y} for x in range(12) for y in range(5)}
TABLE = {f"row {x}": {"x": x, "also x": x} for x in range(30)}


def test_part_of_a_table_is_one_of_n_and_all_rows_are_met_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = met(lambda: part_of_product(TABLE, 4), monkeypatch, 40)
    assert all(len(taken) == 8 for taken in found)
    assert set().union(*found) == set(TABLE)


def test_part_of_a_product_has_every_value_of_each_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    for taken in (found := met(lambda: part_of_product(PRODUCT, 6), monkeypatch, 40)):
        assert {PRODUCT[name]["x"] for name in taken} == set(range(12))
        assert {PRODUCT[name]["y"] for name in taken} == set(range(5))
        assert 10 <= len(taken) < 30
    assert set().union(*found) == set(PRODUCT)


MARKED = """
import pytest

@pytest.mark.rotating(3)
@pytest.mark.parametrize("x", range(30))
def test_table(x):
    pass

def test_other():
    pass
"""


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    ("asked", "all_cases", "count"),
    [("", "0", 11), ("", "1", 31), ("::test_table", "0", 30)],
    ids=["part", "all", "by name"],
)
def test_marked_test_is_run_in_part_unless_named(
    asked: str, all_cases: str, count: int, tmp_path: Path
) -> None:
    path = tmp_path / "test_marked.py"
    path.write_text(MARKED)
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n0", "-p", "no:cacheprovider"]
    found = subprocess.run(
        [*command, "-c", root / "pyproject.toml", "--confcutdir", root, "-p", "conftest", f"{path}{asked}"],
        cwd=root,
        env={**os.environ, "WEFT_ALL": all_cases},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout.count("::test_") == count, found.stdout + found.stderr

"""The tables of docs/coming-from.md: what they say an expression gives is what it gives."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import weft
from tests.habits.test_habits import check, evaluate

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"
ROW = re.compile(r"^\| `(weft\..*)` \| `(.*)` \|$")
ROWS = [m.groups() for line in PAGE.read_text().splitlines() if (m := ROW.match(line))]


@pytest.mark.parametrize(("expression", "given"), ROWS, ids=[row[0] for row in ROWS])
def test_row_of_the_page_holds(expression: str, given: str) -> None:
    check(evaluate(expression, {"weft": weft}), ast.literal_eval(given))


def test_tables_are_found() -> None:
    assert len(ROWS) >= 20


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`weft\.([\w.]+)", PAGE.read_text()))))
def test_name_of_the_page_is_there(name: str) -> None:
    found: object = weft
    for part in name.rstrip(".").split("."):
        found = getattr(found, part)

"""What people type by habit is in captured code what it is in eager code, or an error of weft."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.habits import test_habits as habits
from tests.habits.hint import Hint

PARTS = 40
RANDOM = ("rand", "dropout", "Dropout", "seed", "normal", "uniform", "shuffle")
ROWS = [
    (who, row[0])
    for who, row in habits.ROWS
    if not isinstance(row[1], Hint) and not any(word in row[0] for word in RANDOM)
]


def _functions(rows: list[tuple[str, str]], folder: Path) -> list[Callable[..., Any]]:
    """A function of each expression, in files, since captured code is read from its source."""
    found = []
    for i, (who, expression) in enumerate(rows):
        path = folder / f"row{i}.py"
        path.write_text(f"def f(x, y, v, m, i, s):\n    return {expression}\n")
        spec = importlib.util.spec_from_file_location(f"row{i}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        vars(module).update(habits.MODULES[who], grad=habits.grad, weft=weft)
        spec.loader.exec_module(module)
        found.append(module.f)
    return found


def _arguments(other: bool) -> list[Any]:
    x, y, v, s = habits.X + other, habits.Y * (1 + other / 2), habits.V + other, habits.S + other / 2
    arrays = (x, y, v, ~habits.M if other else habits.M, habits.PLACES, s.astype(np.float32))
    return [weft.tensor(a.copy()) for a in arrays]


def _same(found: Any, wanted: Any) -> bool:
    """Whether two results are of one type, shape and dtype, and have the same values."""
    if isinstance(wanted, weft.Tensor) and isinstance(found, weft.Tensor):
        alike = (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        return alike and _close(found.detach().numpy(), wanted.detach().numpy())
    if type(found) is not type(wanted):
        return False
    if isinstance(wanted, np.ndarray | np.generic):
        return _close(found, wanted)
    if isinstance(wanted, tuple | list):
        return len(found) == len(wanted) and all(map(_same, found, wanted))
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(_same(found[k], wanted[k]) for k in wanted)
    if isinstance(wanted, float):
        return math.isclose(found, wanted, rel_tol=1e-4, abs_tol=1e-5) or found != found
    plain = isinstance(wanted, int | str | bytes | complex | type | None)
    return not plain or found == wanted


def _close(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    if b.dtype.kind in "OUSV":
        return bool((a == b).all())
    return np.allclose(a.astype(complex), b.astype(complex), rtol=2e-4, atol=1e-5, equal_nan=True)


def _differs(function: Callable[..., Any]) -> str:
    """How a captured function differs from itself; nothing if it does not, or is refused."""
    compiled = weft.compile(function, backend="interpret")
    for other in (False, False, True):
        ours, theirs = _arguments(other), _arguments(other)
        try:
            wanted = function(*ours)
        except Exception:  # these values do not suit it
            return ""
        try:
            found = compiled(*theirs)
        except weft.errors.WeftError:
            return ""
        if not _same(found, wanted) or not _same(theirs, ours):
            return f"gave {found!r}, not {wanted!r}"
    return ""


@pytest.mark.rotating(8)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_habits_are_the_same_in_captured_code(part: int, tmp_path: Path) -> None:
    rows = ROWS[part::PARTS]
    with np.errstate(all="ignore"):
        found = [_differs(f) for f in _functions(rows, tmp_path)]
    assert [(row, text) for row, text in zip(rows, found, strict=True) if text] == []

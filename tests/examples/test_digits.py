"""The example that ``make demo`` runs, at reduced size."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "examples" / "digits.py"


def test_digits_are_learned_in_a_few_epochs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--epochs", "5"])
    module: dict[str, Any] = runpy.run_path(str(SCRIPT), run_name="__main__")
    output = capsys.readouterr().out
    assert output.count("held-out accuracy") == 5
    assert output.count("taken for") == 4
    _, found = module["train"](epochs=5, seed=1)
    assert found > 0.9

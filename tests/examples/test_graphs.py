"""The example of graphs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "examples" / "graphs.py"


def test_graphs_are_captured_rewritten_and_run(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(SCRIPT), run_name="__main__")
    output = capsys.readouterr().out
    assert "= while_loop(" in output
    assert "It gives what Python gives: True" in output
    assert "softmax(%0, axis=1)" in output
    assert "share_loops" in output
    assert "a = 2.000, b = 1.000" in output

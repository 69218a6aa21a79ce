"""What a type checker says: of a sound program nothing, of mistakes each one, of results their types."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What mypy says of both programs, in the strict mode of our own settings."""
    pytest.importorskip("mypy")
    kept = ROOT / ".mypy_cache"
    cache = kept if kept.exists() else tmp_path_factory.mktemp("mypy")
    command = [sys.executable, "-m", "mypy", f"--cache-dir={cache}", "--no-error-summary"]
    programs = [str(HERE / name) for name in ("user_code.py", "wrong_code.py")]
    run = subprocess.run([*command, *programs], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not run.stderr, run.stderr
    return [line for line in run.stdout.splitlines() if ": error: " in line]


def test_sound_program_has_no_errors_and_the_types_it_says(findings: list[str]) -> None:
    assert [line for line in findings if "wrong_code.py" not in line] == []


def test_each_mistake_is_found_on_its_line(findings: list[str]) -> None:
    lines = (HERE / "wrong_code.py").read_text().splitlines()
    pattern = re.compile(r"  # ([a-z-]+)$")
    expected = {(n, m[1]) for n, line in enumerate(lines, 1) if (m := pattern.search(line))}
    errors = [re.search(r"wrong_code.py:(\d+): error: .*\[([a-z-]+)\]$", line) for line in findings]
    assert {(int(m[1]), m[2]) for m in errors if m} == expected

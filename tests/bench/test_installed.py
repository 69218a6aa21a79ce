"""What installing costs: what is counted, and the table."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import installed


def test_what_pip_brings_itself_is_not_counted(tmp_path: Path) -> None:
    for name in ("weft/sub", "pip", "pip-24.0.dist-info", "setuptools", "weft-1.2.dist-info"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "weft" / "sub" / "a.py").write_bytes(b"x" * 1000)
    (tmp_path / "pip" / "b.py").write_bytes(b"x" * 5000)
    (tmp_path / "single.py").write_bytes(b"x" * 24)
    assert {entry.name for entry in installed.counted(tmp_path)} == {
        "weft",
        "weft-1.2.dist-info",
        "single.py",
    }
    assert sum(map(installed.size_of, installed.counted(tmp_path))) == 1024
    assert installed.version_of(tmp_path, "weft") == "1.2"


def test_import_is_timed_in_new_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "IMPORTS", 1)
    assert 0 < installed.import_time(sys.executable, "json") < 60


def test_table_names_the_machine_and_every_framework() -> None:
    machine = {"processor": "a processor", "system": "a system", "python": "3"}
    one = {
        "name": "weft",
        "version": "1.2",
        "packages": 5,
        "download": 86.6e6,
        "installed": 2.931e9,
        "import": 0.104,
    }
    lines = installed.table({"machine": machine, "frameworks": [one]}).splitlines()
    assert lines[0] == "a processor, a system, Python 3"
    assert lines[-1] == "| weft 1.2 | 5 | 87 MB | 2,931 MB | 0.10 s |"

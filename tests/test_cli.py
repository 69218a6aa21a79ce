"""The command ``weft``."""

from __future__ import annotations

from pathlib import Path

import pytest

import weft
from weft.cli import main


def test_view_writes_the_page_of_a_saved_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, page = tmp_path / "model.weft", tmp_path / "page.html"
    weft.jit.trace(lambda x: weft.tanh(x), weft.ones(2)).save(saved)
    assert main(["view", str(saved), "--output", str(page), "--no-open"]) == 0
    assert capsys.readouterr().out.strip() == str(page)
    assert '"op":"tanh"' in page.read_text("utf-8")


def test_view_opens_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    weft.jit.trace(lambda x: weft.tanh(x), weft.ones(2)).save(tmp_path / "model.weft")
    main(["view", str(tmp_path / "model.weft"), "-o", str(tmp_path / "page.html")])
    assert opened == [(tmp_path / "page.html").as_uri()]


def test_a_file_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(tmp_path / "nothing.weft")]) == 1
    assert "nothing.weft" in capsys.readouterr().err


def test_without_a_command_the_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "usage: weft" in capsys.readouterr().err

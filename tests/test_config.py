"""Settings: what the program sets comes first, then the environment, then the default."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from weft.config import Settings

PACKAGE = Path(__file__).parent.parent / "weft"


def test_default_holds_where_nobody_says_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_EAGER_KERNELS", raising=False)
    assert Settings().eager_kernels is True


def test_environment_is_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings()
    monkeypatch.setenv("WEFT_VECTOR_BYTES", "16")
    assert settings.vector_bytes == 16
    monkeypatch.setenv("WEFT_VECTOR_BYTES", "32")
    assert settings.vector_bytes == 32


def test_program_comes_before_the_environment_until_it_takes_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_DEBUG", "1")
    settings = Settings()
    settings.debug = False
    assert settings.debug is False
    del settings.debug
    assert settings.debug is True


@pytest.mark.parametrize(("text", "on"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_flags_are_off_if_empty_or_zero(monkeypatch: pytest.MonkeyPatch, text: str, on: bool) -> None:
    monkeypatch.setenv("WEFT_FULL_TRACEBACKS", text)
    assert Settings().full_tracebacks is on


def test_number_that_is_none_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_NUM_THREADS", "many")
    (row,) = [row for row in Settings().described() if row.name == "num_threads"]
    assert (row.value, row.source) == (None, "default")


def test_source_of_a_setting_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_NUM_THREADS", "3")
    settings = Settings()
    settings.debug = True
    sources = {row.name: row.source for row in settings.described()}
    assert (sources["num_threads"], sources["debug"]) == ("WEFT_NUM_THREADS", "set by the program")


def test_no_other_module_reads_variables_of_weft() -> None:
    readers = set()
    for path in PACKAGE.rglob("*.py"):
        if "WEFT_" not in (text := path.read_text()):
            continue  # most of them: parsing all takes seconds
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and node.value.startswith("WEFT_")
            ):
                readers.add(path.relative_to(PACKAGE).as_posix())
    assert readers == {"config.py"}

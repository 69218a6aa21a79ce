"""Libraries are compared with code that has no checks, in ``make test-debug`` too: it may round otherwise."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _without_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_DEBUG", "0")

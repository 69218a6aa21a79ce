"""What tests of how programs are run share."""

from __future__ import annotations

import pytest

from tests.backends.llvm.running import ADD, ADD_GRAPH, executable
from weft.backends.llvm.entry import enter_slowly
from weft.backends.llvm.run import NativeExecutable


@pytest.fixture(params=["native", "slow"])
def entered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds for the entry in machine code and for the one in Python."""
    if request.param == "slow":
        monkeypatch.setattr("weft.backends.llvm.run.make_enter", lambda: enter_slowly)


@pytest.fixture
def add() -> NativeExecutable:
    return executable(ADD_GRAPH, ADD, donated=[(0, 0)])

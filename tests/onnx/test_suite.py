"""The test suite of the onnx package through the interpreter, and through LLVM.

``make test`` runs the first case of each module and a third of the others through the interpreter, and some
through LLVM, others whenever weft's code is another; ``make test-all`` runs all through both, and
``make test-onnx`` what is excluded too, which must fail. Cases are made by the package when it
imports one of its modules, so a test here runs those of a module.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import weft
from tests.of_code import is_turn
from tests.onnx import suite
from weft.errors import WeftError

SHARE = 12  # one case of so many goes through LLVM too
PART = 3  # of each operator the first case, and one of so many others; of the models likewise


def run_all(cases: Iterable[suite.Case]) -> None:
    failed: dict[str, str] = {}
    for number, case in enumerate(cases):
        if suite.excluded(case.name):
            if suite.all_of_it():
                check_that_it_fails(case)
            continue
        chosen = suite.all_of_it() or is_turn(case.name, SHARE)
        if number and not (chosen or is_turn(f"{case.name}, interpreted", PART)):
            continue
        try:
            suite.run_case(case, ("interpret", "llvm") if chosen else ("interpret",))
        except Exception as error:
            failed[case.name] = f"{type(error).__name__}: {error}"
    assert not failed, "\n\n".join(f"{name}: {text}" for name, text in failed.items())


def check_that_it_fails(case: suite.Case) -> None:
    """What is left out must have a reason still."""
    weft.manual_seed(0)
    with pytest.raises((AssertionError, WeftError)):
        suite.run_case(case, ("interpret",))


@pytest.mark.parametrize("module", suite.node_modules(), ids=lambda m: m.removeprefix(f"{suite.NODE}."))
def test_operators(module: str) -> None:
    run_all(suite.node_cases(module))


@pytest.mark.parametrize("kind", suite.KINDS)
def test_models(kind: str) -> None:
    run_all(map(suite.stored_case, suite.stored_cases(kind)))

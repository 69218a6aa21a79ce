"""The test suite of the onnx package through the interpreter, and through LLVM.

``make test`` runs a part of the cases through LLVM, another one whenever weft's code is another, and all of
them through the interpreter, but for those of some operators, which the package takes seconds to make: of
these a fourth. ``make test-all`` runs all through both, and ``make test-onnx`` also what is excluded and must
fail. Cases are made by the package when it imports one of its modules, so a test here runs those of a module.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import weft
from tests.of_code import is_turn
from tests.onnx import suite
from weft.errors import WeftError

SHARE = 12  # one case of so many goes through LLVM too
# The package takes seconds to make their cases.
DEAR = tuple(f"{suite.NODE}.{name}" for name in ("attention", "averagepool", "lppool", "maxpool"))


def run_all(cases: Iterable[suite.Case]) -> None:
    failed: dict[str, str] = {}
    for case in cases:
        if suite.excluded(case.name):
            if suite.all_of_it():
                check_that_it_fails(case)
            continue
        chosen = suite.all_of_it() or is_turn(case.name, SHARE)
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


def of_module(name: str) -> str:
    return name.removeprefix(f"{suite.NODE}.")


@pytest.mark.parametrize("module", [m for m in suite.node_modules() if m not in DEAR], ids=of_module)
def test_operators(module: str) -> None:
    run_all(suite.node_cases(module))


@pytest.mark.rotating(4)
@pytest.mark.parametrize("module", [m for m in suite.node_modules() if m in DEAR], ids=of_module)
def test_operators_whose_cases_are_dear(module: str) -> None:
    run_all(suite.node_cases(module))


@pytest.mark.parametrize("kind", suite.KINDS)
def test_models(kind: str) -> None:
    run_all(map(suite.stored_case, suite.stored_cases(kind)))

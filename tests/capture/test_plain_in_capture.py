"""Plain Python inside a capture does what it does outside: no tensor, no difference."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import weft
from tests.capture.convert_snippets import CASES

ARGUMENTS = [(function, args) for function, runs in CASES for args in runs]  # type: ignore[attr-defined]


def outcome(run: Callable[[], Any]) -> tuple[str, Any]:
    """What a call gives, or the error it raises; texts stand for objects that equal themselves alone."""
    try:
        return "gives", repr(run())
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.rotating(4)
@pytest.mark.parametrize(("function", "args"), ARGUMENTS)
def test_plain_function_in_a_capture(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    expected = outcome(lambda: function(*copy.deepcopy(args)))
    given = copy.deepcopy(args)

    def captured(t: weft.Tensor) -> Any:
        return t + 1, function(*given)

    assert outcome(lambda: weft.compile(captured)(weft.ones(2))[1]) == expected

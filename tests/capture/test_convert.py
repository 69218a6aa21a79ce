"""Converted functions do what the originals do, statement by statement."""

from __future__ import annotations

from typing import Any

import pytest

from tests.capture.convert_checks import check
from tests.capture.convert_snippets import CASES


@pytest.mark.parametrize(("function", "argument_lists"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_converted_function_does_what_the_original_does(function: Any, argument_lists: list[Any]) -> None:
    check(function, *argument_lists)

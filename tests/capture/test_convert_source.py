"""The definition of a function: its lines alone tell the same as the whole file, or nothing."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any

import pytest

from weft.capture.convert.source import find_block, find_source


def plain(x: Any) -> Any:
    return x + 1


# fmt: off
def with_long_signature(
    x: Any,
    y: int = 3,
) -> Any:
    # a comment
# another one, further to the left
    if y:
        return (
            x
)
    return x
# fmt: on


@functools.cache
@functools.wraps(
    plain,
)
def decorated(x: int) -> int:
    return x


def with_text_at_the_margin(x: Any) -> Any:
    text = """
def not_this(x):
"""
    return x, text


def outer() -> Callable[[Any], Any]:
    class Inside:
        def method(self, x: Any) -> Any:
            def inner(y: Any) -> Any:
                return x + y

            return inner

    made: Callable[[Any], Any] = Inside().method(1)
    return made


class Kept:
    """A class in a class."""

    class Inner:
        def method(self, x: Any) -> Any:
            return self.__hidden(x)

        def __hidden(self, x: Any) -> Any:
            return x

    if True:

        def chosen(self, x: Any) -> Any:
            return x

    else:

        def chosen(self, x: Any) -> Any:
            return -x


FOUND: list[Any] = [
    plain,
    with_long_signature,
    decorated.__wrapped__,
    outer,
    outer(),
    Kept.Inner.method,
    Kept.Inner._Inner__hidden,  # type: ignore[attr-defined]
    Kept.chosen,
]


@pytest.mark.parametrize("function", FOUND, ids=lambda f: f.__qualname__)
def test_lines_of_a_definition_tell_what_the_file_tells(function: Any) -> None:
    code = function.__code__
    soon, right = find_block(code, function.__globals__), find_source(code, function.__globals__)
    assert soon is not None
    assert right is not None
    assert soon.class_name == right.class_name
    assert ast.dump(soon.node, include_attributes=True) == ast.dump(right.node, include_attributes=True)


@pytest.mark.parametrize("function", [with_text_at_the_margin, lambda x: x], ids=["text", "lambda"])
def test_lines_that_cannot_be_told_by_their_margin_are_left_to_the_file(function: Any) -> None:
    assert find_block(function.__code__, function.__globals__) is None
    assert find_source(function.__code__, function.__globals__) is not None

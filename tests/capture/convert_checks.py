"""Whether a converted function does what the original does: results, errors and where they come from."""

from __future__ import annotations

import copy
import itertools
import linecache
from collections.abc import Callable
from types import FunctionType
from typing import Any

from tests.capture import plain_runtime
from weft.capture.convert.functions import convert_function


def converted(function: Any) -> Any:
    """A function converted to use the plain runtime."""
    made = convert_function(function, plain_runtime.runtime)
    assert made is not None, f"{function.__qualname__} was not converted"
    return made


def outcome(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a call gives: its result and its arguments afterwards, or its error and where it was raised."""
    try:
        result = function(*args)
    except Exception as error:
        return "raised", type(error), str(error), raised_at(error, function.__code__.co_filename)
    return "returned", result, args


def raised_at(error: BaseException, filename: str) -> tuple[Any, ...]:
    """Line, columns and function of the last frame of a file that an error came through."""
    found: tuple[Any, ...] = ()
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == filename:
            position = next(itertools.islice(code.co_positions(), trace.tb_lasti // 2, None))
            found = (position, code.co_name)
        trace = trace.tb_next
    return found


def check(function: Any, *argument_lists: tuple[Any, ...]) -> None:
    """Compare a function with its conversion, on each list of arguments."""
    made = converted(function)
    for args in argument_lists or ((),):
        expected = outcome(function, copy.deepcopy(args))
        got = outcome(made, copy.deepcopy(args))
        if expected[0] == got[0] == "raised" and expected[1] is AttributeError:
            expected, got = _by_line(expected), _by_line(got)  # a method is looked up and called in one
        assert repr(got) == repr(expected), f"{function.__qualname__}{args}"


def _by_line(raised: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*raised[:3], raised[3][0][0])


_numbers = itertools.count()


def function_from(source: str, name: str = "f", **variables: Any) -> FunctionType:
    """A function whose source is known to linecache, as at a prompt."""
    filename = f"<converted program {next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    scope: dict[str, Any] = dict(variables)
    exec(compile(source, filename, "exec"), scope)  # noqa: S102  (the test wrote it)
    found = scope[name]
    assert isinstance(found, FunctionType)
    return found

"""What surrounds compiled code: library functions, context variables, the environment, caches, files, clocks.

What can be guarded is noticed when it changes; the rest is refused, or warned of with the line.
"""

from __future__ import annotations

import contextvars
import datetime
import functools
import math
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import weft

T = weft.tensor
VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("variable", default=1.0)
UNSET: contextvars.ContextVar[float] = contextvars.ContextVar("unset")
WORLD = SimpleNamespace(k=2.0, count=0)
BYTES = bytearray(b"\x01\x02")
VIEW = memoryview(BYTES)
NAME = "WEFT_TEST_SURROUNDINGS"


@functools.lru_cache
def cached(n: int) -> float:
    WORLD.count += 1
    return n * WORLD.k


@functools.cache
def cached_mask(n: int) -> Any:
    return weft.tril(weft.ones(n, n)) * WORLD.k


@pytest.fixture(autouse=True)
def _same_world() -> Iterator[None]:
    WORLD.k, WORLD.count, BYTES[0] = 2.0, 0, 1
    cached.cache_clear()
    cached_mask.cache_clear()
    token = VARIABLE.set(1.0)
    with mock.patch.dict(os.environ, {NAME: "3"}):
        yield
    VARIABLE.reset(token)


def ten(*args: Any) -> float:
    return 10.0


Change = Callable[[pytest.MonkeyPatch], Any]
ROWS: dict[str, tuple[Callable[[Any], Any], Change]] = {
    "math.sqrt": (lambda x: x * math.sqrt(4.0), lambda p: p.setattr("math.sqrt", ten)),
    "math of a number": (lambda x: x * math.sqrt(float(x)), lambda p: p.setattr("math.sqrt", ten)),
    "np.sqrt": (lambda x: x * float(np.sqrt(4.0)), lambda p: p.setattr("numpy.sqrt", ten)),
    "weft.tanh": (lambda x: weft.tanh(x), lambda p: p.setattr(weft, "tanh", lambda v: v * 100)),
    "second of two": (
        lambda x: weft.exp(x) + weft.tanh(x) + weft.sin(x),
        lambda p: p.setattr(weft, "tanh", lambda v: v * 100),
    ),
    "weft.functional": (
        lambda x: weft.functional.relu(x),
        lambda p: p.setattr(weft.functional, "relu", lambda v: v * 100),
    ),
    "context variable": (lambda x: x * VARIABLE.get(), lambda p: VARIABLE.set(5.0)),
    "context variable of a tensor": (lambda x: x * VARIABLE.get(), lambda p: VARIABLE.set(T(5.0))),
    "context variable with a default": (lambda x: x * UNSET.get(7.0), lambda p: UNSET.set(5.0)),
    "item of environ": (lambda x: x * float(os.environ[NAME]), lambda p: p.setenv(NAME, "8")),
    "get of environ": (lambda x: x * float(os.environ.get(NAME, "1")), lambda p: p.setenv(NAME, "8")),
    "gone from environ": (lambda x: x * float(os.environ.get(NAME, "1")), lambda p: p.delenv(NAME)),
    "new in environ": (lambda x: x * float(os.getenv("WEFT_NEW", "1")), lambda p: p.setenv("WEFT_NEW", "8")),
    "getenv": (lambda x: x * float(os.getenv(NAME) or 0), lambda p: p.setenv(NAME, "8")),
    "in environ": (lambda x: x * (2 if NAME in os.environ else 1), lambda p: p.delenv(NAME)),
    "item of a memoryview": (lambda x: x * VIEW[0], lambda p: BYTES.__setitem__(0, 7)),
    "sum of a memoryview": (lambda x: x * sum(VIEW), lambda p: BYTES.__setitem__(0, 7)),
    "sys.argv": (lambda x: x * len(sys.argv), lambda p: p.setattr("sys.argv", ["a"] * 9)),
    "cleared cache": (
        lambda x: x * cached(3),
        lambda p: (setattr(WORLD, "k", 9.0), cached.cache_clear()),
    ),
    "cleared cache of tensors": (
        lambda x: (x * cached_mask(2)).sum(),
        lambda p: (setattr(WORLD, "k", 9.0), cached_mask.cache_clear()),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_change_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, change = ROWS[name]
    compiled = weft.compile(f)
    x = T(2.0)
    first = float(f(x))
    assert [float(compiled(x)), float(compiled(x))] == pytest.approx([first] * 2)
    assert len(compiled.versions) == 1
    change(monkeypatch)
    second = float(f(x))
    assert second != first
    assert [float(compiled(x)), float(compiled(x))] == pytest.approx([second] * 2)


def test_other_variables_of_the_environment_cost_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    f = weft.compile(lambda x: x * float(os.environ[NAME]))
    f(T(1.0))
    monkeypatch.setenv("WEFT_OTHER", "1")
    f(T(1.0))
    assert len(f.versions) == 1


def test_a_cached_function_keeps_its_first_answer() -> None:
    f = weft.compile(lambda x: x * cached(3))
    found = [float(f(T(2.0)))]
    WORLD.k = 9.0
    assert [*found, float(f(T(2.0)))] == [12.0, 12.0]
    assert WORLD.count == 1


def test_a_cached_function_of_tensors_is_captured() -> None:
    @functools.cache
    def double(t: Any) -> Any:
        return t * 2

    f = weft.compile(lambda x: double(x))
    assert [float(f(T(k))) for k in (1.0, 2.0, 3.0)] == [2.0, 4.0, 6.0]
    assert len(f.versions) == 1


def _set_variable(x: Any) -> Any:
    VARIABLE.set(3.0)
    return x


def _set_item(x: Any) -> Any:
    os.environ[NAME] = "5"
    return x


def _delete_item(x: Any) -> Any:
    del os.environ[NAME]
    return x


def _update(x: Any) -> Any:
    os.environ.update({NAME: "5"})
    return x


def _setdefault(x: Any) -> Any:
    os.environ.setdefault(NAME, "5")
    return x


def _putenv(x: Any) -> Any:
    os.putenv(NAME, "5")
    return x


@pytest.mark.parametrize("f", [_set_variable, _set_item, _delete_item, _update, _setdefault, _putenv])
def test_changing_the_surroundings_is_refused(f: Callable[[Any], Any]) -> None:
    with pytest.raises(weft.errors.CaptureError, match="must not change") as found:
        weft.compile(f)(T(1.0))
    assert "test_surroundings.py" in str(found.value)
    assert os.environ[NAME] == "3"


def _open(x: Any) -> Any:
    with open(__file__) as file:
        return x * len(file.readline())


def _evaluated(x: Any) -> Any:
    return eval("x * WORLD.k")  # noqa: S307 - what is tested


def _executed(x: Any) -> Any:
    scope = {"x": x, "WORLD": WORLD}
    exec("y = x * WORLD.k", scope)  # noqa: S102 - what is tested
    return scope["y"]


WARNED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "open": (_open, "reads a file"),
    "read_text": (lambda x: x * len(pathlib.Path(__file__).read_text()), "looks at files"),
    "exists": (lambda x: x * os.path.exists(__file__), "looks at files"),
    "listdir": (lambda x: x * len(os.listdir("/")), "looks at files"),
    "getcwd": (lambda x: x * len(os.getcwd()), "looks at files"),
    "now": (lambda x: x * datetime.datetime.now().year, "reads a clock"),
    "today": (lambda x: x * datetime.date.today().year, "reads a clock"),
    "time": (lambda x: x * (time.time() > 0), "reads a clock"),
    "eval": (_evaluated, "runs code that it makes itself"),
    "exec": (_executed, "runs code that it makes itself"),
}


@pytest.mark.parametrize("name", WARNED)
def test_what_no_guard_can_follow_is_warned_of(name: str) -> None:
    f, words = WARNED[name]
    compiled = weft.compile(f)
    with pytest.warns(RuntimeWarning, match=words) as found:
        result = compiled(T(2.0))
    assert float(result) == float(f(T(2.0)))
    assert any("test_surroundings.py" in str(w.message) for w in found)

"""Functions and classes that captured code defines: decorators, bodies, bases, metaclasses."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import weft
from weft.errors import CaptureError

o = SimpleNamespace(n=0, names=[])
Program = Callable[[Any], Any]
FOLLOWED: list[Program] = []
REFUSED: list[Program] = []


def followed(function: Program) -> Program:
    FOLLOWED.append(function)
    return function


def refused(function: Program) -> Program:
    REFUSED.append(function)
    return function


def counted(x: Any) -> Any:
    o.n = o.n + 1
    return x


class Scaling:
    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, function: Any) -> Any:
        o.n = o.n + 1
        return lambda x: function(x) * self.by


class Told:
    names: ClassVar[list[str]] = []

    def __init_subclass__(cls) -> None:
        o.n = o.n + 1


class Meta(type):
    def __new__(cls, name: str, bases: Any, space: Any) -> Any:
        o.n = o.n + 1
        return super().__new__(cls, name, bases, space)


@followed
def decorated(x: Any) -> Any:
    @counted
    def double(y: Any) -> Any:
        return y * 2.0

    return double(x) + o.n


@followed
def decorated_twice(x: Any) -> Any:
    @functools.partial(functools.partial, counted)
    @Scaling(3.0)
    @counted
    def double(y: Any) -> Any:
        return y * 2.0

    return double()(x) + o.n


@followed
def decorated_by_libraries(x: Any) -> Any:
    @functools.wraps(counted)
    def double(y: Any) -> Any:
        return y * 2.0

    @dataclasses.dataclass
    class Pair:
        a: Any
        b: Any = dataclasses.field(default=1.0)

        @property
        def both(self) -> Any:
            return self.a + self.b

        @staticmethod
        def half(y: Any) -> Any:
            return y * 0.5

    return Pair.half(double(Pair(x).both))


@followed
def decorated_class(x: Any) -> Any:
    @counted
    class Pair:
        """Has a text, and a number."""

        one: int = 1
        two = one + 1

    return x * Pair.two + o.n


@followed
def values_of_a_body(x: Any) -> Any:
    class Pair:
        n = o.n
        m = counted(2.0) if x is not None and o.n >= 0 else 0.0
        rows = [x * 2.0, x]  # noqa: RUF012 - as users write it

        class Inner:
            k = counted(3.0)

    return x * Pair.n + Pair.m * Pair.rows[0] + Pair.Inner.k


@refused
def names_of_its_own(x: Any) -> Any:
    class Pair:
        a = 1
        b = a + o.n

    return x * Pair.b


@refused
def calls_in_a_body(x: Any) -> Any:
    class Pair:
        o.names.append(1)

    return x * Pair().k  # type: ignore[attr-defined]


@refused
def a_base_that_is_told(x: Any) -> Any:
    class Pair(Told):
        pass

    return x + o.n


@refused
def a_base_of_a_class_made_by_type(x: Any) -> Any:
    type("Pair", (Told,), {})
    return x + o.n


@refused
def a_metaclass(x: Any) -> Any:
    class Pair(metaclass=Meta):
        pass

    return x + o.n


def _left(function: Program, way: Callable[[Any], Any]) -> list[Any]:
    o.n, log = 0, []
    run = way(function)
    for turn in range(3):
        log += [float(run(weft.tensor(1.5))), int(o.n)]
        o.n = o.n + (turn == 1)
    return log


@pytest.mark.parametrize("function", FOLLOWED, ids=lambda f: f.__name__)
def test_they_do_what_eager_code_does(function: Program) -> None:
    assert _left(function, weft.compile) == _left(function, lambda f: f)


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_what_only_the_capture_would_run_is_refused(function: Program) -> None:
    with pytest.raises(CaptureError, match="define the class outside"):
        weft.compile(function)(weft.tensor(1.5))

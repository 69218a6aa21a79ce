"""Forms of operators and comparisons."""

from __future__ import annotations

import operator
from typing import Any

import weft
from tests.capture.special_methods.forms import Counts, form


class Operators(Counts):
    def __add__(self, other: Any) -> Any:
        self.note()
        return self.n + other

    def __radd__(self, other: Any) -> Any:
        self.note(0.5)
        return other + self.n

    def __sub__(self, other: Any) -> Any:
        return NotImplemented

    def __mul__(self, other: Any) -> Any:
        self.note()
        return self.n * other

    def __matmul__(self, other: Any) -> Any:
        self.note()
        return self.n * other + 1.0

    def __truediv__(self, other: Any) -> Any:
        self.note()
        return self.n / 2.0 + other

    def __pow__(self, other: Any) -> Any:
        self.note()
        return self.n**2 + other

    def __mod__(self, other: Any) -> Any:
        self.note(2.0)
        return self.n + other

    def __floordiv__(self, other: Any) -> Any:
        self.note(2.0)
        return self.n - other

    def __and__(self, other: Any) -> Any:
        self.note()
        return self.n

    def __rshift__(self, other: Any) -> Any:
        self.note(other)
        return other + 1.0

    def __neg__(self) -> Any:
        self.note()
        return -self.n

    def __pos__(self) -> Any:
        self.note(0.25)
        return self.n

    def __invert__(self) -> Any:
        self.note(0.75)
        return self.n * 3.0

    def __abs__(self) -> Any:
        self.note()
        return weft.abs(self.n)

    def __lt__(self, other: Any) -> Any:
        self.note()
        return self.n < other

    def __ge__(self, other: Any) -> Any:
        self.note(0.5)
        return self.n >= other

    def __eq__(self, other: object) -> Any:
        self.note(0.5)
        return self.n == 1.0

    def __hash__(self) -> int:
        return 3

    def __iadd__(self, other: Any) -> Any:
        self.note(other)
        return self

    def __imul__(self, other: Any) -> Any:
        self.n = self.n * other
        return self


@form(Operators)
def add(o: Any, x: Any) -> Any:
    return (o + x) * 2.0


@form(Operators)
def reflected_add(o: Any, x: Any) -> Any:
    return (1.0 + o) * x


@form(Operators)
def operators(o: Any, x: Any) -> Any:
    return o * x + (o @ x) + o / x + o**2.0 + (o % x) + (o // x) + (o & x) + (o >> x)


@form(Operators)
def unary(o: Any, x: Any) -> Any:
    return -o + +o + ~o + abs(o) + x


@form(Operators)
def comparisons(o: Any, x: Any) -> Any:
    y = x * 0.0
    if o < 2.0:
        y = y + 1.0
    if o >= x:
        y = y + 10.0
    if o < 5.0:
        y = y + 100.0
    return y


@form(Operators)
def equality(o: Any, x: Any) -> Any:
    return weft.where(o == 4, x, -x) + weft.where(o != 4, x * 10.0, x)


@form(Operators)
def chained_comparison(o: Any, x: Any) -> Any:
    return weft.where(0.0 < x < 3.0, x, o + x)


@form(Operators)
def in_place(o: Any, x: Any) -> Any:
    p = o
    p += x
    p *= 0.5
    return p.n + 0.0


@form(Operators)
def in_place_without_method(o: Any, x: Any) -> Any:
    p: Any = o
    p @= x
    return p + 0.0


@form(Operators)
def operator_functions(o: Any, x: Any) -> Any:
    return operator.add(o, x) + operator.mul(o, 2.0) + operator.neg(x)


@form(Operators)
def sum_of_objects(o: Any, x: Any) -> Any:
    return sum([x, o, o])


@form(Operators)
def member_by_equality(o: Any, x: Any) -> Any:
    return x + 1.0 if 4 in [o, o] else x

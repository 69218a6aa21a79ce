"""Calls of every op and composite, in every dtype that it takes, with their gradients, as graphs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import weft
from tests.of_code import is_turn
from tests.ops import checks
from tests.schedule.lowered import variants
from weft.base.dtypes import bool_, kind
from weft.errors import WeftError
from weft.ir.graph import Graph

SORTED = ("searchsorted",)  # whose first input must stay sorted, which a cast to bool does not see to


class Case(NamedTuple):
    """A call of an op on arrays."""

    entry: checks.Entry
    arrays: list[Any]
    directions: list[Any]

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The results, and the gradients along directions of all that have one."""
        where = [i for i, a in enumerate(self.arrays) if kind(a.dtype) in "fc"]

        def floats(*given: Any) -> tuple[Any, ...]:
            full = list(inputs)
            for i, x in zip(where, given, strict=True):
                full[i] = x
            return tuple(o for o in self.entry.outputs(*full) if kind(o.dtype) in "fc")

        outs = self.entry.outputs(*inputs)
        if not where or not self.directions:
            return tuple(outs)
        _, pull = weft.vjp(floats, *[inputs[i] for i in where])
        return (*outs, *pull(tuple(checks.tensors(self.directions))))


@functools.cache
def rows() -> dict[str, list[checks.Entry]]:
    """The samples of every op and composite, by its name."""
    found: dict[str, list[checks.Entry]] = {}
    for entry in checks.entries():
        found.setdefault(entry.name, []).append(entry)
    return found


def case_of(entry: checks.Entry, arrays: list[Any]) -> Case | None:
    """The case, if the op takes arrays of these dtypes."""
    arrays = [np.array(a, order="C") for a in arrays]
    inputs = checks.tensors(arrays)
    try:
        floats = [o.numpy() for o in entry.outputs(*inputs) if kind(o.dtype) in "fc"]
        case = Case(entry, arrays, checks.direction(floats, seed=7))
        weft.make_graph(case.__call__)(*inputs)
    except (WeftError, TypeError, OverflowError):
        return None
    return case


def cases(name: str, parts: int = 1) -> Iterator[Case]:
    """Each sample as it is, then of each other combination of dtypes the first sample that has elements.

    Of so many parts, one: the first sample, and the others and the dtypes whose turn it is for this code.
    """
    seen: set[tuple[Any, ...]] = set()
    for number, entry in enumerate(rows()[name]):
        if number and not is_turn(f"{name}, sample {number}", parts):
            continue
        case = case_of(entry, list(entry.sample.inputs))
        assert case is not None, f"{name} does not take its own sample"
        seen.add(tuple(a.dtype for a in case.arrays))
        yield case
    for entry in rows()[name]:
        for arrays in variants(entry.sample.inputs):
            dtypes = tuple(a.dtype for a in arrays)
            if dtypes in seen or min((a.size for a in arrays), default=0) < 2:
                continue
            if name in SORTED and arrays[0].dtype == bool_:
                continue
            if not is_turn(f"{name}, {', '.join(map(str, dtypes))}", parts):
                continue
            case = case_of(entry, arrays)
            if case is not None:
                seen.add(dtypes)
                yield case


def graph_of(found: list[Case]) -> Graph:
    """One graph of all cases."""

    def everything(*inputs: Any) -> list[Any]:
        given = iter(inputs)
        return [out for case in found for out in case(*[next(given) for _ in case.arrays])]

    return weft.make_graph(everything)(*checks.tensors(arrays_of(found)))


def arrays_of(found: list[Case]) -> list[Any]:
    """The arrays of all cases."""
    return [a for case in found for a in case.arrays]

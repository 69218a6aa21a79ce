"""Every op and composite, in every dtype that it takes, with its gradient: compiled as interpreted.

All samples of an op are in one graph, so that it is compiled once. It is optimised; some of the samples are
compiled as they are too, with checks of every index, which takes LLVM far longer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from tests.backends.agreement import assert_agree, checked, compiled, interpreted
from tests.ops import checks
from tests.schedule.lowered import variants
from weft.base.dtypes import COMPLEX, DTYPES, FLOATS, INTEGERS, bool_, kind
from weft.errors import WeftError
from weft.ir.graph import Graph

CHECKED = 4  # samples of an op in which every index is checked
SORTED = ("searchsorted",)  # whose first input must stay sorted, which a cast to bool does not see to


@pytest.fixture(autouse=True)
def _edges() -> Iterator[None]:
    """Samples go to the edges of dtypes, and narrower ones beyond them."""
    with np.errstate(all="ignore"):
        yield


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
def _rows() -> dict[str, list[checks.Entry]]:
    rows: dict[str, list[checks.Entry]] = {}
    for entry in checks.entries():
        rows.setdefault(entry.name, []).append(entry)
    return rows


def _case(entry: checks.Entry, arrays: list[Any]) -> Case | None:
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


def cases(name: str) -> Iterator[Case]:
    """Each sample as it is, then of each other combination of dtypes the first sample that has elements."""
    seen: set[tuple[Any, ...]] = set()
    for entry in _rows()[name]:
        case = _case(entry, list(entry.sample.inputs))
        assert case is not None, f"{name} does not take its own sample"
        seen.add(tuple(a.dtype for a in case.arrays))
        yield case
    for entry in _rows()[name]:
        for arrays in variants(entry.sample.inputs):
            dtypes = tuple(a.dtype for a in arrays)
            if dtypes in seen or min((a.size for a in arrays), default=0) < 2:
                continue
            if name in SORTED and arrays[0].dtype == bool_:
                continue
            case = _case(entry, arrays)
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


@pytest.mark.parametrize("name", _rows())
def test_compiled_op_and_its_gradient_agree_with_the_interpreter(name: str) -> None:
    found = list(cases(name))
    graph, arrays = graph_of(found), arrays_of(found)
    assert_agree(compiled(graph.optimize(), arrays), interpreted(graph, arrays))
    graph, arrays = graph_of(found[:CHECKED]), arrays_of(found[:CHECKED])
    assert_agree(checked(graph, arrays), interpreted(graph, arrays))


TAKEN: list[tuple[str, Callable[[Any], bool]]] = [
    ("add", lambda d: True),
    ("exp", lambda d: d in FLOATS or d in COMPLEX),
    ("bitwise_and", lambda d: d == bool_ or d in INTEGERS),
    ("sort", lambda d: d not in COMPLEX),
    ("matmul", lambda d: d != bool_),
]


@pytest.mark.parametrize(("name", "takes"), TAKEN)
def test_cases_have_every_dtype_that_an_op_takes(name: str, takes: Callable[[Any], bool]) -> None:
    assert {case.arrays[0].dtype for case in cases(name)} >= {d for d in DTYPES if takes(d)}

"""Every op and composite, in the dtypes that it takes, with its gradient: compiled as interpreted.

A run takes the first sample of each op, and a part of the other samples and dtypes, another part whenever
weft's code is another; ``WEFT_ALL=1`` takes all of them.

All that it takes of an op is in one graph, so that it is compiled once. It is optimised; some of the samples
are compiled as they are too, with checks of every index, which takes LLVM far longer: in a run those of a
sixth of the ops. (``test_debug_checks`` checks the indices of every op in every run.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.backends.agreement import assert_agree, checked, compiled, interpreted
from tests.backends.llvm.matrix import arrays_of, cases, graph_of, rows
from tests.of_code import ALL, is_turn
from weft.base.dtypes import COMPLEX, DTYPES, FLOATS, INTEGERS, bool_

PARTS = 12
CHECKED = 4 if ALL else 2  # samples of an op in which every index is checked


@pytest.fixture(autouse=True)
def _edges() -> Iterator[None]:
    """Samples go to the edges of dtypes, and narrower ones beyond them."""
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("name", rows())
def test_compiled_op_and_its_gradient_agree_with_the_interpreter(name: str) -> None:
    found = list(cases(name, PARTS))
    graph, arrays = graph_of(found), arrays_of(found)
    assert_agree(compiled(graph.optimize(), arrays), interpreted(graph, arrays))
    if not is_turn(f"{name}, checked", 6):
        return
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

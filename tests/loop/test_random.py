from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given

from tests.loop.everything import Copier, changed_copies
from tests.loop.random_functions import assert_same, functions, sized_functions
from tests.of_code import examples
from weft.loop import interpret, ir
from weft.loop.ir import Function
from weft.loop.text import format_function
from weft.loop.verify import verify_function

Array = np.ndarray[Any, Any]
Drawn = tuple[Function, list[Array], dict[str, int]]
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
quickly = examples(100, 30, suppress_health_check=SLOW)


def results(function: Function, arrays: list[Array], sizes: dict[str, int] | None = None) -> list[Array]:
    out = [array.copy() for array in arrays]
    interpret.run_function(function, out, sizes)
    return out


def in_reverse(frame: Any, s: ir.Loop) -> None:
    order = range(frame.index(s.start), frame.index(s.stop))
    for i in order if s.kind == "serial" else reversed(order):
        frame.values[s.variable] = i
        frame.block(s.body)


@quickly
@given(functions())
def test_functions_without_sizes_run(drawn: tuple[Function, list[Array]]) -> None:
    function, arrays = drawn
    assert function.sizes == ()
    outs = results(function, arrays)
    read = [i for i, buffer in enumerate(function.buffers) if buffer not in function.written]
    assert_same([outs[i] for i in read], [arrays[i] for i in read])


@quickly
@given(sized_functions())
def test_iterations_of_vector_and_parallel_loops_may_run_in_any_order(drawn: Drawn) -> None:
    function, arrays, sizes = drawn
    verify_function(function)
    forward = results(function, arrays, sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(interpret._RUN, ir.Loop, in_reverse)
        backward = results(function, arrays, sizes)
    assert_same(backward, forward)


@quickly
@given(sized_functions())
def test_copies_have_the_same_canonical_text_and_results(drawn: Drawn) -> None:
    function, arrays, sizes = drawn
    copy = verify_function(Copier().copy(function))
    assert format_function(copy, canonical=True) == format_function(function, canonical=True)
    assert_same(results(copy, arrays, sizes), results(function, arrays, sizes))


@examples(10, 4, suppress_health_check=SLOW)
@given(sized_functions())
def test_canonical_text_differs_under_each_single_change(drawn: Drawn) -> None:
    text = format_function(drawn[0], canonical=True)
    for other, was in changed_copies(drawn[0]):
        assert format_function(other, canonical=True) != text, was

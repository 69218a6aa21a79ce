"""Random graphs, control flow included: compiled as interpreted, by one thread and by two, optimised or not.

``pytest --hypothesis-profile=explore`` takes new ones, ten times as many.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from tests.backends.agreement import assert_agree, interpreted, same_bits
from tests.ir.large_graphs import large_arrays, large_graphs
from tests.ir.random_graphs import arrays_of, graphs
from tests.of_code import examples
from weft.backends.llvm.driver import build_executable
from weft.ir.graph import Graph

PROFILE = settings().max_examples  # 100, but for the profile that looks for new examples
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
small = examples(5 * PROFILE, 120, suppress_health_check=SLOW)
large = examples(PROFILE, 30, suppress_health_check=SLOW)
now_and_then = st.integers(0, 3).map(lambda n: n == 0)


@pytest.fixture(autouse=True, scope="module")
def _threads() -> Iterator[None]:
    before = weft.get_num_threads()
    yield
    weft.set_num_threads(before)


def check(graph: Graph, given: Graph, arrays: list[Any], *, debug: bool, ulps: float = 64) -> None:
    """A graph, compiled, gives what another one gives, interpreted; with any number of threads."""
    run = build_executable(graph, debug=debug)
    weft.set_num_threads(1)
    alone = run(arrays)
    weft.set_num_threads(2)
    assert same_bits(run(arrays), alone)
    assert_agree(alone, interpreted(given, arrays), ulps)


@small
@given(graphs(), now_and_then)
def test_compiled_graph_gives_what_the_interpreter_gives(graph: Graph, debug: bool) -> None:
    check(graph, graph, arrays_of(graph), debug=debug)


@small
@given(graphs(), now_and_then)
def test_optimised_and_compiled_graph_gives_what_the_interpreter_gives(graph: Graph, debug: bool) -> None:
    check(graph.optimize(), graph, arrays_of(graph), debug=debug)


# Sums of up to 65,536 numbers, and what follows from them: rounding adds up.


@large
@given(large_graphs(), now_and_then)
def test_borders_of_vectors_and_blocks_are_kept(graph: Graph, debug: bool) -> None:
    check(graph, graph, large_arrays(graph), debug=debug, ulps=2048)


@large
@given(large_graphs(), now_and_then)
def test_borders_are_kept_in_optimised_graphs(graph: Graph, debug: bool) -> None:
    check(graph.optimize(), graph, large_arrays(graph), debug=debug, ulps=2048)

"""Attention as single nodes: the pass by the interpreter of graphs, the kernels against that, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import weft
from tests.schedule.lowered import program_of, run
from tests.schedule.threads import on_threads
from weft.backends import backend_named
from weft.backends.llvm.driver import build_executable
from weft.base.sizes import named_size
from weft.ir.graph import Graph
from weft.passes import LOWERING, fuse_attention, inline, pipeline

attend = weft.scaled_dot_product_attention
ROWS, COLUMNS = 70, 90
EVERY = fuse_attention.using(long=1)


@pytest.fixture(autouse=True)
def every_length_is_long() -> Iterator[None]:
    with patch.object(pipeline, "LOWERING", [EVERY if p.name == EVERY.name else p for p in LOWERING]):
        yield


def random_array(*shape: int, dtype: Any = "f4") -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def tensors(*shapes: tuple[int, ...], dtype: Any = "f4") -> list[Any]:
    return [weft.tensor(random_array(*shape, dtype=dtype)) for shape in shapes]


QUERY, KEY, VALUE = (2, 3, ROWS, 12), (2, 3, COLUMNS, 12), (2, 3, COLUMNS, 20)
MASK = random_array(ROWS, COLUMNS) > 0
BIAS = random_array(3, ROWS, COLUMNS)


def by_hand(change: Any) -> Any:
    return lambda q, k, v: weft.softmax(change(q @ k.mT), axis=-1) @ v


def softcap(scores: Any) -> Any:
    return weft.tanh(scores / 5.0) * 5.0


WAYS: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "plain": (attend, (QUERY, KEY, VALUE)),
    "causal": (lambda q, k, v: attend(q, k, v, is_causal=True), (QUERY, KEY, VALUE)),
    "causal with few keys": (
        lambda q, k, v: attend(q, k, v, is_causal=True),
        ((1, 200, 8), (1, 40, 8), (1, 40, 8)),
    ),
    "causal with many keys": (
        lambda q, k, v: attend(q, k, v, is_causal=True),
        ((1, 40, 8), (1, 200, 8), (1, 200, 8)),
    ),
    "mask": (lambda q, k, v: attend(q, k, v, weft.tensor(MASK)), (QUERY, KEY, VALUE)),
    "bias": (lambda q, k, v: attend(q, k, v, weft.tensor(BIAS)), (QUERY, KEY, VALUE)),
    "padding": (lambda q, k, v: attend(q, k, v, weft.tensor(MASK[:1])), (QUERY, KEY, VALUE)),
    "grouped heads": (
        lambda q, k, v: attend(q, k, v, enable_gqa=True),
        ((2, 4, 40, 8), (2, 2, 50, 8), (2, 1, 50, 8)),
    ),
    "shared keys": (by_hand(lambda s: s), (QUERY, KEY[1:], VALUE[1:])),
    "scaled scores": (by_hand(lambda s: s * 0.3), (QUERY, KEY, VALUE)),
    "hidden scores": (
        by_hand(lambda s: weft.where(weft.tensor(MASK), s * 0.5, -1e9)),
        (QUERY, KEY, VALUE),
    ),
    "whole blocks": (attend, ((1, 2, 128, 32), (1, 2, 128, 32), (1, 2, 128, 32))),
    "turned sides": (
        lambda q, k, v: attend(q.mT, k.mT, v.mT, is_causal=True),
        ((2, 16, 64), (2, 16, 64), (2, 16, 64)),
    ),
}


def forward_graph(name: str, dtype: Any = "f4") -> Graph:
    function, shapes = WAYS[name]
    return weft.make_graph(function)(*tensors(*shapes, dtype=dtype)).optimize()


def gradient_graph(name: str, dtype: Any = "f4") -> Graph:
    function, shapes = WAYS[name]

    def loss(*args: Any) -> Any:
        return (function(*args) ** 2).sum()

    return weft.make_graph(weft.grad(loss, (0, 1, 2)))(*tensors(*shapes, dtype=dtype)).optimize()


def arrays_of(graph: Graph) -> list[Any]:
    return [random_array(*v.type.shape, dtype="f8").astype(v.type.dtype) for v in graph.inputs]


def reference(graph: Graph, arrays: Any) -> Any:
    return backend_named("interpret")(graph)(arrays)


def fused_ops(graph: Graph) -> dict[str, int]:
    names = Counter(n.op.name for n in EVERY(inline(graph)).walk())
    return {name: names[name] for name in ("softmax", "attention", "attention_gradient")}


def assert_close(got: Any, expected: Any, tolerance: float = 3e-5) -> None:
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, np.abs(b).max()))


# The pass


@pytest.mark.parametrize("name", WAYS)
def test_the_forward_pass_becomes_one_node(name: str) -> None:
    graph = forward_graph(name)
    assert fused_ops(graph) == {"softmax": 0, "attention": 1, "attention_gradient": 0}


@pytest.mark.parametrize("name", WAYS)
def test_the_gradient_becomes_one_node(name: str) -> None:
    graph = gradient_graph(name)
    assert fused_ops(graph) == {"softmax": 0, "attention": 1, "attention_gradient": 1}


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("make", [forward_graph, gradient_graph])
def test_fused_graphs_give_what_they_gave(make: Any, name: str) -> None:
    graph = make(name, "f8")
    arrays = arrays_of(graph)
    fused = EVERY(inline(graph))
    assert_close(reference(fused, arrays), reference(graph, arrays), 1e-12)


def test_short_sequences_stay_as_they_are() -> None:
    graph = inline(forward_graph("plain"))
    assert fuse_attention(graph) is graph


def test_scores_that_somebody_wants_stay() -> None:
    def scores_too(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.mT
        return weft.softmax(scores, axis=-1) @ v, scores

    graph = weft.make_graph(scores_too)(*tensors(QUERY, KEY, VALUE))
    assert fused_ops(graph)["softmax"] == 1


def test_weights_that_somebody_wants_stay() -> None:
    def weights_too(q: Any, k: Any, v: Any) -> Any:
        weights = weft.softmax(q @ k.mT, axis=-1)
        return weights @ v, weights

    def used_twice(q: Any, k: Any, v: Any) -> Any:
        weights = weft.softmax(q @ k.mT, axis=-1)
        return weights @ v + (weights * 2.0) @ v

    for function in (weights_too, used_twice):
        graph = weft.make_graph(function)(*tensors(QUERY, KEY, VALUE))
        assert fused_ops(graph)["softmax"] == 1


def test_a_gradient_by_scores_keeps_them() -> None:
    def loss(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return (weft.softmax(q @ k.mT + bias, axis=-1) @ v).sum()

    shapes = (QUERY, KEY, VALUE, (ROWS, COLUMNS))
    graph = weft.make_graph(weft.grad(loss, (0, 3)))(*tensors(*shapes)).optimize()
    assert fused_ops(graph)["softmax"] == 1


def test_a_gradient_that_is_not_of_all_inputs_is_fused() -> None:
    for wanted in (0, 1):
        graph = weft.make_graph(weft.grad(lambda *x: attend(*x).sum(), wanted))(*tensors(QUERY, KEY, VALUE))
        assert fused_ops(graph.optimize())["attention_gradient"] == 1
        arrays = arrays_of(graph)
        assert_close(build_executable(graph.optimize())(arrays), reference(graph, arrays))


def test_attention_in_a_loop_is_fused() -> None:
    def repeated(q: Any, k: Any) -> Any:
        return weft.fori_loop(0, 3, lambda i, x: attend(x, k, k), q)

    graph = weft.make_graph(repeated)(*tensors((64, 8), (64, 8)))
    assert fused_ops(graph)["softmax"] == 0
    arrays = arrays_of(graph)
    assert_close(build_executable(graph)(arrays), reference(graph, arrays))


# Kernels


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("make", [forward_graph, gradient_graph])
def test_compiled_graphs_give_what_the_interpreter_gives(make: Any, name: str) -> None:
    graph = make(name)
    arrays = arrays_of(graph)
    assert_close(build_executable(graph)(arrays), reference(graph, arrays))


def test_elementwise_ops_between_scores_and_softmax_are_part_of_the_kernel() -> None:
    graph = weft.make_graph(by_hand(softcap))(*tensors(QUERY, KEY, VALUE)).optimize()
    assert fused_ops(graph)["attention"] == 1
    arrays = arrays_of(graph)
    assert_close(build_executable(graph)(arrays), reference(graph, arrays))


@pytest.mark.parametrize("make", [forward_graph, gradient_graph])
def test_double_precision_is_kept(make: Any) -> None:
    graph = make("causal", "f8")
    arrays = arrays_of(graph)
    assert_close(build_executable(graph)(arrays), reference(graph, arrays), 1e-13)


@pytest.mark.rotating(2)
def test_loops_are_right_by_their_interpreter() -> None:
    shapes = ((33, 2), (66, 2), (66, 3))
    graph = weft.make_graph(weft.grad(lambda *x: attend(*x).sum(), (0, 1, 2)))(*tensors(*shapes))
    arrays = arrays_of(graph)
    assert_close(run(graph, arrays), reference(graph, arrays))


@pytest.mark.rotating(2)
def test_debug_code_finds_no_index_out_of_bounds() -> None:
    graph = gradient_graph("mask")
    arrays = arrays_of(graph)
    assert_close(build_executable(graph, debug=True)(arrays), reference(graph, arrays))


def test_large_scores_do_not_overflow() -> None:
    graph = forward_graph("plain")
    arrays = arrays_of(graph)
    arrays[0] *= 1000
    assert_close(build_executable(graph)(arrays), reference(graph, arrays), 1e-3)


def test_a_query_that_may_look_at_nothing_gives_nan_by_hand_and_zeros_by_a_mask() -> None:
    blocked = np.zeros((ROWS, COLUMNS), bool)
    blocked[1:] = True

    def with_mask(q: Any, k: Any, v: Any) -> Any:
        return attend(q, k, v, weft.tensor(blocked))

    hidden = by_hand(lambda s: weft.where(weft.tensor(blocked), s * 12**-0.5, -np.inf))
    arrays = [random_array(*shape) for shape in (QUERY, KEY, VALUE)]
    graphs = [weft.make_graph(f)(*map(weft.tensor, arrays)).optimize() for f in (with_mask, hidden)]
    (zeros,), (unknown,) = (build_executable(graph)(arrays) for graph in graphs)
    assert (zeros[:, :, 0] == 0).all()
    assert np.isnan(unknown[:, :, 0]).all()
    assert_close([zeros[:, :, 1:]], [unknown[:, :, 1:]])


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    graph = gradient_graph("causal")
    arrays, compiled = arrays_of(graph), build_executable(graph)
    for a, b in zip(*on_threads(lambda: compiled(arrays)), strict=True):
        np.testing.assert_array_equal(a, b)


# Named sizes


def sized_graph(function: Any, types: list[Any]) -> Graph:
    return weft.make_graph(function)(*types).optimize()


def named_types(query: Any, keys: Any) -> list[Any]:
    lengths = (query, keys, keys)
    return [weft.TensorType((2, n, 12), np.dtype("f4")) for n in lengths]


@pytest.mark.rotating(3)
@pytest.mark.parametrize(("causal", "debug"), [(False, False), (True, False), (True, True)])
def test_one_kernel_serves_all_lengths(causal: bool, debug: bool) -> None:
    def function(q: Any, k: Any, v: Any) -> Any:
        return attend(q, k, v, is_causal=causal)

    def loss(q: Any, k: Any, v: Any) -> Any:
        return (function(q, k, v) ** 2).sum()

    types = named_types(named_size("n"), named_size("m"))
    for f, ops in ((function, 1), (weft.grad(loss, (0, 1, 2)), 2)):
        graph = sized_graph(f, types)
        assert sum(fused_ops(graph).values()) == ops
        assert fused_ops(graph)["softmax"] == 0
        run_sized = build_executable(graph, debug=debug)
        for rows, columns in ((1, 1), (2, 33), (64, 64), (100, 65), (33, 200)):
            arrays = [random_array(2, n, 12) for n in (rows, columns, columns)]
            assert_close(run_sized(arrays), reference(graph, arrays))


def test_a_batch_may_have_any_size() -> None:
    n = named_size("n")
    types = [weft.TensorType((n, 70, 12), np.dtype("f4"))] * 3
    graph = sized_graph(weft.grad(lambda *x: attend(*x).sum(), (0, 1, 2)), types)
    assert fused_ops(graph)["attention_gradient"] == 1
    for batch in (1, 3):
        arrays = [random_array(batch, 70, 12)] * 3
        assert_close(build_executable(graph)(arrays), reference(graph, arrays))


def test_of_no_keys_the_mean_is_zero() -> None:
    graph = sized_graph(attend, named_types(named_size("n"), named_size("m")))
    arrays = [random_array(2, n, 12) for n in (3, 0, 0)]
    (out,) = build_executable(graph)(arrays)
    np.testing.assert_array_equal(out, np.zeros((2, 3, 12), np.float32))


# Memory


def test_scores_of_long_sequences_lie_nowhere() -> None:
    length = 2048
    scores = length * length * 4
    q = weft.zeros((1, 2, length, 16))
    with patch.object(pipeline, "LOWERING", LOWERING):
        for function in (
            lambda q, k, v: attend(q, k, v, is_causal=True),
            weft.grad(lambda q, k, v: attend(q, k, v, is_causal=True).sum(), (0, 1, 2)),
        ):
            program = program_of(weft.make_graph(function)(q, q, q).optimize())
            assert program.arena_size < scores / 4
            assert sum(c.nbytes for c in program.constants) < scores / 4


def test_a_gradient_outside_of_a_compiled_function_is_right() -> None:
    inputs = [t.requires_grad_() for t in tensors((2, 256, 16), (2, 256, 16), (2, 256, 16))]
    compiled = weft.compile(lambda q, k, v: attend(q, k, v, is_causal=True), backend="llvm")
    found = []
    for function in (compiled, lambda q, k, v: attend(q, k, v, is_causal=True)):
        for x in inputs:
            x.grad = None
        (function(*inputs) ** 2).sum().backward()
        found.append([x.grad.numpy() for x in inputs])
    assert_close(*found)


def test_a_mask_is_read_as_it_is_given() -> None:
    length = 512
    q, mask = weft.zeros((1, 2, length, 16)), weft.ones((length, length), dtype=weft.bool)
    program = program_of(weft.make_graph(attend)(q, q, q, mask).optimize())
    assert program.arena_size < length * length

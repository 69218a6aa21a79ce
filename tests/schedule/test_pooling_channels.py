"""Convolutions that pools read: written with channels last, with the values of the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from tests.schedule.lowered import program_of, run
from weft.backends.llvm.driver import build_executable
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.loop.walk import launched_functions
from weft.schedule.cpu import layouts
from weft.schedule.cpu.machine import Machine
from weft.schedule.cpu.target import Cpu

WIDE = Machine(vector_bytes=64, registers=32)


@pytest.fixture(autouse=True)
def _small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "MANY_POSITIONS", 1)
    monkeypatch.setattr(layouts, "WIDE", 1)


def network(pool: str = "max_pool2d", **options: Any) -> Any:
    def f(x: Any, w: Any, b: Any) -> Any:
        y = weft.relu(weft.conv2d(x, w, b, **options))
        return getattr(weft, pool)(y, 2).reshape(x.shape[0], -1)

    return f


def arrays(*shapes: tuple[int, ...], dtype: Any = np.float32) -> list[Any]:
    rng = np.random.default_rng(len(shapes[0]))
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def graph_for(f: Any, given_arrays: list[Any]) -> Graph:
    graph: Graph = weft.make_graph(f)(*map(weft.tensor, given_arrays)).optimize()
    return graph


def scratch_names(graph: Graph) -> set[str]:
    """The names of what kernels have on their stacks."""
    functions = launched_functions(program_of(graph, target=Cpu(WIDE)).main.body)
    return {buffer.name for function in functions for buffer in function.scratch}


def has_channels_last(graph: Graph) -> bool:
    """Whether a pool puts lines with all channels aside."""
    return "line" in scratch_names(graph)


def is_one_kernel(graph: Graph) -> bool:
    """Whether a pool is computed where the lines of its convolution are."""
    return "lines" in scratch_names(graph)


def check(graph: Graph, given_arrays: list[Any], **tolerance: float) -> None:
    expected = interpret(graph, given_arrays)
    for found, wanted in zip(build_executable(graph)(given_arrays), expected, strict=True):
        np.testing.assert_allclose(found, wanted, **tolerance)


@pytest.mark.parametrize("pool", ["max_pool2d", "avg_pool2d"])
@pytest.mark.parametrize("size", [7, 8, 14])
def test_values_are_those_of_the_interpreter(pool: str, size: int) -> None:
    given_arrays = arrays((2, 3, size, size), (16, 3, 3, 3), (16,))
    graph = graph_for(network(pool), given_arrays)
    assert has_channels_last(graph) == (pool == "max_pool2d")  # a mean divides, and is not alone
    check(graph, given_arrays, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "one"),
    [(2, 2, 0, True), (2, 3, 0, True), (1, 1, 0, True), (3, 2, 0, False), (2, 2, 1, False)],
)
def test_pool_is_part_of_the_kernel_if_no_line_is_needed_twice(
    kernel: int, stride: int, padding: int, one: bool
) -> None:
    def f(x: Any, w: Any, b: Any) -> Any:
        y = weft.relu(weft.conv2d(x, w, b, padding=1))
        return weft.max_pool2d(y, kernel, stride, padding)

    given_arrays = arrays((3, 2, 11, 12), (32, 2, 3, 3), (32,))
    graph = graph_for(f, given_arrays)
    assert is_one_kernel(graph) == one
    assert has_channels_last(graph)
    check(graph, given_arrays, rtol=1e-4, atol=1e-5)


def test_long_code_after_the_convolution_is_written_once() -> None:
    def f(x: Any, w: Any, b: Any) -> Any:
        y = weft.conv2d(x, w) * b.reshape(-1, 1, 1)
        return weft.max_pool2d(weft.tanh(weft.sigmoid(y) - 0.5) * y + 1.0, 2)

    given_arrays = arrays((2, 3, 10, 10), (16, 3, 3, 3), (16,))
    graph = graph_for(f, given_arrays)
    assert {"lines", "stage"} <= scratch_names(graph)
    check(graph, given_arrays, rtol=1e-4, atol=1e-5)


def test_loops_give_the_same() -> None:
    given_arrays = arrays((1, 1, 5, 7), (16, 1, 2, 2), (16,))
    graph = graph_for(network(), given_arrays)
    np.testing.assert_allclose(
        run(graph, given_arrays)[0], interpret(graph, given_arrays)[0], rtol=1e-5, atol=1e-6
    )


@examples(25, 8)
@given(st.data())
def test_any_convolution_and_pool(data: st.DataObject) -> None:
    n, channels, outputs = data.draw(
        st.tuples(st.integers(1, 3), st.integers(1, 4), st.sampled_from([16, 32, 48]))
    )
    taps, stride = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2))
    padding, dilation = data.draw(st.integers(0, 2)), data.draw(st.integers(1, 2))
    size = data.draw(st.integers(10, 15))
    kernel, step = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))

    def f(x: Any, w: Any) -> Any:
        y = weft.conv2d(x, w, stride=stride, padding=padding, dilation=dilation)
        return weft.max_pool2d(weft.tanh(y), kernel, step)

    given_arrays = arrays((n, channels, size, size + 1), (outputs, channels, taps, taps), dtype=np.float64)
    check(graph_for(f, given_arrays), given_arrays, rtol=1e-9, atol=1e-10)


def test_sequences_and_volumes() -> None:
    for pool, convolve, shape in (
        (weft.max_pool1d, weft.conv1d, (2, 3, 20)),
        (weft.max_pool3d, weft.conv3d, (1, 2, 6, 6, 6)),
    ):
        window = (16, shape[1], *[3] * (len(shape) - 2))
        given_arrays = arrays(shape, window)
        graph = graph_for(lambda x, w, p=pool, c=convolve: p(c(x, w), 2), given_arrays)
        assert has_channels_last(graph)
        check(graph, given_arrays, rtol=1e-4, atol=1e-5)


def test_nan_goes_through() -> None:
    given_arrays = arrays((1, 1, 6, 6), (16, 1, 3, 3), (16,))
    given_arrays[0][0, 0, 2, 3] = np.nan
    check(graph_for(network(), given_arrays), given_arrays, rtol=1e-4, atol=1e-5)


def test_several_pools_read_one_convolution() -> None:
    def f(x: Any, w: Any) -> Any:
        y = weft.conv2d(x, w)
        return weft.max_pool2d(y, 2), weft.max_pool2d(y, 3)

    given_arrays = arrays((2, 2, 9, 9), (16, 2, 3, 3))
    graph = graph_for(f, given_arrays)
    assert has_channels_last(graph)
    assert not is_one_kernel(graph)
    check(graph, given_arrays, rtol=1e-4, atol=1e-5)


def test_convolution_that_others_read_too_stays_as_it_is() -> None:
    def f(x: Any, w: Any) -> Any:
        y = weft.conv2d(x, w)
        return weft.max_pool2d(y, 2), y.sum()

    given_arrays = arrays((2, 2, 9, 9), (16, 2, 3, 3))
    graph = graph_for(f, given_arrays)
    assert not has_channels_last(graph)
    check(graph, given_arrays, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "options", [{"outputs": 10}, {"groups": 2}, {"result": True}], ids=["channels", "groups", "result"]
)
def test_what_does_not_suit_stays_as_it_is(options: dict[str, Any]) -> None:
    outputs, groups = options.get("outputs", 16), options.get("groups", 1)

    def f(x: Any, w: Any) -> Any:
        y = weft.conv2d(x, w, groups=groups)
        pooled = weft.max_pool2d(y, 2)
        return (pooled, y) if options.get("result") else pooled

    given_arrays = arrays((2, 2, 9, 9), (outputs, 2 // groups, 3, 3))
    graph = graph_for(f, given_arrays)
    assert not has_channels_last(graph)
    check(graph, given_arrays, rtol=1e-4, atol=1e-4)


def test_open_batch() -> None:
    graph = weft.make_graph(network())(
        weft.TensorType(("n", 2, 10, 10), weft.float32), weft.ones((16, 2, 3, 3)), weft.ones(16)
    ).optimize()
    run_it = build_executable(graph)
    for n in (1, 3):
        given_arrays = arrays((n, 2, 10, 10), (16, 2, 3, 3), (16,))
        np.testing.assert_allclose(
            run_it(given_arrays)[0], interpret(graph, given_arrays)[0], rtol=1e-4, atol=1e-5
        )


def test_training_step_has_the_same_gradients() -> None:
    def loss(w: Any, x: Any) -> Any:
        return (weft.max_pool2d(weft.relu(weft.conv2d(x, w)), 2) ** 2).sum()

    x, w = map(weft.tensor, arrays((2, 2, 8, 8), (16, 2, 3, 3)))
    compiled = weft.compile(weft.grad(loss))(w, x)
    np.testing.assert_allclose(compiled.numpy(), weft.grad(loss)(w, x).numpy(), rtol=1e-3, atol=1e-3)

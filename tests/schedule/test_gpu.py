"""Programs for a GPU on the grid interpreter: blocks and threads in any order, where races are errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from tests.backends.agreement import assert_agree, interpreted
from tests.backends.cuda.op_matrix import SMALL
from tests.schedule.lowered import shaped
from weft.backends.cuda.emit.kernel import grid_of, thread_count
from weft.ir.graph import Graph
from weft.ir.parse import parse_graph
from weft.loop import ir
from weft.loop.text import format_program
from weft.loop.verify import verify_program
from weft.loop.walk import launched_functions, statements
from weft.schedule.gpu.machine import Gpu as Machine
from weft.schedule.gpu.target import Gpu
from weft.schedule.gpu.tiling import tile
from weft.schedule.gpu.trees import _step
from weft.schedule.program import lower_graph


def run_grid(
    graph: Graph,
    arrays: Sequence[Any],
    sizes: Mapping[str, int] | None = None,
    machine: Machine | None = None,
) -> list[Any]:
    """The results of a graph, lowered for a GPU."""
    lowered = weft.passes.lower(graph.optimize(), disable=["fuse_attention"])
    program = verify_program(lower_graph(lowered, target=Gpu(machine)))
    return shaped(program, graph, arrays, sizes or {})


def check(function: Any, *arrays: Any, machine: Machine | None = None) -> None:
    graph = weft.make_graph(function)(*map(weft.tensor, arrays))
    assert_agree(run_grid(graph, arrays, machine=machine), interpreted(graph, arrays))


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("machine", [Machine(), SMALL])
def test_groups_of_every_shape(machine: Machine) -> None:
    """Rows that fill their threads and that do not, in vectors and not, in registers and not."""
    for rows_, columns in ((1, 1), (3, 8), (5, 33), (2, 96), (1, 130), (1, 700)):
        check(lambda x: F.softmax(x, axis=-1), normal(rows_, columns), machine=machine)
        check(lambda x: (x.sum(axis=0), (x * x).sum()), normal(rows_, columns), machine=machine)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("machine", [Machine(), SMALL])
def test_gradients_of_layer_norm(machine: Machine) -> None:
    def gradients(x: Any, w: Any, b: Any, dy: Any) -> Any:
        _, pull = weft.vjp(lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b), x, w, b)
        return pull(dy)

    for rows_, columns in ((5, 32), (3, 31)):
        arrays = normal(rows_, columns), normal(columns), normal(columns), normal(rows_, columns + 1)[:, 1:]
        check(gradients, *map(np.ascontiguousarray, arrays), machine=machine)


def test_arrays_that_are_not_dense_and_that_broadcast() -> None:
    check(lambda x, y: x.T * 2.0 + y, normal(12, 8), normal(8, 12))
    check(lambda x, y: F.softmax(x.T + y, axis=-1), normal(12, 8), normal(8, 1))
    check(lambda x, y: x[:, None, :] + y[None, :, :], normal(4, 8), normal(3, 8))
    check(lambda x: weft.concat([x, x * 2.0], axis=1).sum(axis=1), normal(4, 8))
    check(lambda x: x[1:, 2:].sum(axis=0), normal(9, 10))


@pytest.mark.rotating(2)
def test_products_by_a_library_and_by_tiles() -> None:
    x, w = normal(2, 5, 24), normal(24, 40)
    for machine in (Machine(), Machine(libraries=True, least_product=0)):
        check(lambda x, w: weft.tanh(x @ w) @ w.T, x, w, machine=machine)
        check(lambda x, w: weft.tanh(w.T @ x[0].T), x, w, machine=machine)


def test_products_of_batches_by_a_library() -> None:
    machine = Machine(libraries=True, least_product=0)
    x, y = normal(2, 6, 3, 8), normal(2, 6, 3, 8)  # examples, places, heads, features

    def heads(x: Any) -> Any:
        return x.permute((0, 2, 1, 3))

    for f, calls in (
        (lambda x, y: heads(x) @ y.permute((0, 2, 3, 1)), 2),  # a call for each example
        (lambda x, y: x @ y.permute((0, 1, 3, 2)), 1),
        (lambda x, y: x @ y[0, 0].T, 1),  # all rows as one matrix
        (lambda x, y: x[0, 0] @ y.permute((0, 1, 3, 2)), 1),  # one left side for all
        (lambda x, y: weft.broadcast_to(x[0, :1, 0], (6, 8)) @ y[1, 1].T, 1),
        (lambda x, y: x[:, :, :, ::2] @ y[:, :, :, ::2].permute((0, 1, 3, 2)), 1),
    ):
        check(f, x, y, machine=machine)
        graph = weft.make_graph(f)(weft.tensor(x), weft.tensor(y)).optimize()
        program = lower_graph(weft.passes.lower(graph), target=Gpu(machine))
        found = [s for s in statements(program.main.body) if isinstance(s, ir.Matmul)]
        assert len(found) == calls, format_program(program)


def test_products_of_halves_by_a_library_are_summed_in_single() -> None:
    machine = Machine(libraries=True, least_product=0)
    for dtype in (weft.float16, weft.bfloat16):
        x, y = (weft.tensor(normal(9, 9)).astype(dtype).numpy() for _ in range(2))
        check(lambda x, y: x @ y.T, x, y, machine=machine)


@pytest.mark.rotating(2)
def test_running_results_of_long_lines() -> None:
    check(lambda x: weft.cumsum(x, axis=1), normal(1, 1500))
    check(
        lambda x: (weft.cummax(x, axis=0)[0], weft.cumsum(x.astype(weft.int32), axis=0)), normal(300, 2) * 9
    )
    grad = weft.grad(lambda x: (weft.cumsum(x, axis=0) * x).sum())  # goes backward
    check(grad, normal(260))


def test_half_precision_in_eight_lanes() -> None:
    def f(x: Any) -> Any:
        return F.softmax(x, axis=-1) * 2

    x = weft.tensor(normal(4, 64)).astype(weft.bfloat16)
    graph = weft.make_graph(f)(x)
    program = lower_graph(weft.passes.lower(graph.optimize()), target=Gpu())
    (kernel,) = launched_functions(program.main.body)
    assert {s.lanes for s in statements(kernel.body) if isinstance(s, ir.Loop) and s.kind == "vector"} == {8}
    assert_agree(run_grid(graph, [x.numpy()]), interpreted(graph, [x.numpy()]))


def test_vectors_are_as_wide_as_what_is_written_takes_at_once() -> None:
    """Four lanes for float32 that half precision goes into: wider ones would leave gaps between stores."""

    def f(w: Any, g: Any) -> Any:
        return w - g.astype(weft.float32) * 0.1

    w, g = weft.tensor(normal(4, 64)), weft.tensor(normal(64, 4).reshape(4, 64)).astype(weft.bfloat16)
    graph = weft.make_graph(f)(w, g)
    program = lower_graph(weft.passes.lower(graph.optimize()), target=Gpu())
    (kernel,) = launched_functions(program.main.body)
    assert {s.lanes for s in statements(kernel.body) if isinstance(s, ir.Loop) and s.kind == "vector"} == {4}
    assert_agree(run_grid(graph, [w.numpy(), g.numpy()]), interpreted(graph, [w.numpy(), g.numpy()]))


def test_rows_side_by_side_in_a_block_give_one_row_of_sums() -> None:
    def f(x: Any) -> Any:
        return F.softmax(x, axis=-1).sum(axis=0)

    x = normal(40, 64)
    graph = weft.make_graph(f)(weft.tensor(x))
    program = lower_graph(weft.passes.lower(graph.optimize()), target=Gpu(Machine(blocks=3)))
    kernel, combine = launched_functions(program.main.body)
    assert thread_count(kernel) == 10 * 16  # ten rows at a time
    assert combine.buffers[0].size == 64 * grid_of(kernel).stop.offset
    assert_agree(shaped(program, graph, [x], {}), interpreted(graph, [x]), ulps=64)


def test_what_is_updated_is_written_over_what_was_read() -> None:
    graph = weft.make_graph(lambda w, g: (w - g * 0.1, (g * g).sum()))(weft.zeros(64), weft.zeros(64))
    program = lower_graph(graph, target=Gpu())
    kernel = next(iter(launched_functions(program.main.body)))
    assert (0, 2) in kernel.reuses or (1, 2) in kernel.reuses


SOFTMAX = """graph f(%x: f32[n,m]) {
  %0: f32[n,1] = max(%x, axes=(1,), keepdims=True)
  %1: f32[n,m] = sub(%x, %0)
  %2: f32[n,m] = exp(%1)
  %3: f32[n,1] = sum(%2, axes=(1,), keepdims=True)
  %4: f32[n,m] = div(%2, %3)
  %5: f32[m] = sum(%4, axes=(0,))
  %6: f32[] = sum(%4, axes=(0, 1))
  return %4, %5, %6
}"""


@pytest.mark.rotating(3)
@pytest.mark.parametrize("fixed", ["", "n", "m"])
def test_open_sizes(fixed: str) -> None:
    for n, m in ((5, 9), (7, 3), (0, 4), (4, 0), (0, 0)):
        if fixed == "m" and m == 0:
            continue  # of no elements there is no largest one
        text = (
            SOFTMAX.replace(fixed + ",", f"{n},").replace(f"[{fixed}]", f"[{m}]") if fixed == "n" else SOFTMAX
        )
        text = text.replace(",m]", f",{m}]").replace("[m]", f"[{m}]") if fixed == "m" else text
        graph, x = parse_graph(text), normal(n, m)
        found = run_grid(graph, [x], {"n": n, "m": m}, SMALL)
        e = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf))
        expected = e / e.sum(axis=1, keepdims=True)
        for got, want in zip(found, [expected, expected.sum(axis=0), expected.sum()], strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


EMPTY = """graph f(%x: f32[n,m], %i: i64[n]) {
  %0: f32[n,m] = cumsum(%x, axis=1)
  %1: f32[n] = prod(%x, axes=(1,))
  %2: f32[m,n] = permute(%x, axes=(1, 0))
  %3: f32[m,n] = mul(%2, f32(2.0))
  return %0, %1, %3
}"""


def test_open_sizes_that_are_nothing_reach_no_memory() -> None:
    """The interpreter checks every index; kernels of no blocks are not run."""
    graph = parse_graph(EMPTY)
    for n, m in ((3, 0), (0, 3), (0, 0), (2, 3)):
        x, i = normal(n, m), np.zeros(n, np.int64)
        found = run_grid(graph, [x, i], {"n": n, "m": m}, SMALL)
        for got, want in zip(found, [np.cumsum(x, 1), x.prod(1), x.T * 2], strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_tilings_cover_every_element_once() -> None:
    machine = Machine()
    for rows_, columns, lanes, whole in (
        (16384, 4096, 4, True), (7, 768, 8, True), (3, 96, 4, True), (5, 50304, 4, True), (9, 33, 1, True),
        (1, 1 << 20, 4, False), (100, 3072, 8, False), (17, 24, 4, False), (1, 5, 1, False),
    ):  # fmt: skip
        for partial in ("", "all", "column"):
            t = tile(rows_, columns, lanes, machine, whole=whole, partial=partial)  # type: ignore[arg-type]
            reach = t.width * t.lanes * (t.vectors or -(-columns // (t.width * t.lanes))) * t.chunks
            assert reach >= columns
            assert (t.blocks * t.each) // t.chunks * t.slots >= rows_
            assert t.threads <= machine.most_threads
            assert not t.exact or reach == columns


def test_trees_take_every_value_once() -> None:
    for width in (9, 12, 97, 125, 192, 256, 1024):
        step = _step(width)
        assert step == 0 or width % step == 0

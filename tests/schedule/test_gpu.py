"""Programs for a GPU on the grid interpreter: blocks and threads in any order, where races are errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from tests.backends.agreement import assert_agree, interpreted
from tests.backends.llvm.matrix import arrays_of, cases, graph_of, rows
from tests.schedule.lowered import shaped
from weft.ir.graph import Graph
from weft.ir.parse import parse_graph
from weft.loop import ir
from weft.loop.verify import verify_program
from weft.loop.walk import launched_functions, statements
from weft.ops.op import OPS
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


SMALL = Machine(threads=32, most_threads=64, blocks=3, row_elements=8)  # so that few elements fill it


@pytest.mark.parametrize("machine", [Machine(), SMALL])
def test_groups_of_every_shape(machine: Machine) -> None:
    """Rows that fill their threads and that do not, in vectors and not, in registers and not."""
    for rows_, columns in ((1, 1), (3, 8), (5, 33), (2, 96), (1, 130), (1, 700)):
        check(lambda x: F.softmax(x, axis=-1), normal(rows_, columns), machine=machine)
        check(lambda x: (x.sum(axis=0), (x * x).sum()), normal(rows_, columns), machine=machine)


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


def test_products_by_a_library_and_by_tiles() -> None:
    x, w = normal(2, 5, 24), normal(24, 40)
    for machine in (Machine(), Machine(libraries=True)):
        check(lambda x, w: weft.tanh(x @ w) @ w.T, x, w, machine=machine)
        check(lambda x, w: weft.tanh(w.T @ x[0].T), x, w, machine=machine)


def test_half_precision_in_eight_lanes() -> None:
    def f(x: Any) -> Any:
        return F.softmax(x, axis=-1) * 2

    x = weft.tensor(normal(4, 64)).astype(weft.bfloat16)
    graph = weft.make_graph(f)(x)
    program = lower_graph(weft.passes.lower(graph.optimize()), target=Gpu())
    (kernel,) = launched_functions(program.main.body)
    assert {s.lanes for s in statements(kernel.body) if isinstance(s, ir.Loop) and s.kind == "vector"} == {8}
    assert_agree(run_grid(graph, [x.numpy()]), interpreted(graph, [x.numpy()]))


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


@pytest.mark.parametrize("fixed", ["", "n", "m"])
def test_open_sizes(fixed: str) -> None:
    for n, m in ((5, 9), (7, 3), (0, 4)):
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


SLOW = {
    "max_pool3d",
    "adaptive_max_pool3d",
    "conv",
    "conv2d",
    "conv3d",
    "conv_transpose2d",
    "conv_transpose3d",
}


def _chosen() -> list[str]:
    """Ops that are more than a rule for one element, and some of the others."""
    names = [n for n in rows() if n not in SLOW]
    plain = [n for n in names if n in OPS and OPS[n].scalar is not None]
    chosen = [n for n in names if n not in plain or plain.index(n) % 8 == 0]
    primitives = [n for n in chosen if n in OPS]
    return primitives + [n for n in chosen if n not in OPS][::4]  # composites are made of these


@pytest.mark.parametrize("part", range(4))
def test_ops_and_their_gradients(part: int) -> None:
    """The first sample of each op: with a gradient it is a graph of several kernels."""
    for name in _chosen()[part::4]:
        case = next(c for c in cases(name))
        if sum(a.size for a in case.arrays) > 200:
            continue
        graph, arrays = graph_of([case]), arrays_of([case])
        with np.errstate(all="ignore"):
            assert_agree(run_grid(graph, arrays), interpreted(graph, arrays))

"""Products by cuBLASLt in programs: layouts, batches, graphs, workspaces, and which algorithm is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.agreement import assert_agree, interpreted
from tests.backends.cuda.blas import StandInBlas
from tests.backends.cuda.standin import StandIn
from tests.schedule.lowered import shaped
from weft.backends.cuda import choosing, cublaslt, stored
from weft.backends.cuda.bound import Bound
from weft.backends.cuda.build import build_program, loops_of
from weft.backends.cuda.card import card
from weft.backends.cuda.copies import to_device
from weft.backends.cuda.entries import LoopEntry, ProductEntry
from weft.backends.cuda.execute import CudaExecutable
from weft.backends.cuda.program import MatrixProduct
from weft.backends.llvm.cache import set_cache_directory
from weft.errors import ArgumentError, DeviceError
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.loop.text import format_program
from weft.loop.verify import verify_program
from weft.ops.affine import matmul_halves
from weft.schedule.gpu.machine import Gpu as Machine

MACHINE = Machine(libraries=True, least_product=0)


@pytest.fixture
def blas(api: StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInBlas]:
    found = StandInBlas(api)
    monkeypatch.setattr(cublaslt, "load_functions", lambda: found)
    yield found
    weft.set_matmul_precision("float32")


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def executable(function: Any, *arrays: Any) -> tuple[CudaExecutable, Any]:
    graph = weft.make_graph(function)(*map(weft.tensor, arrays)).optimize()
    return CudaExecutable(card(0, "test"), build_program(graph, machine=MACHINE), graph), graph


def twice(x: Any, y: Any) -> Any:
    return (x @ y) @ y.T


def heads(x: Any, y: Any) -> Any:
    return x.permute(0, 2, 1, 3) @ y.permute(0, 2, 3, 1)


CASES = [
    (twice, (5, 7), (7, 9)),
    (lambda x, y: x.T @ y.T, (7, 5), (9, 7)),
    (lambda x, y: x @ y, (2, 3, 5, 7), (2, 3, 7, 4)),
    (lambda x, y: x @ y, (2, 3, 5, 7), (7, 4)),
    (heads, (2, 6, 3, 4), (2, 5, 3, 4)),
    (lambda x, y: x[:, 1:5] @ y[2:6], (6, 8), (8, 3)),
    (lambda x, y: x @ y, (0, 3), (3, 4)),
    (lambda x, y: x @ y, (2, 0), (0, 4)),
    (lambda x, y: (x[0, :, None] @ y[None, 0]) @ y.T, (2, 6), (3, 5)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_products_of_all_layouts(blas: StandInBlas, dtype: str) -> None:
    """Called often enough to be graphs; inputs and outputs are other memory each time."""
    for function, left, right in CASES:
        x, y = (weft.tensor(normal(*s)).astype(getattr(weft, dtype)).numpy() for s in (left, right))
        run, graph = executable(function, x, y)
        wanted = interpreted(graph, [x, y])
        for _ in range(5):
            there = [to_device(np.ascontiguousarray(a), run.card) for a in (x, y)]
            assert_agree([out.to_host() for out in run(there)], wanted)


def test_products_are_nodes_of_graphs(api: StandIn, blas: StandInBlas) -> None:
    x, y = normal(5, 7), normal(7, 9)
    run, graph = executable(lambda x, y: weft.tanh((x @ y) @ y.T) @ y, x, y)
    api.kernels["tanh"] = _tanh
    there = [to_device(a, run.card) for a in (x, y)]
    wanted = interpreted(graph, [x, y])
    kept = [run(there)[0] for _ in range(5)]
    for out in kept:  # which the next call has not overwritten
        assert_agree([out.to_host()], wanted)
    assert api.names().count("cuGraphLaunch") == 3
    assert "cuGraphAddChildGraphNode" in api.names()


def test_what_products_count_in_is_cleared_at_once_by_graphs(api: StandIn, blas: StandInBlas) -> None:
    """Each has its own: none waits for its counter to be cleared, and none finds it used."""
    blas.workspaces, blas.counting = {1: 4}, {1}
    x, y = normal(5, 7), normal(7, 5)
    run, graph = executable(lambda x, y: ((x @ y) @ x) @ y, x, y)
    there, wanted = [to_device(a, run.card) for a in (x, y)], interpreted(graph, [x, y])
    for _ in range(6):
        assert_agree([run(there)[0].to_host()], wanted)
    assert blas.used == [1] * 18
    assert api.names().count("cuGraphDestroyNode") == 3
    assert api.names().count("cuGraphAddMemsetNode") == 1


def test_what_is_cleared_elsewhere_stays_so_in_graphs(api: StandIn, blas: StandInBlas) -> None:
    blas.workspaces, blas.counting = {1: 1024}, {1}  # it works in memory that others use, too
    x, y = normal(5, 7), normal(7, 5)
    run, graph = executable(lambda x, y: ((x @ y) @ x) @ y, x, y)
    there, wanted = [to_device(a, run.card) for a in (x, y)], interpreted(graph, [x, y])
    for _ in range(6):
        assert_agree([run(there)[0].to_host()], wanted)
    assert "cuGraphDestroyNode" not in api.names()


def test_products_in_loops_that_the_device_decides_on_clear_their_own(blas: StandInBlas) -> None:
    blas.workspaces, blas.counting = {1: 4}, {1}
    run, _ = executable(twice, normal(5, 7), normal(7, 9))
    bound = Bound(run.card, run.program, None, {})
    product = next(e for e in bound.entries if isinstance(e, ProductEntry))
    inside = product._replace(places=(*product.places[:-1], bound._behind_arena))
    loop = LoopEntry((), (0, 0), (inside,))
    assert bound._with_counters([loop]) == [loop]


def _tanh(on: StandIn, words: list[int], grid: Any, block: Any) -> None:
    source, target = words[:2]
    values = on.bytes_at(source, 4 * 35, on.stream, writes=False).view(np.float32)
    on.bytes_at(target, 4 * 35, on.stream, writes=True).view(np.float32)[:] = np.tanh(values)


def test_the_fastest_algorithm_is_kept(
    blas: StandInBlas, api: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(choosing, "_WORTH", 0)
    times = {1: 3.0, 2: 1.0, 3: 2.0}
    monkeypatch.setattr(choosing, "_seconds", lambda product, offer, *rest: times[offer.algorithm[0]])
    set_cache_directory(str(tmp_path))
    x, y = normal(5, 7), normal(7, 9)
    for _ in range(2):  # the second time it comes from disk
        run, graph = executable(twice, x, y)
        there = [to_device(a, run.card) for a in (x, y)]
        assert_agree([run(there)[0].to_host()], interpreted(graph, [x, y]))
        cublaslt.forget_libraries()
    assert blas.used == [2] * 4
    assert blas.asked == 2  # once for each of two products
    blas.workspaces.pop(2)  # what is on disk is no longer there in the library
    times[1] = 0.5
    run, _ = executable(twice, x, y)
    run([to_device(a, run.card) for a in (x, y)])
    assert blas.used[4:] == [1, 1]


def test_trials_really_run_and_leave_nothing(
    blas: StandInBlas, api: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "_WORTH", 0)
    x, y = normal(5, 7), normal(7, 9)
    run, graph = executable(twice, x, y)
    there = [to_device(a, run.card) for a in (x, y)]
    before = run.card.pool.allocated
    (out,) = run(there)
    assert_agree([out.to_host()], interpreted(graph, [x, y]))
    assert set(blas.used) == {1, 2, 3}
    del out
    assert run.card.pool.allocated == before


def test_precision_is_asked_for_where_it_is_set(blas: StandInBlas) -> None:
    x, y = normal(5, 7), normal(7, 9)
    run, _ = executable(lambda x, y: x @ y, x, y)
    there = [to_device(a, run.card) for a in (x, y)]

    def computed() -> list[Any]:
        return [t["compute"] for t in blas.things.values() if "compute" in t]

    for name, wanted in (("float32", [68]), ("tf32", [68, 77]), ("float32", [68, 77])):
        weft.set_matmul_precision(name)
        run(there)
        assert computed() == wanted
    with pytest.raises(ArgumentError, match="must be 'float32' or 'tf32', got 'bf16'"):
        weft.set_matmul_precision("bf16")


def test_what_the_library_refuses_is_an_error(blas: StandInBlas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "cublasLtMatmul", lambda *args: 13)
    x, y = normal(5, 7), normal(7, 9)
    run, _ = executable(lambda x, y: x @ y, x, y)
    with pytest.raises(DeviceError, match="matmul: cublasLtMatmul must succeed, got error 13"):
        run([to_device(a, run.card) for a in (x, y)])


def test_trials_come_before_a_call_takes_memory(
    blas: StandInBlas, api: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a program that is walked through at first, as one with a loop: what it works in comes later."""

    def f(x: Any, y: Any) -> Any:
        return weft.while_loop(lambda z: (z > 1.0).any(), lambda z: z / 2.0, (x @ y) @ y.T)

    x, y = normal(64, 48), normal(48, 64)
    run, _ = executable(f, x, y)
    there = [to_device(a, run.card) for a in (x, y)]
    held: list[int] = []
    real = choosing.choose

    def noted(product: Any) -> Any:
        held.append(run.card.pool.allocated)
        return real(product)

    monkeypatch.setattr("weft.backends.cuda.products.choose", noted)
    before = run.card.pool.allocated
    assert run.plan_for(there).bound is None
    assert held == [before, before]
    run.plan_for(there)
    assert len(held) == 2


# Rows that are added


def linear(x: Any, y: Any, row: Any) -> Any:
    return x @ y + row


BIASES = [
    (linear, (5, 7), (7, 9), (9,)),
    (lambda x, y, row: row + x @ y.T, (2, 3, 5, 7), (4, 7), (1, 4)),
    (lambda x, y, row: x.permute(1, 0, 2) @ y + row[::2], (3, 2, 7), (7, 4), (8,)),
    (lambda x, y, row: (x @ y + row) @ y.T, (6, 8), (8, 3), (3,)),
]


def products(run: CudaExecutable) -> list[MatrixProduct]:
    return [step for step in run.program.steps if isinstance(step, MatrixProduct)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_row_is_added_by_the_library(api: StandIn, blas: StandInBlas, dtype: str) -> None:
    """Called often enough to be graphs; a row may lie elsewhere each time."""
    for function, *shapes in BIASES:
        given = [weft.tensor(normal(*s)).astype(getattr(weft, dtype)).numpy() for s in shapes]
        run, graph = executable(function, *given)
        assert products(run)[0].bias is not None
        if run.program.kernels:
            continue  # something is copied first, which no stand-in does
        wanted = interpreted(graph, given)
        for _ in range(5):
            there = [to_device(np.ascontiguousarray(a), run.card) for a in given]
            assert_agree([out.to_host() for out in run(there)], wanted)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_row_is_added_as_the_loops_say(dtype: str) -> None:
    for function, *shapes in BIASES:
        given = [weft.tensor(normal(*s)).astype(getattr(weft, dtype)).numpy() for s in shapes]
        graph = weft.make_graph(function)(*map(weft.tensor, given)).optimize()
        program = verify_program(loops_of(graph, MACHINE))
        assert " + " in next(line for line in format_program(program).splitlines() if "matmul" in line)
        assert_agree([np.asarray(a) for a in shaped(program, graph, given, {})], interpreted(graph, given))


def test_the_sum_is_rounded_once(blas: StandInBlas) -> None:
    """1 + 2^-8 is no number of bfloat16, and 2^-8 is lost if the product is rounded first."""
    x = weft.tensor([[1.0, 2.0**-8]]).astype(weft.bfloat16).numpy()
    y, row = x.T * 0 + 1, np.full(1, 2.0**-8, x.dtype)
    run, _ = executable(linear, x, y, row)
    (out,) = run([to_device(np.ascontiguousarray(a), run.card) for a in (x, y, row)])
    assert float(out.to_host()[0, 0]) == 1 + 2.0**-7


def test_parts_of_sums_that_are_rounded_once_are_added_in_single(blas: StandInBlas) -> None:
    """A library that cuts the depth may keep parts in the dtype of the result: not where a bias is added."""
    for dtype, function, asked in (
        (weft.bfloat16, linear, 2),  # of cublasLtReductionScheme: parts in what is summed in
        (weft.float16, linear, 2),
        (weft.float32, linear, None),
        (weft.bfloat16, lambda x, y, row: x @ y, None),
    ):
        given = [weft.tensor(normal(*s)).astype(dtype).numpy() for s in ((5, 7), (7, 9), (9,))]
        run, _ = executable(function, *given)
        run([to_device(a, run.card) for a in given])
        assert blas.reductions.pop() == asked
    assert not blas.reductions


@pytest.mark.parametrize("dtype", [weft.bfloat16, weft.float16])
def test_products_of_halves_in_single(blas: StandInBlas, dtype: Any) -> None:
    x, y = (weft.tensor(normal(*s)).astype(dtype).numpy() for s in ((2, 5, 7), (2, 7, 9)))
    graph = Graph("f", [Value(TensorType(a.shape, a.dtype)) for a in (x, y)], [], [])
    out = Value(TensorType((2, 5, 9), weft.float32))
    graph = graph.replace(nodes=[Node(matmul_halves, graph.inputs, {}, [out])], outputs=[out])
    run = CudaExecutable(card(0, "test"), build_program(graph, machine=MACHINE), graph)
    for _ in range(5):
        (found,) = run([to_device(a, run.card) for a in (x, y)])
        assert found.dtype == weft.float32
        np.testing.assert_allclose(found.to_host(), x.astype("f8") @ y.astype("f8"), rtol=1e-5, atol=1e-5)


def test_a_row_stays_where_a_kernel_runs_anyway(blas: StandInBlas) -> None:
    x, y, row = normal(5, 7), normal(7, 9), normal(9)
    kept = [
        lambda x, y, row: weft.tanh(x @ y + row),
        lambda x, y, row: (x @ y + row, x @ y),
        lambda x, y, row: x @ y + row.sum(),
        lambda x, y, row: x @ y + row[:, None].T * x[:, :1],
        lambda x, y, row: x.astype(weft.float64) @ y.astype(weft.float64) + row.astype(weft.float64),
    ]
    for function in kept:
        assert [step.bias for step in products(executable(function, x, y, row)[0])] == [None]
    graph = weft.make_graph(linear)(*map(weft.tensor, (x, y, row))).optimize()
    apart = build_program(graph, machine=MACHINE, disable=["fusion"])
    assert [type(step).__name__ for step in apart.steps] == ["MatrixProduct", "Launch"]
    alone = build_program(graph, machine=MACHINE._replace(libraries=False))
    assert [type(step).__name__ for step in alone.steps] == ["Launch", "Launch"]


def test_a_program_with_a_row_is_kept(blas: StandInBlas) -> None:
    run, _ = executable(linear, normal(5, 7), normal(7, 9), normal(9))
    program = run.program
    assert "matmul output0 = input0 @ input1 + input2, m=5, n=9, k=7" in str(program)
    data = stored._written(program)
    assert data is not None
    again = stored._read(data, lambda: program)
    assert again is not None
    assert again.steps == program.steps

"""Products with a right side that was packed before: on every kind of machine, and which products get one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.schedule.lowered import shaped
from weft.backends.llvm.driver import build_executable
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.loop.verify import verify_program
from weft.ops.panels import matmul_panels, pack_panels
from weft.passes import lower
from weft.schedule.cpu.machine import Machine
from weft.schedule.cpu.prepared import split_prepared
from weft.schedule.cpu.target import Cpu
from weft.schedule.program import lower_graph

Array = np.ndarray[Any, Any]
MACHINES = {
    "avx512": Machine(units=("dot_u8i8",)),
    "avx2": Machine(vector_bytes=32, registers=16),
    "neon": Machine(vector_bytes=16, units=("dot_i8",)),
}
rng = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def some_bytes(*shape: int) -> Array:
    return rng.integers(-128, 128, shape).astype(np.int8)


def looped(graph: Graph, arrays: list[Any], machine: Machine, sizes: dict[str, int] | None = None) -> Any:
    program = lower_graph(lower(graph), target=Cpu(machine))
    verify_program(program)
    return shaped(program, graph, arrays, sizes or {})[0]


def exact(x: Array, w: Array) -> Array:
    return np.matmul(x.astype(np.float64), w.astype(np.float64))


# The ops


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())
@pytest.mark.parametrize("make", [floats, some_bytes], ids=["floats", "bytes"])
@pytest.mark.parametrize(("m", "k", "n", "width"), [(5, 9, 21, 8), (1, 4, 16, 16), (14, 7, 5, 4)])
def test_packed_product_is_the_product(
    machine: Machine, make: Any, m: int, k: int, n: int, width: int
) -> None:
    x, w = make(m, k), make(n, k)  # packed from its transpose, as weights of layers are
    packing = weft.make_graph(lambda w: pack_panels(w.mT, width=width))(weft.tensor(w))
    panels = looped(packing, [w], machine)
    product = weft.make_graph(lambda x, p: matmul_panels(x, p, columns=n))(
        weft.tensor(x), weft.tensor(panels)
    )
    np.testing.assert_allclose(looped(product, [x, panels], machine), exact(x, w.T), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", [floats, some_bytes], ids=["floats", "bytes"])
@pytest.mark.parametrize("lead", [(2,), (2, 3)])
def test_left_side_may_have_a_batch_and_any_order(make: Any, lead: tuple[int, ...]) -> None:
    x, w = make(*lead, 6, 5), make(6, 40)
    panels = pack_panels.eval(w, width=16)
    graph = weft.make_graph(lambda x, p: matmul_panels(x.mT, p, columns=40))(
        weft.tensor(x), weft.tensor(panels)
    )
    wanted = exact(np.swapaxes(x, -1, -2), w)
    for found in (build_executable(graph)([x, panels])[0], looped(graph, [x, panels], MACHINES["neon"])):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("k", [1, 3, 4, 300, 1027])
def test_bytes_of_any_depth_are_exact(k: int) -> None:
    x, w = some_bytes(33, k), some_bytes(k, 70)
    panels = build_executable(weft.make_graph(lambda w: pack_panels(w, width=64))(weft.tensor(w)))([w])[0]
    np.testing.assert_array_equal(panels, pack_panels.eval(w, width=64))
    graph = weft.make_graph(lambda x, p: matmul_panels(x, p, columns=70))(weft.tensor(x), weft.tensor(panels))
    np.testing.assert_array_equal(build_executable(graph)([x, panels])[0], exact(x, w))


# Which products get one


def split_of(function: Any, *args: Any, machine: Machine = MACHINES["avx512"]) -> Any:
    """The two graphs of a function whose last argument is a weight."""
    graph = weft.make_graph(function)(*args)
    roles = ("arg",) * (len(graph.inputs) - 1) + ("weight",)
    return split_prepared(lower(graph.replace(roles=roles)), machine)


def ops(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())
def test_both_graphs_together_give_the_result(machine: Machine) -> None:
    x, w = floats(7, 128), floats(64, 128)
    split = split_of(
        lambda x, w: weft.tanh(x @ w.T),
        weft.TensorType(("n", 128), weft.float32),
        weft.tensor(w),
        machine=machine,
    )
    prepared = interpret(split.prepare, [w])
    (found,) = interpret(split.main, [x, w, *prepared])
    np.testing.assert_allclose(found, np.tanh(exact(x, w.T)), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        looped(split.main, [x, w, *prepared], machine, {"n": 7}), found, rtol=1e-5, atol=1e-5
    )


def test_weights_in_order_and_few_rows_are_left_as_they_are() -> None:
    assert split_of(lambda x, w: x @ w, weft.ones((8, 128)), weft.ones((128, 64))) is None
    assert split_of(lambda x, w: x @ w.T, weft.ones((1, 128)), weft.ones((64, 128))) is None


def test_what_is_no_weight_is_packed_at_each_call() -> None:
    graph = weft.make_graph(lambda x, w: x @ w.T)(
        weft.TensorType(("n", 128), weft.float32), weft.ones((64, 128))
    )
    assert split_prepared(lower(graph), MACHINES["avx512"]) is None


def test_sums_of_a_matrix_of_bytes_are_computed_once() -> None:
    def f(x: Any, w: Any) -> Any:
        return (x.astype(weft.int32) - 3) @ w.astype(weft.int32)

    x, w = some_bytes(20, 64), some_bytes(64, 128)
    split = split_of(f, weft.tensor(x), weft.tensor(w))
    assert ops(split.prepare).count("sum") == 1
    assert "sum" not in ops(split.main)
    (found,) = interpret(split.main, [x, w, *interpret(split.prepare, [w])])
    np.testing.assert_array_equal(found, (x.astype(int) - 3) @ w.astype(int))


def test_numbers_that_are_not_whole_stay_in_their_kernels() -> None:
    split = split_of(lambda x, w: x @ w.T + w.sum(axis=1) * 2.0, weft.ones((64, 128)), weft.ones((64, 128)))
    assert ops(split.prepare) == ["permute", "pack_panels"]
    assert "sum" in ops(split.main)


def test_constant_is_packed_when_the_program_is_made() -> None:
    w = floats(64, 128)
    run = weft.compile(lambda x: x @ weft.tensor(w).T)
    x = floats(50, 128)
    np.testing.assert_allclose(run(weft.tensor(x)).numpy(), exact(x, w.T), rtol=1e-4, atol=1e-4)
    graph = weft.make_graph(lambda x: x @ weft.tensor(w).T)(weft.tensor(x))
    assert len(graph.constants) == 1
    split = split_prepared(lower(graph), MACHINES["avx512"])
    assert (split.prepare, split.numbers, ops(split.main)) == (None, (), ["matmul_panels"])
    assert [array.ndim for array in split.main.constants.values()] == [3]  # the matrix itself is gone
    np.testing.assert_allclose(interpret(split.main, [x])[0], exact(x, w.T), rtol=1e-4, atol=1e-4)

"""Matrix products by way of loops: small ones interpreted, larger ones compiled, all against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.schedule.lowered import assert_same, lowered, sized, variants
from weft.backends.llvm.driver import build_executable
from weft.base.sizes import named_size
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.loop.interpret import run_function
from weft.loop.ir import Buffer, Function, Launch
from weft.ops.contract import matrix_multiply
from weft.schedule.arrays import Array
from weft.schedule.cpu.epilogues import Epilogue
from weft.schedule.cpu.machine import Machine
from weft.schedule.cpu.matmul.lowering import lower_matmul
from weft.schedule.cpu.matmul.plan import FEW_ROWS, FEW_WORK, Matrices, tile
from weft.schedule.cpu.target import Cpu
from weft.schedule.writer import Writer

SAMPLES = matrix_multiply.samples()
FLOAT = np.dtype("f4")


def random_array(*shape: int, dtype: Any = "f4") -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_samples_give_what_numpy_gives(number: int, turned: bool) -> None:
    arrays = [np.asarray(a) for a in SAMPLES[number].inputs]
    assert_same(lowered("matmul", arrays, {}, turned=turned), matrix_multiply.eval(*arrays))


def test_every_dtype_gives_what_numpy_gives() -> None:
    for x, y in variants([random_array(3, 5, dtype="f8") * 3, random_array(5, 4, dtype="f8") * 3]):
        assert_same(lowered("matmul", [x, y], {}), matrix_multiply.eval(x, y))


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (3, 5, 7), (17, 33, 9), (20, 1, 6), (1, 40, 5), (9, 50, 3)]
)
@pytest.mark.parametrize("turned", [False, True])
def test_sizes_that_leave_rests_are_computed_whole(m: int, n: int, k: int, turned: bool) -> None:
    x, y = random_array(m, k, dtype="f8"), random_array(k, n, dtype="f8")
    assert_same(lowered("matmul", [x, y], {}, turned=turned), x @ y)


def test_named_sizes_may_be_anywhere() -> None:
    x, y = random_array(11, 6, dtype="f8"), random_array(6, 19, dtype="f8")
    for names in ({11: "rows"}, {19: "columns"}, {6: "depth"}, {11: "rows", 19: "columns", 6: "depth"}):
        assert_same(sized("matmul", [x, y], {}, names), x @ y)
    batched = random_array(3, 11, 6, dtype="f8")
    assert_same(sized("matmul", [batched, y], {}, {3: "batch"}), batched @ y)
    assert_same(sized("matmul", [batched, y[None]], {}, {3: "batch", 11: "rows"}), batched @ y)


def compiled(x_shape: tuple[int, ...], y_shape: tuple[int, ...], left: bool, right: bool) -> Any:
    """A compiled product of arrays that are transposed first where it is said so."""

    def multiply(x: Any, y: Any) -> Any:
        return (x.mT if left else x) @ (y.mT if right else y)

    graph = weft.make_graph(multiply)(weft.ones(x_shape), weft.ones(y_shape))
    return build_executable(graph)


LARGE = [
    (128, 100, 784), (64, 128, 4096), (130, 48, 1000), (33, 700, 600), (100, 96, 400), (520, 530, 540),
    (16, 512, 128), (1, 300, 200), (300, 1, 200), (2, 70, 2000), (50, 60, 5000), (1024, 40, 64),
    (257, 300, 200), (307, 90, 1024), (96, 64, 1536), (300, 307, 1024),
]  # fmt: skip


@pytest.mark.rotating(4)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), LARGE)
def test_compiled_products_are_as_numpys(m: int, n: int, k: int, left: bool, right: bool) -> None:
    x, y = random_array(m, k), random_array(k, n)
    fed = [np.ascontiguousarray(x.T) if left else x, np.ascontiguousarray(y.T) if right else y]
    (out,) = compiled(fed[0].shape, fed[1].shape, left, right)(fed)
    np.testing.assert_allclose(out, x.astype("f8") @ y.astype("f8"), rtol=0, atol=3e-6 * k**0.5 * 3)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((4, 30, 20), (20, 40)),
        ((4, 1, 30, 20), (3, 20, 40)),
        ((30, 20), (5, 20, 40)),
        ((2, 3, 64, 8), (2, 3, 8, 64)),
    ],
)
def test_batches_broadcast(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    a, b = random_array(*x), random_array(*y)
    (out,) = compiled(x, y, False, False)([a, b])
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["f2", ml_dtypes.bfloat16])
@pytest.mark.parametrize(("left", "right"), [(False, False), (True, False), (False, True)])
def test_long_sums_of_halves_are_taken_in_single_precision(dtype: Any, left: bool, right: bool) -> None:
    x, y = (random_array(*shape).astype(dtype) for shape in ((45, 1200), (1200, 70)))
    fed = [np.ascontiguousarray(x.T) if left else x, np.ascontiguousarray(y.T) if right else y]

    def multiply(x: Any, y: Any) -> Any:
        return (x.mT if left else x) @ (y.mT if right else y)

    (out,) = build_executable(weft.make_graph(multiply)(*map(weft.tensor, fed)))(fed)
    exact = x.astype("f4") @ y.astype("f4")
    np.testing.assert_allclose(out.astype("f4"), exact, rtol=float(ml_dtypes.finfo(dtype).eps), atol=1e-3)


@pytest.mark.parametrize(("m", "n", "k"), [(128, 100, 784), (52, 130, 1200), (307, 90, 1024)])
@pytest.mark.parametrize(("left", "right"), [(False, False), (True, False), (False, True)])
def test_what_follows_a_long_sum_is_done_once(m: int, n: int, k: int, left: bool, right: bool) -> None:
    x, y, old = random_array(m, k), random_array(k, n), random_array(m, n)
    fed = [np.ascontiguousarray(x.T) if left else x, np.ascontiguousarray(y.T) if right else y, old]

    def step(x: Any, y: Any, old: Any) -> Any:
        return weft.relu((x.mT if left else x) @ (y.mT if right else y) + old) - old

    (out,) = build_executable(weft.make_graph(step)(*map(weft.tensor, fed)).optimize())(fed)
    np.testing.assert_allclose(out, np.maximum(x @ y + old, 0) - old, rtol=0, atol=1e-3)


@pytest.mark.parametrize(("n", "k"), [(10, 640), (256, 256), (300, 1030), (128, 4608), (3, 9000)])
def test_rows_of_an_open_number_are_the_same_bits_in_small_batches_and_in_large_ones(n: int, k: int) -> None:
    weight, bias = random_array(n, k), random_array(n)
    rows = weft.TensorType(("batch", k), weft.float32)
    graph = weft.make_graph(lambda x, w, b: weft.relu(x @ w.T + b))(
        rows, weft.tensor(weight), weft.tensor(bias)
    )
    run = build_executable(graph.optimize())
    x = random_array(67, k)
    (whole,) = run([x, weight, bias])
    exact = np.maximum(x.astype("f8") @ weight.T.astype("f8") + bias, 0.0)
    np.testing.assert_allclose(whole, exact, rtol=1e-5, atol=1e-5 * np.sqrt(k))
    (few,) = run([x[:31], weight, bias])
    np.testing.assert_allclose(few, exact[:31], rtol=1e-5, atol=1e-5 * np.sqrt(k))
    for batch in (0, 1, 2, 3, 4, 5, 8, 29, 32, 64):
        expected = few if batch < FEW_ROWS and n * k >= FEW_WORK else whole
        np.testing.assert_array_equal(run([x[:batch], weight, bias])[0], expected[:batch])


def test_results_do_not_depend_on_threads() -> None:
    threads = weft.get_num_threads()
    try:
        for m, n, k in ((128, 512, 300), (64, 128, 4096), (300, 70, 90), (160, 200, 1040)):
            x, y = random_array(m, k), random_array(k, n)
            run = compiled(x.shape, y.shape, False, False)
            outs = []
            for count in (1, 2):
                weft.set_num_threads(count)
                outs.append(run([x, y])[0])
            np.testing.assert_array_equal(*outs)
    finally:
        weft.set_num_threads(threads)


# Tails


def run_with_tail(m: int, n: int, k: int, machine: Machine) -> tuple[Any, Any, Any]:
    """relu(x @ y + bias), before and after the relu, in one kernel or with parts added."""
    x, y, bias = random_array(m, k), random_array(k, n), random_array(n)
    writer = Writer(target=Cpu(machine))
    shapes = {"x": (m, k), "y": (k, n), "bias": (n,), "before": (m, n), "after": (m, n)}
    arrays = {name: Array(Buffer(name, FLOAT, int(np.prod(s))), s) for name, s in shapes.items()}

    def finish(b: Any, reads: Any, writes: Any, index: Any, value: Any) -> None:
        value = b.add(value, b.load(reads[0].buffer, reads[0].at(index[-1])))
        b.store(writes[0].buffer, writes[0].at(*index), value)
        b.store(writes[1].buffer, writes[1].at(*index), b.max(value, 0.0))

    epilogue = Epilogue([arrays["bias"]], [arrays["before"], arrays["after"]], finish)
    out = Array(Buffer("out", FLOAT, m * n), (m, n))
    lower_matmul(writer, arrays["x"], arrays["y"], out, epilogue)
    buffers = [*[a.buffer for a in arrays.values()], *writer.temporaries]
    main = Function("main", tuple(buffers), (), writer.main.block, frozenset(buffers[3:]))
    memory = [x.ravel(), y.ravel(), bias, *[np.zeros(b.size, b.dtype) for b in buffers[3:]]]
    run_function(main, memory)
    return x @ y + bias, memory[3].reshape(m, n), memory[4].reshape(m, n)


@pytest.mark.rotating(3)
@pytest.mark.parametrize(("m", "n", "k"), [(10, 21, 4), (5, 3, 2500), (9, 7, 30)])
@pytest.mark.parametrize("vector_bytes", [16, 64])
def test_tail_gets_every_element_once(m: int, n: int, k: int, vector_bytes: int) -> None:
    expected, before, after = run_with_tail(m, n, k, Machine(vector_bytes))
    np.testing.assert_allclose(before, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(after, np.maximum(before, 0))


# Plans


def test_small_sides_are_not_packed() -> None:
    tiling = tile(Matrices(16, 32, 8, (8, 1), (32, 1), FLOAT), 1, Machine())
    assert not tiling.pack
    assert tiling.groups == (1, 1)


def test_transposed_side_is_packed() -> None:
    assert tile(Matrices(1024, 384, 128, (128, 1), (1, 128), FLOAT), 1, Machine()).pack


def test_long_sum_is_cut_so_that_a_tile_reads_from_the_nearest_cache() -> None:
    for machine in (Machine(64, 32), Machine(32, 16), Machine(16, 32)):
        tiling = tile(Matrices(512, 128, 2048, (1, 512), (128, 1), FLOAT), 1, machine)
        assert 0 < tiling.depth * (tiling.rows + tiling.lanes) * 4 <= 40 << 10
        assert 2048 % tiling.depth == 0


def test_tasks_do_not_pack_again_and_again() -> None:
    for m, n in ((376, 64), (8 * 47, 96), (1037, 95), (512, 128), (571, 302)):
        tiling = tile(Matrices(m, n, 192, (192, 1), (1, 192), FLOAT), 1, Machine())
        assert tiling.groups[0] <= 4


def test_columns_of_named_number_are_planned() -> None:
    product = Matrices(4096, named_size("n"), 512, (512, 1), (1, 512), FLOAT)
    assert tile(product, 1, Machine(), may_turn=False).groups[1] == 1
    assert tile(product, 1, Machine()).turned


@pytest.mark.parametrize(
    ("m", "n", "k"), [(4096, 300, 8192), (8, 4000, 100000), (300, 300, 2 * 50021), (5000, 64, 99991)]
)
@pytest.mark.parametrize("machine", [Machine(64, 32), Machine(16, 32)])
def test_scratch_memory_is_bounded(m: int, n: int, k: int, machine: Machine) -> None:
    for left in ((k, 1), (1, m)):
        for right in ((n, 1), (1, k)):
            writer = Writer(target=Cpu(machine))
            x = Array(Buffer("x", FLOAT, m * k), (m, k), left)
            y = Array(Buffer("y", FLOAT, k * n), (k, n), right)
            lower_matmul(writer, x, y, Array(Buffer("out", FLOAT, m * n), (m, n)))
            launches = [s for s in writer.main.block.statements if isinstance(s, Launch)]
            assert sum(4 * b.size for launch in launches for b in launch.function.scratch) <= 2 << 20


def test_tile_fits_into_fewer_registers() -> None:
    for machine, most in ((Machine(64, 32), 32), (Machine(32, 16), 16), (Machine(16, 32), 32)):
        tiling = tile(Matrices(512, 512, 64, (64, 1), (512, 1), FLOAT), 1, machine)
        vectors = tiling.lanes // machine.lanes(FLOAT)
        assert (tiling.rows + 1) * vectors < most


def test_graph_of_one_matmul_launches_one_kernel() -> None:
    inputs = [Value(TensorType((64, 32), FLOAT)), Value(TensorType((32, 64), FLOAT))]
    out = Value(TensorType((64, 64), FLOAT))
    graph = Graph("f", inputs, [Node(matrix_multiply, inputs, {}, [out])], [out])
    assert len(build_executable(graph).codes) == 2

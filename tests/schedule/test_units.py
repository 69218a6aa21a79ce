"""Products of narrow numbers by units of processors: the words, the plan, and the code for each unit.

Every unit is tried on any machine: by the interpreter of loops, as machine code of this machine (expanded
where it has no such instruction), and as text for processors that have it. ARM's are run under qemu, too.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import weft
from tests.backends.llvm.crossing import sources
from tests.fuzz.emulator import ARM, Emulator, export_for
from tests.schedule.lowered import shaped
from weft.backends.llvm import driver
from weft.backends.llvm.compiler import machine_for
from weft.backends.llvm.driver import build_executable
from weft.backends.llvm.emit.instructions import instruction_set
from weft.backends.llvm.export.processor import target_named
from weft.backends.llvm.target import Target, host_target
from weft.base.dtypes import bfloat16
from weft.ir.graph import Graph
from weft.loop.builder import Builder
from weft.loop.dots import DOTS, add_products
from weft.loop.interpret import run_function
from weft.loop.verify import verify_program
from weft.ops.bytes import matmul_bytes
from weft.passes import lower
from weft.schedule.cpu.machine import Machine
from weft.schedule.cpu.matmul.plan import Matrices, tile_words
from weft.schedule.cpu.target import Cpu
from weft.schedule.program import lower_graph

BYTES = ("dot_i8", "dot_u8i8")
rng = np.random.default_rng(0)


def some_bytes(*shape: int) -> Any:
    return rng.integers(-128, 128, shape).astype(np.int8)


def halves(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32).astype(bfloat16)


def product_graph(x: Any, y: Any, *, turned: tuple[bool, bool] = (False, False)) -> Graph:
    """The product of two arrays, of which each may be given with its last axes swapped."""

    def multiply(x: Any, y: Any) -> Any:
        x, y = (v.mT if t else v for v, t in zip((x, y), turned, strict=True))
        return matmul_bytes(x, y) if x.dtype == weft.int8 else x @ y

    return weft.make_graph(multiply)(weft.tensor(x), weft.tensor(y))


def given(x: Any, turned: bool) -> Any:
    return np.ascontiguousarray(np.swapaxes(x, -1, -2)) if turned else x


def interpreted(graph: Graph, arrays: list[Any], machine: Machine) -> Any:
    program = lower_graph(lower(graph), target=Cpu(machine))
    verify_program(program)
    return shaped(program, graph, arrays, {})[0]


def with_units(*units: str) -> AbstractContextManager[Any]:
    """What is compiled is for this machine with such units."""

    def machine(target: Target) -> Machine:
        return Machine(target.vector_bytes, target.registers, units=units)

    return patch.object(driver, "machine_like", machine)


def exact(x: Any, y: Any) -> Any:
    return np.matmul(x.astype(np.int64), y.astype(np.int64)).astype(np.int32)


SIZES = [(1, 4, 1), (3, 9, 5), (2, 5, 33), (13, 6, 2), (5, 18, 20)]
LARGE = [(37, 1001, 129), (64, 64, 64), (1, 300, 100), (100, 7, 1), (7, 4097, 18)]


@pytest.mark.parametrize("unit", BYTES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("vector_bytes", [16, 64])
def test_products_of_bytes_are_exact_as_loops(
    unit: str, size: tuple[int, int, int], vector_bytes: int
) -> None:
    m, k, n = size
    x, y = some_bytes(m, k), some_bytes(k, n)
    machine = Machine(vector_bytes, units=(unit,))
    np.testing.assert_array_equal(interpreted(product_graph(x, y), [x, y], machine), exact(x, y))


@pytest.mark.parametrize("unit", BYTES)
@pytest.mark.parametrize("size", [*SIZES, *LARGE])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_products_of_bytes_are_exact_as_code(
    unit: str, size: tuple[int, int, int], turned: tuple[bool, bool]
) -> None:
    m, k, n = size
    x, y = some_bytes(m, k), some_bytes(k, n)
    arrays = [given(x, turned[0]), given(y, turned[1])]
    with with_units(unit):
        run = build_executable(product_graph(*arrays, turned=turned))
    np.testing.assert_array_equal(run(arrays)[0], exact(x, y))


@pytest.mark.parametrize("unit", BYTES)
def test_batches_and_the_ends_of_the_range(unit: str) -> None:
    least, most = np.full((2, 5, 70), -128, np.int8), np.full((70, 9), 127, np.int8)
    for x, y in ((least, most), (least, np.full((2, 70, 9), -128, np.int8)), (least[:1], most)):
        with with_units(unit):
            np.testing.assert_array_equal(build_executable(product_graph(x, y))([x, y])[0], exact(x, y))


def test_sums_of_bytes_wrap_around_as_int32_does() -> None:
    x, y = np.full((4, 140_000), -128, np.int8), np.full((140_000, 4), -128, np.int8)
    for unit in BYTES:
        with with_units(unit):
            out = build_executable(product_graph(x, y))([x, y])[0]
        np.testing.assert_array_equal(out, exact(x, y))
        assert (out < 0).all()


# bfloat16: products are exact in float32, so only the order of sums and their roundings differ


def bound(x: Any, y: Any) -> Any:
    """The exact product, and how far sums in float32, rounded to bfloat16 at the end, may be from it."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    size = np.abs(x) @ np.abs(y)
    return x @ y, x.shape[-1] * 2.0**-23 * size + 2.0**-8 * np.abs(x @ y) + x.shape[-1] * 2.0**-126


def check_halves(out: Any, x: Any, y: Any) -> None:
    expected, most = bound(x, y)
    assert out.dtype == bfloat16
    assert (np.abs(out.astype(np.float64) - expected) <= most).all()


@pytest.mark.parametrize("size", [(4, 5, 16), (5, 9, 18), (17, 3, 4)])
def test_products_of_bfloat16_are_sums_in_float32_as_loops(size: tuple[int, int, int]) -> None:
    m, k, n = size
    x, y = halves(m, k), halves(k, n)
    check_halves(interpreted(product_graph(x, y), [x, y], Machine(16, units=("dot_bf16",))), x, y)


@pytest.mark.parametrize("size", [(4, 5, 16), (37, 1001, 129), (64, 64, 64)])
@pytest.mark.parametrize("turned", [(False, False), (True, True)])
def test_products_of_bfloat16_are_sums_in_float32_as_code(
    size: tuple[int, int, int], turned: tuple[bool, bool]
) -> None:
    m, k, n = size
    x, y = halves(m, k), halves(k, n)
    arrays = [given(x, turned[0]), given(y, turned[1])]
    with with_units("dot_bf16"):
        run = build_executable(product_graph(*arrays, turned=turned))
    check_halves(run(arrays)[0], x, y)


def test_large_products_of_bfloat16_cancel_exactly() -> None:
    x, y = halves(8, 64), halves(64, 32)
    x[:, 1::2], y[1::2] = -x[:, ::2], y[::2]
    with with_units("dot_bf16"):
        out = build_executable(product_graph(x, y))([x, y])[0]
    assert (
        np.abs(out.astype(np.float32)) <= 64 * 2.0**-22 * np.abs(x.astype(np.float32)).max() ** 2 * 9
    ).all()


def test_special_values_of_bfloat16_are_kept() -> None:
    x, y = halves(4, 8), halves(8, 16)
    x[0, 3], x[1, 4], y[5, 2], x[2] = np.inf, np.nan, -np.inf, 0
    y[0, 0], y[5, 2] = 3e38, 1
    with with_units("dot_bf16"):
        out = build_executable(product_graph(x, y))([x, y])[0]
    with np.errstate(all="ignore"):
        expected = x.astype(np.float32) @ y.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(out.astype(np.float32)), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(out[0].astype(np.float32)), np.isinf(expected[0]))
    assert (out[2] == 0).all()


# Words and instructions


def dot_function(name: str, count: int) -> tuple[Any, list[Any]]:
    dtype = DOTS[name].total
    b = Builder()
    word = np.dtype(np.uint32)
    totals, xs, ys = (b.buffer(n, d, count) for n, d in (("t", dtype), ("x", word), ("y", word)))
    with b.vector(count) as i:
        b.store(totals, i, b.dot(name, b.load(totals, i), b.load(xs, i), b.load(ys, i)))
    if name == "dot_bf16":
        words = [halves(2 * count).view(np.uint32) for _ in range(2)]
        start = rng.standard_normal(count).astype(np.float32)
    else:
        words = [some_bytes(4 * count).view(np.uint32) for _ in range(2)]
        start = rng.integers(-(2**31), 2**31, count).astype(np.int32)
    return b.function("f", written=[totals]), [start, *words]


@pytest.mark.parametrize("name", list(DOTS))
def test_instructions_are_alike_interpreted_and_compiled(name: str) -> None:
    from tests.backends.llvm.harness import Kernel

    function, arrays = dot_function(name, 37)
    expected = add_products(name, *arrays)
    loops, code = ([a.copy() for a in arrays] for _ in range(2))
    run_function(function, loops)
    Kernel(function)(code)
    for found in (loops[0], code[0]):
        if name == "dot_bf16":
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(found, expected)


def test_dots_of_bytes_are_what_their_bytes_say() -> None:
    left, right = np.array([-128, 127, 3, 0], np.int8), np.array([-128, -128, 5, 9], np.int8)
    words = [v.view(np.uint32)[0] for v in (left, right)]
    assert int(add_products("dot_i8", np.int32(0), *words)) == 128 * 128 - 127 * 128 + 15
    assert int(add_products("dot_u8i8", np.int32(0), *words)) == -128 * 128 - 127 * 128 + 15


NAMES = {
    "armv8.6-a": ("sdot", "bfdot"),
    "x86-64-v4-bf16": ("vpdpbusd", "vdpbf16ps"),
}


@pytest.mark.parametrize("cpu", list(NAMES))
def test_processors_with_a_unit_get_its_instruction(cpu: str) -> None:
    target = target_named(cpu)
    for arrays, name in zip(((some_bytes(64, 64),) * 2, (halves(64, 64),) * 2), NAMES[cpu], strict=True):
        assert name in assembly(product_graph(*arrays), target)


def test_vectors_of_avx2_have_their_own() -> None:
    plain = target_named("x86-64-v3")
    target = Target(plain.triple, plain.cpu, "+avxvnni", plain.vector_bytes, plain.registers)
    assert "vpdpbusd" in assembly(product_graph(some_bytes(64, 64), some_bytes(64, 64)), target)


@pytest.mark.parametrize("cpu", ["armv8-a", "x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_processors_without_a_unit_have_none(cpu: str) -> None:
    assert instruction_set(target_named(cpu)).dots == ()


def assembly(graph: Graph, target: Target) -> str:
    import llvmlite.binding as llvm

    machine = machine_for(target)
    return "".join(machine.emit_assembly(llvm.parse_assembly(s.text)) for s in sources(graph, target))


# Plans


def test_tiles_of_words_fill_registers() -> None:
    for m, n in ((1, 1), (3, 100), (512, 512), (100, 3), (12, 17)):
        for machine in (Machine(64, 32), Machine(32, 16), Machine(16, 32)):
            p = Matrices(m, n, 64, (256, 4), (4 * n, 1), np.dtype(np.int32))
            tiling = tile_words(p, 1, machine)
            assert tiling.lanes % machine.lanes(p.dtype) == 0
            assert tiling.rows * tiling.lanes // machine.lanes(p.dtype) <= (
                24 if machine.registers > 16 else 12
            )


def test_units_can_be_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
    def told(**options: Any) -> str:
        @weft.compile(**options)
        def f(x: Any, y: Any) -> Any:
            return x.astype(weft.int32) @ y.astype(weft.int32)

        x, y = some_bytes(33, 64), some_bytes(64, 17)
        np.testing.assert_array_equal(f(weft.tensor(x), weft.tensor(y)).numpy(), exact(x, y))
        f.explain(weft.tensor(x), weft.tensor(y))
        return capsys.readouterr().out

    with with_units("dot_i8"):
        assert "matmul_dot_i8" in told()
        assert "matmul_dot_i8" not in told(disable=["units"])


def test_this_machine_is_asked_for_its_units() -> None:
    target = host_target()
    for name in instruction_set(target).dots:
        form = instruction_set(target).form_of(name)
        assert form is not None
        assert f"+{form.feature}" in target.features.split(",")


# ARM's units under qemu, which has them all


@pytest.mark.skipif(bool(ARM.missing()), reason=ARM.missing())
def test_units_of_arm_are_right_as_qemu_has_them(tmp_path: Path) -> None:
    machine = ARM._replace(cpu="armv8.6-a")
    with Emulator(machine, tmp_path) as emulator:
        for number, (m, k, n) in enumerate([(5, 9, 18), (37, 101, 33), (64, 64, 64)]):
            for x, y in ((some_bytes(m, k), some_bytes(k, n)), (halves(m, k), halves(k, n))):
                folder = tmp_path / f"{number}-{x.dtype.name}"
                export_for(machine, product_graph(x, y), folder)
                error, (out,) = emulator(folder, [x, y], {})
                assert not error
                if x.dtype == np.int8:
                    np.testing.assert_array_equal(out.reshape(m, n), exact(x, y))
                else:
                    check_halves(out.reshape(m, n), x, y)

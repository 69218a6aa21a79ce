"""Which linear layers of half precision a library of a GPU computes, and what becomes of the others."""

from __future__ import annotations

from typing import Any

import pytest

import weft
from weft.backends.cuda.build import build_program
from weft.backends.cuda.program import CudaProgram, Launch, MatrixProduct
from weft.ops.affine import matmul_add
from weft.passes.lowering.biases_by_library import biases_by_library
from weft.schedule.gpu.machine import Gpu

MACHINE = Gpu(libraries=True)


def given(*shapes: tuple[int, ...], dtype: Any = weft.bfloat16) -> list[Any]:
    return [weft.ones(shape, dtype=dtype) for shape in shapes]


def program_of(function: Any, *tensors: Any, machine: Gpu = MACHINE, **options: Any) -> CudaProgram:
    return build_program(weft.make_graph(function)(*tensors).optimize(), machine=machine, **options)


def products(program: CudaProgram) -> list[MatrixProduct]:
    return [step for step in program.steps if isinstance(step, MatrixProduct)]


@pytest.mark.parametrize("x", [(64, 256), (4, 16, 256)])
@pytest.mark.parametrize("dtype", [weft.bfloat16, weft.float16])
def test_a_bias_is_the_librarys_whatever_follows(x: tuple[int, ...], dtype: Any) -> None:
    tensors = given(x, (128, 256), (128,), dtype=dtype)
    program = program_of(lambda x, w, b: weft.relu(weft.linear(x, w, b)) * 2, *tensors)
    (product,) = products(program)
    assert product.bias is not None
    assert product.result is None
    assert len([s for s in program.steps if isinstance(s, Launch)]) == 1
    assert program.arena == 64 * 128 * 2  # no sums in float32 lie in memory


def test_without_a_library_sums_stay_in_single() -> None:
    tensors = given((64, 256), (128, 256), (128,))
    for program in (
        program_of(weft.linear, *tensors, machine=Gpu()),
        program_of(weft.linear, *given((8, 16), (32, 16), (32,))),  # too small for a call
    ):
        assert not products(program)
        assert len(program.steps) == 2


@pytest.mark.parametrize(
    "shapes",
    [
        ((64, 256), (256, 128), (64, 128)),  # what is added is no row
        ((3, 64, 256), (3, 256, 128), (128,)),  # a right side for each of a batch
        ((64, 256), (256, 128), (2, 1, 128)),  # a batch of rows
        ((300, 777), (777, 333), (333,)),  # rows that begin anywhere
    ],
)
def test_other_sums_are_stored_in_single(shapes: Any) -> None:
    (product,) = products(program_of(matmul_add, *given(*shapes)))
    assert product.bias is None
    assert product.result == weft.float32
    assert ", in float32" in str(program_of(matmul_add, *given(*shapes)))


def test_one_row_is_a_sum_with_all_that_follows() -> None:
    program = program_of(
        lambda x, w, b: weft.relu(weft.linear(x, w, b)), *given((1, 512), (512, 512), (512,))
    )
    assert [type(step) for step in program.steps] == [Launch]


def test_single_precision_and_passes_that_are_left_out_stay() -> None:
    graph = weft.make_graph(matmul_add)(*given((64, 256), (256, 128), (128,), dtype=weft.float32))
    assert biases_by_library(graph) is graph
    tensors = given((64, 256), (128, 256), (128,))
    (product,) = products(program_of(weft.linear, *tensors, disable=["biases_by_library"]))
    assert product.result == weft.float32


def test_a_training_step_takes_no_more_memory_for_its_biases() -> None:
    def loss(x: Any, w: Any, b: Any, v: Any) -> Any:
        h = weft.linear(x, w) if b is None else weft.linear(x, w, b)
        return weft.linear(weft.gelu(h, approximate="tanh"), v).astype(weft.float32).square().sum()

    def step(x: Any, w: Any, b: Any, v: Any) -> Any:
        return weft.grad(loss, argnums=(1, 2, 3))(x, w, b, v)

    def without(x: Any, w: Any, v: Any) -> Any:
        return weft.grad(lambda w, v: loss(x, w, None, v), argnums=(0, 1))(w, v)

    x, w, b, v = given((2048, 256), (1024, 256), (1024,), (256, 1024))
    row = 1024 * 4 * 300  # sums for the gradient of the bias, in parts
    assert program_of(step, x, w, b, v).arena <= program_of(without, x, w, v).arena + row

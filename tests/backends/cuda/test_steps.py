"""Launch plans as text: what a host does for a graph."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
import weft.nn.functional as F
from tests.backends.cuda.programs import choose, halve, layer_norm_gradients
from weft.backends.cuda.build import build_program
from weft.backends.cuda.program import Launch, Repeat, all_steps, evaluate
from weft.base.sizes import named_size
from weft.ir.parse import parse_graph
from weft.schedule.gpu.machine import Gpu as Machine


def _plan(function: Any, *tensors: Any) -> str:
    return str(build_program(weft.make_graph(function)(*tensors).optimize()))


def test_layer_norm_and_its_gradients_are_one_kernel_and_a_fold_of_all_sums() -> None:
    x, w = weft.zeros((16384, 4096)), weft.zeros((4096,))
    lines = _plan(layer_norm_gradients, x, w, w, x).splitlines()
    launches = [line.strip() for line in lines if "launch" in line]
    assert [line.split("(")[0] for line in launches] == ["launch sum_div___mul", "launch combine"]
    assert launches[0].endswith("grid 261")
    assert "threads 256" in next(line for line in lines if "kernel sum_div" in line)


def test_numbers_of_the_main_function_are_a_kernel_of_one_thread() -> None:
    text = _plan(lambda x: x - x.mean(), weft.zeros((64, 32)))
    assert "kernel scalars(pointer, pointer) threads 1 shared 0" in text
    assert [line.split("(")[0].split()[-1] for line in text.splitlines() if "launch" in line] == [
        "sum", "scalars", "sub",
    ]  # fmt: skip


def test_while_tests_a_bool_on_the_device() -> None:
    assert (
        _plan(halve, weft.zeros(5))
        == """\
cuda program halve for sm_90 {
  input 0: float32[5]
  output 0: float32[5]
  arena of 128 bytes
  kernel greater_any(pointer, pointer) threads 1 shared 0
  kernel scalars(pointer, pointer) threads 1 shared 0
  kernel mul(pointer, pointer) threads 5 shared 0
  copy output0 = input0 for 20 bytes
  while {
    launch greater_any(output0, arena+64) grid 1
    launch scalars(arena+64, arena) grid 1
    test arena
  } do {
    launch mul(output0, output0) grid 1
    check stop 0
  }
}"""
    )


def test_branch_is_chosen_by_a_bool_on_the_device() -> None:
    text = _plan(choose, weft.zeros(5))
    assert "  if arena+" in text
    assert "  } else {" in text


def test_loop_of_known_length_is_run_by_the_host_with_offsets_in_its_variable() -> None:
    def f(x: Any) -> Any:
        return weft.scan(lambda c, r: (c + r, c * 2.0), weft.zeros(8), x)[1]

    program = build_program(weft.make_graph(f)(weft.zeros((5, 8))).optimize())
    (loop,) = [s for s in program.steps if isinstance(s, Repeat)]
    assert (loop.start, loop.stop) == (0, 5)
    assert any(f"32*{loop.variable}" in str(s) for s in loop.body)


def test_open_sizes_are_arguments_and_grids_are_expressions() -> None:
    text = "graph f(%x: f32[n,64]) {\n  %0: f32[n,64] = exp(%x)\n  return %0\n}"
    program = build_program(parse_graph(text))
    (launch,) = [s for s in all_steps(program.steps) if isinstance(s, Launch)]
    assert launch.arguments[-1] == named_size("n")
    threads = program.kernels[launch.kernel].threads
    assert evaluate(launch.grid, {"n": 1000}) * threads >= 1000
    assert evaluate(launch.grid, {"n": 0}) == 0


def test_products_are_calls_of_a_library_where_it_is_asked_for() -> None:
    def f(x: Any, w: Any) -> Any:
        return weft.tanh(x @ w) @ w.T

    graph = weft.make_graph(f)(weft.zeros((2, 8, 16)), weft.zeros((16, 32))).optimize()
    program = build_program(graph, machine=Machine(libraries=True, least_product=0))
    products = [str(line).strip() for line in str(program).splitlines() if "matmul" in line]
    assert products == [
        "matmul arena = input0 @ input1, m=16, n=32, k=16, rows=(16, 32, 32)",
        "matmul output0 = arena @ input1.T, m=16, n=16, k=32, rows=(32, 32, 16)",
    ]


def test_equal_kernels_of_layers_are_written_once() -> None:
    def f(*rows: Any) -> Any:
        return tuple(F.softmax(r, axis=-1) for r in rows)

    program = build_program(weft.make_graph(f)(*[weft.zeros((8, 64)) for _ in range(3)]).optimize())
    assert len(program.kernels) == 1
    (launch,) = program.steps  # and since they do not need each other they are one launch
    assert isinstance(launch, Launch)
    assert launch.many == 3


def test_donated_input_may_be_the_output() -> None:
    w = weft.tensor(np.ones(64, np.float32))

    def step(x: Any) -> Any:
        w.copy_(w - x * 0.1)
        return w.sum()

    compiled = weft.make_graph(step)(weft.zeros(64)).optimize()
    assert "may be output" in str(build_program(compiled))


def test_kernels_that_differ_in_the_instruction_they_are_named_after_stay_apart() -> None:
    def f(x: Any) -> Any:
        s = x.sum()
        return weft.cond(s > 1.0, lambda x, s: x * s, lambda x, s: x - s, x, s)

    text = _plan(f, weft.ones((3,)))
    assert "launch mul(" in text
    assert "launch sub(" in text

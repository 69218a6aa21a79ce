"""Programs on the stand-in: lists of launches, graphs, control flow, donation, failures; ops by programs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.standin import StandIn
from weft.backends.cuda import eager, program
from weft.backends.cuda.array import DeviceArray
from weft.backends.cuda.card import Card, card
from weft.backends.cuda.copies import to_device as copy_to_device
from weft.backends.cuda.execute import CudaExecutable
from weft.backends.cuda.program import (
    Again,
    Allocate,
    Array,
    Check,
    Choose,
    CopyBytes,
    CudaProgram,
    Fetch,
    FillBytes,
    HostCall,
    Kernel,
    Launch,
    Place,
    Repeat,
    SetNumber,
)
from weft.backends.cuda.streams import Stream
from weft.backends.interpret import BACKEND as INTERPRET
from weft.base.dtypes import bool_, float32, int64
from weft.base.sizes import bind, named_size
from weft.errors import CheckError, ShapeError
from weft.ir.graph import Graph
from weft.ops.op import OPS

N: Any = named_size("n")
X, Y = Place("input", 0), Place("output", 0)


def entry(name: str, pointers: int, numbers: int = 0) -> str:
    """PTX with the head of a kernel; what it does is Python, see ``add_kernel``."""
    head = ", ".join(f".param .u64 p{i}" for i in range(pointers + numbers))
    return f".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry {name}({head})\n{{ ret; }}\n"


def floats(on: StandIn, pointer: int, count: int, *, writes: bool = False) -> Any:
    return on.bytes_at(pointer, 4 * count, on.stream, writes=writes).view(np.float32)


def scale_kernel(on: StandIn, words: list[int], grid: Any, block: Any) -> None:
    """out = 2 * x + 1 for n floats."""
    x, out, n = words
    floats(on, out, n, writes=True)[:] = floats(on, x, n) * 2 + 1


def scaling(steps: Sequence[Any], **parts: Any) -> CudaProgram:
    kernel = Kernel("scale", ("pointer", "pointer", "number"), 256)
    fields: dict[str, Any] = {
        "name": "f",
        "target": "sm_90",
        "ptx": entry("scale", 2, 1),
        "kernels": {"scale": kernel},
        "inputs": (Array(float32, N, (N,)),),
        "outputs": (Array(float32, N, (N,)),),
        "constants": (),
        "heap": (),
        "sizes": ("n",),
        "arena": 4 * N,
        "steps": tuple(steps),
    }
    return CudaProgram(**fields | parts)


def launch(target: Place, source: Place) -> Launch:
    return Launch("scale", (N + 255) // 256, (source, target, N))


A = Place("arena", 0)
CHAIN = (launch(A, X), CopyBytes(Y, A, 4 * N), launch(A, Y), launch(Y, A))


def to_device(array: Any, on: Card) -> Any:
    return copy_to_device(array, on)


def host(array: Any) -> Any:
    return array.to_host()


@pytest.fixture
def on(api: StandIn) -> Card:
    api.kernels["scale"] = scale_kernel
    return card()


def test_list_of_launches_runs_for_any_size(on: Card) -> None:
    run = CudaExecutable(on, scaling(CHAIN))
    for count in (1, 5, 300, 0):
        x = np.arange(count, dtype=np.float32)
        (found,) = run([to_device(x, on)])
        np.testing.assert_array_equal(host(found), ((x * 2 + 1) * 2 + 1) * 2 + 1)
    strided: Any = DeviceArray(
        on, (a := to_device(np.arange(8.0, dtype=np.float32), on)).block, a.pointer + 4, (3,), float32, (8,)
    )
    np.testing.assert_array_equal(host(run([strided])[0]), np.array([1.0, 3.0, 5.0]) * 8 + 7)
    with pytest.raises(ShapeError, match=r"inputs must be float32\[n\], got f32\[2,2\]"):
        run([to_device(np.ones((2, 2), np.float32), on)])


def test_list_becomes_a_graph_whose_pointers_follow(on: Card, api: StandIn) -> None:
    run = CudaExecutable(on, scaling(CHAIN))
    inputs = [to_device(np.full(4, i, np.float32), on) for i in range(3)]
    held = []
    for turn in range(8):
        (found,) = run([inputs[turn % 3]])
        held.append((found, turn % 3))
    assert api.names().count("cuGraphLaunch") == 6
    for found, i in held:  # results that somebody holds are not overwritten
        np.testing.assert_array_equal(host(found), np.full(4, 8 * i + 7))


def test_graph_on_another_stream_waits_for_its_arena(on: Card, api: StandIn) -> None:
    run = CudaExecutable(on, scaling(CHAIN))
    x = to_device(np.ones(4, np.float32), on)
    for _ in range(4):
        run([x])
    with Stream(on):
        (found,) = run([x])  # the stand-in raises if nothing orders the streams
    (again,) = run([found])
    np.testing.assert_array_equal(host(again), np.full(4, 15 * 8 + 7))


def test_donated_inputs_are_overwritten_only_where_it_is_said(on: Card) -> None:
    step = scaling((launch(Y, X),), donated=((0, 0),))
    run = CudaExecutable(on, step)
    x = to_device(np.ones(3, np.float32), on)
    (kept,) = run.donating([x], [False])
    assert kept.pointer != x.pointer
    np.testing.assert_array_equal(host(x), np.ones(3))
    (same,) = run.donating([x], [True])
    assert same is x
    np.testing.assert_array_equal(host(x), np.full(3, 3.0))


def test_control_flow_is_walked_through(on: Card) -> None:
    flag, count = Place("input", 1), Place("input", 2)
    steps = (
        Fetch("k", int64, count),
        SetNumber("j", named_size("k") + 1),
        CopyBytes(A, X, 4 * N),
        Repeat("i", 0, named_size("j"), (launch(Y, A), CopyBytes(A, Y, 4 * N))),
        Choose(flag, (launch(Y, A),), (FillBytes(Y, 0, 4 * N),)),
    )
    inputs = (Array(float32, N, (N,)), Array(bool_, 1, ()), Array(int64, 1, ()))
    run = CudaExecutable(on, scaling(steps, inputs=inputs))
    for truth in (True, False):
        (found,) = run([to_device(np.array(a), on) for a in (np.ones(2, np.float32), truth, np.int64(2))])
        np.testing.assert_array_equal(host(found), np.full(2, 31.0 if truth else 0.0))


def test_while_looks_at_a_truth_on_the_device(on: Card, api: StandIn) -> None:
    def below(api: StandIn, words: list[int], grid: Any, block: Any) -> None:
        api.bytes_at(words[1], 1, api.stream, writes=True)[0] = floats(api, words[0], 1)[0] < 100

    api.kernels["below"] = below
    truth = Place("arena", 0, 4 * N)
    test = (Launch("below", 1, (Y, truth)),)
    steps = (CopyBytes(Y, X, 4 * N), Again(test, truth, (launch(A, Y), CopyBytes(Y, A, 4 * N))))
    kernels = {
        "scale": Kernel("scale", ("pointer",) * 2 + ("number",), 256),
        "below": Kernel("below", ("pointer",) * 2, 1),
    }
    ptx = entry("scale", 2, 1) + entry("below", 2)
    run = CudaExecutable(on, scaling(steps, arena=4 * N + 16, kernels=kernels, ptx=ptx))
    (found,) = run([to_device(np.array([1.0, 5.0], np.float32), on)])
    np.testing.assert_array_equal(host(found), [127.0, 383.0])


def test_heap_grows_and_is_handed_over(on: Card) -> None:
    h = Place("heap", 0)
    steps = (
        Allocate(0, 4 * N),
        CopyBytes(h, X, 4 * N),
        SetNumber("m", 2 * N),
        Allocate(0, 4 * named_size("m") + 4096),
        CopyBytes(Place("heap", 0, 4 * N), X, 4 * N),
    )
    m: Any = named_size("m")
    out = (Array(float32, m, (m,)),)
    program = scaling(steps, heap=(Array(float32, m),), outputs=out, handed_over=((0, 0),), arena=0)
    (found,) = CudaExecutable(on, program)([to_device(np.array([1.0, 2.0], np.float32), on)])
    np.testing.assert_array_equal(host(found), [1.0, 2.0, 1.0, 2.0])


class Failure:
    def error(self, values: Sequence[int]) -> Exception:
        return CheckError("f", f"the value must be small, got {values[0]}")


@pytest.mark.parametrize("walked", [False, True])
def test_failure_that_a_kernel_notes_is_raised(walked: bool, on: Card, api: StandIn) -> None:
    def fails(api: StandIn, words: list[int], grid: Any, block: Any) -> None:
        api.bytes_at(words[0], 16, api.stream, writes=True).view(np.int64)[:] = (1, 42)

    api.kernels["fails"] = fails
    steps = (
        Launch("fails", 1, (Place("context", 0),)),
        *([Check()] if walked else []),
        FillBytes(Y, 0, 4 * N),
    )
    kernels = {"fails": Kernel("fails", ("pointer",), 1)}
    run = CudaExecutable(on, scaling(steps, kernels=kernels, ptx=entry("fails", 1), failures=(Failure(),)))
    with pytest.raises(CheckError, match="the value must be small, got 42"):
        run([to_device(np.ones(2, np.float32), on)])


def test_host_call_runs_the_kernel_of_an_op(on: Card) -> None:
    class Entry:
        op, sizes, node = OPS["add"], (N,), None
        attrs: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it
        inputs = (weft.TensorType((N,), float32),) * 2
        outputs = (weft.TensorType((N,), float32),)

    call = HostCall(0, (X, X), (Y,), (N,))
    (found,) = CudaExecutable(on, scaling((call,), hosts=(Entry(),)))([to_device(np.ones(3, np.float32), on)])
    np.testing.assert_array_equal(host(found), [2.0, 2.0, 2.0])


def test_threads_call_one_program_at_the_same_time(on: Card) -> None:
    run = CudaExecutable(on, scaling(CHAIN))
    wrong = []

    def work(value: float) -> None:
        x = to_device(np.full(64, value, np.float32), card())
        for _ in range(30):
            wrong.extend([value] * (not (host(run([x])[0]) == 8 * value + 7).all()))

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# Ops by programs: each graph becomes a program of one kernel, which the stand-in runs by the interpreter


class Compiler:
    """Makes programs of one kernel each; ``built`` has the graphs."""

    def __init__(self, api: StandIn) -> None:
        self.api = api
        self.built: list[Graph] = []

    def __call__(self, graph: Graph, on: Card) -> CudaExecutable:
        name = f"kernel{len(self.built)}"
        self.built.append(graph)
        self.api.kernels[name] = self._kernel(graph)
        inputs, outputs = (tuple(_described(v.type) for v in vs) for vs in (graph.inputs, graph.results))
        sizes = sorted({str(s) for a in inputs for s in a.shape if not isinstance(s, int)})
        places = [Place("input", i) for i in range(len(inputs))] + [
            Place("output", i) for i in range(len(outputs))
        ]
        numbers = [named_size(s) for s in sizes]
        kernel = Kernel(name, ("pointer",) * len(places) + ("number",) * len(numbers), 128)
        step = Launch(name, 1, (*places, *numbers))
        ptx = entry(name, len(places), len(numbers))
        made = program.CudaProgram(
            graph.name, "sm_90", ptx, {name: kernel}, inputs, outputs, (), (), tuple(sizes), 0, (step,)
        )
        return CudaExecutable(on, made, graph)

    def _kernel(self, graph: Graph) -> Any:
        run = INTERPRET.build(graph)

        def kernel(api: StandIn, words: list[int], grid: Any, block: Any) -> None:
            kinds = [v.type for v in (*graph.inputs, *graph.results)]
            names = sorted({str(s) for v in graph.inputs for s in v.type.shape if not isinstance(s, int)})
            numbers = dict(zip(names, words[len(kinds) :], strict=True))
            arrays = []
            for k, (kind, pointer) in enumerate(zip(kinds, words[: len(kinds)], strict=True)):
                shape = bind(kind.shape, numbers)
                nbytes = int(np.prod(shape)) * kind.dtype.itemsize
                memory = api.bytes_at(pointer, nbytes, api.stream, writes=k >= len(graph.inputs))
                arrays.append(memory.view(kind.dtype).reshape(shape))
            count = len(graph.inputs)
            for target, value in zip(arrays[count:], run([a.copy() for a in arrays[:count]]), strict=True):
                target[...] = value

        return kernel


def _described(kind: Any) -> Array:
    size: Any = 1
    for s in kind.shape:
        size = size * s
    return Array(kind.dtype, size, tuple(kind.shape))


def test_eager_ops_run_by_programs_that_are_kept(api: StandIn) -> None:
    compiler = Compiler(api)
    eager.set_build(compiler)
    x = weft.linspace(-1, 1, 6, device="cuda").requires_grad_()
    y = (x.reshape(2, 3).tanh() * 2.0 + x.reshape(2, 3)) @ weft.ones(3, 2, device="cuda")
    y.sum().backward()
    expected = x.detach().cpu().requires_grad_()
    again = (expected.reshape(2, 3).tanh() * 2.0 + expected.reshape(2, 3)) @ weft.ones(3, 2)
    again.sum().backward()
    np.testing.assert_allclose(y.detach().cpu().numpy(), again.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(x.grad.cpu().numpy(), expected.grad.numpy(), rtol=1e-6)
    count = len(compiler.built)
    for shape in ((7,), (2, 2, 5), (1, 9)):
        z = weft.full(shape, 0.5, device="cuda")
        np.testing.assert_allclose(
            (z * 2.0 + z).tanh().cpu().numpy(), np.full(shape, np.tanh(1.5)), rtol=1e-6
        )
    assert len(compiler.built) == count  # elementwise ops have one program for all shapes
    assert (weft.ones(3, 1, device="cuda") + weft.ones(4, device="cuda")).shape == (3, 4)
    assert len(compiler.built) == count + 1


def test_random_numbers_are_the_same_on_a_device(api: StandIn) -> None:
    eager.set_build(Compiler(api))
    for draw in (weft.rand, weft.randn):
        weft.manual_seed(3)
        host_numbers = draw(5).numpy()
        weft.manual_seed(3)
        np.testing.assert_array_equal(draw(5, device="cuda").cpu().numpy(), host_numbers)
    x = weft.ones(100, device="cuda")
    weft.manual_seed(1)
    there = weft.functional.dropout(x, 0.5)
    weft.manual_seed(1)
    np.testing.assert_array_equal(there.cpu().numpy(), weft.functional.dropout(weft.ones(100), 0.5).numpy())

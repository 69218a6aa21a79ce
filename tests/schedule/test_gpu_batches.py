"""Equal kernels on different arrays as one launch: which are, which are not, and that bits stay."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn as nn
from tests.backends.agreement import assert_agree, interpreted
from tests.backends.cuda.emulator import EmulatedCard
from tests.gpu.plain_driver import run_on_card
from tests.schedule.lowered import shaped
from weft.backends.cuda import program as cuda
from weft.backends.cuda.build import build_program
from weft.base.dtypes import float32
from weft.ir.graph import Graph
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Block, Buffer, Function, Launch, Wave
from weft.loop.text import format_program
from weft.loop.verify import verify_program
from weft.loop.walk import launched_functions, statements
from weft.schedule.gpu.batches import form_batches
from weft.schedule.gpu.machine import Gpu as Machine
from weft.schedule.gpu.target import Gpu
from weft.schedule.program import lower_graph

SMALL = Machine(threads=32, most_threads=64, blocks=2, row_elements=8)  # so that few elements fill it


SHAPES = ((3, 8), (20,), (2, 2, 4), (40,))


def step_of(optimizer: Any, *, clip: bool = False) -> tuple[Graph, list[Any]]:
    """The graph of a step of an optimizer, with arrays for its inputs."""
    parameters = [nn.Parameter(weft.ones(*shape)) for shape in SHAPES]
    made = optimizer(parameters)

    def step(*gradients: Any) -> None:
        for p, gradient in zip(parameters, gradients, strict=True):
            p.grad = gradient
        if clip:
            nn.utils.clip_grad_norm_(parameters, 0.1)
        made.step()

    graph = weft.make_graph(step)(*[weft.ones(*shape) for shape in SHAPES]).optimize()
    random = np.random.default_rng(0)
    shapes = [(v.type.shape, v.type.dtype) for v in graph.inputs]
    # Of numbers there are rates and steps: after few of these AdamW's corrections would cancel most digits.
    arrays = [(random.random(s) if s else np.asarray(7.0)).astype(d) for s, d in shapes]
    return graph, arrays


OPTIMIZERS = {
    "adamw": lambda p: weft.optim.AdamW(p, lr=1e-2),
    "sgd": lambda p: weft.optim.SGD(p, lr=0.1, momentum=0.9),
}


def lowered(graph: Graph, machine: Machine | None = None, **options: Any) -> Any:
    return verify_program(lower_graph(weft.passes.lower(graph), target=Gpu(machine), **options))


@pytest.mark.rotating(2)
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_is_one_launch_and_bits_stay(name: str, clip: bool) -> None:
    graph, arrays = step_of(OPTIMIZERS[name], clip=clip)
    program = lowered(graph, SMALL)
    waves = [s for s in program.main.body.statements if isinstance(s, Wave)]
    assert len(waves[-1].launches) == len(SHAPES)
    assert "with own.vectors=" in format_program(program)
    if clip:
        norms = [w for w in waves if len(w.launches) == len(SHAPES)]
        assert len(norms) == 3  # sums of squares by blocks, then of all blocks, then the new parameters
    found = shaped(program, graph, arrays, {})
    assert_agree(found, interpreted(graph, arrays), ulps=64)
    apart = shaped(lowered(graph, SMALL, disable=["waves"]), graph, arrays, {})
    for x, y in zip(found, apart, strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_batch_on_the_emulated_card() -> None:
    graph, arrays = step_of(OPTIMIZERS["adamw"], clip=True)
    program = build_program(graph)
    assert [step.many for step in program.steps if isinstance(step, cuda.Launch)].count(len(SHAPES)) == 3
    assert_agree(run_on_card(EmulatedCard(), program, arrays), interpreted(graph, arrays), ulps=64)


def test_lengths_that_do_not_fill_vectors_blocks_or_turns() -> None:
    def f(*xs: Any) -> Any:
        return [(x * 2.0, (x * x).sum()) for x in xs]

    lengths = (3, 4, 8, 20, 129, 1200)
    arrays = [np.random.default_rng(n).standard_normal(n).astype(np.float32) for n in lengths]
    graph = weft.make_graph(f)(*map(weft.tensor, arrays)).optimize()
    program = lowered(graph, SMALL)
    # Vectors of four elements and of one are two kernels; what blocks found is summed by one.
    assert len({id(f.body) for f in launched_functions(program.main.body)}) == 3
    for x, twice, total in zip(arrays, *[iter(shaped(program, graph, arrays, {}))] * 2, strict=True):
        np.testing.assert_array_equal(twice, x * 2)
        np.testing.assert_allclose(total, (x.astype(np.float64) ** 2).sum(), rtol=1e-5)
    assert_agree(run_on_card(EmulatedCard(), build_program(graph), arrays), interpreted(graph, arrays))


def test_turns_that_a_launch_tells_reach_16_bytes_at_a_time() -> None:
    def norms(*ws: Any) -> Any:
        return [(w * w).sum() for w in ws]

    arrays = [np.arange(n, dtype=np.float32) % 7 for n in (8192, 64)]
    graph = weft.make_graph(norms)(*map(weft.tensor, arrays)).optimize()
    program = build_program(graph, machine=SMALL)
    first = program.ptx[: program.ptx.index("\n}")]  # that of whole arrays, before those that combine
    loads = re.findall(r"ld\.global\S*", first)
    assert loads
    assert all(m.endswith(".v4.b32") for m in loads)
    assert_agree(run_on_card(EmulatedCard(), program, arrays), interpreted(graph, arrays))


def test_half_precision_copies_are_written_by_the_same_launch() -> None:
    def f(*ws: Any) -> Any:
        return [(w * 0.5, (w * 0.5).astype(weft.bfloat16)) for w in ws]

    arrays = [np.arange(n, dtype=np.float32) for n in (64, 16)]
    graph = weft.make_graph(f)(*map(weft.tensor, arrays)).optimize()
    program = lowered(graph)
    (wave,) = program.main.body.statements
    assert isinstance(wave, Wave)
    assert_agree(shaped(program, graph, arrays, {}), interpreted(graph, arrays))


def test_a_launch_says_what_it_touches() -> None:
    """Of every place how many bytes, and whether they are written: those of a batch of all its launches."""
    graph, _ = step_of(OPTIMIZERS["sgd"])
    program = build_program(graph)
    launches = [step for step in program.steps if isinstance(step, cuda.Launch)]
    sizes = {i: array.size * array.dtype.itemsize for i, array in enumerate(program.outputs)}
    written = {}
    for step in launches:
        places = [a for a in step.arguments if isinstance(a, cuda.Place) and a.memory != "context"]
        for place, (writes, count) in zip(places, step.effects, strict=True):
            if writes and place.memory == "output":
                written[place.number] = count
    assert written.items() <= sizes.items()
    assert len(written) == 2 * len(SHAPES)  # parameters and momenta; gradients are as they were given
    assert max(step.many for step in launches) == len(SHAPES)


def test_what_needs_each_other_is_not_one_launch() -> None:
    x = np.arange(64, dtype=np.float32)

    def chain(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = (w @ (weft.tanh(x) * 2.0)[:, None])[:, 0]
        return x

    graph = weft.make_graph(chain)(weft.tensor(x), weft.ones(64, 64)).optimize()
    program = lowered(graph)
    assert not [s for s in statements(program.main.body) if isinstance(s, Wave)]


# Which launches are put together


def kernel(size: int) -> Function:
    b = Builder()
    x, y = b.buffer("x", float32, size), b.buffer("y", float32, size)
    with b.parallel(1) as block, b.threads(size) as thread:
        b.store(y, block + thread, b.load(x, block + thread))
    return b.function("copy", written=[y])


def launches(function: Function, *pairs: tuple[Buffer, Buffer]) -> Block:
    zero = Index.of(0)
    return Block([Launch(function, ((x, zero), (y, zero))) for x, y in pairs])


def groups(block: Block) -> list[int]:
    return [len(s.launches) if isinstance(s, Wave) else 1 for s in block.statements]


def test_order_of_launches_that_depend_is_kept() -> None:
    a, b, c, d, e, f = (Buffer(name, float32, 8) for name in "abcdef")
    block = launches(kernel(8), (a, b), (b, c), (d, e), (c, f))
    form_batches(block, [])
    # The second reads what the first writes; the third waits with the second; the fourth reads that one's.
    assert groups(block) == [1, 2, 1]
    block = launches(kernel(8), (a, b), (c, b))
    form_batches(block, [])
    assert groups(block) == [1, 1]  # both write b
    block = launches(kernel(8), (a, b), (c, a))
    form_batches(block, [])
    assert groups(block) == [1, 1]  # the second overwrites what the first reads


def test_parts_of_one_buffer_do_not_need_each_other() -> None:
    function, x, y = kernel(8), Buffer("x", float32, 16), Buffer("y", float32, 16)
    at = [Index.of(0), Index.of(8), Index.of(4)]
    block = Block([Launch(function, ((x, at[i]), (y, at[i]))) for i in (0, 1)])
    form_batches(block, [])
    assert groups(block) == [2]
    block = Block([Launch(function, ((x, at[i]), (y, at[i]))) for i in (0, 2)])
    form_batches(block, [])
    assert groups(block) == [1, 1]


def test_what_would_keep_much_memory_does_not_wait() -> None:
    large = [Buffer(name, float32, 1 << 21) for name in "abcd"]
    block = launches(kernel(1 << 21), (large[0], large[1]), (large[2], large[3]))
    form_batches(block, large)
    assert groups(block) == [1, 1]
    block = launches(kernel(1 << 21), (large[0], large[1]), (large[2], large[3]))
    form_batches(block, large[:1])  # what is written is wanted in the end
    assert groups(block) == [2]


def test_what_needs_nothing_comes_along_early() -> None:
    """Such as weights in half precision, each of which is needed at once: by another kernel between them."""
    inputs, made, outs = ([Buffer(f"{name}{i}", float32, 8) for i in range(3)] for name in "xyz")
    copy, other = kernel(8), kernel(8)

    def step(*pairs: tuple[Buffer, Buffer]) -> Block:
        block = launches(copy, *pairs)
        uses = launches(other, *zip([y for _, y in pairs], outs, strict=True)).statements
        block.statements[:] = [s for pair in zip(block.statements, uses, strict=True) for s in pair]
        return block

    block = step(*zip(inputs, made, strict=True))
    form_batches(block, made)
    assert groups(block) == [3, 3]
    block = step((inputs[0], made[0]), (outs[0], made[1]), (inputs[2], made[2]))
    form_batches(block, made)  # the second reads what is computed
    assert groups(block) == [2, 1, 1, 2]
    block = step((inputs[0], made[0]), (inputs[1], made[0]), (inputs[2], made[2]))
    form_batches(block, made)  # the second writes what was written
    assert groups(block) == [2, 1, 1, 2]


def test_what_is_large_does_not_come_early() -> None:
    inputs, made, outs = ([Buffer(f"{name}{i}", float32, 1 << 22) for i in range(2)] for name in "xyz")
    block = launches(kernel(1 << 22), *zip(inputs, made, strict=True))
    uses = launches(kernel(1 << 22), *zip(made, outs, strict=True)).statements
    block.statements[:] = [s for pair in zip(block.statements, uses, strict=True) for s in pair]
    form_batches(block, [*made, *outs])
    assert groups(block) == [1, 1, 1, 1]


def test_words_of_a_launch_are_limited() -> None:
    function, buffers = kernel(8), [Buffer(f"b{i}", float32, 8) for i in range(4000)]
    block = launches(function, *zip(buffers[::2], buffers[1::2], strict=True))
    form_batches(block, [])
    assert sum(groups(block)) == 2000
    assert max(groups(block)) * 3 * 8 <= 32764

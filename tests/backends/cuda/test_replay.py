"""Calls as CUDA graphs that are started again: whose memory they use, and what the device decides."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.backends.cuda.standin import StandIn
from tests.backends.cuda.test_programs import (
    CHAIN,
    A,
    N,
    X,
    Y,
    entry,
    host,
    launch,
    scale_kernel,
    scaling,
    to_device,
)
from weft.backends.cuda import replay
from weft.backends.cuda.array import DeviceArray
from weft.backends.cuda.bound import Bound
from weft.backends.cuda.card import Card, card
from weft.backends.cuda.execute import CudaExecutable
from weft.backends.cuda.launches import Launch as KernelLaunch
from weft.backends.cuda.modules import load_module
from weft.backends.cuda.products import Product
from weft.backends.cuda.program import (
    Again,
    Array,
    Check,
    Choose,
    CopyBytes,
    CudaProgram,
    FillBytes,
    Kernel,
    Launch,
    MatrixProduct,
    Place,
    Repeat,
    SetNumber,
)
from weft.backends.cuda.streams import Stream
from weft.base.dtypes import float32
from weft.base.sizes import named_size
from weft.errors import CheckError


@pytest.fixture
def on(api: StandIn) -> Card:
    api.kernels |= {"scale": scale_kernel, "halve": halve_kernel, "reject": reject_kernel}
    return card()


def chain(x: Any) -> Any:
    return ((x * 2 + 1) * 2 + 1) * 2 + 1


def updates(api: StandIn) -> int:
    return sum("NodeSetParams" in name for name in api.names())


def test_results_that_nobody_holds_are_written_again_and_no_node_is_touched(on: Card, api: StandIn) -> None:
    run = CudaExecutable(on, scaling(CHAIN))
    x = to_device(np.arange(4, dtype=np.float32), on)
    last: Any = None
    for _ in range(6):
        last = run([x])[0]  # the one before is held while the next one is computed, as a gradient is
    before = len(api.calls)
    places = set()
    for _ in range(10):
        last = run([x])[0]
        places.add(last.pointer)
        np.testing.assert_array_equal(host(last), chain(np.arange(4)))
    assert len(places) == 2
    made = [name for name in api.names()[before:] if name not in ("cuMemcpyDtoHAsync", "cuStreamSynchronize")]
    assert set(made) - {"cuMemcpyDtoDAsync", "cuLaunchKernel"} == {"cuGraphLaunch"}
    assert made.count("cuGraphLaunch") == 10
    assert made.count("cuMemcpyDtoDAsync") == 10  # the one of the chain itself, inside the graph


def test_results_that_are_held_are_never_overwritten(on: Card, api: StandIn) -> None:
    run = CudaExecutable(on, scaling(CHAIN))
    x = to_device(np.zeros(4, np.float32), on)
    held, expected = [], []
    for i in range(12):
        x = to_device(np.full(4, i, np.float32), on)
        held.append(run([x])[0])
        expected.append(chain(np.full(4, i, np.float32)))
    views = [DeviceArray(on, a.block, a.pointer + 4, (2,), float32) for a in held]
    del held[::2]  # of these only views of the memory are left
    for i in range(12, 30):
        run([to_device(np.full(4, i, np.float32), on)])
    for view, value in zip(views, expected, strict=True):
        np.testing.assert_array_equal(host(view), value[1:3])
    assert api.names().count("cuGraphInstantiate") <= 6


def test_inputs_that_lie_elsewhere_are_copied_or_nodes_are_told(
    on: Card, api: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for large, counted in ((1 << 20, 0), (8, 1)):
        monkeypatch.setattr(replay, "_LARGE", large)
        run = CudaExecutable(on, scaling(CHAIN))
        before = updates(api)
        for i in range(12):
            x = to_device(np.full(5, i, np.float32), on)
            np.testing.assert_array_equal(host(run([x])[0]), chain(np.full(5, i)))
        assert (updates(api) > before) == bool(counted)
    shifted = DeviceArray(on, x.block, x.pointer + 4, (4,), float32)
    np.testing.assert_array_equal(host(run([shifted])[0]), chain(np.full(4, 11)))


def stepping(**parts: Any) -> CudaProgram:
    """A state that is scaled in place, and a result that is read from it before."""
    state, batch = Array(float32, N, (N,)), Array(float32, N, (N,))
    new, loss = Place("output", 0), Place("output", 1)
    steps = (launch(A, Place("input", 1)), launch(loss, A), launch(new, X))
    fields = {"inputs": (state, batch), "outputs": (state, batch), "donated": ((0, 0),)}
    return scaling(steps, **fields | parts)


def test_state_is_written_in_place_and_may_move(on: Card, api: StandIn) -> None:
    run = CudaExecutable(on, stepping())
    expected = np.ones(3)
    state = to_device(np.ones(3, np.float32), on)
    kept = []
    for turn in range(16):
        if turn == 8:
            kept.append(state)  # such as a checkpoint that was loaded: the state lies elsewhere
            state = to_device(host(state), on)
        batch = to_device(np.full(3, turn, np.float32), on)
        new, loss = run.donating([state, batch], (True, False))
        assert new is state
        expected = expected * 2 + 1
        np.testing.assert_array_equal(host(state), expected)
        np.testing.assert_array_equal(host(loss), np.full(3, (turn * 2 + 1) * 2 + 1))
    np.testing.assert_array_equal(host(kept[0]), 2.0 ** (np.full(3, 8) + 1) - 1)
    other, _ = run.donating([state, batch], (False, False))
    assert other is not state
    np.testing.assert_array_equal(host(state), expected)


def test_streams_are_ordered_around_the_memory_of_graphs(on: Card) -> None:
    run = CudaExecutable(on, stepping())
    state, expected = to_device(np.ones(3, np.float32), on), np.ones(3)
    streams = [Stream(on), Stream(on)]
    loss: Any = None
    for turn in range(12):
        batch = to_device(np.full(3, turn, np.float32), on)
        with streams[turn % 2]:  # the stand-in raises if nothing orders them
            _, loss = run.donating([state, batch], (True, False))
            expected = expected * 2 + 1
        np.testing.assert_array_equal(host(loss), np.full(3, (turn * 2 + 1) * 2 + 1))
    np.testing.assert_array_equal(host(state), expected)


# What the device decides


def halve_kernel(api: StandIn, words: list[int], grid: Any, block: Any) -> None:
    """x /= 2 in place, and whether any is still above 1."""
    x, flag, n = words
    memory = api.bytes_at(x, 4 * n, api.stream, writes=True).view(np.float32)
    memory /= 2
    api.bytes_at(flag, 1, api.stream, writes=True)[:] = (memory > 1).any()


def above_kernel(api: StandIn, words: list[int], grid: Any, block: Any) -> None:
    x, flag, n = words
    memory = api.bytes_at(x, 4 * n, api.stream, writes=False).view(np.float32)
    api.bytes_at(flag, 1, api.stream, writes=True)[:] = (memory > 1).any()


def halving(steps: Sequence[Any], **parts: Any) -> CudaProgram:
    kinds = ("pointer", "pointer", "number")
    kernels = {name: Kernel(name, kinds, 32) for name in ("scale", "halve", "above", "reject")}
    ptx = "".join([entry(name, 2, 1) for name in kernels])  # type: ignore[list-item]
    return scaling(steps, kernels=kernels, ptx=ptx, arena=4 * N + 16, **parts)


FLAG = Place("arena", 0, 4 * N)


def of(kernel: str, place: Place) -> Launch:
    return Launch(kernel, 1, (place, FLAG, N))


def halved(x: Any) -> Any:
    while (x > 1).any():
        x = x / 2
    return x


WHILE = Again((of("above", Y),), FLAG, (of("halve", Y), Check(0)))
PROGRAMS: list[tuple[Sequence[Any], Any]] = [
    ((CopyBytes(Y, X, 4 * N), WHILE), halved),
    ((CopyBytes(Y, X, 4 * N), of("above", Y), Choose(FLAG, (of("halve", Y),), (FillBytes(Y, 0, 4 * N),))),
     lambda x: x / 2 if (x > 1).any() else x * 0),
    ((CopyBytes(Y, X, 4 * N), of("above", Y), Choose(FLAG, (), (launch(A, Y), CopyBytes(Y, A, 4 * N)))),
     lambda x: x if (x > 1).any() else x * 2 + 1),
    ((CopyBytes(Y, X, 4 * N), of("above", Y), Choose(FLAG, (WHILE, of("above", X)), ())), halved),
    ((CopyBytes(Y, X, 4 * N), SetNumber("k", N), Repeat("i", 0, named_size("k"), (of("halve", Y),))),
     lambda x: x / 2 ** len(x)),
    ((CopyBytes(Y, X, 4 * N), Repeat("i", 0, 2, (
      Again((of("above", Y),), FLAG, (Choose(FLAG, (of("halve", Y),), ()),)),
      launch(A, Y), CopyBytes(Y, A, 4 * N)))), lambda x: halved(halved(x) * 2 + 1) * 2 + 1),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_control_flow_is_in_the_graph_and_gives_what_a_walk_gives(
    number: int, on: Card, api: StandIn
) -> None:
    steps, expected = PROGRAMS[number]
    api.kernels |= {"above": above_kernel}
    run = CudaExecutable(on, halving(steps))
    for turn in range(6):
        for x in (np.array([0.5, 100.0 + turn, 3.0]), np.array([0.25, 0.5, 1.0])):
            there = to_device(x.astype(np.float32), on)
            before = api.names().count("cuStreamSynchronize")
            (found,) = run([there])
            waits = api.names().count("cuStreamSynchronize") - before
            assert turn == 0 or waits == 0  # from the third call on nobody waits
            np.testing.assert_array_equal(host(found), expected(x.astype(np.float32)))
    assert not api.errors


def test_drivers_without_conditional_nodes_are_walked_for(on: Card, api: StandIn) -> None:
    api.kernels |= {"above": above_kernel}
    api.version = 12040
    run = CudaExecutable(on, halving(PROGRAMS[0][0]))
    for _ in range(5):
        (found,) = run([to_device(np.array([100.0], np.float32), on)])
    np.testing.assert_array_equal(host(found), np.array([100.0 / 128]))
    assert "cuGraphLaunch" not in api.names()


def test_loops_that_would_be_written_out_for_too_long_are_walked(
    on: Card, api: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.backends.cuda.bound._MOST_ENTRIES", 10)
    steps = (CopyBytes(Y, X, 4 * N), Repeat("i", 0, N, (of("halve", Y),)))
    run = CudaExecutable(on, halving(steps))
    for count, graphs in ((5, 3), (20, 3)):
        for _ in range(5):
            (found,) = run([to_device(np.full(count, 2.0, np.float32), on)])
        np.testing.assert_array_equal(host(found), np.full(count, 2.0 / 2**count))
        assert api.names().count("cuGraphLaunch") == graphs


# Failures


class Failure:
    def error(self, values: Sequence[int]) -> Exception:
        return CheckError("f", f"values must be positive, got one at {values[0]}")


def reject_kernel(api: StandIn, words: list[int], grid: Any, block: Any) -> None:
    context, x, n = words
    memory = api.bytes_at(x, 4 * n, api.stream, writes=False).view(np.float32)
    bad = np.flatnonzero(memory < 0)
    if len(bad):
        api.bytes_at(context, 16, api.stream, writes=True).view(np.int64)[:] = 1, bad[0]


def test_failed_step_changes_nothing_and_the_next_one_is_right(on: Card, api: StandIn) -> None:
    batch = Place("input", 1)
    reject = Launch("reject", 1, (Place("context", 0), batch, N))
    state = Array(float32, N, (N,))
    steps = (reject, launch(A, batch), launch(Place("output", 1), A), Check(), launch(Place("output", 0), X))
    fields = {
        "inputs": (state, state),
        "outputs": (state, state),
        "donated": ((0, 0),),
        "failures": (Failure(),),
    }
    run = CudaExecutable(on, halving(steps, **fields))
    held, expected = to_device(np.ones(3, np.float32), on), np.ones(3)
    good, bad = (to_device(np.array(x, np.float32), on) for x in ([1, 2, 3], [1, -2, 3]))
    for turn in range(10):
        if turn % 3 == 2:
            with pytest.raises(CheckError, match="got one at 1"):
                run.donating([held, bad], (True, False))
        else:
            new, _ = run.donating([held, good], (True, False))
            assert new is held
            expected = expected * 2 + 1
        np.testing.assert_array_equal(host(held), expected)
    assert api.names().count("cuGraphLaunch") > 5


def test_failure_ends_a_loop_of_the_device(on: Card, api: StandIn) -> None:
    api.kernels["always"] = lambda api, words, grid, block: api.bytes_at(
        words[1], 1, api.stream, writes=True
    ).fill(1)
    reject = Launch("reject", 1, (Place("context", 0), Y, N))
    steps = (CopyBytes(Y, X, 4 * N), Again((of("above", Y),), FLAG, (reject, Check(0))))
    api.kernels["above"] = api.kernels["always"]
    run = CudaExecutable(on, halving(steps, failures=(Failure(),)))
    for _ in range(4):
        with pytest.raises(CheckError, match="got one at 0"):
            run([to_device(np.array([-1.0], np.float32), on)])
    assert api.names().count("cuGraphLaunch") == 2
    assert api.turns["while"] == 2


# Libraries


class FakeProduct:
    """Scales a into c by a launch on the stream that it is given, as a library would."""

    workspace = 0

    def __init__(self, on: Card, count: int) -> None:
        self.launch = KernelLaunch(load_module(on, entry("scale", 2, 1)).function("scale"), 3)
        self.count = count

    def run(self, c: int, a: int, *rest: Any) -> None:
        self.launch.set(a, c, self.count)
        self.launch.run((1, 1, 1), (32, 1, 1), 0, rest[-1])


def test_products_of_libraries_are_captured_into_graphs(
    on: Card, api: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Product, "of", classmethod(lambda cls, card, step, sizes: FakeProduct(card, sizes["n"]))
    )
    product = MatrixProduct(A, X, X, float32, 1, N, 1, (1, N, N), (False, False))
    out = MatrixProduct(Y, A, A, float32, 1, N, 1, (1, N, N), (False, False))
    run = CudaExecutable(on, scaling((product, launch(Y, A), CopyBytes(A, Y, 4 * N), out)))
    held = []
    for i in range(12):
        (found,) = run([to_device(np.full(4, i, np.float32), on)])
        held.append((found, i))
    for found, i in held:
        np.testing.assert_array_equal(host(found), chain(np.full(4, i)))
    assert api.names().count("cuGraphLaunch") == 10
    assert not updates(api)
    with Stream(on):
        run([to_device(np.ones(4, np.float32), on)])


def test_bound_guards_only_what_follows_the_last_check(on: Card) -> None:
    steps = (launch(A, X), Check(), launch(Y, A), Check(), launch(A, Y))
    bound = Bound(on, scaling(steps), load_module(on, entry("scale", 2, 1)), {"n": 3})
    assert [type(e).__name__ for e in bound.entries] == ["KernelEntry", "KernelEntry", "BranchEntry"]


def test_graphs_give_their_memory_back_where_there_is_none(on: Card, api: StandIn) -> None:
    run = CudaExecutable(on, scaling(CHAIN, arena=1 << 21))
    x = to_device(np.ones(4, np.float32), on)
    for _ in range(5):
        (found,) = run([x])
    before = on.pool.allocated
    api.memory = api.used + (1 << 20)
    large = on.pool.take(3 << 20, on.stream)  # more than there is, but for what the graph keeps
    assert on.pool.allocated < before + large.size
    api.memory = 1 << 28
    for _ in range(5):
        np.testing.assert_array_equal(host(run([x])[0]), chain(np.ones(4)))
    np.testing.assert_array_equal(host(found), chain(np.ones(4)))


def test_product_touches_its_matrices_and_no_more(on: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Product, "of", classmethod(lambda cls, card, step, sizes: FakeProduct(card, 1)))
    rng = np.random.default_rng(0)
    for _ in range(50):
        m, n, k, batch = (int(x) for x in rng.integers(1, 5, 4))
        turned = tuple(bool(x) for x in rng.integers(0, 2, 2))
        sides = (k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n), (m, n)
        rows = tuple(wide + int(rng.integers(0, 3)) for _, wide in sides)
        strides = tuple(
            row * high + int(rng.integers(0, 3)) for row, (high, _) in zip(rows, sides, strict=True)
        )
        step = MatrixProduct(Y, X, A, float32, m, n, k, rows, turned, False, batch, strides)  # type: ignore[arg-type]
        bound = Bound(on, scaling((step,)), None, {"n": 3})
        touched = {a.slot: a for a in bound.entries[0].accesses() or ()}
        for slot, i in ((0, 0), (2, 1), (1, 2)):  # input, arena, output: a, b and c
            high, wide = sides[i]
            last = max(
                strides[i] * z + rows[i] * y + x
                for z in range(batch)
                for y in range(high)
                for x in range(wide)
            )
            assert (touched[slot].start, touched[slot].stop) == (0, 4 * (last + 1))
            assert touched[slot].writes == (i == 2)


def test_executable_that_nobody_needs_is_gone_at_once_with_its_memory(on: Card) -> None:
    x = to_device(np.ones(4, np.float32), on)
    before = on.pool.allocated
    run = CudaExecutable(on, scaling(CHAIN, arena=1 << 20))
    for _ in range(5):
        run([x])
    assert on.pool.allocated > before
    gc.disable()
    try:
        del run
        assert on.pool.allocated == before
    finally:
        gc.enable()

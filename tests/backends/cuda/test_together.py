"""Graphs compiled for a GPU and run by the runtime: the PTX that ships, on a card in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.standin import Allocation, StandIn, standing_in

emulator = pytest.importorskip("tests.backends.cuda.emulator", reason="there is no emulator of PTX yet")
build = pytest.importorskip("weft.backends.cuda.build", reason="there is no compiler for GPUs yet")


class EmulatedDriver(StandIn):
    """A stand-in whose kernels are run from their PTX: its memory is that of the card in NumPy."""

    def __init__(self) -> None:
        super().__init__()
        self.card = emulator.EmulatedCard()
        self.base = self.card.memory.ctypes.data
        self.memory = self.card.memory.size // 2
        self._free: dict[int, list[int]] = {}
        self._module_of: dict[int, Any] = {}

    def new_allocation(self, size: int) -> Allocation:
        waiting = self._free.get(size)
        start = waiting.pop() if waiting else self.base + self.card.allocate(size)
        return Allocation(size, start)

    def cuMemFreeAsync(self, pointer: int, stream: int) -> int:  # noqa: N802
        size = self.live[int(pointer)].size
        code = StandIn.cuMemFreeAsync(self, pointer, stream)
        self._free.setdefault(size, []).append(int(pointer))
        return code

    def run_kernel(
        self, function: int, words: list[int], grid: tuple[int, ...], block: tuple[int, ...]
    ) -> None:
        name = self.functions[function]
        entry = self.card.load(self.images[function].removeprefix(b"cubin\n").decode())[name]
        room = range(self.base, self.base + self.card.memory.size)
        arguments = [w - self.base if w in room else w for w in words]
        self.card.launch(entry, grid[0], block[0], 0, arguments)


@pytest.fixture
def card() -> Iterator[EmulatedDriver]:
    from weft.backends.cuda.compiling import compile_for_device
    from weft.backends.cuda.eager import set_build

    with standing_in(EmulatedDriver()) as found:
        set_build(compile_for_device)
        yield found  # type: ignore[misc]


FUNCTIONS: list[Any] = [
    lambda t: t + t,
    lambda t: t * 2.0 - 1.0,
    lambda t: t.exp().tanh(),
    lambda t: t.sum(axis=1),
    lambda t: t @ t.T,
    lambda t: (t > 0.5).astype(weft.int32),
    lambda t: t[:, ::-1] * t,
    lambda t: weft.softmax(t, axis=1),
    lambda t: weft.concat([t, t[:1]]),
]


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_eager_ops_give_what_the_host_gives(number: int, card: EmulatedDriver) -> None:
    function = FUNCTIONS[number]
    x: Any = weft.rand(3, 4, generator=weft.Generator().manual_seed(1)).requires_grad_()
    there = x.detach().cuda().requires_grad_()
    results = []
    for t in (x, there):
        out = function(t)
        if out.requires_grad:
            (out * out).sum().backward()
        results.append((out.detach().cpu().numpy(), None if t.grad is None else t.grad.cpu().numpy()))
    for ours, theirs in zip(*results, strict=True):
        if ours is not None:
            np.testing.assert_allclose(theirs, ours, rtol=2e-5, atol=1e-6)
    assert not card.errors


def test_compiled_function_gives_what_the_host_gives(card: EmulatedDriver) -> None:
    def f(x: Any, w: Any) -> Any:
        return weft.softmax(weft.tanh(x @ w) * 2.0 + 1.0, axis=1).sum(axis=0)

    x, w = (weft.rand(3, 4, generator=weft.Generator().manual_seed(i)) for i in (1, 2))
    compiled = weft.compile(f)
    for _ in range(4):  # as a list, then as a graph
        found = compiled(x.cuda(), w.T.cuda())
        assert found.device == "cuda"
        np.testing.assert_allclose(found.cpu().numpy(), f(x, w.T).numpy(), rtol=2e-5)
    assert not card.errors

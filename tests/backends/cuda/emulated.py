"""A driver whose kernels are run from their PTX, on the card in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.backends.cuda.emulator import EmulatedCard
from tests.backends.cuda.standin import Allocation, StandIn, standing_in
from weft.backends.cuda.compiling import compile_for_device
from weft.backends.cuda.eager import set_build


class EmulatedDriver(StandIn):
    """A stand-in whose kernels are run from their PTX: its memory is that of the card in NumPy."""

    def __init__(self) -> None:
        super().__init__()
        self.card = EmulatedCard()
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
        self.card.launch(entry, grid[0], block[0], self.asked, arguments)


@contextmanager
def emulated() -> Iterator[EmulatedDriver]:
    """Let weft take the card in NumPy for one of NVIDIA's, inside a block."""
    with standing_in(EmulatedDriver()) as found:
        set_build(compile_for_device)
        yield found  # type: ignore[misc]

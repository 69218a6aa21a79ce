"""What capturing costs: the check before each call, the call itself, and the capture of whole training steps.

Run as ``python bench/capture.py``. The check is to take under 5 microseconds for a typical function.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import weft


class Block:
    """A layer with what captured code usually reads: parameters, numbers, a flag, a method."""

    def __init__(self, width: int) -> None:
        self.norm = weft.ones(width, requires_grad=True)
        self.up = (weft.randn(width, 4 * width) / width**0.5).requires_grad_()
        self.down = (weft.randn(4 * width, width) / (2 * width**0.5)).requires_grad_()
        self.training = True
        self.rate = 0.5

    def parameters(self) -> list[Any]:
        """What is trained."""
        return [self.norm, self.up, self.down]

    def __call__(self, x: Any) -> Any:
        """Run the layer."""
        hidden = weft.gelu(x * self.norm @ self.up)
        out = x + hidden @ self.down
        return out * self.rate if self.training else out


def best_time(function: Callable[[], Any], calls: int, rounds: int = 7) -> float:
    """Seconds of one call, in the best of some rounds."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        found.append((time.perf_counter() - start) / calls)
    return min(found)


def row(name: str, seconds: float, note: str = "") -> None:
    """Print one figure."""
    amount = f"{seconds * 1e6:9.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:9.2f} ms"
    print(f"{name:48}{amount}  {note}")


def measure_function() -> None:
    """One layer that reads four tensors, two numbers, two flags and a global."""
    block = Block(8)
    x = weft.randn(2, 8)
    compiled = weft.compile(block)
    compiled(x)
    (version,) = compiled.versions
    count = len(version.program.guards) + len(version.program.tensors)
    row("check of one layer", best_time(lambda: version.holds((x,)), 20_000), f"{count} guards")
    with weft.no_grad():
        compiled(x)
        row("eager call of one layer", best_time(lambda: block(x), 2_000))
        row("compiled call of one layer, interpreted", best_time(lambda: compiled(x), 2_000))
        add = weft.compile(lambda x: x + 1.0)
        add(x)
        row("compiled call of x + 1", best_time(lambda: add(x), 5_000))


def measure_step(layers: int) -> None:
    """The capture of a training step, and its call."""
    blocks = [Block(16) for _ in range(layers)]
    params = [p for block in blocks for p in block.parameters()]
    x = weft.randn(4, 16)

    def step(x: Any) -> Any:
        for p in params:
            p.zero_grad()
        for block in blocks:
            x = block(x)
        loss = (x * x).mean()
        loss.backward()
        with weft.no_grad():
            for p in params:
                p -= 0.01 * p.grad
        return loss

    compiled = weft.compile(step)
    start = time.perf_counter()
    compiled(x)
    row(f"capture of a step of {layers} layers", time.perf_counter() - start, "first call, run included")
    version = compiled.versions[0]
    count = len(version.program.guards) + len(version.program.tensors)
    row("  check", best_time(lambda: version.holds((x,)), 2_000), f"{count} guards")
    row("  eager call", best_time(lambda: step(x), 10, 3))
    row("  compiled call, interpreted", best_time(lambda: compiled(x), 10, 3))


def measure_loop(iterations: int) -> None:
    """The graph of a loop and its gradient, captured and optimised: the same for any number of iterations."""

    def loss(x: Any) -> Any:
        for _ in range(iterations):
            x = weft.sin(x) * 1.01 + 0.1
        return x.sum()

    x = weft.ones(64)
    found = best_time(lambda: weft.make_graph(weft.grad(loss))(x).optimize(), 3, 5)
    row(f"capture of a loop of {iterations} and its gradient", found, "with passes")


if __name__ == "__main__":
    weft.manual_seed(0)
    measure_function()
    for iterations in (10, 100, 1000, 100_000):
        measure_loop(iterations)
    for layers in (1, 12):
        measure_step(layers)

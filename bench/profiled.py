"""What ``weft.profile`` costs: ``python -m bench.profiled`` times steps and ops with it and without.

Bursts with and without alternate; the least of each is compared, so that other programs disturb little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import weft
from weft import nn, optim

ROUNDS = 60
Step = Callable[[], Any]


def training_step(width: int, batch: int) -> Step:
    """A compiled step of Adam on a perceptron of three layers."""
    weft.manual_seed(0)
    layers = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)]
    model = nn.Sequential(*layers)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    x, y = weft.randn(batch, 64), weft.randint(0, 10, (batch,))

    @weft.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step(x, y)


def small_op() -> Step:
    """A product of eight numbers that is recorded, outside of graphs."""
    x, y = weft.ones(8, requires_grad=True), weft.ones(8)
    return lambda: x * y


def burst(step: Step, times: int) -> float:
    """Seconds of a step, the mean of some; one before them wakes the threads that share the work."""
    step()
    begin = time.perf_counter()
    for _ in range(times):
        step()
    return (time.perf_counter() - begin) / times


def measure(step: Step, times: int, rounds: int = ROUNDS) -> tuple[list[float], list[float]]:
    """Seconds of a step in bursts, without a profile and with it."""
    step()
    with weft.profile():
        step()  # builds what takes down times
    plain, profiled = [], []
    for _ in range(rounds):
        plain.append(burst(step, times))
        with weft.profile():
            profiled.append(burst(step, times))
    return plain, profiled


def main() -> None:
    """Print a table."""
    rows: list[tuple[str, Step, int]] = [
        ("compiled step, 64 wide, batch of 32", training_step(64, 32), 20),
        ("compiled step, 256 wide, batch of 128", training_step(256, 128), 5),
        ("compiled step, 1024 wide, batch of 256", training_step(1024, 256), 1),
        ("op on 8 numbers, outside of graphs", small_op(), 500),
    ]
    print(f"{'':40}{'without':>12}{'with':>12}{'least':>9}{'median':>9}")
    for name, step, times in rows:
        plain, profiled = measure(step, times)
        ratios = [f(profiled) / f(plain) - 1 for f in (min, median)]
        shown = "".join(f"{100 * r:+8.1f}%" for r in ratios)
        print(f"{name:40}{min(plain) * 1e6:9.1f} us{min(profiled) * 1e6:9.1f} us{shown}")


if __name__ == "__main__":
    main()

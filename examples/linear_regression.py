"""Fit a line to points: the smallest program that learns.

    python examples/linear_regression.py [--steps 200]

The same step runs with the dynamic graph, and compiled: both give the same line.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import weft
from weft import Tensor, nn, optim


def points(count: int) -> tuple[Tensor, Tensor]:
    """Points near the line y = 3 x - 2."""
    x = weft.randn(count, 1)
    return x, 3 * x - 2 + 0.1 * weft.randn(count, 1)


def fit(x: Tensor, y: Tensor, steps: int, compiled: bool) -> tuple[float, float]:
    """The slope and the intercept after so many steps of gradient descent."""
    weft.manual_seed(1)
    model = nn.Linear(1, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = weft.compile(step) if compiled else step
    for _ in range(steps):
        loss = run(x, y)
    print(f"{'compiled' if compiled else 'dynamic':8}  loss {loss.item():.4f}", end="   ")
    slope, intercept = model.weight.item(), model.bias.item()
    print(f"y = {slope:.3f} x {intercept:+.3f}")
    return slope, intercept


def main(arguments: Sequence[str] | None = None) -> list[tuple[float, float]]:
    """Fit twice; the lines."""
    parser = argparse.ArgumentParser(description="Fit a line to points")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args(arguments)
    weft.manual_seed(0)
    x, y = points(500)
    return [fit(x, y, options.steps, compiled) for compiled in (False, True)]


if __name__ == "__main__":
    main()

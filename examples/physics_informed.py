"""A network that solves a differential equation, from the equation alone.

    python examples/physics_informed.py [--steps 1500]

Burgers' equation u_t + u u_x = ν u_xx on x in [-1, 1], t in [0, 1], with u(0, x) = -sin(π x) and u(t, ±1) =
0, as in M. Raissi, P. Perdikaris and G. Karniadakis, *Physics-informed neural networks*, 2019, but with ν =
0.1, so that finite differences on a grid are a yardstick. First and second derivatives by t and x are
gradients of gradients, for all points at once.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np

import weft
from weft import Tensor, nn, optim

VISCOSITY = 0.1


def residual(model: nn.Module, t: Tensor, x: Tensor) -> Tensor:
    """By how much the network misses the equation at points; derivatives by summing, as points do not mix."""

    def u(t: Tensor, x: Tensor) -> Tensor:
        return model(weft.stack([t, x], axis=-1))[:, 0]

    def slope(t: Tensor, x: Tensor) -> Tensor:
        return weft.grad(lambda x: u(t, x).sum())(x)

    u_t = weft.grad(lambda t: u(t, x).sum())(t)
    u_x = slope(t, x)
    u_xx = weft.grad(lambda x: slope(t, x).sum())(x)
    return u_t + u(t, x) * u_x - VISCOSITY * u_xx


def finite_differences(columns: int = 201) -> tuple[np.ndarray, np.ndarray]:
    """The solution at t = 1 on a grid, by small explicit steps."""
    x = np.linspace(-1, 1, columns)
    h = x[1] - x[0]
    steps = math.ceil(1 / (0.2 * h * h / VISCOSITY))
    u = -np.sin(np.pi * x)
    for _ in range(steps):
        flow = (u[2:] ** 2 - u[:-2] ** 2) / (4 * h)
        spread = VISCOSITY * (u[2:] - 2 * u[1:-1] + u[:-2]) / (h * h)
        u[1:-1] += (spread - flow) / steps
    return x, u


def main(arguments: Sequence[str] | None = None) -> float:
    """Train; the largest error at t = 1."""
    parser = argparse.ArgumentParser(description="Solve Burgers' equation with a network")
    parser.add_argument("--steps", type=int, default=1500)
    options = parser.parse_args(arguments)
    weft.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(2, 32),
        nn.Tanh(),
        nn.Linear(32, 32),
        nn.Tanh(),
        nn.Linear(32, 32),
        nn.Tanh(),
        nn.Linear(32, 1),
    )
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)

    @weft.compile
    def step(inside: Tensor, start: Tensor, edge: Tensor) -> Tensor:
        optimizer.zero_grad()
        equation = residual(model, inside[:, 0], 2 * inside[:, 1] - 1).square().mean()
        at_start = model(weft.stack([weft.zeros_like(start), start], axis=-1))[:, 0]
        sides = weft.concat(
            [weft.stack([edge, weft.ones_like(edge) * side], axis=-1) for side in (-1.0, 1.0)]
        )
        missed = (at_start + weft.sin(math.pi * start)).square().mean() + model(sides).square().mean()
        loss = equation + 5 * missed
        loss.backward()
        optimizer.step()
        return loss

    x, exact = finite_differences()
    grid = weft.tensor(np.stack([np.ones_like(x), x], -1).astype(np.float32))
    for i in range(1, options.steps + 1):
        loss = step(weft.rand(512, 2), 2 * weft.rand(128) - 1, weft.rand(64))
        schedule.step()
        if i % max(1, options.steps // 5) == 0:
            with weft.no_grad():
                error = float(np.abs(model(grid)[:, 0].numpy() - exact).max())
            print(f"step {i:5}   loss {loss.item():.2e}   largest error at t = 1: {error:.4f}")
    return error


if __name__ == "__main__":
    main()

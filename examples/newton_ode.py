"""Plain Python loops in the graph: Newton's method, and the path of a ball with an adaptive step.

    python examples/newton_ode.py [--steps 150]

`while` and `if` depend on tensors here, so they become part of the compiled graph, and gradients flow back
through as many iterations as there were. The second part finds the angle and the speed at which a ball with
drag must be thrown to land in a basket.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import weft
from weft import Tensor, optim

DRAG, GRAVITY = 0.1, 9.81


@weft.compile
def kepler(mean: Tensor, eccentricity: Tensor) -> Tensor:
    """The angle E with E - e sin E = M, by Newton's method until it has settled for all M."""
    angle = mean
    change = weft.ones_like(mean)
    while change.abs().max() > 1e-6:
        change = (angle - eccentricity * weft.sin(angle) - mean) / (1 - eccentricity * weft.cos(angle))
        angle = angle - change
    return angle


def fall(state: Tensor) -> Tensor:
    """How place and speed of a ball change, with a drag that grows as the square of its speed."""
    speed = state[2:]
    drag = -DRAG * weft.sqrt((speed * speed).sum()) * speed
    return weft.concat([speed, drag - weft.tensor([0.0, GRAVITY])])


def integrate(
    change: Callable[[Tensor], Tensor], state: Tensor, until: float, tolerance: float = 1e-4
) -> Tensor:
    """Steps of Heun's method, each as long as the difference from Euler's allows."""
    time, step = weft.tensor(0.0), weft.tensor(0.1)
    while time < until - 1e-6:
        step = weft.minimum(step, until - time)
        first = change(state)
        second = change(state + step * first)
        error = (step * (second - first) / 2).abs().max()
        if error <= tolerance:
            state = state + step * (first + second) / 2
            time = time + step
        step = step * weft.clip(0.9 * weft.sqrt(tolerance / (error + 1e-12)), 0.2, 3.0)
    return state


def throw(aim: Tensor) -> Tensor:
    """Where a ball is after 1.5 s, thrown at an angle and with a speed."""
    angle, speed = aim[0], aim[1]
    start = weft.stack([weft.tensor(0.0), weft.tensor(0.0), speed * weft.cos(angle), speed * weft.sin(angle)])
    return integrate(fall, start, 1.5)[:2]


def main(arguments: Sequence[str] | None = None) -> tuple[float, float]:
    """Solve both; the largest error of Kepler's equation, and how far from the basket the ball lands."""
    parser = argparse.ArgumentParser(description="Newton's method, and a thrown ball")
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args(arguments)
    mean, eccentricity = weft.linspace(0, 3, 1000), weft.tensor(0.6)
    angle = kepler(mean, eccentricity)
    wrong = (angle - eccentricity * weft.sin(angle) - mean).abs().max().item()
    slope = weft.grad(lambda e: kepler(mean, e).sum())(eccentricity).item()
    exact = (weft.sin(angle) / (1 - eccentricity * weft.cos(angle))).sum().item()
    print(
        f"Kepler's equation holds to {wrong:.1e}; dE/de through the loop {slope:.4f}, by formula {exact:.4f}"
    )

    basket = weft.tensor([7.0, 1.0])
    aim = weft.tensor([0.6, 8.0], requires_grad=True)
    optimizer = optim.Adam([aim], lr=0.4)

    @weft.compile
    def improve() -> Tensor:
        optimizer.zero_grad()
        missed = (throw(aim) - basket).square().sum()
        missed.backward()
        optimizer.step()
        return missed

    for i in range(1, options.steps + 1):
        missed = improve().item() ** 0.5
        if i % max(1, options.steps // 5) == 0:
            thrown = "angle {:.3f}, speed {:.2f} m/s".format(*aim.tolist())
            print(f"step {i:3}   {thrown}: {missed:.3f} m from the basket")
    return max(wrong, abs(slope - exact) / abs(exact)), missed


if __name__ == "__main__":
    main()

"""A policy that learns to balance a pole on a cart, from nothing but its falls.

    python examples/policy_gradient.py [--rounds 120]

The cart and the pole are those of A. Barto, R. Sutton and C. Anderson (1983). A batch of carts runs at
once; the policy is trained with REINFORCE (R. Williams, 1992) and the mean of each moment as baseline.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

import weft
from weft import Tensor, nn, optim

F = nn.functional
LONGEST = 200  # steps of an episode


class Carts:
    """Carts with poles: position, speed, angle and angular speed of each, pushed left or right."""

    def __init__(self, count: int, rng: np.random.Generator) -> None:
        self.state = rng.uniform(-0.05, 0.05, (count, 4))
        self.standing = np.ones(count, bool)

    def push(self, right: np.ndarray) -> None:
        """One step of 20 ms; the pole weighs 0.1 kg and is 1 m long, the cart weighs 1 kg."""
        _, speed, angle, turning = self.state.T
        force = np.where(right, 10.0, -10.0)
        sine, cosine = np.sin(angle), np.cos(angle)
        pushed = (force + 0.05 * turning**2 * sine) / 1.1
        turned = (9.8 * sine - cosine * pushed) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        moved = pushed - 0.05 * turned * cosine / 1.1
        self.state = self.state + 0.02 * np.stack([speed, moved, turning, turned], -1)
        self.standing = self.standing & (np.abs(self.state[:, 0]) < 2.4) & (np.abs(self.state[:, 2]) < 0.21)


def play(policy: nn.Module, carts: Carts) -> tuple[Tensor, Tensor, Tensor]:
    """States, pushes, and whether each cart's pole still stood, step by step until all have fallen."""
    states, pushes, stood = [], [], []
    while carts.standing.any() and len(states) < LONGEST:
        state = weft.tensor(carts.state.astype(np.float32))
        with weft.no_grad():
            right = (weft.rand(len(carts.state)) < weft.sigmoid(policy(state)[:, 0])).numpy()
        states.append(state)
        pushes.append(right)
        stood.append(carts.standing)
        carts.push(right)
    return weft.stack(states), weft.tensor(np.stack(pushes)), weft.tensor(np.stack(stood))


def advantages(stood: Tensor, discount: float = 0.98) -> Tensor:
    """How much longer each cart went on than the others from each step, as they count later steps less."""
    reward = stood.astype(weft.float32)
    _, returns = weft.scan(
        lambda later, now: (now + discount * later,) * 2, weft.zeros(stood.shape[1]), reward.flip(0)
    )
    returns = returns.flip(0)
    mean = (returns * reward).sum(1, keepdims=True) / weft.clip(reward.sum(1, keepdims=True), 1, None)
    return (returns - mean) * reward / 10


def main(arguments: Sequence[str] | None = None) -> tuple[float, float]:
    """Train; the mean length of the first and of the last episodes."""
    parser = argparse.ArgumentParser(description="Learn to balance a pole")
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--carts", type=int, default=32)
    options = parser.parse_args(arguments)
    weft.manual_seed(0)
    rng = np.random.default_rng(0)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)

    @weft.compile
    def learn(states: Tensor, pushes: Tensor, stood: Tensor) -> Tensor:
        optimizer.zero_grad()
        logits = policy(states)[..., 0]
        unlikely = F.binary_cross_entropy_with_logits(logits, pushes.astype(weft.float32), reduction="none")
        loss = (unlikely * advantages(stood)).sum() / stood.astype(weft.float32).sum()
        loss.backward()
        optimizer.step()
        return loss

    lengths = []
    for i in range(1, options.rounds + 1):
        states, pushes, stood = play(policy, Carts(options.carts, rng))
        learn(states, pushes, stood)
        lengths.append(stood.astype(weft.float32).sum().item() / options.carts)
        if i % max(1, options.rounds // 10) == 0:
            print(f"round {i:4}   the pole stands for {recent(lengths):.0f} of {LONGEST} steps")
    return lengths[0], recent(lengths)


def recent(lengths: list[float]) -> float:
    """The mean of the last five."""
    return sum(lengths[-5:]) / len(lengths[-5:])


if __name__ == "__main__":
    main()

"""A paddle that learns to catch a falling ball from pixels, by deep Q-learning.

    python examples/deep_q.py [--rounds 2000]

V. Mnih et al., *Human-level control through deep reinforcement learning*, 2015: what was seen goes into a
memory, the network learns from random pieces of it, and a slower copy of the network says what the future is
worth. The whole step is compiled: both networks, the gradient, Adam, and the slow copy that follows.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

import weft
from weft import Tensor, nn, optim

F = nn.functional
HEIGHT, WIDTH = 10, 7


class Games:
    """Games side by side: a ball falls straight down, a paddle below goes left, stays or goes right."""

    def __init__(self, count: int, rng: np.random.Generator) -> None:
        self.rng, self.row = rng, 0
        self.ball = rng.integers(WIDTH, size=count)
        self.paddle = rng.integers(WIDTH, size=count)

    def seen(self) -> np.ndarray:
        """The pixels of each game: one for the ball, one for the paddle."""
        count = len(self.ball)
        pixels = np.zeros((count, HEIGHT, WIDTH), np.float32)
        pixels[np.arange(count), self.row, self.ball] = 1
        pixels[np.arange(count), HEIGHT - 1, self.paddle] = 1
        return pixels

    def play(self, moves: np.ndarray) -> tuple[np.ndarray, bool]:
        """The rewards, and whether the games are over: a ball that is caught counts 1, a missed one -1."""
        self.paddle = np.clip(self.paddle + moves - 1, 0, WIDTH - 1)
        self.row += 1
        over = self.row == HEIGHT - 1
        rewards = np.where(self.paddle == self.ball, 1, -1) * over
        return rewards.astype(np.float32), over


class Memory:
    """The newest transitions: what was seen, the move, its reward, what was seen then, whether it ended."""

    def __init__(self, size: int) -> None:
        self.size, self.count = size, 0
        pixels = np.zeros((size, HEIGHT, WIDTH), np.float32)
        self.kept = (
            pixels,
            np.zeros(size, np.int64),
            np.zeros(size, np.float32),
            pixels.copy(),
            np.zeros(size, bool),
        )

    def add(self, *transitions: np.ndarray) -> None:
        """Keep transitions, in the place of the oldest."""
        places = (self.count + np.arange(len(transitions[0]))) % self.size
        for kept, new in zip(self.kept, transitions, strict=True):
            kept[places] = new
        self.count += len(places)

    def draw(self, count: int, rng: np.random.Generator) -> list[Tensor]:
        """Transitions drawn at random."""
        places = rng.integers(min(self.count, self.size), size=count)
        return [weft.tensor(kept[places]) for kept in self.kept]


def network() -> nn.Module:
    """From pixels to the worth of each of the three moves."""
    return nn.Sequential(nn.Flatten(), nn.Linear(HEIGHT * WIDTH, 64), nn.ReLU(), nn.Linear(64, 3))


def main(arguments: Sequence[str] | None = None) -> tuple[float, float]:
    """Train; the part of the balls that were caught at first, and at the end without moves at random."""
    parser = argparse.ArgumentParser(description="Learn to catch a ball")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--games", type=int, default=16)
    options = parser.parse_args(arguments)
    weft.manual_seed(0)
    rng = np.random.default_rng(0)
    worth, slow = network(), network()
    slow.load_state_dict(worth.state_dict())
    optimizer = optim.Adam(worth.parameters(), lr=2e-3)
    memory = Memory(10_000)

    @weft.compile
    def learn(seen: Tensor, moves: Tensor, rewards: Tensor, later: Tensor, over: Tensor) -> Tensor:
        optimizer.zero_grad()
        with weft.no_grad():
            best = weft.max(slow(later), axis=1)
            target = rewards + weft.where(over, 0.0, 0.95 * best)
        expected = worth(seen).gather(1, moves[:, None])[:, 0]
        loss = F.smooth_l1_loss(expected, target)
        loss.backward()
        optimizer.step()
        with weft.no_grad():
            for mine, other in zip(slow.parameters(), worth.parameters(), strict=True):
                mine.lerp_(other, 0.05)
        return loss

    def choose(seen: np.ndarray, randomly: float) -> np.ndarray:
        with weft.no_grad():
            best: np.ndarray = worth(weft.tensor(seen)).argmax(axis=1).numpy()
        return np.where(rng.random(len(seen)) < randomly, rng.integers(3, size=len(seen)), best)

    def caught(count: int = 256) -> float:
        games, over = Games(count, rng), False
        while not over:
            rewards, over = games.play(choose(games.seen(), 0.0))
        return float((rewards > 0).mean())

    before, games = caught(), Games(options.games, rng)
    for i in range(1, options.rounds + 1):
        seen = games.seen()
        moves = choose(seen, max(0.05, 1 - i / (0.5 * options.rounds)))
        rewards, over = games.play(moves)
        memory.add(seen, moves, rewards, games.seen(), np.full(len(moves), over))
        if over:
            games = Games(options.games, rng)
        loss = learn(*memory.draw(64, rng))
        if i % max(1, options.rounds // 8) == 0:
            print(f"round {i:5}   loss {loss.item():.4f}   {caught():.0%} of the balls are caught")
    return before, caught()


if __name__ == "__main__":
    main()

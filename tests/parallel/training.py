"""Training steps on a mesh, for tests in simulated worlds and between processes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import weft
import weft.nn.functional as F
from weft import nn
from weft import parallel as par

STEPS, BATCH = 3, 32


class Block(nn.Module):
    """A small transformer on class numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        """Scores of each row."""
        return self.head(self.block(self.embed(x)).mean(axis=1))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Any]]] = {
    "mlp": (
        lambda: nn.Sequential(
            nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.2), nn.LayerNorm(16), nn.Linear(16, 4)
        ),
        lambda rng: rng.standard_normal((BATCH, 8)).astype(np.float32),
    ),
    "transformer": (Block, lambda rng: rng.integers(0, 11, (BATCH, 5))),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(36, 4),
        ),
        lambda rng: rng.standard_normal((BATCH, 1, 8, 8)).astype(np.float32),
    ),
}


def _descend(loss: Any, model: Any, optimizer: Any, clip: float) -> Any:
    """Step down a loss, whose gradients have a norm of ``clip`` at most; 0 is any."""
    loss.backward()
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss


def classify(model: Any, optimizer: Any, *, clip: float = 0.0) -> Callable[[Any, Any], Any]:
    """A training step on examples and their classes, which are cut along ``data``."""

    def step(x: Any, y: Any) -> Any:
        x, y = par.shard(x, "data"), par.shard(y, "data")
        optimizer.zero_grad()
        return _descend(F.cross_entropy(model(x), y), model, optimizer, clip)

    return step


def shrink(model: Any, optimizer: Any, *, clip: float = 0.0) -> Callable[[Any], Any]:
    """A training step towards results of 0, on examples that are cut along ``data``."""

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        return _descend(model(par.shard(x, "data")).square().mean(), model, optimizer, clip)

    return step


def digest(arrays: Iterable[Any]) -> str:
    """What tells whether all bits are the same."""
    return hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()


def train(name: str, on_mesh: bool = True, **settings: Any) -> tuple[list[float], str, list[Any]]:
    """Losses of a few steps, a digest of all weights and buffers after them, and the weights."""
    make, inputs = MODELS[name]
    mesh = par.mesh(data=-1)
    weft.manual_seed(1)
    model = make()
    for number, p in enumerate(model.parameters()):
        with weft.no_grad():
            start = np.random.default_rng(number).standard_normal(p.shape).astype(np.float32)
            p.copy_(weft.tensor(start * 0.3))
    optimizer = weft.optim.AdamW(model.parameters(), lr=1e-2)

    step = classify(model, optimizer, clip=0.5)
    run = weft.compile(step, mesh=mesh, **settings) if on_mesh else step
    losses = []
    for number in range(STEPS):
        rng = np.random.default_rng(100 + number)
        losses.append(float(run(weft.tensor(inputs(rng)), weft.tensor(rng.integers(0, 4, BATCH)))))
    arrays = [v.detach().full().numpy() for v in model.state_dict().values()]
    return losses, digest(arrays), arrays


def train_alone(name: str) -> tuple[list[float], str, list[Any]]:
    """The same without a mesh, eagerly."""
    return train(name, on_mesh=False)

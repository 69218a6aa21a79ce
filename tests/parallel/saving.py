"""Training with checkpoints on a mesh, for tests; as a program it saves until it is killed."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import weft
import weft.nn.functional as F
from weft import nn
from weft import parallel as par


class Run:
    """A model, its optimizer and a compiled step; what it all is after some steps."""

    def __init__(self, zero: int, mesh: Any) -> None:
        weft.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 3))
        self.optimizer = weft.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.step = self._step if mesh is None else weft.compile(self._step, mesh=mesh, zero=zero)

    def _step(self, x: Any, y: Any) -> Any:
        x, y = par.shard(x, "data"), par.shard(y, "data")
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def train(self, first: int, last: int) -> list[float]:
        """Steps from one number to another, each with a batch of its own; their losses."""
        losses = []
        for number in range(first, last):
            rng = np.random.default_rng(number)
            x, y = rng.standard_normal((16, 6)).astype(np.float32), rng.integers(0, 3, 16)
            losses.append(float(self.step(weft.tensor(x), weft.tensor(y))))
        return losses

    def state(self) -> dict[str, Any]:
        """All that it takes to go on."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": weft.get_rng_state(),
        }

    def go_on(self, state: Any) -> None:
        """Go on from a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        weft.set_rng_state(state["random"])

    def bytes(self) -> bytes:
        """All weights."""
        return b"".join(p.detach().full().numpy().tobytes() for p in self.model.parameters())


def save_forever(path: Path) -> None:
    """Save tensors that all hold the number of the save, until killed."""

    def program() -> None:
        par.mesh(data=-1)
        for number in count(1):
            x = par.place(weft.full((1 << 14,), float(number)), par.P("data"))
            y = par.place(weft.full((3, 5), float(number)), par.P(None, "data"))
            weft.save({"x": x, "y": y, "step": number}, path)

    par.simulate(program, 3)


if __name__ == "__main__":
    save_forever(Path(sys.argv[1]))

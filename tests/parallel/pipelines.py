"""Models and training steps for tests of pipelines, in simulated worlds and between processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import weft
from tests.parallel.training import classify, digest
from weft import nn
from weft import parallel as par

BATCH, WIDTH, CLASSES, STEPS = 24, 6, 4, 2
KINDS = [1, 2, 3, 4]
PLAIN = [0, 1, 2, 0]


class Layers(nn.Module):
    """Layers by numbers: plain ones, residual ones, norms, and sums with what came in long before."""

    def __init__(
        self, kinds: Sequence[int], *, tied: bool = False, marks: int = 0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.kinds, self.marks = list(kinds), marks
        self.table = nn.Embedding(CLASSES, WIDTH)
        self.inner = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in kinds])
        self.norm, self.dropout = nn.LayerNorm(WIDTH), nn.Dropout(dropout)
        self.head = nn.Linear(WIDTH, CLASSES)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, tokens: Any) -> Any:
        """Logits."""
        x = first = self.table(tokens)
        for number, (kind, layer) in enumerate(zip(self.kinds, self.inner, strict=True)):
            if self.marks and number and number % max(1, len(self.kinds) // self.marks) == 0:
                x = par.next_stage(x)
            y = weft.tanh(layer(x))
            x = (y, x + y, self.norm(x + y), y + first, self.dropout(y))[kind]
        return self.head(x)


def batches() -> list[tuple[Any, Any]]:
    """Tokens and targets, the same on all ranks."""
    rng = np.random.default_rng(0)
    return [tuple(weft.tensor(rng.integers(0, CLASSES, BATCH)) for _ in range(2)) for _ in range(STEPS)]  # type: ignore[misc]


def own_rows(x: Any, mesh: Any) -> Any:
    """A batch of which each rank holds its rows."""
    n, at = par.size("data"), par.rank("data")
    part = x[at * BATCH // n : (at + 1) * BATCH // n]
    return par.from_parts(part, par.P("data"), mesh)


def train(
    axes: Mapping[str, int] | None,
    kinds: Sequence[int],
    *,
    adam: bool = False,
    model: Mapping[str, Any] | None = None,
    explained: bool = False,
    clip: float = 0.5,
    rows: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Train on a mesh, or eagerly without: losses, weights, gradients, and what this rank holds."""
    mesh = None if axes is None else par.mesh(**axes)
    weft.manual_seed(0)
    layers = Layers(kinds, **(model or {}))
    made: Any = weft.optim.Adam if adam else weft.optim.SGD
    optimizer = made(layers.parameters(), lr=0.1, **({} if adam else {"momentum": 0.9}))

    step = classify(layers, optimizer, clip=clip)
    run: Any = step if mesh is None else weft.compile(step, mesh=mesh, **settings)
    losses = [float(run(*(own_rows(x, mesh) if rows else x for x in batch))) for batch in batches()]
    weights = {n: p.detach().full().numpy() for n, p in layers.named_parameters()}
    gradients = {n: p.grad.full().numpy() for n, p in layers.named_parameters() if p.grad is not None}
    state = [t for s in optimizer.state.values() for t in s.values() if isinstance(t, weft.Tensor) and t.ndim]
    return {
        "losses": losses,
        "weights": weights,
        "gradients": gradients,
        "digest": digest((*weights.values(), *gradients.values())),
        "held": {n: par.held_bytes([p]) for n, p in layers.named_parameters()},
        "grads": par.held_bytes([p.grad for p in layers.parameters() if p.grad is not None]),
        "state": par.held_bytes(state),
        "run": run,
        "text": str(run.explain()[0]) if explained else "",
    }


def world(axes: Mapping[str, int]) -> int:
    """How many ranks a mesh has."""
    return int(np.prod(list(axes.values())))


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Losses, weights and gradients are those of a program without ranks."""
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=2e-5)
    for what in ("weights", "gradients"):
        for name, array in expected[what].items():
            np.testing.assert_allclose(found[what][name], array, rtol=1e-3, atol=2e-6, err_msg=name)


def quick(*args: Any, **settings: Any) -> dict[str, Any]:
    """As ``train``, by the interpreter, which has nothing to compile."""
    return train(*args, backend="interpret", **settings)

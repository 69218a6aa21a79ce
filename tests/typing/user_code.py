"""A program as users write it; mypy must find nothing in it, and each type as it says. It is never run."""

from __future__ import annotations

from typing import assert_type

import weft
import weft.functional as F
from weft import Tensor, nn

# Functions and operators

x = weft.ones((2, 3), dtype=weft.float64)
assert_type(x, Tensor)
assert_type(weft.sum(x), Tensor)
assert_type(weft.sum(x, axis=(0, 1), keepdims=True), Tensor)
assert_type(weft.exp(x) + 1.0, Tensor)
assert_type(weft.maximum(x, 0.0), Tensor)
assert_type(2 * x @ x.mT, Tensor)
assert_type(x[0, ..., None, ::2], Tensor)
assert_type(F.relu(x).mean(axis=0), Tensor)
assert_type(weft.where(x > 0, x, 0.0), Tensor)
assert_type(weft.cat([x, x]), Tensor)
assert_type(x.shape, tuple[int, ...])
assert_type(x.grad, Tensor | None)
x += 1.0


# Networks


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        assert_type(self.head(x), Tensor)
        return self.head(self.layers(x)) * scale


model = Net()
assert_type(nn.Linear(4, 2)(x), Tensor)
assert_type(model(x, scale=2.0), Tensor)

# A training loop

optimizer = weft.optim.AdamW(model.parameters(), lr=1e-3)
loss_fn = nn.CrossEntropyLoss()
for _ in range(3):
    loss = loss_fn(model(x), weft.zeros(2, dtype=weft.int64))
    assert_type(loss, Tensor)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with weft.no_grad():
    print(f"{loss.item():.3f}")  # noqa: T201 - as users write it


@weft.no_grad()
def evaluate(x: Tensor) -> float:
    return float(model(x).mean())


assert_type(evaluate(x), float)

# Compiling


@weft.compile
def step(x: Tensor, lr: float) -> tuple[Tensor, Tensor]:
    return x * lr, x.sum()


@weft.compile(fast_math=True)
def norm(x: Tensor) -> Tensor:
    return (x * x).sum().sqrt()


assert_type(step(x, 0.1), tuple[Tensor, Tensor])
assert_type(norm(x), Tensor)
assert_type(weft.compile(model)(x), Tensor)
assert_type(weft.jit.script(evaluate)(x), float)

# Transforms


def energy(w: Tensor, by: float) -> Tensor:
    return (w * by).sum()


assert_type(weft.grad(energy)(x, 2.0), Tensor)
assert_type(weft.value_and_grad(energy)(x, 2.0)[0], Tensor)
assert_type(weft.vmap(norm)(x), Tensor)
assert_type(weft.jvp(norm, (x,), (x,)), tuple[Tensor, Tensor])
assert_type(weft.checkpoint(energy, x, 2.0), Tensor)

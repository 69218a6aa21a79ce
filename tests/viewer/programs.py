"""Programs that the tests of the page look at; the lines are part of what is tested."""

from __future__ import annotations

from typing import Any

import weft
from weft import nn, optim


def root(a: Any) -> Any:
    x = a
    step = weft.abs(a)
    while step.max() > 1e-4:
        new = 0.5 * (x + a / x)  # NEWTON
        step = weft.abs(new - x)
        x = new
    if x.sum() > 5.0:
        x = x / x.sum()
    return x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.last(weft.tanh(self.first(x)))  # FORWARD


def training_step() -> tuple[Any, tuple[Any, Any]]:
    """A compiled training step that has run, and its arguments."""
    weft.manual_seed(0)
    model = Net()
    optimizer = optim.Adam(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)  # LOSS
        loss.backward()
        optimizer.step()  # STEP
        return loss.detach()

    compiled = weft.compile(step)
    args = weft.ones((2, 4)), weft.tensor([0, 2])
    compiled(*args)
    return compiled, args


def story() -> str:  # STORY
    text = """One line, # no comment
    def nothing(): return 'of this is code'
    and the last."""
    return text


def line_of(mark: str) -> int:
    """The number of the line that is marked by a comment."""
    with open(__file__, encoding="utf-8") as file:
        return next(i for i, line in enumerate(file, 1) if line.rstrip().endswith(f"# {mark}"))

"""An LSTM that predicts next month's sunspots from those of the months before.

    python examples/sunspots_lstm.py [--epochs 30]

The last quarter of two and a half centuries is held out. The yardstick is the prediction that next month is
as this one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import weft
import weft.datasets
from weft import Tensor, nn, optim

WINDOW = 60  # months that a prediction sees


class Forecaster(nn.Module):
    """What will change by next month, from the state of an LSTM after each month."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.change = nn.Linear(hidden, 1)

    def forward(self, series: Tensor) -> Tensor:
        """Predictions for the month after each one; series are rows."""
        states, _ = self.lstm(series[:, :, None])
        return series + self.change(states)[:, :, 0]


def windows(series: Tensor, step: int) -> Tensor:
    """Pieces of a series, each a month longer than what is seen, one a row."""
    starts = weft.arange(0, len(series) - WINDOW, step)
    return series[starts[:, None] + weft.arange(WINDOW + 1)]


def main(arguments: Sequence[str] | None = None) -> tuple[float, float]:
    """Train; the mean absolute errors on what was held out, of the model and of the yardstick."""
    parser = argparse.ArgumentParser(description="Predict sunspots")
    parser.add_argument("--epochs", type=int, default=30)
    options = parser.parse_args(arguments)
    weft.manual_seed(0)
    series = weft.sqrt(weft.datasets.sunspots()) / 10  # so that noise is as large at all heights
    cut = len(series) * 3 // 4
    training, held_out = windows(series[:cut], 3), windows(series[cut:], 1)
    model = Forecaster(32)
    optimizer = optim.Adam(model.parameters(), lr=1e-2)

    @weft.compile
    def step(batch: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch[:, :-1]), batch[:, 1:])
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    def errors() -> tuple[float, float]:
        with weft.no_grad():
            found = model(held_out[:, :-1])[:, -1]
        actual, last = held_out[:, -1], held_out[:, -2]
        spots = [(100 * (v * v - actual * actual)).abs().mean().item() for v in (found, last)]
        return spots[0], spots[1]

    for epoch in range(1, options.epochs + 1):
        order = weft.randperm(len(training))
        rows = [order[i : i + 64] for i in range(0, len(order) - 63, 64)]
        losses = [step(training[r]).item() for r in rows]
        if epoch % max(1, options.epochs // 5) == 0:
            ours, naive = errors()
            print(
                f"epoch {epoch:3}   loss {sum(losses) / len(losses):.5f}   held-out error {ours:.2f} spots, ",
                end="",
            )
            print(f"{naive:.2f} if next month is as this one")
    return errors()


if __name__ == "__main__":
    main()

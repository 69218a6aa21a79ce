"""A variational autoencoder of handwritten digits, and new digits from it.

    python examples/vae.py [--epochs 60]

D. Kingma and M. Welling, *Auto-Encoding Variational Bayes*, 2013. The random draws are part of the compiled
step.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import weft
import weft.datasets
from weft import Tensor, nn, optim

F = nn.functional
SHADES = " .:-=+*#%@"


class VAE(nn.Module):
    """Images to a few numbers with a spread, and back."""

    def __init__(self, latent: int = 8, hidden: int = 128) -> None:
        super().__init__()
        self.latent = latent
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, 64))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The logits of the pixels, and the means and log variances of the numbers behind them."""
        mean, log_variance = self.encoder(images).chunk(2, -1)
        drawn = mean + weft.exp(0.5 * log_variance) * weft.randn(*mean.shape)
        return self.decoder(drawn), mean, log_variance


def bound(model: VAE, images: Tensor) -> Tensor:
    """The negative evidence lower bound of an image, in nats."""
    logits, mean, log_variance = model(images)
    missed = F.binary_cross_entropy_with_logits(logits, images, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean**2 - weft.exp(log_variance)).sum()
    return (missed + divergence) / images.shape[0]


def show(images: Tensor) -> None:
    """Print images of 8 by 8 pixels side by side."""
    levels = (weft.clip(images, 0, 1) * (len(SHADES) - 1)).astype(weft.int64).reshape(-1, 8, 8).tolist()
    for lines in zip(*levels, strict=True):
        print("   ".join("".join(SHADES[v] * 2 for v in line) for line in lines).rstrip())


def main(arguments: Sequence[str] | None = None) -> tuple[float, float]:
    """Train; the bound on held-out digits before and after."""
    parser = argparse.ArgumentParser(description="Train a variational autoencoder on digits")
    parser.add_argument("--epochs", type=int, default=60)
    options = parser.parse_args(arguments)
    weft.manual_seed(0)
    images = weft.datasets.digits().images.reshape(-1, 64)[weft.randperm(1797)]
    training, held_out = images[:1500], images[1500:]
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)

    @weft.compile
    def step(batch: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = bound(model, batch)
        loss.backward()
        optimizer.step()
        return loss

    def held_out_bound() -> float:
        with weft.no_grad():
            return bound(model, held_out).item()

    before = held_out_bound()
    for epoch in range(1, options.epochs + 1):
        order = weft.randperm(len(training))
        losses = [step(training[order[i : i + 100]]).item() for i in range(0, len(order), 100)]
        if epoch % max(1, options.epochs // 6) == 0:
            mean = sum(losses) / len(losses)
            print(
                f"epoch {epoch:3}   bound {mean:.2f}   held out {held_out_bound():.2f} (before: {before:.2f})"
            )
    with weft.no_grad():
        print("\nNew digits:")
        show(weft.sigmoid(model.decoder(weft.randn(5, model.latent))))
    return before, held_out_bound()


if __name__ == "__main__":
    main()

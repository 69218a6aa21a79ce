"""A U-Net that finds the handwritten digits in cluttered pictures, pixel by pixel.

    python examples/unet.py [--steps 400]

O. Ronneberger, P. Fischer and T. Brox, *U-Net: convolutional networks for biomedical image segmentation*,
2015: a way down that sees more and more of the picture, a way up to its full size, and at each size a bridge
from the one to the other.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

import weft
import weft.datasets
from weft import Tensor, nn, optim
from weft.train import metrics

F = nn.functional
SIZE = 32


class Scenes:
    """Pictures of three digits among bars and noise, and which pixels are those of a digit."""

    def __init__(self, digits: np.ndarray, rng: np.random.Generator) -> None:
        self.digits, self.rng = digits, rng

    def batch(self, count: int) -> tuple[Tensor, Tensor]:
        """Pictures (count, 1, 32, 32), and the class of each pixel (count, 32, 32)."""
        pictures = self.rng.uniform(0, 0.3, (count, SIZE, SIZE)).astype(np.float32)
        classes = np.zeros((count, SIZE, SIZE), np.int64)
        for picture, truth in zip(pictures, classes, strict=True):
            for _ in range(8):
                self._bar(picture)
            for _ in range(3):
                self._digit(picture, truth)
        return weft.tensor(pictures[:, None]), weft.tensor(classes)

    def _bar(self, picture: np.ndarray) -> None:
        across = picture if self.rng.random() < 0.5 else picture.T
        row, start, length = self.rng.integers(SIZE), self.rng.integers(SIZE - 6), self.rng.integers(6, 16)
        across[row, start : start + length] = self.rng.uniform(0.5, 1)

    def _digit(self, picture: np.ndarray, truth: np.ndarray) -> None:
        digit = self.digits[self.rng.integers(len(self.digits))]
        row, column = self.rng.integers(SIZE - 8, size=2)
        place = slice(row, row + 8), slice(column, column + 8)
        picture[place] = np.maximum(picture[place], digit)
        truth[place] |= digit > 0.3


def block(inputs: int, outputs: int) -> nn.Module:
    """Two convolutions that keep the size."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """From pictures to the logits of two classes for each pixel."""

    def __init__(self, width: int = 8, depth: int = 2) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(depth + 1)]
        self.down = nn.ModuleList([block(a, b) for a, b in zip([1, *widths], widths, strict=False)])
        self.grow = nn.ModuleList([nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1])])
        self.up = nn.ModuleList([block(2 * w, w) for w in reversed(widths[:-1])])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, height, width) to (batch, 2, height, width); sizes are multiples of 2 ** depth."""
        bridges = []
        for i, step in enumerate(self.down):
            x = step(x if i == 0 else F.max_pool2d(x, 2))
            bridges.append(x)
        for grow, step, bridge in zip(self.grow, self.up, reversed(bridges[:-1]), strict=True):
            x = step(weft.concat([grow(x), bridge], axis=1))
        return self.head(x)


def show(picture: Tensor, found: Tensor) -> None:
    """Print a picture, and beside it the pixels that were found."""
    for seen, marks in zip(picture.tolist(), found.tolist(), strict=True):
        left = "".join(" .:-=+*#%@"[min(9, int(10 * v))] for v in seen)
        print(f"{left}  |  {''.join(' #'[v] for v in marks)}".rstrip())


def main(arguments: Sequence[str] | None = None) -> tuple[float, float]:
    """Train; on new pictures, how much of digits is found (intersection over union), before and after."""
    parser = argparse.ArgumentParser(description="Find digits in pictures")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args(arguments)
    weft.manual_seed(0)
    digits = weft.datasets.digits().images[weft.randperm(1797)].numpy()
    scenes = Scenes(digits[:1500], np.random.default_rng(0))
    pictures, truth = Scenes(digits[1500:], np.random.default_rng(1)).batch(32)
    model = UNet()
    optimizer = optim.Adam(model.parameters(), lr=3e-3)

    @weft.compile
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def overlap() -> tuple[float, Tensor]:
        model.eval()
        with weft.no_grad():
            found = model(pictures).argmax(axis=1)
        model.train()
        score = metrics.IoU(classes=2, average=None)
        score.update(found, truth)
        return float(score.compute()[1]), found

    before, _ = overlap()
    for i in range(1, options.steps + 1):
        loss = step(*scenes.batch(options.batch))
        if i % max(1, options.steps // 8) == 0:
            print(f"step {i:4}   loss {loss.item():.3f}   overlap {overlap()[0]:.2f} (before: {before:.2f})")
    after, found = overlap()
    show(pictures[0, 0], found[0])
    return before, after


if __name__ == "__main__":
    main()

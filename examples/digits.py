"""Train a small network on handwritten digits, with the dynamic graph alone.

    python examples/digits.py [--epochs 40] [--seed 0]

Everything is spelled out: the parameters are tensors, the network is a function, the gradients come from
``loss.backward()``, and Adam is the few lines of ``Adam.step``.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from typing import NamedTuple

import weft
import weft.datasets
from weft import Tensor

SHADES = " .:-=+*#%@"


class Split(NamedTuple):
    """Images, one a row, and their labels."""

    images: Tensor
    labels: Tensor


def load() -> tuple[Split, Split]:
    """The digits in random order: four fifths to train on, one fifth held out."""
    images, labels = weft.datasets.digits()
    order = weft.random.permutation(weft.random.key(0), len(labels))
    images, labels = images.reshape(-1, 64)[order], labels[order]
    cut = len(labels) * 4 // 5
    return Split(images[:cut], labels[:cut]), Split(images[cut:], labels[cut:])


def make_parameters(sizes: tuple[int, ...]) -> list[Tensor]:
    """Weights and biases of a network with layers of these sizes; the scale suits relu (K. He, 2015)."""
    parameters = []
    for inputs, outputs in pairwise(sizes):
        weight = weft.randn(inputs, outputs) * (2 / inputs) ** 0.5
        parameters += [weight.requires_grad_(), weft.zeros(outputs, requires_grad=True)]
    return parameters


def network(parameters: list[Tensor], x: Tensor) -> Tensor:
    """The logits of the ten digits for each row of x."""
    for weight, bias in zip(parameters[:-2:2], parameters[1:-2:2], strict=True):
        x = weft.relu(x @ weight + bias)
    return x @ parameters[-2] + parameters[-1]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean of the negative logarithm of the probability given to the right digit."""
    chosen = weft.take_along_axis(weft.log_softmax(logits, axis=1), labels[:, None], axis=1)
    return -chosen.mean()


class Adam:
    """D. Kingma and J. Ba, *Adam*, 2014."""

    def __init__(self, parameters: list[Tensor], rate: float) -> None:
        self.parameters = parameters
        self.rate = rate
        self.steps = 0
        self.means = [weft.zeros_like(p) for p in parameters]
        self.squares = [weft.zeros_like(p) for p in parameters]

    @weft.no_grad()
    def step(self) -> None:
        """Change the parameters by their gradients, and forget the gradients."""
        self.steps += 1
        size = self.rate * (1 - 0.999**self.steps) ** 0.5 / (1 - 0.9**self.steps)
        for i, p in enumerate(self.parameters):
            self.means[i] = 0.9 * self.means[i] + 0.1 * p.grad
            self.squares[i] = 0.999 * self.squares[i] + 0.001 * p.grad * p.grad
            p -= size * self.means[i] / (weft.sqrt(self.squares[i]) + 1e-8)
            p.grad = None


@weft.no_grad()
def accuracy(parameters: list[Tensor], split: Split) -> float:
    """The part of the images whose digit is recognised."""
    right = weft.argmax(network(parameters, split.images), axis=1) == split.labels
    return right.astype(weft.float32).mean().item()


def train(epochs: int, seed: int, batch: int = 64) -> tuple[list[Tensor], float]:
    """Train, print how it goes; the parameters and the accuracy on the held-out digits."""
    weft.manual_seed(seed)
    training, held_out = load()
    parameters = make_parameters((64, 64, 10))
    adam = Adam(parameters, rate=3e-3)
    start = time.perf_counter()
    for epoch in range(1, epochs + 1):
        order = weft.randperm(len(training.labels))
        total = 0.0
        for first in range(0, len(order), batch):
            rows = order[first : first + batch]
            loss = cross_entropy(network(parameters, training.images[rows]), training.labels[rows])
            loss.backward()
            adam.step()
            total += loss.item() * len(rows)
        if epoch % max(1, epochs // 10) == 0:
            found = accuracy(parameters, held_out)
            print(f"epoch {epoch:3}   loss {total / len(order):.4f}   held-out accuracy {found:.1%}")
    print(f"\n{epochs} epochs in {time.perf_counter() - start:.1f} s\n")
    return parameters, accuracy(parameters, held_out)


def picture(image: Tensor) -> list[str]:
    """An image of 8 by 8 pixels as lines of text."""
    levels = (image * (len(SHADES) - 1)).astype(weft.int64).reshape(8, 8).tolist()
    return ["".join(SHADES[level] * 2 for level in row) for row in levels]


def show(parameters: list[Tensor], split: Split, count: int = 4) -> None:
    """Print a few digits and what the network takes them for."""
    with weft.no_grad():
        guesses = weft.argmax(network(parameters, split.images[:count]), axis=1).tolist()
    labels = split.labels[:count].tolist()
    titles = [f"{label}, taken for {guess}" for label, guess in zip(labels, guesses, strict=True)]
    pictures = [picture(split.images[i]) for i in range(count)]
    print("   ".join(title.ljust(16) for title in titles).rstrip())
    for lines in zip(*pictures, strict=True):
        print("   ".join(lines).rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    parameters, found = train(options.epochs, options.seed)
    show(parameters, load()[1])
    print(f"\n{found:.1%} of the held-out digits are recognised")


if __name__ == "__main__":
    main()

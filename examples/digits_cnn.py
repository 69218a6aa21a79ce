"""A convolutional network for handwritten digits, with the trainer: pipeline, checkpoints, validation.

    python examples/digits_cnn.py [--epochs 12] [--directory runs/digits]

With a directory, a second run goes on from where the first one stopped, to the bit; Ctrl-C saves and stops.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import weft
import weft.datasets
from weft import data, nn, optim


def make_model() -> nn.Module:
    """Two convolutions, and the classes from what they have found."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(32 * 4 * 4, 10),
    )


def pipelines(batch: int) -> tuple[data.Pipeline, data.Pipeline]:
    """Training digits in a new order in each epoch, and those held out."""
    images, labels = weft.datasets.digits()
    order = weft.random.permutation(weft.random.key(0), len(labels))
    images, labels = images[order][:, None].numpy(), labels[order].numpy()
    cut = len(labels) * 4 // 5
    training = data.from_arrays(images[:cut], labels[:cut]).shuffle(seed=1).batch(batch, last="drop")
    return training.prefetch(2), data.from_arrays(images[cut:], labels[cut:]).batch(120)


def main(arguments: Sequence[str] | None = None) -> float:
    """Train; the accuracy on held-out digits."""
    parser = argparse.ArgumentParser(description="Train a convolutional network on handwritten digits")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--directory", help="of checkpoints and logs")
    options = parser.parse_args(arguments)
    weft.manual_seed(0)
    training, held_out = pipelines(64)
    model = make_model()
    optimizer = optim.AdamW(model.parameters(), lr=3e-3)
    trainer = weft.Trainer(
        model,
        nn.functional.cross_entropy,
        optimizer,
        training,
        held_out,
        metrics=["accuracy"],
        scheduler=optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=options.epochs * len(training)),
        scheduler_every="step",
        directory=options.directory,
    )
    if options.directory and trainer.resume():
        print(f"going on after step {trainer.step}")
    history = trainer.fit(epochs=options.epochs)
    print(f"{history[-1]['val_accuracy']:.1%} of the held-out digits are recognised")
    return float(history[-1]["val_accuracy"])


if __name__ == "__main__":
    main()

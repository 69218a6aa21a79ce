"""What weft does, in under a minute: `make demo`.

A small convolutional network learns handwritten digits, with the dynamic graph and then compiled. It is
saved in one file and loaded in a new process that knows nothing of this source, and its graph is drawn.

    python examples/demo.py [--epochs 12] [--directory demo]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import weft
import weft.datasets
from weft import Tensor, data, nn, optim

SHADES = " .:-=+*#%@"

# Another process: it has the file and nothing else, and classifies images of 8 by 8 numbers.
STRANGER = """
import sys, weft
model, images = weft.load_graph(sys.argv[1]), weft.load(sys.argv[2])
print(*weft.argmax(model(images), axis=1).tolist())
"""


def make_model() -> nn.Module:
    """The network."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


def load() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Images and labels to train on, and others that are held out."""
    images, labels = weft.datasets.digits()
    order = weft.random.permutation(weft.random.key(0), len(labels))
    images, labels = images[order][:, None].numpy(), labels[order].numpy()
    cut = len(labels) * 4 // 5
    return (images[:cut], labels[:cut]), (images[cut:], labels[cut:])


def train(epochs: int, compiled: bool) -> tuple[nn.Module, float, float]:
    """The trained model, its accuracy on held-out digits, and the steps it took in a second."""
    weft.manual_seed(0)
    training, held_out = load()
    model = make_model()
    trainer = weft.Trainer(
        model,
        nn.functional.cross_entropy,
        optim.Adam(model.parameters(), lr=3e-3),
        data.from_arrays(*training).shuffle(seed=0).batch(64, last="drop").prefetch(2),
        data.from_arrays(*held_out).batch(120),
        metrics=["accuracy"],
        compile=compiled,
    )
    trainer.fit(epochs=1)  # with the first step, which compiles
    before, start = trainer.step, time.perf_counter()
    trainer.fit(epochs=epochs)
    rate = (trainer.step - before) / (time.perf_counter() - start)
    return model, float(trainer.history[-1]["val_accuracy"]), rate


def classify_elsewhere(file: Path, images: Tensor) -> list[int]:
    """What another process, which has nothing but the file, takes images for."""
    weft.save(images, file.with_name("images.weft"))
    command = [sys.executable, "-c", STRANGER, str(file), str(file.with_name("images.weft"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=file.parent)
    return [int(word) for word in done.stdout.split()]


def show(images: Tensor, labels: Sequence[int], guesses: Sequence[int]) -> None:
    """Print images side by side, with what they are and what they are taken for."""
    levels = (images * (len(SHADES) - 1)).astype(weft.int64).reshape(-1, 8, 8).tolist()
    titles = [f"{label}, taken for {guess}" for label, guess in zip(labels, guesses, strict=True)]
    print("   ".join(title.ljust(16) for title in titles).rstrip())
    for lines in zip(*levels, strict=True):
        print("   ".join("".join(SHADES[v] * 2 for v in line) for line in lines).rstrip())


def main(arguments: Sequence[str] | None = None) -> tuple[float, float]:
    """Run the demonstration; the accuracies with the dynamic graph and compiled."""
    parser = argparse.ArgumentParser(description="What weft does, in under a minute")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--directory", default="demo", help="for what is written")
    options = parser.parse_args(arguments)
    directory = Path(options.directory)
    directory.mkdir(parents=True, exist_ok=True)

    print("Training with the dynamic graph")
    _, eager, slow = train(options.epochs, compiled=False)
    print("\nTraining compiled: forward, backward and Adam in one native function")
    model, accuracy, fast = train(options.epochs, compiled=True)
    print(f"\ndynamic   {eager:.1%} of held-out digits   {slow:6.0f} steps a second")
    print(
        f"compiled  {accuracy:.1%} of held-out digits   {fast:6.0f} steps a second: {fast / slow:.1f} times"
    )

    images, labels = load()[1]
    few = weft.tensor(images[:4])
    saved = weft.jit.trace(model.eval(), few)
    saved.save(directory / "digits.weft")
    weft.dot(saved).save(directory / "digits.svg")
    weft.view(saved, directory / "digits.html", open=False, args=(few,))
    print(f"\nSaved as {directory / 'digits.weft'}, drawn as {directory / 'digits.svg'}; open")
    print(f"{directory / 'digits.html'} in a browser to look into its graph.")
    print("Another process, without this source, loads the file and says:\n")
    show(few, labels[:4].tolist(), classify_elsewhere((directory / "digits.weft").resolve(), few))
    return eager, accuracy


if __name__ == "__main__":
    main()

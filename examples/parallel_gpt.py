"""A small GPT trained by several processes, which share its parameters, gradients and optimizer state.

    weft launch -n 2 examples/parallel_gpt.py             # two processes
    python examples/parallel_gpt.py                       # one: the same weights, to the last bit
    python examples/parallel_gpt.py --simulate 4          # four ranks that are threads of one process
    weft launch -n 2 examples/parallel_gpt.py --pipe 2    # two stages, each with half of the layers
    python examples/parallel_gpt.py --pipe 1 --stages 2   # one process: the same weights as these two

Nothing in the model or in the trainer knows how many ranks there are. Run it with ``--directory run``, stop
it, and go on from its last checkpoint with another number of ranks.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import weft
import weft.datasets
from weft import Tensor, nn, optim
from weft import parallel as par

F = nn.functional


class Block(nn.Module):
    """Attention to what came before, and a network for each character; each behind a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """The characters after this block."""
        batch, length, width = x.shape
        h = self.norm1(x)
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part(h).reshape(*shape).transpose(1, 2) for part in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class GPT(nn.Module):
    """From characters to the logits of the ones that follow."""

    def __init__(self, characters: int, context: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(characters, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters)
        for embedding in (self.tokens, self.places):
            nn.init.normal_(embedding.weight, std=0.1)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Pieces:
    """Random pieces of a text, each with the same one character further on; the same on all ranks."""

    def __init__(self, text: str, count: int, batch: int, context: int) -> None:
        self.characters = sorted(set(text))
        number = {c: i for i, c in enumerate(self.characters)}
        self.data = np.array([number[c] for c in text])
        self.count, self.batch, self.context = count, batch, context

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rng = np.random.default_rng(0)
        for _ in range(self.count):
            starts = rng.integers(0, len(self.data) - self.context - 1, (self.batch, 1))
            pieces = self.data[starts + np.arange(self.context + 1)]
            yield pieces[:, :-1], pieces[:, 1:]


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean surprise at each character."""
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def train(options: argparse.Namespace) -> tuple[float, float, str]:
    """Train as one rank of a world; the first and the last loss, and a digest of all weights."""
    mesh = par.mesh(data=-1, pipe=options.pipe) if options.pipe else par.mesh(data=-1)
    weft.manual_seed(0)  # all ranks make the same model
    pieces = Pieces(weft.datasets.alice(), options.steps, options.batch, options.context)
    model = GPT(len(pieces.characters), options.context, options.width, 4, options.layers)
    optimizer = optim.AdamW(model.parameters(), lr=3e-3)
    losses: list[float] = []

    class Report(weft.train.Callback):
        def on_step(self, trainer: weft.Trainer, row: Mapping[str, Any]) -> None:
            losses.append(row["loss"])
            if par.rank() == 0 and trainer.step % max(1, options.steps // 5) == 0:
                print(f"step {trainer.step:4}   loss {row['loss']:.3f}")

    trainer = weft.Trainer(
        model, loss_of, optimizer, pieces, clip_norm=1.0, callbacks=[Report()], progress=False,
        directory=options.directory, logs=("csv",), mesh=mesh, zero=0 if options.pipe else options.zero,
        schedule=options.schedule, stages=options.stages,
    )  # fmt: skip
    if options.directory is not None:
        trainer.resume()
    start = time.perf_counter()
    trainer.fit(epochs=1)
    digest = hashlib.sha256()
    held = 0
    for p in model.parameters():
        held += par.held_bytes([p])
        digest.update(p.detach().full().numpy().tobytes())
    if par.rank() == 0:
        whole = sum(p.nbytes for p in model.parameters())
        rate = len(losses) / (time.perf_counter() - start)
        print(f"{par.size()} ranks, {rate:.1f} steps a second; this one holds {held:,} of {whole:,} bytes")
        print(f"weights {digest.hexdigest()[:16]}")
    return losses[0], losses[-1], digest.hexdigest()


def main(arguments: Sequence[str] | None = None) -> tuple[float, float, str]:
    """Train; the first and the last loss, and a digest of all weights."""
    parser = argparse.ArgumentParser(description="Train a small GPT on several ranks")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument(
        "--zero", type=int, default=3, help="what ranks share: 0 nothing ... 3 parameters, too"
    )
    parser.add_argument("--pipe", type=int, default=0, help="ranks that each have some of the layers")
    parser.add_argument("--stages", type=int, default=None, help="of the model; by default as many as --pipe")
    parser.add_argument("--schedule", default="1f1b", help="gpipe, 1f1b, interleaved or zero-bubble")
    parser.add_argument("--simulate", type=int, default=0, help="run as so many threads of this process")
    parser.add_argument("--directory", default=None, help="of checkpoints; a run goes on from its last one")
    options = parser.parse_args(arguments)
    if options.simulate:
        found: tuple[float, float, str] = par.simulate(train, options.simulate, options)[0]
        return found
    return train(options)


if __name__ == "__main__":
    main()

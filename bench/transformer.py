"""How long weft takes to capture a transformer's training step: loss, backward, clipping and AdamW.

python bench/transformer.py [--layers 12] [--width 64] [--profile]

Prints the time of the processor of an eager step, of the graphs of the loss and of the step, of the loss
ahead of time, and of the first calls of the compiled step. Everything is done twice, with a new model each
time: the first time weft's own modules are imported and the source of the layers is read.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import os
import pstats
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads that wait would count

import weft
from weft import nn, optim

VOCABULARY, CONTEXT, BATCH = 65, 32, 4


class Block(nn.Module):
    """Attention and a network, each behind a norm and with a way around it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        """x, with what attention and the network add to it."""
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False, is_causal=True)[0]
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """A small language model that predicts the next token."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Any) -> Any:
        """The logits of the next token at each place."""
        x = self.tokens(tokens) + self.positions(weft.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make_step(layers: int, width: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The loss of a new model, and a training step."""
    weft.manual_seed(0)
    model = Transformer(layers, width)
    optimizer = optim.AdamW(model.parameters(), lr=3e-4)

    def loss_of(tokens: Any, targets: Any) -> Any:
        return nn.functional.cross_entropy(model(tokens).reshape((-1, VOCABULARY)), targets.reshape((-1,)))

    def step(tokens: Any, targets: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(tokens, targets)
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return loss_of, step


def timed(function: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    """The time of the processor that a call takes, which other programs disturb least, and its result."""
    gc.collect()
    start = time.process_time()
    result = function(*args)
    return time.process_time() - start, result


def report(name: str, seconds: float, detail: str = "") -> None:
    print(f"{name:<34}{seconds * 1e3:9.1f} ms  {detail}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument(
        "--profile", action="store_true", help="show where the capture of the step spends its time"
    )
    options = parser.parse_args()
    size = (options.layers, options.width)
    tokens = weft.randint(0, VOCABULARY, (BATCH, CONTEXT))
    targets = weft.randint(0, VOCABULARY, (BATCH, CONTEXT))
    loss_of, step = make_step(*size)
    step(tokens, targets)
    report("eager step", timed(step, tokens, targets)[0])
    for turn in ("first", "second"):
        loss_of, step = make_step(*size)
        seconds, graph = timed(weft.make_graph(loss_of), tokens, targets)
        report(f"make_graph of the loss, {turn}", seconds, f"{len(graph.nodes)} nodes")
        seconds, split = timed(weft.aot, loss_of, tokens, targets)
        report(f"aot of the loss, {turn}", seconds, repr(split))
        seconds, graph = timed(weft.make_graph(step), tokens, targets)
        report(f"make_graph of the step, {turn}", seconds, f"{len(graph.nodes)} nodes")
        loss_of, step = make_step(*size)
        compiled = weft.compile(step)
        profile = cProfile.Profile()
        if options.profile and turn == "second":
            profile.enable()
        seconds, _ = timed(compiled, tokens, targets)
        profile.disable()
        report(f"compiled step, first call, {turn}", seconds, f"{len(compiled.graph.nodes)} nodes")
        report(f"compiled step, next call, {turn}", timed(compiled, tokens, targets)[0])
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)


if __name__ == "__main__":
    main()

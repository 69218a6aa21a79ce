"""A small GPT that learns to write like Lewis Carroll, one character at a time.

    python examples/char_gpt.py [--steps 1500] [--prompt "Alice "]

The whole training step is compiled: the model, its gradients and AdamW. Sampling keeps the keys and values
of what is written already, so that each new character costs one step through the model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import weft
import weft.datasets
from weft import Tensor, nn, optim

F = nn.functional
Cache = list[tuple[Tensor, Tensor]]


class Block(nn.Module):
    """Attention to what came before, and a network for each character; each behind a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(
        self, x: Tensor, past: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The characters after this block, and their keys and values with those of the past."""
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (part.reshape(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        if past is not None:
            k, v = weft.concat([past[0], k], axis=2), weft.concat([past[1], v], axis=2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.network(self.norm2(x)), (k, v)


class GPT(nn.Module):
    """From characters to the logits of the ones that follow."""

    def __init__(self, characters: int, context: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.context = context
        self.tokens, self.places = nn.Embedding(characters, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters)
        for embedding in (self.tokens, self.places):
            nn.init.normal_(embedding.weight, std=0.1)

    def forward(self, tokens: Tensor, past: Cache | None = None) -> tuple[Tensor, Cache]:
        """Logits, and what a later call needs of this one."""
        start = 0 if past is None else past[0][0].shape[2]
        x = self.tokens(tokens) + self.places.weight[start : start + tokens.shape[1]]
        cache = []
        for i, block in enumerate(self.blocks):
            x, kept = block(x, None if past is None else past[i])
            cache.append(kept)
        return self.head(self.norm(x)), cache


class Text:
    """A text as numbers of characters, and the way back."""

    def __init__(self, text: str) -> None:
        self.characters = sorted(set(text))
        self.number = {c: i for i, c in enumerate(self.characters)}
        self.data = self.encode(text)

    def encode(self, text: str) -> Tensor:
        """The numbers of the characters of a text."""
        return weft.tensor([self.number[c] for c in text])

    def decode(self, numbers: Sequence[int]) -> str:
        """The text that numbers stand for."""
        return "".join(self.characters[i] for i in numbers)

    def batch(self, size: int, length: int) -> tuple[Tensor, Tensor]:
        """Random pieces, and the same one character further on."""
        starts = weft.randint(0, len(self.data) - length - 1, (size, 1))
        places = starts + weft.arange(length + 1)
        pieces = self.data[places]
        return pieces[:, :-1], pieces[:, 1:]


@weft.no_grad()
def sample(model: GPT, text: Text, prompt: str, length: int, temperature: float = 0.8) -> str:
    """A text that begins with a prompt; what is as long as the model's context is all there is."""
    model.eval()
    written = text.encode(prompt).tolist()
    logits, cache = model(weft.tensor([written]))
    for _ in range(min(length, model.context - len(written))):
        chances = weft.softmax(logits[0, -1] / temperature, axis=-1)
        written.append(weft.multinomial(chances, 1).item())
        logits, cache = model(weft.tensor([written[-1:]]), cache)
    model.train()
    return text.decode(written)


def main(arguments: Sequence[str] | None = None) -> tuple[float, str]:
    """Train, and write; the last loss, and what was written."""
    parser = argparse.ArgumentParser(description="Train a small GPT on a book")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--prompt", default="Alice ")
    options = parser.parse_args(arguments)
    weft.manual_seed(0)
    text = Text(weft.datasets.alice())
    model = GPT(len(text.characters), options.context, options.width, 4, options.layers)
    optimizer = optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps, eta_min=3e-4)

    @weft.compile
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        logits, _ = model(x)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(text.data):,} characters")
    start, recent = time.perf_counter(), []
    for i in range(1, options.steps + 1):
        recent.append(step(*text.batch(options.batch, options.context)).item())
        schedule.step()
        if i % max(1, options.steps // 10) == 0:
            rate = i / (time.perf_counter() - start)
            print(f"step {i:5}   loss {sum(recent) / len(recent):.3f}   {rate:.1f} steps a second")
            final, recent = sum(recent) / len(recent), []
    written = sample(model, text, options.prompt, options.context)
    print(f"\n{written}")
    return final, written


if __name__ == "__main__":
    main()

"""GPT-2's architecture for weft and PyTorch, whose modules have the same names, and for JAX."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Size(NamedTuple):
    """How large a model and its batches are."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    length: int = 1024
    batch: int = 16
    vocabulary: int = 50304


FULL = Size()
SMALL = Size(layers=2, width=256, heads=4, length=128, batch=4, vocabulary=512)
RATE, DECAY = 3e-4, 0.1


def weights(size: Size) -> dict[str, Any]:
    """The weights under the names of the modules below, as GPT-2 begins."""
    rng = np.random.default_rng(0)
    width = size.width
    found = {
        "tokens.weight": _normal(rng, size.vocabulary, width),
        "places.weight": _normal(rng, size.length, width),
    } | _norm("norm", width)
    for i in range(size.layers):
        block = f"blocks.{i}"
        found |= _norm(f"{block}.norm1", width) | _norm(f"{block}.norm2", width)
        for name, n, m in (("qkv", 3, 1), ("out", 1, 1), ("up", 4, 1), ("down", 1, 4)):
            found[f"{block}.{name}.weight"] = _normal(rng, n * width, m * width)
            found[f"{block}.{name}.bias"] = np.zeros(n * width, np.float32)
    return found


def batch(size: Size) -> tuple[Any, Any]:
    """Tokens, and the ones that come next; int64."""
    text = np.random.default_rng(1).integers(0, size.vocabulary, (size.batch, size.length + 1))
    return text[:, :-1].copy(), text[:, 1:].copy()


def _normal(rng: np.random.Generator, *shape: int) -> Any:
    return 0.02 * rng.standard_normal(shape, dtype=np.float32)


def _norm(name: str, width: int) -> dict[str, Any]:
    return {f"{name}.weight": np.ones(width, np.float32), f"{name}.bias": np.zeros(width, np.float32)}


def model_of(nn: Any, size: Size) -> Any:
    """The model; its head has the weights of the table of tokens."""
    width, heads = size.width, size.heads

    class Block(nn.Module):
        """Attention and a network, each behind a norm and with a way around it."""

        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            count, length, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
            split = [a.reshape(count, length, heads, -1).transpose(1, 2) for a in (q, k, v)]
            mixed = nn.functional.scaled_dot_product_attention(*split, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(count, length, width))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(nn.Module):
        """From tokens to the logits of the next ones."""

        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(size.vocabulary, width), nn.Embedding(size.length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(size.layers)])
            self.norm = nn.LayerNorm(width)

        def forward(self, x: Any) -> Any:
            x = self.tokens(x) + self.places.weight
            for block in self.blocks:
                x = block(x)
            return nn.functional.linear(self.norm(x), self.tokens.weight)

    return Model()


def weft_step(size: Size, device: str = "cuda") -> Any:
    """A compiled training step of weft; it gives the loss, a tensor."""
    import weft
    from weft import nn, optim

    model = model_of(nn, size)
    model.load_state_dict({name: weft.tensor(array) for name, array in weights(size).items()})
    model.to(device)
    optimizer = optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    x, y = (weft.tensor(a).to(device) for a in batch(size))

    def loss_of(x: Any, y: Any) -> Any:
        with weft.autocast(weft.bfloat16):
            logits = model(x)
            return nn.functional.cross_entropy(logits.reshape(-1, size.vocabulary), y.reshape(-1))

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = weft.compile(step)
    run = lambda: compiled(x, y)  # noqa: E731
    run.compiled = compiled  # type: ignore[attr-defined]
    return run


def torch_step(size: Size, *, compiled: bool, device: str = "cuda", half: bool = True) -> Any:
    """A training step of PyTorch; it gives the loss, a tensor. Without ``half`` all of it is in float32."""
    import torch
    from torch import nn

    model = model_of(nn, size)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights(size).items()})
    model.to(device)
    fused = device == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY, fused=fused)
    x, y = (torch.from_numpy(a).to(device) for a in batch(size))

    def loss_of(x: Any, y: Any) -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=half):
            logits = model(x)
            return nn.functional.cross_entropy(logits.reshape(-1, size.vocabulary), y.reshape(-1))

    loss_of = torch.compile(loss_of) if compiled else loss_of

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step

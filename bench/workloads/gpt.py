"""A language model of 4 layers, trained with AdamW."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.case import Arrays, Run
from bench.workloads.training import (
    RATE,
    jax_step,
    linear,
    load_torch,
    load_weft,
    torch_step,
    training_cases,
    weft_step,
)

LAYERS, WIDTH, HEADS, LENGTH, BATCH, VOCABULARY = 4, 128, 4, 128, 8, 256
DECAY = 0.01


def arrays(rng: np.random.Generator) -> Arrays:
    """Weights under the names of the modules below, and two rows of tokens, the second one place ahead."""
    found = _norm("norm") | linear(rng, "head", WIDTH, VOCABULARY, bias=False)
    for name, count in (("tokens", VOCABULARY), ("places", LENGTH)):
        found[f"{name}.weight"] = 0.1 * rng.standard_normal((count, WIDTH), dtype=np.float32)
    for i in range(LAYERS):
        block = f"blocks.{i}"
        found |= _norm(f"{block}.norm1") | _norm(f"{block}.norm2")
        found |= linear(rng, f"{block}.qkv", WIDTH, 3 * WIDTH) | linear(rng, f"{block}.out", WIDTH, WIDTH)
        found |= linear(rng, f"{block}.up", WIDTH, 4 * WIDTH) | linear(rng, f"{block}.down", 4 * WIDTH, WIDTH)
    text = rng.integers(0, VOCABULARY, (BATCH, LENGTH + 1))
    return found | {"x": text[:, :-1].copy(), "y": text[:, 1:].copy()}


def _norm(name: str) -> Arrays:
    return {f"{name}.weight": np.ones(WIDTH, np.float32), f"{name}.bias": np.zeros(WIDTH, np.float32)}


def model_of(nn: Any) -> Any:
    """The model; weft's and PyTorch's modules, functions and methods have the same names."""

    class Block(nn.Module):
        """Attention and a network, each behind a norm and with a way around it."""

        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
            heads = [a.reshape(batch, length, HEADS, -1).transpose(1, 2) for a in (q, k, v)]
            mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):
        """From tokens to the logits of the next ones."""

        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
            self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

        def forward(self, x: Any) -> Any:
            x = self.tokens(x) + self.places.weight
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return Model()


def in_weft(arrays: Arrays, compiled: bool = True) -> Run:
    import weft
    from weft import nn, optim

    def loss(model: Any, x: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(model(x).reshape(-1, VOCABULARY), y.reshape(-1))

    model = load_weft(model_of(nn), arrays)
    optimizer = optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    data = weft.tensor(arrays["x"]), weft.tensor(arrays["y"])
    return weft_step(model, loss, *data, optimizer=optimizer, compiled=compiled)


def in_torch(arrays: Arrays, compiled: bool) -> Run:
    import torch
    from torch import nn

    def loss(model: Any, x: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(model(x).reshape(-1, VOCABULARY), y.reshape(-1))

    model = load_torch(model_of(nn), arrays)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
    data = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
    return torch_step(model, loss, *data, optimizer=optimizer, compiled=compiled)


def in_jax(arrays: Arrays) -> Run:
    import jax
    import jax.numpy as jnp

    def loss(p: Any, x: Any, y: Any) -> Any:
        scores = jax.nn.log_softmax(jax_logits(p, x))
        return -jnp.mean(jnp.take_along_axis(scores, y[..., None], axis=-1))

    return jax_step(jax_params(arrays), loss, arrays["x"], arrays["y"], weight_decay=DECAY)


def jax_logits(p: Any, x: Any) -> Any:
    """The model: from tokens to the logits of the next ones."""
    import jax
    import jax.numpy as jnp

    def norm(p: Any, x: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["weight"] + p["bias"]

    def dense(p: Any, x: Any) -> Any:
        return x @ p["weight"] + p["bias"]

    def block(p: Any, x: Any) -> Any:
        batch, length, _ = x.shape
        q, k, v = jnp.split(dense(p["qkv"], norm(p["norm1"], x)).reshape(batch, length, 3 * HEADS, -1), 3, 2)
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + dense(p["out"], mixed.reshape(x.shape))
        return x + dense(p["down"], jax.nn.gelu(dense(p["up"], norm(p["norm2"], x)), approximate=False))

    x = p["tokens"]["weight"][x] + p["places"]["weight"]
    for i in range(LAYERS):
        x = block(p["blocks"][str(i)], x)
    return norm(p["norm"], x) @ p["head"]["weight"]


def jax_params(arrays: Arrays) -> dict[str, Any]:
    """The weights as nested dicts, matrices the other way round but for the tables."""
    found: dict[str, Any] = {}
    for name, array in arrays.items():
        *path, last = name.split(".")
        place = found
        for key in path:
            place = place.setdefault(key, {})
        if path:
            turned = array.ndim == 2 and path[0] not in ("tokens", "places")
            place[last] = np.ascontiguousarray(array.T) if turned else array
    return {name: part for name, part in found.items() if name not in ("x", "y")}


_BLOCK = 12 * WIDTH * WIDTH
_TOKENS = BATCH * LENGTH
_WEIGHTS = LAYERS * _BLOCK + (2 * VOCABULARY + LENGTH) * WIDTH
# attention is counted over half of the places: the mask leaves no more
_FLOPS = 6 * _TOKENS * (LAYERS * (_BLOCK + LENGTH * WIDTH) + VOCABULARY * WIDTH)
_BYTES = 4 * 7 * _WEIGHTS
FORWARD_FLOPS = _FLOPS / BATCH / 3  # of one text

CASES = training_cases("gpt", arrays, in_weft, in_torch, in_jax, flops=_FLOPS, bytes=_BYTES)

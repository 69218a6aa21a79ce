"""Writing 128 tokens with GPT-2's weights in bf16, one after another, with a cache of keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.gpu.gpt import FULL, Size, weights
from bench.gpu.row import COMPILED, DEVICE, TORCH, WEFT, Row, Step

NEW = 128


def _choices() -> Any:
    return np.random.default_rng(2).random(NEW).astype(np.float32)


def _nested(flat: dict[str, Any], size: Size) -> dict[str, Any]:
    """Weights by layer, so that loops over layers need no names."""
    layers = []
    for i in range(size.layers):
        start = f"blocks.{i}."
        layers.append({name[len(start) :]: x for name, x in flat.items() if name.startswith(start)})
    return {"layers": layers} | {name: x for name, x in flat.items() if not name.startswith("blocks.")}


def _dense(functional: Any, p: Any, name: str, x: Any) -> Any:
    return functional.linear(x, p[name + ".weight"], p[name + ".bias"])


def _norm(functional: Any, p: Any, name: str, x: Any) -> Any:
    return functional.layer_norm(x, x.shape, p[name + ".weight"], p[name + ".bias"])


def _next(
    library: Any, functional: Any, p: Any, heads: int, token: Any, place: Any, caches: Any, u: Any
) -> Any:
    """The next token, and the caches with what this one adds; ``place`` is a tensor."""
    x = p["tokens.weight"][token] + p["places.weight"][place]
    numbers = library.arange(NEW, device=DEVICE)
    seen, at = numbers <= place, (numbers == place)[None, :, None]
    kept = []
    for layer, (old_keys, old_values) in zip(p["layers"], caches, strict=True):
        qkv = _dense(functional, layer, "qkv", _norm(functional, layer, "norm1", x))
        q, k, v = (a.reshape(heads, 1, -1) for a in qkv.chunk(3, -1))
        keys, values = library.where(at, k, old_keys), library.where(at, v, old_values)
        kept.append((keys, values))
        scores = (q * keys).sum(-1) / q.shape[-1] ** 0.5
        scores = library.where(seen, scores, float("-inf"))
        mixed = (functional.softmax(scores, -1)[:, :, None] * values).sum(1)
        x = x + _dense(functional, layer, "out", mixed.reshape(-1))
        up = _dense(functional, layer, "up", _norm(functional, layer, "norm2", x))
        x = x + _dense(functional, layer, "down", functional.gelu(up, approximate="tanh"))
    logits = p["tokens.weight"] @ _norm(functional, p, "norm", x)
    reached = library.cumsum(functional.softmax(logits.float(), -1), -1)
    chosen = (reached < u[place]).sum()
    return library.where(chosen < logits.shape[0], chosen, chosen - 1), kept


def in_weft(size: Size = FULL) -> Step:
    """The whole loop is one compiled function."""
    import weft
    import weft.nn.functional as functional

    flat = {n: weft.tensor(a).astype(weft.bfloat16).to(DEVICE) for n, a in weights(size).items()}
    half = _nested(flat, size)
    u = weft.tensor(_choices()).to(DEVICE)
    zeros = weft.zeros((size.heads, NEW, size.width // size.heads), dtype=weft.bfloat16, device=DEVICE)
    first = weft.tensor(0).to(DEVICE)

    def write(p: Any, u: Any, zeros: Any, first: Any, count: Any) -> Any:
        caches = [(zeros, zeros) for _ in range(size.layers)]
        token, out = first, weft.zeros(NEW, dtype=weft.int64, device=DEVICE)
        numbers = weft.arange(NEW, device=DEVICE)
        for t in range(count):
            token, caches = _next(weft, functional, p, size.heads, token, t, caches, u)
            out = weft.where(numbers == t, token, out)
        return out

    compiled, count = weft.compile(write), weft.tensor(NEW).to(DEVICE)
    return lambda: compiled(half, u, zeros, first, count)


def in_torch(compiled: bool, size: Size = FULL) -> Step:
    """Python goes from token to token, without looking at them."""
    import torch
    import torch.nn.functional as functional

    half = _nested({n: torch.from_numpy(a).cuda().bfloat16() for n, a in weights(size).items()}, size)
    u = torch.from_numpy(_choices()).cuda()
    shape = (size.layers, 2, size.heads, NEW, size.width // size.heads)
    places = torch.arange(NEW, device=DEVICE)

    def one(token: Any, place: Any, caches: Any) -> Any:
        return _next(torch, functional, half, size.heads, token, place, caches, u)

    run = torch.compile(one, mode="reduce-overhead") if compiled else one

    @torch.no_grad()
    def step() -> Any:
        zeros = torch.zeros(shape, device=DEVICE, dtype=torch.bfloat16)
        token, caches = torch.zeros((), dtype=torch.int64, device=DEVICE), [tuple(layer) for layer in zeros]
        out = []
        for t in range(NEW):
            torch.compiler.cudagraph_mark_step_begin()
            token, caches = run(token, places[t], caches)
            token, caches = token.clone(), [(k.clone(), v.clone()) for k, v in caches]
            out.append(token)
        return torch.stack(out)

    return step


DECODE = [
    Row(
        "decode", "GPT-2 124M, bf16, batch 1, 128 new tokens with a cache", 35_000,
        {WEFT: in_weft, TORCH: lambda: in_torch(False), COMPILED: lambda: in_torch(True)}, turns=2, limit=180,
    ),
]  # fmt: skip

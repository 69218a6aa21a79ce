"""Rows of GPT-2 124M: its training step, and how long the first one takes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from typing import Any

import numpy as np

from bench.gpu.gpt import DECAY, FULL, RATE, Size, batch, torch_step, weft_step, weights
from bench.gpu.row import COMPILED, JAX, TORCH, WEFT, Row, Step


def _jax_step(size: Size = FULL) -> Step:
    import jax
    import jax.numpy as jnp

    half = jnp.bfloat16
    params = {name: jax.device_put(array) for name, array in weights(size).items()}
    state = params, *[jax.tree.map(jnp.zeros_like, params) for _ in range(2)], jnp.zeros((), jnp.float32)
    x, y = (jax.device_put(a.astype(np.int32)) for a in batch(size))

    def norm(p: Any, name: str, x: Any) -> Any:
        x = x.astype(jnp.float32)
        shifted = x - x.mean(-1, keepdims=True)
        scaled = shifted * jax.lax.rsqrt((shifted * shifted).mean(-1, keepdims=True) + 1e-5)
        return (scaled * p[f"{name}.weight"] + p[f"{name}.bias"]).astype(half)

    def dense(p: Any, name: str, x: Any) -> Any:
        return x @ p[f"{name}.weight"].T.astype(half) + p[f"{name}.bias"].astype(half)

    def loss(p: Any, x: Any, y: Any) -> Any:
        h = (p["tokens.weight"][x] + p["places.weight"]).astype(half)
        for i in range(size.layers):
            b = f"blocks.{i}"
            qkv = dense(p, f"{b}.qkv", norm(p, f"{b}.norm1", h))
            split = [a.reshape(*h.shape[:2], size.heads, -1) for a in jnp.split(qkv, 3, -1)]
            mixed = jax.nn.dot_product_attention(*split, is_causal=True, implementation="cudnn")
            h = h + dense(p, f"{b}.out", mixed.reshape(h.shape))
            up = jax.nn.gelu(dense(p, f"{b}.up", norm(p, f"{b}.norm2", h)), approximate=True)
            h = h + dense(p, f"{b}.down", up)
        logits = (norm(p, "norm", h) @ p["tokens.weight"].T.astype(half)).astype(jnp.float32)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1).mean()

    @partial(jax.jit, donate_argnums=0)
    def train(state: Any, x: Any, y: Any) -> Any:
        params, first, second, t = state
        value, grads = jax.value_and_grad(loss)(params, x, y)
        t = t + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)

        def update(p: Any, m: Any, v: Any) -> Any:
            scaled = (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
            return p * (1 - RATE * DECAY) - RATE * scaled

        return value, (jax.tree.map(update, params, first, second), first, second, t)

    def step() -> Any:
        nonlocal state
        value, state = train(state, x, y)
        return value

    return step


# The first call


def _first(framework: str, kept: bool) -> Step:
    """Microseconds of the first training step in a new process, with an empty cache or a full one."""

    def step() -> float:
        with tempfile.TemporaryDirectory() as place:
            if kept:
                _timed_process(framework, place)
            return _timed_process(framework, place)

    return step


def _timed_process(framework: str, place: str) -> float:
    own = {
        "WEFT_CACHE_DIR": place,
        "TORCHINDUCTOR_CACHE_DIR": place,
        "TRITON_CACHE_DIR": place,
        "JAX_COMPILATION_CACHE_DIR": place,
    }
    command = [sys.executable, "-m", "bench.gpu.steps", framework]
    done = subprocess.run(
        command, env=os.environ | own, capture_output=True, text=True, check=True, timeout=100
    )
    return float(done.stdout.split()[-1])


_MAKERS = {
    WEFT: partial(weft_step, FULL),
    TORCH: partial(torch_step, FULL, compiled=False),
    COMPILED: partial(torch_step, FULL, compiled=True),
    JAX: _jax_step,
}

GPT = [
    Row(
        "gpt2", "GPT-2 124M step, bf16, 16 × 1,024 tokens, AdamW", 28_000, _MAKERS,
        turns=10, limit=120, losses=20,
    ),
    Row(
        "first", "first call of that step, nothing on disk", 4e6,
        {name: partial(_first, name, False) for name in _MAKERS}, turns=1, limit=240, own_time=True,
    ),
    Row(
        "first-kept", "first call of that step, from disk", 1e6,
        {name: partial(_first, name, True) for name in _MAKERS}, turns=1, limit=240, own_time=True,
    ),
]  # fmt: skip


if __name__ == "__main__":
    run = _MAKERS[sys.argv[1]]()
    begin = time.perf_counter()
    float(run())
    print((time.perf_counter() - begin) * 1e6)

"""An LSTM cell by hand in a loop over 100 steps of time, with its gradient."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench.case import Arrays, Case, Run
from bench.frameworks import weft_compile

HIDDEN, INPUTS, TIMES, BATCH = 128, 64, 100, 16
WEIGHTS = ("wx", "wh", "b")
FORWARD_FLOPS = 2.0 * TIMES * 4 * HIDDEN * (INPUTS + HIDDEN)  # of one sequence


def arrays(rng: np.random.Generator) -> Arrays:
    """Weights of the four gates side by side, and a sequence."""
    bound = HIDDEN**-0.5
    return {
        "wx": rng.uniform(-bound, bound, (INPUTS, 4 * HIDDEN)).astype(np.float32),
        "wh": rng.uniform(-bound, bound, (HIDDEN, 4 * HIDDEN)).astype(np.float32),
        "b": np.zeros(4 * HIDDEN, np.float32),
        "x": rng.standard_normal((TIMES, BATCH, INPUTS), dtype=np.float32),
    }


def in_weft(arrays: Arrays) -> Run:
    import weft

    def loss(wx: Any, wh: Any, b: Any, x: Any) -> Any:
        h = weft.zeros((BATCH, HIDDEN))
        c = weft.zeros((BATCH, HIDDEN))
        for t in range(TIMES):
            gates = x[t] @ wx + h @ wh + b
            i, f, g, o = gates.chunk(4, 1)
            c = weft.sigmoid(f) * c + weft.sigmoid(i) * weft.tanh(g)
            h = weft.sigmoid(o) * weft.tanh(c)
        return (h * h).mean()

    step = weft_compile(weft.value_and_grad(loss, argnums=(0, 1, 2)))
    data = [weft.tensor(arrays[name]) for name in (*WEIGHTS, "x")]

    def run() -> Any:
        value, grads = step(*data)
        return value, *grads

    return Run(run)


def in_torch(arrays: Arrays, compiled: bool) -> Run:
    import torch

    def loss(wx: Any, wh: Any, b: Any, x: Any) -> Any:
        h = torch.zeros(BATCH, HIDDEN)
        c = torch.zeros(BATCH, HIDDEN)
        for t in range(TIMES):
            gates = x[t] @ wx + h @ wh + b
            i, f, g, o = gates.chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return (h * h).mean()

    function = torch.compile(loss) if compiled else loss
    weights = [torch.from_numpy(arrays[name]).requires_grad_() for name in WEIGHTS]
    x = torch.from_numpy(arrays["x"])

    def run() -> Any:
        value = function(*weights, x)
        return value, *torch.autograd.grad(value, weights)

    return Run(run)


def in_jax(arrays: Arrays) -> Run:
    import jax
    import jax.numpy as jnp

    def loss(wx: Any, wh: Any, b: Any, x: Any) -> Any:
        def cell(state: Any, row: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(row @ wx + h @ wh + b, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zeros = jnp.zeros((BATCH, HIDDEN))
        (h, _), _ = jax.lax.scan(cell, (zeros, zeros), x)
        return (h * h).mean()

    step = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))
    data = [jnp.asarray(arrays[name]) for name in (*WEIGHTS, "x")]

    def run() -> Any:
        value, grads = jax.block_until_ready(step(*data))
        return value, *grads

    return Run(run)


CASES = [
    Case(
        "lstm",
        arrays,
        {
            "weft": in_weft,
            "torch": partial(in_torch, compiled=False),
            "torch compile": partial(in_torch, compiled=True),
            "jax": in_jax,
        },
        goal=2.0,
        flops=2 * TIMES * BATCH * 4 * HIDDEN * (2 * INPUTS + 3 * HIDDEN),
    )
]

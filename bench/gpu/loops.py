"""Rows with loops: an LSTM cell by hand, with its gradients, and Newton's method until it converges."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench.gpu.row import COMPILED, DEVICE, JAX, TORCH, WEFT, Row, Step

HIDDEN, INPUTS, TIMES, BATCH = 512, 256, 100, 64
COUNT, TOLERANCE = 1000, 1e-3


def _sequence() -> list[Any]:
    rng = np.random.default_rng(0)
    bound = HIDDEN**-0.5
    shapes = (INPUTS, 4 * HIDDEN), (HIDDEN, 4 * HIDDEN)
    weights = [rng.uniform(-bound, bound, s).astype(np.float32) for s in shapes]
    return [
        *weights,
        np.zeros(4 * HIDDEN, np.float32),
        rng.standard_normal((TIMES, BATCH, INPUTS), dtype=np.float32),
    ]


def _lstm(library: Any, zeros: Any, wx: Any, wh: Any, b: Any, x: Any) -> Any:
    h, c = zeros, zeros
    for t in range(TIMES):
        gates = x[t] @ wx + h @ wh + b
        i, f, g, o = gates.chunk(4, 1)
        c = library.sigmoid(f) * c + library.sigmoid(i) * library.tanh(g)
        h = library.sigmoid(o) * library.tanh(c)
    return (h * h).mean()


def _lstm_weft() -> Step:
    import weft

    def loss(wx: Any, wh: Any, b: Any, x: Any) -> Any:
        return _lstm(weft, weft.zeros((BATCH, HIDDEN), device=DEVICE), wx, wh, b, x)

    run = weft.compile(weft.value_and_grad(loss, argnums=(0, 1, 2)))
    return partial(run, *[weft.tensor(a).to(DEVICE) for a in _sequence()])


def _lstm_torch(compiled: bool) -> Step:
    import torch

    *weights, x = (torch.from_numpy(a).cuda() for a in _sequence())
    for w in weights:
        w.requires_grad_()
    zeros = torch.zeros(BATCH, HIDDEN, device="cuda")
    loss = partial(_lstm, torch, zeros)
    run = torch.compile(loss) if compiled else loss

    def step() -> Any:
        return torch.autograd.grad(run(*weights, x), weights)

    return step


def _lstm_cudnn() -> Step:
    """PyTorch's nn.LSTM, which is cuDNN's."""
    import torch

    layer = torch.nn.LSTM(INPUTS, HIDDEN).cuda()
    x = torch.from_numpy(_sequence()[-1]).cuda()

    def step() -> Any:
        _, (h, _) = layer(x)
        return torch.autograd.grad((h * h).mean(), list(layer.parameters()))

    return step


def _lstm_jax() -> Step:
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

    run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))
    return partial(run, *[jax.device_put(a) for a in _sequence()])


# Newton


def _numbers() -> Any:
    return np.random.default_rng(0).uniform(1, 100, COUNT).astype(np.float32)


def _solve(a: Any) -> Any:
    x = 0.5 * (a + 1)
    while (x * x - a).abs().max() > TOLERANCE:
        x = 0.5 * (x + a / x)
    return x


def _newton_weft() -> Step:
    import weft

    return partial(weft.compile(_solve), weft.tensor(_numbers()).to(DEVICE))


def _newton_torch(compiled: bool) -> Step:
    import torch

    run = torch.compile(_solve) if compiled else _solve
    return partial(run, torch.from_numpy(_numbers()).cuda())


def _newton_jax() -> Step:
    import jax
    import jax.numpy as jnp

    def solve(a: Any) -> Any:
        def goes_on(x: Any) -> Any:
            return jnp.abs(x * x - a).max() > TOLERANCE

        return jax.lax.while_loop(goes_on, lambda x: 0.5 * (x + a / x), 0.5 * (a + 1))

    return partial(jax.jit(solve), jax.device_put(_numbers()))


CUDNN = "cuDNN by PyTorch"

LOOPS = [
    Row(
        "lstm", "LSTM by a Python loop (hidden 512, input 256, T 100, batch 64, f32, gradients)", 3500,
        {WEFT: _lstm_weft, TORCH: partial(_lstm_torch, False), COMPILED: partial(_lstm_torch, True),
         JAX: _lstm_jax, CUDNN: _lstm_cudnn}, turns=10, limit=120,
    ),
    Row(
        "newton", "Newton `while` on 1,000 numbers", 60,
        {WEFT: _newton_weft, TORCH: partial(_newton_torch, False), COMPILED: partial(_newton_torch, True),
         JAX: _newton_jax}, turns=200,
    ),
]  # fmt: skip

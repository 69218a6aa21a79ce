"""Layer norm of the rows of a matrix: forward, and with the gradients of a weighted sum."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench.case import Arrays, Case, Run
from bench.frameworks import weft_compile

ROWS, WIDTH = 4096, 1024
NAMES = ("x", "scale", "shift")


def arrays(rng: np.random.Generator) -> Arrays:
    """The matrix, the scale and shift of its columns, and weights of the result."""
    return {
        "x": rng.standard_normal((ROWS, WIDTH), dtype=np.float32),
        "scale": rng.standard_normal(WIDTH, dtype=np.float32),
        "shift": rng.standard_normal(WIDTH, dtype=np.float32),
        "w": rng.standard_normal((ROWS, WIDTH), dtype=np.float32),
    }


def in_weft(arrays: Arrays, gradient: bool) -> Run:
    import weft
    from weft.nn import functional as F

    def forward(x: Any, scale: Any, shift: Any) -> Any:
        return F.layer_norm(x, (WIDTH,), scale, shift)

    def loss(x: Any, scale: Any, shift: Any, w: Any) -> Any:
        return (forward(x, scale, shift) * w).sum()

    data = [weft.tensor(arrays[name]) for name in NAMES]
    w = weft.tensor(arrays["w"])
    if not gradient:
        function = weft_compile(forward)
        return Run(lambda: function(*data))
    step = weft_compile(weft.value_and_grad(loss, argnums=(0, 1, 2)))

    def run() -> Any:
        value, grads = step(*data, w)
        return value, *grads

    return Run(run)


def in_torch(arrays: Arrays, gradient: bool, compiled: bool) -> Run:
    import torch
    from torch.nn import functional as F

    def forward(x: Any, scale: Any, shift: Any) -> Any:
        return F.layer_norm(x, (WIDTH,), scale, shift)

    def loss(x: Any, scale: Any, shift: Any, w: Any) -> Any:
        return (forward(x, scale, shift) * w).sum()

    wrap = torch.compile if compiled else lambda function: function
    data = [torch.from_numpy(arrays[name]).requires_grad_(gradient) for name in NAMES]
    w = torch.from_numpy(arrays["w"])
    if not gradient:
        function = wrap(forward)
        return Run(lambda: function(*data))
    step = wrap(loss)

    def run() -> Any:
        value = step(*data, w)
        return value, *torch.autograd.grad(value, data)

    return Run(run)


def in_jax(arrays: Arrays, gradient: bool) -> Run:
    import jax
    import jax.numpy as jnp

    def forward(x: Any, scale: Any, shift: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift

    def loss(x: Any, scale: Any, shift: Any, w: Any) -> Any:
        return (forward(x, scale, shift) * w).sum()

    data = [jnp.asarray(arrays[name]) for name in NAMES]
    w = jnp.asarray(arrays["w"])
    if not gradient:
        function = jax.jit(forward)
        return Run(lambda: function(*data).block_until_ready())
    step = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))

    def run() -> Any:
        value, grads = jax.block_until_ready(step(*data, w))
        return value, *grads

    return Run(run)


def case(what: str, goal: float, gradient: bool) -> Case:
    """Forward, or with the gradients."""
    return Case(
        f"layer_norm {what}",
        arrays,
        {
            "weft": partial(in_weft, gradient=gradient),
            "torch": partial(in_torch, gradient=gradient, compiled=False),
            "torch compile": partial(in_torch, gradient=gradient, compiled=True),
            "jax": partial(in_jax, gradient=gradient),
        },
        goal=goal,
        bytes=4 * ROWS * WIDTH * (3 if gradient else 2),
    )


CASES = [case("forward", 1.5, gradient=False), case("gradient", 2.0, gradient=True)]

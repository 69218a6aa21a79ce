"""Softmax of the rows of a matrix: forward, and with the gradient of a weighted sum."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench.case import Arrays, Case, Run
from bench.frameworks import weft_compile

SHAPE = (2048, 2048)


def arrays(rng: np.random.Generator) -> Arrays:
    """The matrix, and weights of its softmax."""
    return {name: rng.standard_normal(SHAPE, dtype=np.float32) for name in ("x", "w")}


def in_weft(arrays: Arrays, gradient: bool) -> Run:
    import weft

    def loss(x: Any, w: Any) -> Any:
        return (weft.softmax(x, axis=-1) * w).sum()

    x, w = weft.tensor(arrays["x"]), weft.tensor(arrays["w"])
    if not gradient:
        forward = weft_compile(lambda x: weft.softmax(x, axis=-1))
        return Run(lambda: forward(x))
    step = weft_compile(weft.value_and_grad(loss))
    return Run(lambda: step(x, w))


def in_torch(arrays: Arrays, gradient: bool, compiled: bool) -> Run:
    import torch

    def loss(x: Any, w: Any) -> Any:
        return (torch.softmax(x, -1) * w).sum()

    wrap = torch.compile if compiled else lambda function: function
    x, w = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["w"])
    if not gradient:
        forward = wrap(lambda x: torch.softmax(x, -1))
        return Run(lambda: forward(x))
    function = wrap(loss)
    x.requires_grad_()

    def run() -> Any:
        value = function(x, w)
        return value, *torch.autograd.grad(value, x)

    return Run(run)


def in_jax(arrays: Arrays, gradient: bool) -> Run:
    import jax
    import jax.numpy as jnp

    def loss(x: Any, w: Any) -> Any:
        return (jax.nn.softmax(x, -1) * w).sum()

    x, w = jnp.asarray(arrays["x"]), jnp.asarray(arrays["w"])
    if not gradient:
        forward = jax.jit(lambda x: jax.nn.softmax(x, -1))
        return Run(lambda: forward(x).block_until_ready())
    step = jax.jit(jax.value_and_grad(loss))
    return Run(lambda: jax.block_until_ready(step(x, w)))


def case(what: str, gradient: bool) -> Case:
    """Forward, or with the gradient."""
    return Case(
        f"softmax {what}",
        arrays,
        {
            "weft": partial(in_weft, gradient=gradient),
            "torch": partial(in_torch, gradient=gradient, compiled=False),
            "torch compile": partial(in_torch, gradient=gradient, compiled=True),
            "jax": partial(in_jax, gradient=gradient),
        },
        goal=2.0,
        bytes=4 * SHAPE[0] * SHAPE[1] * (3 if gradient else 2),
    )


CASES = [case("forward", gradient=False), case("gradient", gradient=True)]

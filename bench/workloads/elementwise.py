"""One expression over a million numbers: its value, and its value with the gradient."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench.case import Arrays, Case, Run
from bench.frameworks import weft_compile

COUNT = 1_000_000


def arrays(rng: np.random.Generator) -> Arrays:
    """x, and the two numbers of the line."""
    numbers = {"a": np.float32(1.5), "b": np.float32(0.25)}
    return {"x": rng.standard_normal(COUNT, dtype=np.float32), **{k: np.array(v) for k, v in numbers.items()}}


def in_weft(arrays: Arrays, gradient: bool) -> Run:
    import weft

    def f(x: Any, a: Any, b: Any) -> Any:
        return weft.mean(weft.tanh(x * a + b) * weft.exp(-x * x) + weft.log1p(weft.abs(x)))

    step = weft_compile(weft.value_and_grad(f) if gradient else f)
    data = [weft.tensor(arrays[name]) for name in ("x", "a", "b")]
    return Run(lambda: step(*data))


def in_torch(arrays: Arrays, gradient: bool, compiled: bool) -> Run:
    import torch

    def f(x: Any, a: Any, b: Any) -> Any:
        return torch.mean(torch.tanh(x * a + b) * torch.exp(-x * x) + torch.log1p(torch.abs(x)))

    function = torch.compile(f) if compiled else f
    x, a, b = (torch.from_numpy(arrays[name]) for name in ("x", "a", "b"))
    x.requires_grad_(gradient)

    def run() -> Any:
        value = function(x, a, b)
        return (value, *torch.autograd.grad(value, x)) if gradient else value

    return Run(run)


def in_jax(arrays: Arrays, gradient: bool) -> Run:
    import jax
    import jax.numpy as jnp

    def f(x: Any, a: Any, b: Any) -> Any:
        return jnp.mean(jnp.tanh(x * a + b) * jnp.exp(-x * x) + jnp.log1p(jnp.abs(x)))

    step = jax.jit(jax.value_and_grad(f) if gradient else f)
    data = [jnp.asarray(arrays[name]) for name in ("x", "a", "b")]
    return Run(lambda: jax.block_until_ready(step(*data)))


def case(what: str, gradient: bool) -> Case:
    """The value, or the value with its gradient."""
    return Case(
        f"elementwise {what}",
        arrays,
        {
            "weft": partial(in_weft, gradient=gradient),
            "torch": partial(in_torch, gradient=gradient, compiled=False),
            "torch compile": partial(in_torch, gradient=gradient, compiled=True),
            "jax": partial(in_jax, gradient=gradient),
        },
        goal=3.0,
        bytes=4 * COUNT * (2 if gradient else 1),
    )


CASES = [case("value", gradient=False), case("gradient", gradient=True)]

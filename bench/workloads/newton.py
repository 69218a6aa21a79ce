"""Square roots of 1,000 numbers by Newton's method: until it converges; the gradient of 10 iterations."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench.case import Arrays, Case, Run
from bench.frameworks import weft_compile

COUNT, ITERATIONS, TOLERANCE = 1000, 10, 1e-3


def arrays(rng: np.random.Generator) -> Arrays:
    """Numbers to take the root of."""
    return {"a": rng.uniform(1, 100, COUNT).astype(np.float32)}


def solve(a: Any) -> Any:
    """The roots, in weft or PyTorch: what is on tensors is methods alone."""
    x = 0.5 * (a + 1)
    while (x * x - a).abs().max() > TOLERANCE:
        x = 0.5 * (x + a / x)
    return x


def iterate(a: Any) -> Any:
    """The sum of the roots after some iterations."""
    x = 0.5 * (a + 1)
    for _ in range(ITERATIONS):
        x = 0.5 * (x + a / x)
    return x.sum()


def in_weft(arrays: Arrays, gradient: bool, fast_math: bool = False) -> Run:
    import weft

    function = weft.grad(iterate) if gradient else solve
    step = weft.compile(function, fast_math=True) if fast_math else weft_compile(function)
    a = weft.tensor(arrays["a"])
    return Run(lambda: step(a))


def in_torch(arrays: Arrays, gradient: bool, compiled: bool) -> Run:
    import torch

    function = iterate if gradient else solve
    if compiled:
        function = torch.compile(function)
    a = torch.from_numpy(arrays["a"]).requires_grad_(gradient)
    return Run(lambda: torch.autograd.grad(function(a), a)[0] if gradient else function(a))


def in_jax(arrays: Arrays, gradient: bool) -> Run:
    import jax
    import jax.numpy as jnp

    def solve(a: Any) -> Any:
        def going(x: Any) -> Any:
            return jnp.abs(x * x - a).max() > TOLERANCE

        return jax.lax.while_loop(going, lambda x: 0.5 * (x + a / x), 0.5 * (a + 1))

    step = jax.jit(jax.grad(iterate) if gradient else solve)
    a = jnp.asarray(arrays["a"])
    return Run(lambda: step(a).block_until_ready())


def case(what: str, gradient: bool) -> Case:
    """To convergence, or the gradient."""
    return Case(
        f"newton {what}",
        arrays,
        {
            "weft": partial(in_weft, gradient=gradient),
            "weft fast_math": partial(in_weft, gradient=gradient, fast_math=True),  # shown beside
            "torch": partial(in_torch, gradient=gradient, compiled=False),
            "torch compile": partial(in_torch, gradient=gradient, compiled=True),
            "jax": partial(in_jax, gradient=gradient),
        },
        goal=2.0,
    )


CASES = [case("while", gradient=False), case("gradient", gradient=True)]

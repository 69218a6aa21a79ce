"""Heat on a plate: 200 steps of a stencil of five points on a grid of 128 × 128."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench import native
from bench.case import Arrays, Case, Run
from bench.frameworks import weft_compile

SIZE, STEPS, RATE = 128, 200, 0.2


def arrays(rng: np.random.Generator) -> Arrays:
    """The heat at the start; the border keeps its own."""
    return {"u": rng.uniform(0, 1, (SIZE, SIZE)).astype(np.float32)}


def in_weft(arrays: Arrays) -> Run:
    import weft

    @weft_compile
    def heat(u: Any) -> Any:
        n, m = u.shape
        for _ in range(STEPS):
            new = u.clone()
            for i in range(1, n - 1):
                for j in range(1, m - 1):
                    around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
                    new[i, j] = u[i, j] + RATE * (around - 4 * u[i, j])
            u = new
        return u

    u = weft.tensor(arrays["u"])
    return Run(lambda: heat(u))


def in_c(arrays: Arrays) -> Run:
    u, spare = np.empty_like(arrays["u"]), np.empty_like(arrays["u"])
    return native.runs("heat", u, spare, SIZE, STEPS, result=u, start=arrays["u"])


def in_jax_loops(arrays: Arrays) -> Run:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def heat(u: Any) -> Any:
        def point(u: Any, i: Any, j: Any, new: Any) -> Any:
            around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
            return new.at[i, j].set(u[i, j] + RATE * (around - 4 * u[i, j]))

        def row(u: Any, i: Any, new: Any) -> Any:
            return jax.lax.fori_loop(1, SIZE - 1, lambda j, new: point(u, i, j, new), new)

        def step(_: Any, u: Any) -> Any:
            return jax.lax.fori_loop(1, SIZE - 1, lambda i, new: row(u, i, new), u)

        return jax.lax.fori_loop(0, STEPS, step, u)

    u = jnp.asarray(arrays["u"])
    return Run(lambda: heat(u).block_until_ready())


def in_jax(arrays: Arrays) -> Run:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def heat(u: Any) -> Any:
        def step(_: Any, u: Any) -> Any:
            around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
            return u.at[1:-1, 1:-1].add(RATE * (around - 4 * u[1:-1, 1:-1]))

        return jax.lax.fori_loop(0, STEPS, step, u)

    u = jnp.asarray(arrays["u"])
    return Run(lambda: heat(u).block_until_ready())


def in_torch(arrays: Arrays) -> Run:
    import torch

    start = torch.from_numpy(arrays["u"])

    def run() -> Any:
        u = start.clone()
        for _ in range(STEPS):
            around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
            u[1:-1, 1:-1] += RATE * (around - 4 * u[1:-1, 1:-1])
        return u

    return Run(run)


CASES = [
    Case(
        "loops heat",
        arrays,
        {"weft": in_weft, "c": in_c, "jax loops": in_jax_loops, "jax": in_jax, "torch": in_torch},
        goal=5.0,
        beside=("jax", "torch"),
        flops=6 * STEPS * (SIZE - 2) ** 2,
    )
]

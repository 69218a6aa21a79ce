"""Shortest paths between all pairs of 200 nodes, by Floyd and Warshall's three loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench import native
from bench.case import Arrays, Case, Run
from bench.frameworks import weft_compile

NODES = 200


def arrays(rng: np.random.Generator) -> Arrays:
    """The lengths of direct ways."""
    lengths = rng.uniform(1, 100, (NODES, NODES)).astype(np.float32)
    np.fill_diagonal(lengths, 0)
    return {"d": lengths}


def in_weft(arrays: Arrays) -> Run:
    import weft

    @weft_compile
    def shortest(d: Any) -> Any:
        n = d.shape[0]
        for k in range(n):
            for i in range(n):
                for j in range(n):
                    if d[i, k] + d[k, j] < d[i, j]:
                        d[i, j] = d[i, k] + d[k, j]
        return d

    d = weft.tensor(arrays["d"])
    return Run(lambda: shortest(d.clone()))


def in_c(arrays: Arrays) -> Run:
    d = np.empty_like(arrays["d"])
    return native.runs("floyd", d, NODES, result=d, start=arrays["d"])


def in_jax_loops(arrays: Arrays) -> Run:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def shortest(d: Any) -> Any:
        def relax(k: Any, i: Any, j: Any, d: Any) -> Any:
            return d.at[i, j].set(jnp.minimum(d[i, j], d[i, k] + d[k, j]))

        def row(k: Any, i: Any, d: Any) -> Any:
            return jax.lax.fori_loop(0, NODES, lambda j, d: relax(k, i, j, d), d)

        def via(k: Any, d: Any) -> Any:
            return jax.lax.fori_loop(0, NODES, lambda i, d: row(k, i, d), d)

        return jax.lax.fori_loop(0, NODES, via, d)

    d = jnp.asarray(arrays["d"])
    return Run(lambda: shortest(d).block_until_ready())


def in_jax(arrays: Arrays) -> Run:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def shortest(d: Any) -> Any:
        def via(k: Any, d: Any) -> Any:
            return jnp.minimum(d, d[:, k, None] + d[k])

        return jax.lax.fori_loop(0, NODES, via, d)

    d = jnp.asarray(arrays["d"])
    return Run(lambda: shortest(d).block_until_ready())


def in_torch(arrays: Arrays) -> Run:
    import torch

    lengths = torch.from_numpy(arrays["d"])

    def run() -> Any:
        d = lengths
        for k in range(NODES):
            d = torch.minimum(d, d[:, k, None] + d[k])
        return d

    return Run(run)


CASES = [
    Case(
        "loops floyd",
        arrays,
        {"weft": in_weft, "c": in_c, "jax loops": in_jax_loops, "jax": in_jax, "torch": in_torch},
        goal=5.0,
        beside=("jax", "torch"),
        flops=2 * NODES**3,
    )
]

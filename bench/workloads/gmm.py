"""The gradient of the likelihood of a mixture of Gaussians: 1,000 points, 10 dimensions, 25 components.

Each component has a weight, a mean, and the inverse of its covariance as a triangular factor: the logarithms
of its diagonal, and what is below it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench import native
from bench.case import Arrays, Case, Run
from bench.frameworks import weft_compile

POINTS, DIMENSIONS, COMPONENTS = 1000, 10, 25
PARAMETERS = ("alphas", "means", "logs", "lower")


def arrays(rng: np.random.Generator) -> Arrays:
    """Parameters and points."""
    n, d, k = POINTS, DIMENSIONS, COMPONENTS
    found = {
        "alphas": rng.standard_normal(k),
        "means": rng.uniform(0, 1, (k, d)),
        "logs": 0.3 * rng.standard_normal((k, d)),
        "lower": 0.3 * np.tril(rng.standard_normal((k, d, d)), -1),
        "x": rng.standard_normal((n, d)),
    }
    return {name: array.astype(np.float32) for name, array in found.items()}


def in_weft(arrays: Arrays) -> Run:
    import weft

    def likelihood(alphas: Any, means: Any, logs: Any, lower: Any, x: Any) -> Any:
        (n, d), k = x.shape, alphas.shape[0]
        total = 0.0
        for i in range(n):
            terms = weft.zeros(k)
            for c in range(k):
                term = alphas[c]
                for a in range(d):
                    y = weft.exp(logs[c, a]) * (x[i, a] - means[c, a])
                    for b in range(a):
                        y = y + lower[c, a, b] * (x[i, b] - means[c, b])
                    term = term + logs[c, a] - 0.5 * y * y
                terms[c] = term
            total = total + weft.logsumexp(terms)
        return total - n * weft.logsumexp(alphas)

    step = weft_compile(weft.grad(likelihood, argnums=(0, 1, 2, 3)))
    data = [weft.tensor(arrays[name]) for name in (*PARAMETERS, "x")]
    return Run(lambda: step(*data))


def in_c(arrays: Arrays) -> Run:
    data = [arrays[name] for name in (*PARAMETERS, "x")]
    grads = [np.empty_like(arrays[name]) for name in PARAMETERS]
    return native.runs("gmm", *data, *grads, POINTS, DIMENSIONS, COMPONENTS, result=grads)


def in_jax_loops(arrays: Arrays) -> Run:
    import jax
    import jax.numpy as jnp
    from jax.lax import fori_loop

    def likelihood(alphas: Any, means: Any, logs: Any, lower: Any, x: Any) -> Any:
        (n, d), k = x.shape, alphas.shape[0]

        def add_column(i: Any, c: Any, a: Any, b: Any, y: Any) -> Any:
            return y + jnp.where(b < a, lower[c, a, b] * (x[i, b] - means[c, b]), 0.0)

        def add_row(i: Any, c: Any, a: Any, term: Any) -> Any:
            y = jnp.exp(logs[c, a]) * (x[i, a] - means[c, a])
            y = fori_loop(0, d, lambda b, y: add_column(i, c, a, b, y), y)
            return term + logs[c, a] - 0.5 * y * y

        def set_term(i: Any, c: Any, terms: Any) -> Any:
            term = fori_loop(0, d, lambda a, term: add_row(i, c, a, term), alphas[c])
            return terms.at[c].set(term)

        def add_point(i: Any, total: Any) -> Any:
            terms = fori_loop(0, k, lambda c, terms: set_term(i, c, terms), jnp.zeros(k))
            return total + jax.nn.logsumexp(terms)

        return fori_loop(0, n, add_point, 0.0) - n * jax.nn.logsumexp(alphas)

    return _jax_run(likelihood, arrays)


def in_jax(arrays: Arrays) -> Run:
    import jax
    import jax.numpy as jnp

    def likelihood(alphas: Any, means: Any, logs: Any, lower: Any, x: Any) -> Any:
        factors = jnp.tril(lower, -1) + jnp.exp(logs)[:, :, None] * jnp.eye(x.shape[1])
        y = jnp.einsum("kab,nkb->nka", factors, x[:, None] - means)
        terms = alphas + logs.sum(-1) - 0.5 * (y * y).sum(-1)
        return jax.nn.logsumexp(terms, axis=1).sum() - x.shape[0] * jax.nn.logsumexp(alphas)

    return _jax_run(likelihood, arrays)


def _jax_run(likelihood: Any, arrays: Arrays) -> Run:
    import jax
    import jax.numpy as jnp

    step = jax.jit(jax.grad(likelihood, argnums=(0, 1, 2, 3)))
    data = [jnp.asarray(arrays[name]) for name in (*PARAMETERS, "x")]
    return Run(lambda: jax.block_until_ready(step(*data)))


def in_torch(arrays: Arrays, compiled: bool) -> Run:
    import torch

    def likelihood(alphas: Any, means: Any, logs: Any, lower: Any, x: Any) -> Any:
        factors = torch.tril(lower, -1) + torch.diag_embed(torch.exp(logs))
        y = torch.einsum("kab,nkb->nka", factors, x[:, None] - means)
        terms = alphas + logs.sum(-1) - 0.5 * (y * y).sum(-1)
        return torch.logsumexp(terms, 1).sum() - x.shape[0] * torch.logsumexp(alphas, 0)

    function = torch.compile(likelihood) if compiled else likelihood
    data = [torch.from_numpy(arrays[name]).requires_grad_() for name in PARAMETERS]
    x = torch.from_numpy(arrays["x"])
    return Run(lambda: torch.autograd.grad(function(*data, x), data))


CASES = [
    Case(
        "loops gmm",
        arrays,
        {
            "weft": in_weft,
            "c": in_c,
            "jax loops": in_jax_loops,
            "jax": in_jax,
            "torch": partial(in_torch, compiled=False),
            "torch compile": partial(in_torch, compiled=True),
        },
        goal=5.0,
        beside=("jax", "torch", "torch compile"),
        flops=3 * POINTS * COMPONENTS * DIMENSIONS * (DIMENSIONS + 1),
    )
]

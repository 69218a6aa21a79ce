"""Clusters by Newton's method, on the sum of the squared distances of points to the nearest centres."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench import native
from bench.case import Arrays, Case, Run
from bench.frameworks import weft_compile

POINTS, DIMENSIONS, CENTRES, ITERATIONS = 2000, 8, 10, 10


def arrays(rng: np.random.Generator) -> Arrays:
    """Points around some middles, and the first of them as centres."""
    middles = 3 * rng.standard_normal((CENTRES, DIMENSIONS))
    points = middles[np.arange(POINTS) % CENTRES] + rng.standard_normal((POINTS, DIMENSIONS))
    points = points.astype(np.float32)
    return {"points": points, "centres": points[:CENTRES].copy()}


def in_weft(arrays: Arrays) -> Run:
    import weft

    def cost(centres: Any, points: Any) -> Any:
        (n, d), k = points.shape, centres.shape[0]
        total = 0.0
        for i in range(n):
            best = float("inf")
            for c in range(k):
                distance = 0.0
                for a in range(d):
                    difference = points[i, a] - centres[c, a]
                    distance = distance + difference * difference
                if distance < best:
                    best = distance
            total = total + best
        return total

    @weft_compile
    def cluster(centres: Any, points: Any) -> Any:
        for _ in range(ITERATIONS):
            slope = weft.grad(lambda c: cost(c, points))
            gradient, curvature = weft.jvp(slope, (centres,), (weft.ones_like(centres),))
            centres = centres - gradient / curvature
        return centres

    data = weft.tensor(arrays["centres"]), weft.tensor(arrays["points"])
    return Run(lambda: cluster(*data))


def in_c(arrays: Arrays) -> Run:
    centres = np.empty_like(arrays["centres"])
    sizes = (POINTS, DIMENSIONS, CENTRES, ITERATIONS)
    return native.runs("kmeans", centres, arrays["points"], *sizes, result=centres, start=arrays["centres"])


def in_jax(arrays: Arrays, loops: bool) -> Run:
    import jax
    import jax.numpy as jnp
    from jax.lax import fori_loop

    def cost_by_loops(centres: Any, points: Any) -> Any:
        def add_square(i: Any, c: Any, a: Any, distance: Any) -> Any:
            return distance + (points[i, a] - centres[c, a]) ** 2

        def nearer(i: Any, c: Any, best: Any) -> Any:
            distance = fori_loop(0, DIMENSIONS, lambda a, s: add_square(i, c, a, s), 0.0)
            return jnp.where(distance < best, distance, best)

        def add_point(i: Any, total: Any) -> Any:
            return total + fori_loop(0, CENTRES, lambda c, best: nearer(i, c, best), jnp.inf)

        return fori_loop(0, POINTS, add_point, 0.0)

    def cost_of_arrays(centres: Any, points: Any) -> Any:
        return ((points[:, None] - centres) ** 2).sum(-1).min(axis=1).sum()

    cost = cost_by_loops if loops else cost_of_arrays

    @jax.jit
    def cluster(centres: Any, points: Any) -> Any:
        def improve(_: Any, centres: Any) -> Any:
            slope = jax.grad(lambda c: cost(c, points))
            gradient, curvature = jax.jvp(slope, (centres,), (jnp.ones_like(centres),))
            return centres - gradient / curvature

        return fori_loop(0, ITERATIONS, improve, centres)

    data = jnp.asarray(arrays["centres"]), jnp.asarray(arrays["points"])
    return Run(lambda: cluster(*data).block_until_ready())


def in_torch(arrays: Arrays, compiled: bool) -> Run:
    import torch

    def cost(centres: Any, points: Any) -> Any:
        return ((points[:, None] - centres) ** 2).sum(-1).min(1).values.sum()

    def improve(centres: Any, points: Any) -> Any:
        slope = torch.func.grad(lambda c: cost(c, points))
        gradient, curvature = torch.func.jvp(slope, (centres,), (torch.ones_like(centres),))
        return centres - gradient / curvature

    function = torch.compile(improve) if compiled else improve
    start, points = torch.from_numpy(arrays["centres"]), torch.from_numpy(arrays["points"])

    def run() -> Any:
        centres = start
        for _ in range(ITERATIONS):
            centres = function(centres, points)
        return centres

    return Run(run)


CASES = [
    Case(
        "loops kmeans",
        arrays,
        {
            "weft": in_weft,
            "c": in_c,
            "jax loops": partial(in_jax, loops=True),
            "jax": partial(in_jax, loops=False),
            "torch": partial(in_torch, compiled=False),
            "torch compile": partial(in_torch, compiled=True),
        },
        goal=5.0,
        beside=("jax", "torch", "torch compile"),
        flops=3 * ITERATIONS * POINTS * CENTRES * DIMENSIONS,
    )
]

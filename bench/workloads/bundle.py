"""The Jacobian of 1,000 observations: points seen by cameras, as bundle adjustment needs it.

A camera is a rotation vector, a centre, a focal length, a principal point and two terms of distortion. Each
observation has two residuals, which depend on the 11 numbers of its camera, its point and its weight.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench import native
from bench.case import Arrays, Case, Run
from bench.frameworks import weft_compile

OBSERVATIONS, CAMERAS, POINTS, INPUTS = 1000, 20, 300, 15
NAMES = ("cameras", "points", "weights", "seen", "camera", "point")


def arrays(rng: np.random.Generator) -> Arrays:
    """Cameras, points in front of them, weights, what was seen, and which camera saw which point."""
    cameras = 0.1 * rng.standard_normal((CAMERAS, 11))
    cameras[:, 6] += 1
    points = rng.standard_normal((POINTS, 3))
    points[:, 2] += 5
    found = {
        "cameras": cameras,
        "points": points,
        "weights": rng.uniform(0.5, 1.5, OBSERVATIONS),
        "seen": rng.standard_normal((OBSERVATIONS, 2)),
    }
    return {name: array.astype(np.float32) for name, array in found.items()} | {
        "camera": rng.integers(0, CAMERAS, OBSERVATIONS),
        "point": rng.integers(0, POINTS, OBSERVATIONS),
    }


def residuals(q: Any, seen: Any, m: Any) -> Any:
    """The two residuals of an observation whose 15 numbers are q; m is the framework."""
    a, b, c = q[0], q[1], q[2]
    x, y, z = q[11] - q[3], q[12] - q[4], q[13] - q[5]
    angle = m.sqrt(a * a + b * b + c * c)
    cos, sin = m.cos(angle), m.sin(angle)
    a, b, c = a / angle, b / angle, c / angle
    along = (a * x + b * y + c * z) * (1 - cos)
    u = x * cos + (b * z - c * y) * sin + a * along
    v = y * cos + (c * x - a * z) * sin + b * along
    w = z * cos + (a * y - b * x) * sin + c * along
    u, v = u / w, v / w
    square = u * u + v * v
    scale = q[6] * (1 + q[9] * square + q[10] * square * square)
    return m.stack([q[14] * (u * scale + q[7] - seen[0]), q[14] * (v * scale + q[8] - seen[1])])


def in_weft(arrays: Arrays) -> Run:
    import weft

    def of_observation(q: Any, seen: Any) -> Any:
        return residuals(q, seen, weft)

    @weft_compile
    def jacobian(cameras: Any, points: Any, weights: Any, seen: Any, camera: Any, point: Any) -> Any:
        n = camera.shape[0]
        out = weft.zeros((n, 2, INPUTS))
        for i in range(n):
            q = weft.concat([cameras[camera[i]], points[point[i]], weights[i : i + 1]])
            out[i] = weft.jacobian(of_observation)(q, seen[i])
        return out

    data = [weft.tensor(arrays[name]) for name in NAMES]
    return Run(lambda: jacobian(*data))


def in_c(arrays: Arrays) -> Run:
    data = [arrays[name] for name in NAMES]
    out = np.empty((OBSERVATIONS, 2, INPUTS), np.float32)
    return native.runs("bundle", *data, out, OBSERVATIONS, result=out)


def in_jax(arrays: Arrays, loops: bool) -> Run:
    import jax
    import jax.numpy as jnp

    def of_observation(q: Any, seen: Any) -> Any:
        return residuals(q, seen, jnp)

    def one(cameras: Any, points: Any, weight: Any, seen: Any, camera: Any, point: Any) -> Any:
        q = jnp.concatenate([cameras[camera], points[point], weight[None]])
        return jax.jacfwd(of_observation)(q, seen)

    @jax.jit
    def jacobian(cameras: Any, points: Any, *each: Any) -> Any:
        if loops:
            return jax.lax.map(lambda row: one(cameras, points, *row), each)
        return jax.vmap(lambda *row: one(cameras, points, *row))(*each)

    data = [jnp.asarray(arrays[name]) for name in NAMES]
    return Run(lambda: jacobian(*data).block_until_ready())


def in_torch(arrays: Arrays, compiled: bool) -> Run:
    import torch

    def of_observation(q: Any, seen: Any) -> Any:
        return residuals(q, seen, torch)

    def jacobian(cameras: Any, points: Any, weights: Any, seen: Any, camera: Any, point: Any) -> Any:
        q = torch.cat([cameras[camera], points[point], weights[:, None]], 1)
        return torch.func.vmap(torch.func.jacfwd(of_observation))(q, seen)

    function = torch.compile(jacobian) if compiled else jacobian
    data = [torch.from_numpy(arrays[name]) for name in NAMES]
    return Run(lambda: function(*data))


CASES = [
    Case(
        "loops bundle",
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
    )
]

"""Van der Pol's equation, solved with steps of adaptive size: the 3(2) method of Bogacki and Shampine."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench import native
from bench.case import Arrays, Case, Run
from bench.frameworks import weft_compile

END, TOLERANCE, STIFFNESS = 20.0, 1e-4, 5.0
SMALLEST, LARGEST = 0.2, 5.0  # factors between the sizes of two steps


def arrays(rng: np.random.Generator) -> Arrays:
    """The state at the start."""
    return {"start": np.array([2.0, 0.0], np.float32)}


def in_weft(arrays: Arrays) -> Run:
    import weft

    def slope(x: Any, v: Any) -> Any:
        return v, STIFFNESS * (1 - x * x) * v - x

    @weft_compile
    def solve(start: Any) -> Any:
        x, v = start[0], start[1]
        t, h = weft.tensor(0.0), weft.tensor(0.01)
        x1, v1 = slope(x, v)
        while t < END:
            h = weft.minimum(h, END - t)
            x2, v2 = slope(x + h * x1 / 2, v + h * v1 / 2)
            x3, v3 = slope(x + h * x2 * 0.75, v + h * v2 * 0.75)
            new_x = x + h * (2 * x1 + 3 * x2 + 4 * x3) / 9
            new_v = v + h * (2 * v1 + 3 * v2 + 4 * v3) / 9
            x4, v4 = slope(new_x, new_v)
            error_x = h * (-5 * x1 / 72 + x2 / 12 + x3 / 9 - x4 / 8)
            error_v = h * (-5 * v1 / 72 + v2 / 12 + v3 / 9 - v4 / 8)
            error = weft.sqrt(error_x * error_x + error_v * error_v) / TOLERANCE
            if error <= 1:
                t = t + h
                x, v = new_x, new_v
                x1, v1 = x4, v4
            factor = 0.9 * (error + 1e-10) ** (-1 / 3)
            h = h * weft.clip(factor, SMALLEST, LARGEST)
        return weft.stack([x, v])

    start = weft.tensor(arrays["start"])
    return Run(lambda: solve(start))


def in_c(arrays: Arrays) -> Run:
    result = np.empty_like(arrays["start"])
    return native.runs("ode", arrays["start"], result, result=result)


def in_jax(arrays: Arrays) -> Run:
    import jax
    import jax.numpy as jnp

    def slope(s: Any) -> Any:
        return jnp.stack([s[1], STIFFNESS * (1 - s[0] * s[0]) * s[1] - s[0]])

    def step(state: Any) -> Any:
        t, h, s, k1 = state
        h = jnp.minimum(h, END - t)
        k2 = slope(s + h * k1 / 2)
        k3 = slope(s + h * k2 * 0.75)
        new = s + h * (2 * k1 + 3 * k2 + 4 * k3) / 9
        k4 = slope(new)
        error = jnp.linalg.norm(h * (-5 * k1 / 72 + k2 / 12 + k3 / 9 - k4 / 8)) / TOLERANCE
        t, s, k1 = jax.tree.map(lambda a, b: jnp.where(error <= 1, a, b), (t + h, new, k4), (t, s, k1))
        factor = 0.9 * (error + 1e-10) ** (-1 / 3)
        return t, h * jnp.clip(factor, SMALLEST, LARGEST), s, k1

    @jax.jit
    def solve(start: Any) -> Any:
        state = (jnp.float32(0), jnp.float32(0.01), start, slope(start))
        return jax.lax.while_loop(lambda state: state[0] < END, step, state)[2]

    start = jnp.asarray(arrays["start"])
    return Run(lambda: solve(start).block_until_ready())


def in_torch(arrays: Arrays) -> Run:
    import torch

    def slope(s: Any) -> Any:
        return torch.stack([s[1], STIFFNESS * (1 - s[0] * s[0]) * s[1] - s[0]])

    start = torch.from_numpy(arrays["start"])

    def run() -> Any:
        t, h, s, k1 = torch.tensor(0.0), torch.tensor(0.01), start, slope(start)
        while t < END:
            h = torch.minimum(h, END - t)
            k2 = slope(s + h * k1 / 2)
            k3 = slope(s + h * k2 * 0.75)
            new = s + h * (2 * k1 + 3 * k2 + 4 * k3) / 9
            k4 = slope(new)
            error = torch.linalg.norm(h * (-5 * k1 / 72 + k2 / 12 + k3 / 9 - k4 / 8)) / TOLERANCE
            if error <= 1:
                t, s, k1 = t + h, new, k4
            h = h * torch.clip(0.9 * (error + 1e-10) ** (-1 / 3), SMALLEST, LARGEST)
        return s

    return Run(run)


CASES = [
    Case(
        "loops ode",
        arrays,
        {"weft": in_weft, "c": in_c, "jax": in_jax, "torch": in_torch},
        goal=5.0,
    )
]

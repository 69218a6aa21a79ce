"""What training takes beside the model: Adam for JAX, and steps of forward, backward and update."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bench.case import Arrays, Build, Case, Run
from bench.frameworks import weft_compile

RATE = 3e-4
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
STEPS = 20


def weights_of(arrays: Arrays) -> Arrays:
    """The arrays that are weights: those of PyTorch's and weft's modules have a point in their names."""
    return {name: array for name, array in arrays.items() if "." in name}


def linear(rng: np.random.Generator, name: str, inputs: int, outputs: int, bias: bool = True) -> Arrays:
    """Initial weights of a linear layer."""
    bound = inputs**-0.5
    found = {f"{name}.weight": rng.uniform(-bound, bound, (outputs, inputs)).astype(np.float32)}
    if bias:
        found[f"{name}.bias"] = rng.uniform(-bound, bound, outputs).astype(np.float32)
    return found


def weft_step(model: Any, loss: Callable[..., Any], *data: Any, optimizer: Any, compiled: bool = True) -> Run:
    """A whole training step in weft; compiled, it is one graph."""

    def step(*data: Any) -> Any:
        optimizer.zero_grad()
        value = loss(model, *data)
        value.backward()
        optimizer.step()
        return value.detach()

    run = weft_compile(step) if compiled else step
    return Run(lambda: run(*data))


def torch_step(model: Any, loss: Callable[..., Any], *data: Any, optimizer: Any, compiled: bool) -> Run:
    """A training step in PyTorch; compiled means the loss and its gradient, as its tutorials say."""
    import torch

    def compute(*data: Any) -> Any:
        return loss(model, *data)

    if compiled:
        compute = torch.compile(compute)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        value = compute(*data)
        value.backward()
        optimizer.step()
        return value.detach()

    return Run(step)


def jax_step(params: Any, loss: Callable[..., Any], *data: Any, weight_decay: float = 0.0) -> Run:
    """A training step in JAX: one jitted function whose state is donated."""
    import jax
    import jax.numpy as jnp

    def update(state: Any, *data: Any) -> Any:
        params, means, squares, count = state
        value, grads = jax.value_and_grad(loss)(params, *data)
        count = count + 1
        means = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, means, grads)
        squares = jax.tree.map(lambda s, g: BETA2 * s + (1 - BETA2) * g * g, squares, grads)
        size = RATE / (1 - BETA1**count)
        root = jnp.sqrt(1 - BETA2**count)

        def change(p: Any, m: Any, s: Any) -> Any:
            return p * (1 - RATE * weight_decay) - size * m / (jnp.sqrt(s) / root + EPSILON)

        return (jax.tree.map(change, params, means, squares), means, squares, count), value

    jitted = jax.jit(update, donate_argnums=0)
    params = jax.tree.map(jnp.asarray, params)
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = (params, zeros, jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.float32))
    arrays = [jnp.asarray(array) for array in data]

    def step() -> Any:
        nonlocal state
        state, value = jitted(state, *arrays)
        return value

    return Run(step, lambda: jax.block_until_ready(state))


def load_weft(model: Any, arrays: Arrays) -> Any:
    """The model with the initial weights."""
    import weft

    model.load_state_dict({name: weft.tensor(array) for name, array in weights_of(arrays).items()})
    return model


def load_torch(model: Any, arrays: Arrays) -> Any:
    """The model with the initial weights."""
    import torch

    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights_of(arrays).items()})
    return model


def training_cases(
    name: str,
    arrays: Callable[[np.random.Generator], Arrays],
    in_weft: Callable[..., Run],
    in_torch: Callable[..., Run],
    in_jax: Build,
    flops: float,
    bytes: float,
) -> list[Case]:
    """Steps of a network: compiled, beside what others compile; and op by op, beside PyTorch."""
    plain = partial(in_torch, compiled=False)
    compiled = {"torch": plain, "torch compile": partial(in_torch, compiled=True), "jax": in_jax}
    eager: dict[str, Build] = {"weft": partial(in_weft, compiled=False), "torch": plain}
    return [
        Case(name, arrays, {"weft": in_weft, **compiled}, goal=1.4, steps=STEPS, flops=flops, bytes=bytes),
        Case(f"eager {name}", arrays, eager, goal=1.0, steps=STEPS, flops=flops, bytes=bytes),
    ]

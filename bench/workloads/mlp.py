"""Two networks of three linear layers, trained with Adam: a tiny one (all overhead) and one for MNIST."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from bench.case import Arrays, Case, Run
from bench.workloads.training import (
    RATE,
    STEPS,
    jax_step,
    linear,
    load_torch,
    load_weft,
    torch_step,
    weft_step,
)

TINY = (8, 32, 32, 1)
MNIST = (784, 512, 512, 10)


def arrays(rng: np.random.Generator, sizes: tuple[int, ...], batch: int) -> Arrays:
    """Weights under the names of a Sequential with activations between the layers, inputs and targets."""
    found: Arrays = {}
    for i in range(3):
        found |= linear(rng, f"{2 * i}", sizes[i], sizes[i + 1])
    found["x"] = rng.standard_normal((batch, sizes[0]), dtype=np.float32)
    if sizes[-1] == 1:
        found["y"] = np.sin(found["x"].sum(1, keepdims=True))
    else:
        found["y"] = rng.integers(0, sizes[-1], batch)
    return found


def network(nn: Any, sizes: tuple[int, ...]) -> Any:
    """The network; weft's and PyTorch's modules have the same names."""
    return nn.Sequential(
        nn.Linear(sizes[0], sizes[1]),
        nn.ReLU(),
        nn.Linear(sizes[1], sizes[2]),
        nn.ReLU(),
        nn.Linear(sizes[2], sizes[3]),
    )


def in_weft(arrays: Arrays, sizes: tuple[int, ...]) -> Run:
    import weft
    from weft import nn, optim
    from weft.nn import functional as F

    def loss(model: Any, x: Any, y: Any) -> Any:
        return F.mse_loss(model(x), y) if sizes[-1] == 1 else F.cross_entropy(model(x), y)

    model = load_weft(network(nn, sizes), arrays)
    optimizer = optim.Adam(model.parameters(), lr=RATE)
    return weft_step(model, loss, weft.tensor(arrays["x"]), weft.tensor(arrays["y"]), optimizer=optimizer)


def in_torch(arrays: Arrays, sizes: tuple[int, ...], compiled: bool) -> Run:
    import torch
    from torch import nn
    from torch.nn import functional as F

    def loss(model: Any, x: Any, y: Any) -> Any:
        return F.mse_loss(model(x), y) if sizes[-1] == 1 else F.cross_entropy(model(x), y)

    model = load_torch(network(nn, sizes), arrays)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    data = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
    return torch_step(model, loss, *data, optimizer=optimizer, compiled=compiled)


def in_jax(arrays: Arrays, sizes: tuple[int, ...]) -> Run:
    import jax
    import jax.numpy as jnp

    def loss(params: Any, x: Any, y: Any) -> Any:
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = params[-1]
        out = x @ w + b
        if sizes[-1] == 1:
            return jnp.mean((out - y) ** 2)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(out), y[:, None], axis=1))

    params = [(arrays[f"{i}.weight"].T, arrays[f"{i}.bias"]) for i in (0, 2, 4)]
    return jax_step(params, loss, arrays["x"], arrays["y"])


def case(name: str, sizes: tuple[int, ...], batch: int, goal: float) -> Case:
    """One network as a line of the table."""
    products = sum(a * b for a, b in pairwise(sizes))
    return Case(
        name,
        partial(arrays, sizes=sizes, batch=batch),
        {
            "weft": partial(in_weft, sizes=sizes),
            "torch": partial(in_torch, sizes=sizes, compiled=False),
            "torch compile": partial(in_torch, sizes=sizes, compiled=True),
            "jax": partial(in_jax, sizes=sizes),
        },
        goal=goal,
        steps=STEPS,
        flops=2 * batch * (3 * products - sizes[0] * sizes[1]),  # the first layer passes no gradient on
        bytes=4 * 7 * products,  # Adam reads four arrays of that size and writes three
    )


CASES = [case("tiny_mlp", TINY, 16, goal=3.0), case("mnist_mlp", MNIST, 128, goal=1.2)]

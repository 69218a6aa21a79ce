"""Training steps in PyTorch, as a CUDA graph made by hand, and by jax.jit; see ``tests.gpu.card_steps``."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from tests.gpu.card import note, part

TINY, MNIST = ((8, 32, 32, 1), 16), ((784, 512, 512, 10), 128)  # sizes of layers, batch


@part
def peers_steps_times() -> None:
    import torch

    for name, (sizes, batch) in (("tiny", TINY), ("MNIST", MNIST)):
        layers = torch.nn.Sequential(
            torch.nn.Linear(sizes[0], sizes[1]), torch.nn.ReLU(), torch.nn.Linear(sizes[1], sizes[2]),
            torch.nn.ReLU(), torch.nn.Linear(sizes[2], sizes[3]),
        ).cuda()  # fmt: skip
        optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3, fused=True, capturable=True)
        x = torch.randn(batch, sizes[0], device="cuda")
        y = (
            torch.randn(batch, 1, device="cuda")
            if sizes[-1] == 1
            else torch.randint(0, 10, (batch,), device="cuda")
        )
        lossf = torch.nn.functional.mse_loss if sizes[-1] == 1 else torch.nn.functional.cross_entropy

        def step(
            layers: Any = layers, optimizer: Any = optimizer, x: Any = x, y: Any = y, f: Any = lossf
        ) -> None:
            optimizer.zero_grad(set_to_none=False)
            f(layers(x), y).backward()
            optimizer.step()

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        note(f"{name} step, PyTorch's graph by hand", f"{torch_us(graph.replay):.1f} us a call in a row")


def torch_us(function: Callable[[], object], count: int = 300) -> float:
    import torch

    for _ in range(20):
        function()
    torch.cuda.synchronize()
    found = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(count):
            function()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - begin) / count * 1e6)
    return sorted(found)[2]


@part
def jax_steps_times() -> None:
    import jax
    import jax.numpy as jnp

    for name, (sizes, batch) in (("tiny", TINY), ("MNIST", MNIST)):
        rng = np.random.default_rng(0)
        params = [
            (jnp.asarray(rng.standard_normal((a, b), np.float32) * 0.05), jnp.zeros(b))
            for a, b in pairwise(sizes)
        ]
        x = jnp.asarray(rng.standard_normal((batch, sizes[0]), np.float32))
        y = jnp.asarray(rng.integers(0, 10, batch)) if sizes[-1] > 1 else jnp.ones((batch, 1))

        def loss(params: Any, x: Any, y: Any, last: int = sizes[-1]) -> Any:
            for i, (w, b) in enumerate(params):
                x = x @ w + b
                x = jax.nn.relu(x) if i < 2 else x
            if last == 1:
                return ((x - y) ** 2).mean()
            return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()

        def step(state: Any, x: Any, y: Any, loss: Any = loss) -> Any:
            params, m, v, n = state
            g = jax.grad(loss)(params, x, y)
            n = n + 1
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
            v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
            new = jax.tree.map(
                lambda p, m, v: p - 1e-3 * (m / (1 - 0.9**n)) / (jnp.sqrt(v / (1 - 0.999**n)) + 1e-8),
                params,
                m,
                v,
            )
            return new, m, v, n

        compiled = jax.jit(step, donate_argnums=0)
        zeros = jax.tree.map(jnp.zeros_like, params)
        cell = [(params, zeros, jax.tree.map(jnp.copy, zeros), jnp.zeros(()))]

        def call(cell: Any = cell, compiled: Any = compiled, x: Any = x, y: Any = y) -> None:
            cell[0] = compiled(cell[0], x, y)

        note(f"{name} step, jax.jit", f"{jax_us(call, cell):.1f} us a call in a row")


def jax_us(function: Callable[[], object], cell: list[Any], count: int = 300) -> float:
    import jax

    for _ in range(20):
        function()
    jax.block_until_ready(cell[0])
    found = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(count):
            function()
        jax.block_until_ready(cell[0])
        found.append((time.perf_counter() - begin) / count * 1e6)
    return sorted(found)[2]

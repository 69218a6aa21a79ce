"""Rows that are training steps of small networks: a tiny one, one for MNIST, a convolutional one."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from bench.gpu.row import COMPILED, DEVICE, JAX, TORCH, WEFT, Make, Row, Step

TINY, MNIST = (8, 32, 32, 1), (784, 256, 128, 10)


def _layers(nn: Any, sizes: tuple[int, ...]) -> Any:
    parts = []
    for n, m in pairwise(sizes[:-1]):
        parts += [nn.Linear(n, m), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(*sizes[-2:]))


def _images(nn: Any) -> Any:
    """conv-bn-relu four times, with strides in place of pools."""
    parts, before = [], 3
    for width, stride in ((64, 1), (128, 2), (256, 2), (256, 2)):
        parts += [nn.Conv2d(before, width, 3, stride=stride, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        before = width
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(256 * 16, 10))


def _data(shape: tuple[int, ...], classes: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape, dtype=np.float32)
    if classes == 1:
        return x, rng.standard_normal((shape[0], 1), dtype=np.float32)
    return x, rng.integers(0, classes, shape[0])


def _loss(functional: Any, scores: Any, y: Any, classes: int) -> Any:
    return functional.mse_loss(scores, y) if classes == 1 else functional.cross_entropy(scores, y)


def _weft(network: Any, shape: tuple[int, ...], classes: int, half: bool, adam: bool) -> Step:
    import weft
    from weft import nn, optim

    weft.manual_seed(0)
    model = network(nn).to(DEVICE)
    kind = optim.Adam if adam else optim.SGD
    optimizer = kind(model.parameters(), lr=1e-3)
    x, y = (weft.tensor(a).to(DEVICE) for a in _data(shape, classes))

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        with weft.autocast(weft.bfloat16, enabled=half):
            loss = _loss(nn.functional, model(x), y, classes)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return partial(weft.compile(step), x, y)


def _torch(
    network: Any, shape: tuple[int, ...], classes: int, half: bool, adam: bool, *, compiled: bool
) -> Step:
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = network(nn).cuda()
    x, y = (torch.from_numpy(a).cuda() for a in _data(shape, classes))
    if x.ndim == 4:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    kind = torch.optim.Adam if adam else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=1e-3, fused=True)

    def loss_of(x: Any, y: Any) -> Any:
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            return _loss(nn.functional, model(x), y, classes)

    run = torch.compile(loss_of) if compiled else loss_of

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = run(x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _dense_layer(rng: np.random.Generator, n: int, m: int) -> tuple[Any, Any]:
    return rng.standard_normal((n, m), dtype=np.float32) / n**0.5, np.zeros(m, np.float32)


def _jax(sizes: tuple[int, ...], batch: int) -> Step:
    """An MLP by plain gradient descent."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    params = [_dense_layer(rng, n, m) for n, m in pairwise(sizes)]
    x, y = map(jax.device_put, _data((batch, sizes[0]), sizes[-1]))
    state = jax.device_put(params)

    def loss(params: Any, x: Any, y: Any) -> Any:
        for i, (w, b) in enumerate(params):
            x = x @ w + b
            x = jax.nn.relu(x) if i < len(params) - 1 else x
        if sizes[-1] == 1:
            return ((x - y) ** 2).mean()
        return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()

    @partial(jax.jit, donate_argnums=0)
    def train(params: Any, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return value, jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads)

    def step() -> Any:
        nonlocal state
        value, state = train(state, x, y)
        return value

    return step


def _makers(network: Any, shape: tuple[int, ...], classes: int, *, half: bool, adam: bool) -> dict[str, Make]:
    given = (network, shape, classes, half, adam)
    return {
        WEFT: partial(_weft, *given),
        TORCH: partial(_torch, *given, compiled=False),
        COMPILED: partial(_torch, *given, compiled=True),
    }


def _dense(sizes: tuple[int, ...], batch: int) -> dict[str, Make]:
    network = partial(_layers, sizes=sizes)
    made = _makers(network, (batch, sizes[0]), sizes[-1], half=False, adam=False)
    return made | {JAX: partial(_jax, sizes, batch)}


NETWORKS = [
    Row("tiny", "tiny MLP step (8-32-32-1)", 35, _dense(TINY, 32), turns=500),
    Row("mnist", "MNIST MLP step (784-256-128-10, batch 128)", 60, _dense(MNIST, 128), turns=500),
    Row(
        "cnn", "CNN step (32 × 32 × 3, batch 512, bf16, conv-bn-relu × 4)", 1800,
        _makers(_images, (512, 3, 32, 32), 10, half=True, adam=True), turns=20, limit=120,
    ),
]  # fmt: skip

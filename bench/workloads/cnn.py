"""A convolutional network for images of 28 × 28, trained with Adam."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.case import Arrays, Run
from bench.workloads.training import (
    RATE,
    jax_step,
    linear,
    load_torch,
    load_weft,
    torch_step,
    training_cases,
    weft_step,
)

BATCH = 64
FLAT = 64 * 12 * 12  # after two convolutions without padding and a pool of 2


def arrays(rng: np.random.Generator) -> Arrays:
    """Weights under the names of the Sequential below, images and labels."""
    found: Arrays = {}
    for i, inputs, outputs in ((0, 1, 32), (2, 32, 64)):
        kernel = linear(rng, f"{i}", inputs * 9, outputs)
        kernel[f"{i}.weight"] = kernel[f"{i}.weight"].reshape(outputs, inputs, 3, 3)
        found |= kernel
    found |= linear(rng, "6", FLAT, 128) | linear(rng, "8", 128, 10)
    found["x"] = rng.standard_normal((BATCH, 1, 28, 28), dtype=np.float32)
    found["y"] = rng.integers(0, 10, BATCH)
    return found


def network(nn: Any) -> Any:
    """The network; weft's and PyTorch's modules have the same names."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(FLAT, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def in_weft(arrays: Arrays, compiled: bool = True) -> Run:
    import weft
    from weft import nn, optim

    def loss(model: Any, x: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(model(x), y)

    model = load_weft(network(nn), arrays)
    optimizer = optim.Adam(model.parameters(), lr=RATE)
    data = weft.tensor(arrays["x"]), weft.tensor(arrays["y"])
    return weft_step(model, loss, *data, optimizer=optimizer, compiled=compiled)


def in_torch(arrays: Arrays, compiled: bool) -> Run:
    import torch
    from torch import nn

    def loss(model: Any, x: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(model(x), y)

    model = load_torch(network(nn), arrays)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    data = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
    return torch_step(model, loss, *data, optimizer=optimizer, compiled=compiled)


def in_jax(arrays: Arrays) -> Run:
    import jax
    import jax.numpy as jnp

    def loss(params: Any, x: Any, y: Any) -> Any:
        scores = jax.nn.log_softmax(jax_logits(params, x))
        return -jnp.mean(jnp.take_along_axis(scores, y[:, None], axis=1))

    return jax_step(jax_params(arrays), loss, arrays["x"].transpose(0, 2, 3, 1), arrays["y"])


def jax_logits(params: Any, x: Any) -> Any:
    """The network on images with channels last, which XLA's convolution on the CPU prefers."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def convolve(x: Any, w: Any, b: Any) -> Any:
        out = lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return out + b

    first, second, hidden, last = params
    x = jax.nn.relu(convolve(x, *first))
    x = jax.nn.relu(convolve(x, *second))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(x.shape[0], -1)
    x = jax.nn.relu(x @ hidden[0] + hidden[1])
    return x @ last[0] + last[1]


def jax_params(arrays: Arrays) -> Any:
    """The weights in the order that channels last need."""
    hidden = arrays["6.weight"].reshape(128, 64, 12, 12).transpose(2, 3, 1, 0).reshape(FLAT, 128)
    return [
        *[(arrays[f"{i}.weight"].transpose(2, 3, 1, 0), arrays[f"{i}.bias"]) for i in (0, 2)],
        (hidden, arrays["6.bias"]),
        (arrays["8.weight"].T, arrays["8.bias"]),
    ]


_FIRST, _SECOND = 26 * 26 * 32 * 9, 24 * 24 * 64 * 32 * 9
FORWARD_FLOPS = 2.0 * (_FIRST + _SECOND + FLAT * 128 + 1280)  # of one image
_WEIGHTS = FLAT * 128 + 128 * 10 + 32 * 9 + 64 * 32 * 9
_FLOPS = 2 * BATCH * (2 * _FIRST + 3 * _SECOND + 3 * (FLAT * 128 + 1280))
_BYTES = 4 * 7 * _WEIGHTS

CASES = training_cases("cnn", arrays, in_weft, in_torch, in_jax, flops=_FLOPS, bytes=_BYTES)

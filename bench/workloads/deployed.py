"""Saved networks that answer: one example at a time, and 64 at once.

weft runs a file that `weft.load_graph` reads; ONNX Runtime a model of operators; PyTorch and JAX the model
itself, without gradients. A step is a call from an array to an answer in the framework's own form.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bench.case import Arrays, Build, Case, Run
from bench.workloads import cnn, gpt, lstm, onnx_models
from bench.workloads.training import load_torch, load_weft

BATCHES = (1, 64)


class Network(NamedTuple):
    """A network in each framework.

    Attributes:
        arrays: weights, and an ``x`` with any number of examples.
        batch_axis: of ``x``.
        weft, torch: functions from the framework's names and the weights to a function of x.
        jax: from the weights to parameters, and a function of them and x.
        onnx: the model, for any batch.
        flops: of one example.
    """

    arrays: Callable[[np.random.Generator], Arrays]
    batch_axis: int
    weft: Callable[[Arrays], Any]
    torch: Callable[[Arrays], Any]
    jax: Callable[[Arrays], tuple[Any, Any]]
    onnx: Callable[[Arrays], bytes]
    flops: float


def batch_of(network: Network, rng: np.random.Generator, batch: int) -> Arrays:
    """The weights, and as many examples as asked."""
    arrays = network.arrays(rng)
    found = {name: array for name, array in arrays.items() if name != "y"}
    found["x"] = np.take(
        arrays["x"], np.arange(batch) % arrays["x"].shape[network.batch_axis], network.batch_axis
    )
    return found


def in_weft(arrays: Arrays, network: Network) -> Run:
    import weft

    x = weft.tensor(arrays["x"])
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = os.path.join(folder, "model.weft")
        weft.compile(network.weft(arrays)).save(path, x)
        model = weft.load_graph(path, backend=os.environ.get("BENCH_BACKEND"))
    return Run(lambda: model(x))


def in_torch(arrays: Arrays, network: Network, compiled: bool) -> Run:
    import torch

    model = network.torch(arrays)
    forward = torch.compile(model) if compiled else model
    x = torch.from_numpy(arrays["x"])

    def run() -> Any:
        with torch.inference_mode():
            return forward(x)

    return Run(run)


def in_jax(arrays: Arrays, network: Network) -> Run:
    import jax
    import jax.numpy as jnp

    params, function = network.jax(arrays)
    forward = jax.jit(function)
    params, x = jax.tree.map(jnp.asarray, (params, arrays["x"]))
    return Run(lambda: forward(params, x).block_until_ready())


def in_onnxruntime(arrays: Arrays, network: Network) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(network.onnx(arrays), options, ["CPUExecutionProvider"])
    x = arrays["x"]
    return Run(lambda: session.run(None, {"x": x})[0])


# The convolutional network


def _cnn_in_weft(arrays: Arrays) -> Any:
    from weft import nn

    return load_weft(cnn.network(nn), arrays).requires_grad_(False).eval()


def _cnn_in_torch(arrays: Arrays) -> Any:
    from torch import nn

    return load_torch(cnn.network(nn), arrays).eval()


def _cnn_in_jax(arrays: Arrays) -> tuple[Any, Any]:
    return cnn.jax_params(arrays), lambda params, x: cnn.jax_logits(params, x.transpose(0, 2, 3, 1))


CNN = Network(
    cnn.arrays, 0, _cnn_in_weft, _cnn_in_torch, _cnn_in_jax, onnx_models.cnn_model, cnn.FORWARD_FLOPS
)


# The language model


def _gpt_in_weft(arrays: Arrays) -> Any:
    from weft import nn

    return load_weft(gpt.model_of(nn), arrays).requires_grad_(False).eval()


def _gpt_in_torch(arrays: Arrays) -> Any:
    from torch import nn

    return load_torch(gpt.model_of(nn), arrays).eval()


def _gpt_in_jax(arrays: Arrays) -> tuple[Any, Any]:
    return gpt.jax_params(arrays), gpt.jax_logits


GPT = Network(
    gpt.arrays, 0, _gpt_in_weft, _gpt_in_torch, _gpt_in_jax, onnx_models.gpt_model, gpt.FORWARD_FLOPS
)


# The recurrent network


def _lstm_in_weft(arrays: Arrays) -> Any:
    import weft

    weights = [weft.tensor(arrays[name]) for name in lstm.WEIGHTS]

    def forward(x: Any) -> Any:
        wx, wh, b = weights
        h = c = weft.zeros((x.shape[1], lstm.HIDDEN))
        for t in range(lstm.TIMES):
            i, f, g, o = (x[t] @ wx + h @ wh + b).chunk(4, 1)
            c = weft.sigmoid(f) * c + weft.sigmoid(i) * weft.tanh(g)
            h = weft.sigmoid(o) * weft.tanh(c)
        return h

    return forward


def _lstm_in_torch(arrays: Arrays) -> Any:
    """PyTorch's own module, which is faster there than a cell by hand."""
    import torch

    module = torch.nn.LSTM(lstm.INPUTS, lstm.HIDDEN)
    given = {
        "weight_ih_l0": arrays["wx"].T,
        "weight_hh_l0": arrays["wh"].T,
        "bias_ih_l0": arrays["b"],
        "bias_hh_l0": np.zeros_like(arrays["b"]),
    }
    module.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in given.items()})
    return lambda x: module(x)[1][0][0]


def _lstm_in_jax(arrays: Arrays) -> tuple[Any, Any]:
    import jax
    import jax.numpy as jnp

    def forward(params: Any, x: Any) -> Any:
        wx, wh, b = params

        def cell(state: Any, row: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(row @ wx + h @ wh + b, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zeros = jnp.zeros((x.shape[1], lstm.HIDDEN))
        (h, _), _ = jax.lax.scan(cell, (zeros, zeros), x)
        return h

    return [arrays[name] for name in lstm.WEIGHTS], forward


LSTM = Network(
    lstm.arrays, 1, _lstm_in_weft, _lstm_in_torch, _lstm_in_jax, onnx_models.lstm_model, lstm.FORWARD_FLOPS
)


def _builders(network: Network) -> dict[str, Build]:
    return {
        "weft": partial(in_weft, network=network),
        "torch": partial(in_torch, network=network, compiled=False),
        "torch compile": partial(in_torch, network=network, compiled=True),
        "jax": partial(in_jax, network=network),
        "onnxruntime": partial(in_onnxruntime, network=network),
    }


CASES = [
    Case(
        f"deployed {name} {batch}",
        partial(batch_of, network, batch=batch),
        _builders(network),
        goal=1.0,
        flops=network.flops * batch,
    )
    for name, network in (("cnn", CNN), ("gpt", GPT), ("lstm", LSTM))
    for batch in BATCHES
]

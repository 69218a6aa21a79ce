"""Narrow numbers on the processor: training under autocast, saved networks in float16, quantised ones.

Where a processor has no unit for such numbers, weft converts them as it packs, and the peers do what they do:
the rows are there all the same, and ``weft doctor`` tells which units there are.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from bench.case import Arrays, Case, Run
from bench.workloads import cnn, deployed, gpt
from bench.workloads.deployed import Network, batch_of
from bench.workloads.training import RATE, STEPS, load_torch, load_weft, torch_step, weft_step

HALF = 3e-2  # how far results in half precision may be apart
MODULES: dict[str, Any] = {"gpt": gpt, "cnn": cnn}


# Training


def _loss(functional: Any, half: Any) -> Any:
    """The loss of a network, of which the products are in half precision."""

    def loss(model: Any, x: Any, y: Any) -> Any:
        with half():
            logits = model(x)
        classes = logits.shape[-1]
        return functional.cross_entropy(logits.reshape(-1, classes), y.reshape(-1))

    return loss


def _model(name: str, nn: Any) -> Any:
    return gpt.model_of(nn) if name == "gpt" else cnn.network(nn)


def trained_in_weft(arrays: Arrays, name: str, half: bool = True) -> Run:
    import weft
    from weft import nn, optim

    model = load_weft(_model(name, nn), arrays)
    optimizer = optim.AdamW(model.parameters(), lr=RATE, weight_decay=gpt.DECAY)
    loss = _loss(nn.functional, partial(weft.autocast, weft.bfloat16) if half else nullcontext)
    data = weft.tensor(arrays["x"]), weft.tensor(arrays["y"])
    return weft_step(model, loss, *data, optimizer=optimizer)


def trained_in_torch(arrays: Arrays, name: str, compiled: bool) -> Run:
    import torch
    from torch import nn

    model = load_torch(_model(name, nn), arrays)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=gpt.DECAY, fused=True)
    loss = _loss(nn.functional, partial(torch.autocast, "cpu", dtype=torch.bfloat16))
    data = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
    return torch_step(model, loss, *data, optimizer=optimizer, compiled=compiled)


# Saved networks


def saved_in_weft(arrays: Arrays, network: Network, precision: str | None = "f16") -> Run:
    import weft

    x = weft.tensor(arrays["x"])
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = os.path.join(folder, "model.weft")
        weft.compile(network.weft(arrays)).save(path, x)
        model = weft.load_graph(path, precision=precision)
    return Run(lambda: model(x))


def saved_in_openvino(arrays: Arrays, network: Network) -> Run:
    import openvino

    settings = {"INFERENCE_PRECISION_HINT": "f16", "INFERENCE_NUM_THREADS": 2}
    core = openvino.Core()
    model = core.compile_model(core.read_model(network.onnx(arrays)), "CPU", settings)
    x = arrays["x"]
    return Run(lambda: np.asarray(model(x)[0]))


def saved_in_torch(arrays: Arrays, network: Network) -> Run:
    import torch

    model, x = network.torch(arrays), torch.from_numpy(arrays["x"])

    def run() -> Any:
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.float16):
            return model(x).float()

    return Run(run)


# Quantised networks: bytes with zero points, requantised after each layer, as ONNX has them


def quantised_mlp(rng: np.random.Generator) -> Arrays:
    sizes = (768, 3072, 768)
    found = {f"w{i}": rng.integers(-127, 128, pair).astype(np.int8) for i, pair in enumerate(pairwise(sizes))}
    return found | {"x": rng.standard_normal((128, sizes[0])).astype(np.float32)}


def quantised_cnn(rng: np.random.Generator) -> Arrays:
    channels = (16, 32, 64, 64)
    found = {
        f"w{i}": rng.integers(-127, 128, (b, a, 3, 3)).astype(np.int8)
        for i, (a, b) in enumerate(pairwise(channels))
    }
    return found | {"x": rng.standard_normal((4, channels[0], 56, 56)).astype(np.float32)}


def quantised_model(arrays: Arrays) -> bytes:
    """An ONNX model of ``QLinearMatMul`` or ``QLinearConv``, one for each weight."""
    from onnx import TensorProto, helper, numpy_helper

    weights = [array for name, array in arrays.items() if name != "x"]
    is_cnn = weights[0].ndim == 4
    given: Arrays = {
        "step": np.float32(0.02),
        "zero": np.uint8(128),
        "w_step": np.float32(0.01),
        "w_zero": np.int8(0),
        "out_step": np.float32(0.5),
    }  # type: ignore[dict-item]
    given |= {f"w{i}": array for i, array in enumerate(weights)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "step", "zero"], ["q0"])]
    for i in range(len(weights)):
        step = "step" if i == 0 else "out_step"
        inputs = [f"q{i}", step, "zero", f"w{i}", "w_step", "w_zero", "out_step", "zero"]
        more = {"pads": [1, 1, 1, 1]} if is_cnn else {}
        op = "QLinearConv" if is_cnn else "QLinearMatMul"
        nodes.append(helper.make_node(op, inputs, [f"q{i + 1}"], **more))
    nodes.append(helper.make_node("DequantizeLinear", [f"q{len(weights)}", "out_step", "zero"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, arrays["x"].shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in given.items()],
    )
    opsets = [helper.make_opsetid("", 20)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def quantised_in_weft(arrays: Arrays) -> Run:
    import weft
    from bench.frameworks import weft_compile

    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = os.path.join(folder, "model.onnx")
        with open(path, "wb") as file:
            file.write(quantised_model(arrays))
        model = weft_compile(weft.onnx.load(path))
    x = weft.tensor(arrays["x"])
    return Run(lambda: model(x))


def quantised_in_onnxruntime(arrays: Arrays) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(quantised_model(arrays), options, ["CPUExecutionProvider"])
    x = arrays["x"]
    return Run(lambda: session.run(None, {"x": x})[0])


_QUANTISED = {"weft": quantised_in_weft, "onnxruntime": quantised_in_onnxruntime}

CASES = [
    *[
        Case(
            f"{name} bf16",
            MODULES[name].arrays,
            {
                "weft": partial(trained_in_weft, name=name),
                "weft f32": partial(trained_in_weft, name=name, half=False),
                "torch": partial(trained_in_torch, name=name, compiled=False),
                "torch compile": partial(trained_in_torch, name=name, compiled=True),
            },
            goal=1.0,
            steps=STEPS,
            beside=("weft f32",),
            tolerance=HALF,
        )
        for name in MODULES
    ],
    *[
        Case(
            f"deployed {name} f16 64",
            partial(batch_of, network, batch=64),
            {
                "weft": partial(saved_in_weft, network=network),
                "weft f32": partial(saved_in_weft, network=network, precision=None),
                "torch": partial(saved_in_torch, network=network),
                "openvino": partial(saved_in_openvino, network=network),
            },
            goal=1.0,
            beside=("weft f32",),
            tolerance=HALF,
        )
        for name, network in (("cnn", deployed.CNN), ("gpt", deployed.GPT))
    ],
    # A number on the border of two bytes may go to either, and the next layer spreads that.
    Case("int8 mlp", quantised_mlp, _QUANTISED, goal=1.0, flops=2.0 * 128 * 768 * 3072 * 2, tolerance=HALF),
    Case("int8 cnn", quantised_cnn, _QUANTISED, goal=1.0, tolerance=HALF),
]

"""The tiny network on one example: what a call costs, from input to output in the framework's own form."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench.case import Arrays, Case, Run
from bench.frameworks import weft_compile
from bench.workloads import mlp
from bench.workloads.training import load_torch, load_weft


def in_weft(arrays: Arrays) -> Run:
    import weft
    from weft import nn

    model = load_weft(mlp.network(nn, mlp.TINY), arrays).requires_grad_(False)
    forward = weft_compile(model)
    x = weft.tensor(arrays["x"])
    return Run(lambda: forward(x))


def in_torch(arrays: Arrays, compiled: bool) -> Run:
    import torch
    from torch import nn

    model = load_torch(mlp.network(nn, mlp.TINY), arrays)
    forward = torch.compile(model) if compiled else model
    x = torch.from_numpy(arrays["x"])

    def run() -> Any:
        with torch.inference_mode():
            return forward(x)

    return Run(run)


def in_jax(arrays: Arrays) -> Run:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def forward(params: Any, x: Any) -> Any:
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = params[-1]
        return x @ w + b

    layers = [(arrays[f"{i}.weight"].T, arrays[f"{i}.bias"]) for i in (0, 2, 4)]
    params, x = jax.tree.map(jnp.asarray, (layers, arrays["x"]))
    return Run(lambda: forward(params, x).block_until_ready())


def in_onnxruntime(arrays: Arrays, bound: bool) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # nothing here is worth a second thread
    session = onnxruntime.InferenceSession(_onnx_model(arrays), options, ["CPUExecutionProvider"])
    x = arrays["x"]
    if not bound:
        return Run(lambda: session.run(None, {"x": x})[0])
    value = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((1, 1), np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(x))
    binding.bind_ortvalue_output("y", value)

    def run() -> Any:
        session.run_with_iobinding(binding)
        return value

    return Run(run)


def _onnx_model(arrays: Arrays) -> bytes:
    from onnx import TensorProto, checker, helper, numpy_helper

    nodes, names, last = [], [n for n in arrays if "." in n], "x"
    for i in (0, 2, 4):
        out = "y" if i == 4 else f"linear{i}"
        nodes.append(helper.make_node("Gemm", [last, f"{i}.weight", f"{i}.bias"], [out], transB=1))
        if i < 4:
            nodes.append(helper.make_node("Relu", [out], [f"relu{i}"]))
        last = f"relu{i}"
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size])
        for name, size in (("x", mlp.TINY[0]), ("y", mlp.TINY[-1]))
    ]
    weights = [numpy_helper.from_array(arrays[name], name) for name in names]
    graph = helper.make_graph(nodes, "tiny_mlp", values[:1], values[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    return model.SerializeToString()


CASES = [
    Case(
        "inference",
        partial(mlp.arrays, sizes=mlp.TINY, batch=1),
        {
            "weft": in_weft,
            "torch": partial(in_torch, compiled=False),
            "torch compile": partial(in_torch, compiled=True),
            "jax": in_jax,
            "onnxruntime": partial(in_onnxruntime, bound=False),
            "onnxruntime bound": partial(in_onnxruntime, bound=True),
        },
        goal=1.7,
        beside=("onnxruntime bound",),
    )
]

"""Models of one node, and what weft and onnxruntime make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import weft

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
OPSET = 22


def reals(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def model_of(
    op: str,
    inputs: Arrays,
    outputs: int = 1,
    *,
    opset: int = OPSET,
    domain: str = "",
    shapes: dict[str, Sequence[Any]] | None = None,
    stored: Sequence[str] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; shapes with names for inputs, and which inputs are stored in it."""
    names = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, list(inputs), names, domain=domain, **attributes)
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), (shapes or {}).get(name, x.shape)
        )
        for name, x in inputs.items()
        if name and name not in stored
    ]
    results = [onnx.ValueInfoProto(name=name) for name in names]
    weights = [numpy_helper.from_array(inputs[name], name) for name in stored]
    graph = helper.make_graph([node], op.lower(), infos, results, weights)
    sets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 3)] if domain else [])
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def by_weft(model: onnx.ModelProto, inputs: Arrays, backend: str = "interpret") -> list[Array]:
    graph = weft.onnx.load(model)
    names = {v.name for v in graph.inputs}
    feeds = {name: x for name, x in inputs.items() if name in names}
    return [t.numpy() for t in weft.Session(graph, backend=backend).run(list(graph.outputs), feeds)]


def by_runtime(model: onnx.ModelProto, inputs: Arrays) -> list[Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    return session.run(None, {name: x for name, x in inputs.items() if name in wanted})


def agree(
    model: onnx.ModelProto, inputs: Arrays, backends: Sequence[str] = ("interpret",), rtol: float = 1e-4
) -> None:
    """weft and onnxruntime give the same outputs."""
    expected = by_runtime(model, inputs)
    for backend in backends:
        for got, wanted in zip(by_weft(model, inputs, backend), expected, strict=True):
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=rtol, atol=1e-5, err_msg=backend)

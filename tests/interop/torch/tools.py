"""What tests of the interplay with PyTorch share: a program run by PyTorch and by weft, compared."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import weft
from weft.capture.static.importing import Importer
from weft.interop.torch import from_torch, import_program
from weft.interop.torch.nodes import Runner
from weft.interop.torch.program import _as_result
from weft.interop.torch.tensors import weft_dtype

BACKENDS = ("interpret", "llvm")


def flat(x: Any) -> list[Any]:
    """The leaves of nested results."""
    if isinstance(x, tuple | list):
        return [leaf for item in x for leaf in flat(item)]
    if isinstance(x, dict):
        return [leaf for item in x.values() for leaf in flat(item)]
    return [] if x is None else [x]


def as_array(x: Any) -> Any:
    """The elements of a tensor of PyTorch; bfloat16 as float32."""
    if not isinstance(x, torch.Tensor):
        return np.asarray(x)
    x = x.detach()
    return (x.float() if x.dtype is torch.bfloat16 else x).resolve_conj().numpy()


def run_graph(graph: Any, inputs: Sequence[torch.Tensor], backend: str) -> list[Any]:
    """The results of a graph as arrays."""
    args = [v for v, role in zip(graph.inputs, graph.roles, strict=True) if role == "arg"]
    feeds = {v: from_torch(x.detach()) for v, x in zip(args, inputs, strict=True)}
    found = weft.Session(graph, backend=backend).run(list(graph.outputs), feeds)
    return [x.astype("float32").numpy() if x.dtype == weft.bfloat16 else x.numpy() for x in found]


def assert_close(found: Sequence[Any], wanted: Sequence[Any], rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """The same shapes, dtypes and values."""
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        expected = as_array(other)
        assert one.dtype == expected.dtype, f"{one.dtype} for {expected.dtype}"
        np.testing.assert_allclose(one, expected, rtol=rtol, atol=atol)


def traced_graph(function: Any, inputs: Sequence[torch.Tensor]) -> Any:
    """The graph of a function of operators, each of which stays one node."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = make_fx(function, tracing_mode="fake")(*inputs)
    importer = Importer("op")
    with importer:
        given = [
            importer.argument(f"x{i}", x.shape, weft_dtype("test", x.dtype)) for i, x in enumerate(inputs)
        ]
        out = Runner(torch, module)(given)
        importer.finish([_as_result(x) for x in flat(out)])
    return importer.graph


def check_function(function: Any, *inputs: torch.Tensor, **tolerance: float) -> Any:
    """Compare a function of operators with its graph, on every backend."""
    graph = traced_graph(function, inputs)
    graph.verify()
    wanted = flat(function(*inputs))
    for backend in BACKENDS:
        assert_close(run_graph(graph, inputs, backend), wanted, **tolerance)
    return graph


def exported(module: torch.nn.Module, inputs: Sequence[torch.Tensor], dynamic: Any = None) -> Any:
    """A program of a module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(module, tuple(inputs), dynamic_shapes=dynamic, strict=False)


def check_module(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    dynamic: Any = None,
    others: Sequence[torch.Tensor] | None = None,
    **tolerance: float,
) -> Any:
    """Compare a module with the graph of its program, on every backend, on other sizes too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = import_program(exported(module, inputs, dynamic))
    graph.verify()
    for given in [inputs, *([others] if others else [])]:
        with torch.no_grad():
            wanted = flat(module(*given))
        for backend in BACKENDS:
            assert_close(run_graph(graph, given, backend), wanted, **tolerance)
    return graph

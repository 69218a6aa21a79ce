"""What tests of the interplay with JAX share: a function run by JAX and by weft, compared."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import weft
from weft.interop.jax import import_function
from weft.interop.jax.calls import is_key

BACKENDS = ("interpret", "llvm")


def as_array(x: Any) -> Any:
    """The elements of an array of JAX; of a key its words; bfloat16 as float32."""
    plain = np.array(jax.random.key_data(x) if is_key(x) else x)
    return plain.astype(np.float32) if plain.dtype.name == "bfloat16" else plain


def run_graph(graph: Any, args: Any, backend: str) -> list[Any]:
    """The results of a graph as arrays."""
    wanted = [v for v, role in zip(graph.inputs, graph.roles, strict=True) if role == "arg"]
    leaves = [np.array(jax.random.key_data(x) if is_key(x) else x) for x in jax.tree.leaves(args)]
    found = weft.Session(graph, backend=backend).run(
        list(graph.outputs), dict(zip(wanted, leaves, strict=True))
    )
    return [x.astype("float32").numpy() if x.dtype == weft.bfloat16 else x.numpy() for x in found]


def check_function(
    function: Any, *args: Any, rtol: float = 1e-4, atol: float = 1e-5, same: bool = True
) -> Any:
    """Compare a function with its graph, on every backend."""
    graph = import_function(function, *args)
    graph.verify()
    wanted = [as_array(x) for x in jax.tree.leaves(function(*args))]
    for backend in BACKENDS:
        for one, other in zip(run_graph(graph, args, backend), wanted, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            if same:
                np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
    return graph

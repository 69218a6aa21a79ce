"""The check of the runtime's tests: a captured function gives the values and gradients of the eager one.

The graph runs as it was captured first, then optimised, so that it shows which of the two is at fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft


def row(*values: float) -> Any:
    return np.array(values, np.float32)


def arrays(*tensors: Any) -> list[Any]:
    return [t.detach().numpy() for t in tensors]


def assert_same(a: Any, b: Any, tolerance: float = 0.0) -> None:
    """Trees of the same tensors and plain values."""
    left, right = weft.tree_leaves(a), weft.tree_leaves(b)
    assert len(left) == len(right)
    for x, y in zip(left, right, strict=True):
        if isinstance(x, weft.Tensor):
            assert (x.dtype, x.requires_grad) == (y.dtype, y.requires_grad)
            np.testing.assert_allclose(*arrays(x, y), rtol=tolerance, atol=tolerance)
        else:
            assert (x, type(x)) == (y, type(y))


def compiled(function: Callable[..., Any]) -> Any:
    return weft.compile(function, passes=[])


def check_agrees(function: Callable[..., Any], *runs: Sequence[Any], grad: bool = True) -> None:
    """Compare values, dtypes and gradients of one captured function with eager, on several inputs."""
    captured, optimised = compiled(function), weft.compile(function)
    for run in runs:
        expected, slopes = _run(function, run, grad)
        for way in (captured, optimised):
            found, found_slopes = _run(way, run, grad)
            _compare(found, expected)
            _compare(found_slopes, slopes)


def _run(function: Callable[..., Any], arrays: Sequence[Any], grad: bool) -> tuple[list[Any], list[Any]]:
    inputs = [weft.tensor(a, requires_grad=grad and a.dtype.kind == "f") for a in arrays]
    leaves = weft.tree_leaves(function(*inputs))
    linked = [x for x in leaves if isinstance(x, weft.Tensor) and x.requires_grad]
    if linked:
        sum(((x * (k + 1.5)).sum() for k, x in enumerate(linked)), weft.zeros(())).backward()
    return leaves, [x.grad for x in inputs]


def _compare(found: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        if isinstance(b, weft.Tensor):
            assert isinstance(a, weft.Tensor)
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=2e-5, atol=1e-6)
        else:
            assert type(a) is type(b)
            assert a == b or (isinstance(b, float) and math.isclose(a, b, rel_tol=1e-14))


def ops_of(function: Callable[..., Any], *arrays: Any) -> list[str]:
    """The names of all ops in the graph of a function, those of regions included."""
    graph = weft.make_graph(function)(*map(weft.tensor, arrays))
    return [node.op.name for node in graph.walk()]


def loops_of(function: Any, *arrays: Any) -> list[str]:
    """The loops of the graph of a function, by the names of their ops."""
    return [name for name in ops_of(function, *arrays) if name in ("scan", "while_loop")]

"""Guards on floats, after the first run: they expect what compiled code computes, to the last bit.

While a function is captured, Python looks at values that the reference kernels compute. Compiled code rounds
elsewhere, so that the guard of such a value would fail at the very call it was made for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.capture.program.program import Program
from weft.errors import TraceGuardError
from weft.ir.graph import Graph
from weft.ops.guard import guard

_NEAR = {2: 0.05}  # by bytes of a real number, what rounding may make of the largest element
_ELSE = 1e-3  # of float64 too: a Python number may come from a tensor of float32
MOST_SETTLED = 8  # values of one version


def settled(program: Program, error: TraceGuardError) -> Program | None:
    """A program whose guards expect the answers of the first run; None if more than rounding is in them."""
    if error.answers is None or not _is_near(*error.answers):
        return None
    was, now = error.answers
    derivative = program.derivative
    if derivative is not None:
        derivative = derivative._replace(forward=_expecting(derivative.forward, was, now))
    return program._replace(graph=_expecting(program.graph, was, now), derivative=derivative)


def _is_near(was: Any, now: Any) -> bool:
    if was.shape != now.shape or was.dtype != now.dtype or was.dtype.kind not in "fc":
        return False
    if not np.array_equal(np.isfinite(was), np.isfinite(now)):
        return False
    there = np.isfinite(was)
    scale = np.abs(was[there]).max(initial=0.0)
    near = _NEAR.get(was.real.itemsize, _ELSE)
    return bool(np.abs(was[there] - now[there]).max(initial=0.0) <= near * max(float(scale), 1e-3))


def _expecting(graph: Graph, was: Any, now: Any) -> Graph:
    """A graph whose guards of some elements expect others."""
    expected = {node.inputs[1] for node in graph.nodes if node.op is guard}
    found = {
        value: now
        for value, array in graph.constants.items()
        if value in expected and array.dtype == was.dtype and array.tobytes() == was.tobytes()
    }
    return graph.replace(constants={**graph.constants, **found})


def looks_at_floats(graph: Graph) -> bool:
    """Whether a graph has guards of floats, and no effect but guards, so that a run can settle them."""
    guards = [node for node in graph.nodes if node.op is guard]
    if any(node.op.effect and node.op is not guard for node in graph.walk()):
        return False
    return any(n.attrs["asked"] == "value" and n.inputs[1].type.dtype.kind in "fc" for n in guards)

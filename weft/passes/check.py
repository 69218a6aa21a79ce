"""``weft.check_passes``: runs a graph after every pass, and names the first pass whose result differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.base.hooks import hooks
from weft.base.public import public
from weft.errors import ArgumentError, GraphError
from weft.ir.graph import Array, Graph, Node, Value
from weft.ir.interpret import interpret
from weft.ir.labels import ConstantNames, Labels
from weft.ops.op import TensorLike
from weft.passes.pipeline import Record, Step, optimize_in_steps

_TOLERANCES = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "complex64": 1e-4}
_DOUBLE = 1e-8


@public
def check_passes(
    function: Callable[..., Any] | Graph,
    *args: object,
    passes: Sequence[Step] | None = None,
    fast_math: bool = False,
    tolerance: float | None = None,
) -> list[str]:
    """Run the graph of a function on arguments after every pass; gives the names of the passes that changed
    it.

    Args:
        function: a function, of which nothing is changed outside, or a graph.
        args: arguments of the function, or arrays for the inputs of the graph.
        passes: as for ``graph.optimize``.
        fast_math: likewise; results may then differ within a tolerance.
        tolerance: by how much results may differ, relative to the largest number of a tensor. By default
            results must agree in every bit, and with ``fast_math`` to about half of their digits.

    Raises:
        GraphError: names the first pass after which a result differs, and the first node that does.

    >>> import weft
    >>> weft.check_passes(lambda x: weft.exp(x * 1.0) + weft.exp(x), weft.ones(3))
    ['simplify', 'cse']
    """
    check = _Check(passes, fast_math, tolerance)
    if isinstance(function, Graph):
        check.run(function, [_as_array(x) for x in args])
        return check.names
    if not callable(function):
        raise ArgumentError("check_passes", f"takes a function or a graph, got {type(function).__name__}")
    compiled = hooks.compile(function, backend=check.build, passes=())
    try:
        compiled(*args)
    except _Done:  # before anything outside is changed
        return check.names
    raise GraphError("check_passes", "the function must become a graph, got one that ran without")


class _Done(BaseException):
    """Leaves a run once its graph has been checked."""


class _Check:
    """One check of a pipeline."""

    def __init__(self, passes: Sequence[Step] | None, fast_math: bool, tolerance: float | None) -> None:
        self.passes = passes
        self.fast_math = fast_math
        self.tolerance = tolerance
        self.names: list[str] = []

    def build(self, graph: Graph) -> Callable[[Sequence[Array]], Sequence[Array]]:
        """As a backend: what runs the graph, and ends there."""

        def run(arrays: Sequence[Array]) -> Sequence[Array]:
            self.run(graph, arrays)
            raise _Done

        return run

    def run(self, graph: Graph, arrays: Sequence[Array]) -> None:
        """Compare the results after each pass with those before all passes."""
        wanted = interpret(graph, arrays)
        for record in optimize_in_steps(graph, self.passes, fast_math=self.fast_math):
            self.names.append(record.name)
            results = interpret(record.after, arrays)
            for i, (a, b) in enumerate(zip(wanted, results, strict=True)):
                if not self.agree(a, b):
                    raise self.error(record, arrays, i, a, b)

    def agree(self, a: Array, b: Array) -> bool:
        """Whether two arrays are the same, as far as asked for."""
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if self.tolerance is None and not self.fast_math:
            return bool(same_elements(a, b).all())
        if kind(a.dtype) not in "fc" or a.size == 0:
            return bool((a == b).all())
        tolerance = self.tolerance
        if tolerance is None:
            tolerance = _TOLERANCES.get(a.dtype.name, _DOUBLE)
        wide = np.dtype("complex128" if kind(a.dtype) == "c" else "float64")
        x, y = a.astype(wide), b.astype(wide)
        finite = np.isfinite(x)
        scale = max(1.0, float(np.abs(x[finite]).max(initial=0.0)))
        return bool((same_elements(x, y) | (np.abs(x - y) <= tolerance * scale) | ~finite).all())

    def error(self, record: Record, arrays: Sequence[Array], i: int, a: Array, b: Array) -> GraphError:
        """The error that names the pass, and the first node whose value is another than before."""
        node, before, after = self._first_node(record, arrays)
        where = f"result {i} {_difference(a, b)}"
        location = None
        if node is not None:
            labels = Labels(record.after, ConstantNames())
            call = f"{labels.listed(node.outputs)} = {node.op.name}({labels.listed(node.inputs)})"
            where += f"; the first node that differs is {call}, which {_difference(before, after)}"
            location = None if node.location is None else node.location.place
        message = f"results must be the same after {record.name}, got {where}"
        return GraphError("check_passes", message, location=location)

    def _first_node(self, record: Record, arrays: Sequence[Array]) -> tuple[Node | None, Any, Any]:
        """The first node after a pass that computes something else for a value of the graph before."""
        pairs = _pairs(record)
        befores = interpret(record.before, arrays, [a for a, _ in pairs])
        afters = interpret(record.after, arrays, [b for _, b in pairs])
        made = {out: node for node in record.after.nodes for out in node.outputs}
        for (_, value), a, b in zip(pairs, befores, afters, strict=True):
            if not self.agree(a, b):
                return made.get(value), a, b
        return None, None, None


def _pairs(record: Record) -> list[tuple[Value, Value]]:
    """Values that must be the same before and after a pass: those in both graphs, then the results."""
    known = {out for node in record.before.nodes for out in node.outputs}
    shared = [(v, v) for node in record.after.nodes for v in node.outputs if v in known]
    return shared + list(zip(record.before.results, record.after.results, strict=True))


def same_elements(a: Array, b: Array) -> Array:
    """Where two arrays have the same bits, all NaN being one."""
    size = a.dtype.itemsize
    left, right = (np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(-1, size) for x in (a, b))
    same: Array = (left == right).all(axis=1).reshape(a.shape)
    return same | ((a != a) & (b != b)) if kind(a.dtype) in "fc" else same


def _difference(a: Array, b: Array) -> str:
    """Where two arrays differ, in words."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"is {b.dtype.name}{list(b.shape)} instead of {a.dtype.name}{list(a.shape)}"
    place = np.unravel_index(int(np.argmin(same_elements(a, b))), a.shape)
    index = tuple(int(i) for i in place)
    return f"is {b[index]} instead of {a[index]}" + (f" at {index}" if index else "")


def _as_array(x: object) -> Array:
    return np.asarray(x.detach() if isinstance(x, TensorLike) else x)  # type: ignore[attr-defined]

"""Backward rules on large arrays: one kernel gives all gradients that a rule computes.

A rule is written in ops, so it is traced on tensors of the types it met. Where all arrays have one shape, a
kernel sees them as rows of any length; else it serves any size of the first axis, if that can be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft.backends.eager.graphs import ANY, MISSING, MOST_KERNELS, build, open_first, trace
from weft.base.dtypes import float32, float64
from weft.ir.graph import Graph
from weft.ir.types import TensorType
from weft.ops.op import TensorLike, type_of
from weft.tensor.rules import Backward, Edges, Saved

ndarray = np.ndarray
Arrays = list[Any]
Needed = tuple[bool, ...]  # of each input, whether its gradient is wanted
Run = Callable[[Arrays], Sequence[Any]]  # from the gradient and the saved arrays to the gradients

_MOST_KNOWN = 4096  # kinds of calls that are remembered

_known: dict[Any, Run | None] = {}  # by all that a rule was given
_kernels: dict[Any, Run | None] = {}  # by types, in which sizes may be open
_counts: Counter[Backward] = Counter()  # kernels that a rule has


def pull_large(rule: Backward, g: Any, saved: Saved, edges: Edges, *, flat: bool) -> Sequence[Any] | None:
    """What a rule gives on arrays; None where its ops are to run one by one.

    Args:
        rule: of an op.
        g: the gradient of its output, or a list of those of its outputs.
        saved: what the op kept.
        edges: of its inputs, None for those that need no gradient.
        flat: whether arrays are of one shape, or numbers, and the rule works element by element.
    """
    call = (*(g if isinstance(g, list) else (g,)), *saved)
    arrays: Arrays = []
    needed = tuple([e is not None for e in edges])
    try:
        key = (rule, needed, *[_taken_down(x, arrays, flat) for x in call])
        run = _known.get(key, MISSING)
    except TypeError:  # tensors, or what cannot be compared
        return None
    if run is MISSING:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        run = _known[key] = _find(rule, call, arrays, needed, flat)
    if run is None:
        return None
    if not flat:
        grads: Sequence[Any] = run(arrays)
        return grads
    shape = arrays[0].shape
    found = run([x.reshape(-1) if x.ndim else x for x in arrays])
    return [None if x is None else x.reshape(shape) for x in found]


def _taken_down(x: Any, arrays: Arrays, flat: bool) -> Any:
    """What a kernel depends on; arrays are put into a list. A TypeError for what kernels do not take."""
    if type(x) is ndarray:
        if x.dtype is not float32 and x.dtype is not float64:
            raise TypeError
        arrays.append(x)
        return (x.dtype, x.ndim > 0) if flat else (x.dtype, x.shape)
    if isinstance(x, tuple):
        return tuple([_taken_down(i, arrays, flat) for i in x])
    if isinstance(x, TensorLike):
        raise TypeError
    return x


def _find(rule: Backward, call: tuple[Any, ...], arrays: Arrays, needed: Needed, flat: bool) -> Run | None:
    """What runs calls like this one: for rows of any length, for any batch, or for these sizes alone."""
    exact = [type_of(x) for x in arrays]
    if flat:
        rows = tuple([TensorType((ANY,) * min(t.ndim, 1), t.dtype) for t in exact])
        return _kernel(rule, call, needed, rows)
    size = exact[0].shape[0] if exact[0].shape else 0
    opened = tuple([open_first(t, size) for t in exact])
    for types in (opened, tuple(exact)):
        run = _kernel(rule, _with_open(call, size) if types is opened else call, needed, types)
        if run is not None:
            return run
    return None


def _with_open(x: Any, size: int) -> Any:
    """The types among what was saved with the first size open."""
    if isinstance(x, tuple):
        return tuple([_with_open(i, size) for i in x])
    return open_first(x, size) if isinstance(x, TensorType) else x


def _kernel(
    rule: Backward, call: tuple[Any, ...], needed: Needed, types: tuple[TensorType, ...]
) -> Run | None:
    """The kernel of a rule for arrays of types; made if it is new."""
    key = (rule, needed, types, _without_arrays(call))
    if key not in _kernels:
        _kernels[key] = _make(rule, call, needed, types)
    return _kernels[key]


def _without_arrays(x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple([_without_arrays(i) for i in x])
    return ndarray if type(x) is ndarray else x


def _make(rule: Backward, call: tuple[Any, ...], needed: Needed, types: tuple[TensorType, ...]) -> Run | None:
    if _counts[rule] >= MOST_KERNELS:
        return None
    missing: list[bool] = []

    def function(*tensors: Any) -> list[Any]:
        rest = iter(tensors)
        given = _filled(call, rest)
        edges = tuple([True if n else None for n in needed])
        g = given[0] if rule.outputs == 1 else list(given[: rule.outputs])
        grads = rule.run(g, given[rule.outputs :], edges)
        missing[:] = [x is None for x in grads]
        return [x for x in grads if x is not None]

    try:
        graph = trace(function, types, rule.name)
        if graph is None or not graph.nodes:
            return None
        run = _placing(graph, missing)
    except Exception:  # where nothing can be compiled, the ops still run one by one
        return None
    _counts[rule] += 1
    return run


def _filled(x: Any, tensors: Iterator[Any]) -> Any:
    """What a rule is given, with tensors for arrays."""
    if isinstance(x, tuple):
        return tuple([_filled(i, tensors) for i in x])
    return next(tensors) if type(x) is ndarray else x


def _placing(graph: Graph, missing: Sequence[bool]) -> Run:
    """What runs a graph; gradients that are its inputs are passed on, and missing ones are None."""
    inputs = {v: i for i, v in enumerate(graph.inputs)}
    made = [v for v in graph.outputs if v not in inputs]
    run = build(graph.replace(outputs=made).optimize())
    numbers = {v: i for i, v in enumerate(made)}
    outputs = iter(graph.outputs)
    # from a gradient to its place among results, or to that among inputs (~i), or to None
    places: list[int | None] = []
    for absent in missing:
        v = None if absent else next(outputs)
        places.append(None if v is None else ~inputs[v] if v in inputs else numbers[v])

    def placed(arrays: Arrays) -> Sequence[Any]:
        found = run(arrays)
        return [None if p is None else found[p] if p >= 0 else arrays[~p] for p in places]

    return placed

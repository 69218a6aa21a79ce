"""Backward rules on arrays of a device: one program gives all gradients that a rule computes.

A rule is written in ops, so it is traced on tensors of the types that it met, as for large arrays of the host
(``weft.backends.eager.rules``). What comes of it is one launch, views, or ops one by one. Rules of ops that
went the short way (``weft.backends.cuda.forms``) have one, too: from the form of a gradient to a launch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any

import weft.passes.pipeline  # noqa: F401 - how graphs are optimised
from weft.backends.cuda import eager
from weft.backends.cuda.array import DeviceArray
from weft.backends.cuda.forms import DeviceForm, Pull, direct_pull
from weft.backends.cuda.varied import Varied, open_kind
from weft.backends.cuda.views import view_of
from weft.base.records import NamedTuple
from weft.base.shapes import Shape
from weft.base.sizes import is_known, named_size
from weft.errors import DeviceError, WeftError
from weft.ir.graph import Graph
from weft.ir.types import TensorType
from weft.ops.op import TensorLike
from weft.tensor.rules import Backward, Edges, Saved


class _Wanted(NamedTuple):
    """Of which inputs the gradients are wanted; ``twice`` if both are one, which gets the sum."""

    needed: tuple[bool, ...]
    twice: bool


class _Traced(NamedTuple):
    """The graph of a rule for all but those gradients that are passed on.

    Attributes:
        graph: from the gradient and the saved arrays to gradients.
        places: for each input, where its gradient is among inputs and outputs of the graph; None for none.
        programs: by device, what runs it, or None.
    """

    graph: Graph
    places: Sequence[int | None]
    programs: dict[int, Any]

    def run_on(self, arrays: Arrays) -> Any:
        """What runs it on a device; None where something in it has no kernel."""
        build, key = eager.current_build(), id(arrays[0].card)
        if key not in self.programs and build is not None:
            self.programs[key] = built(build, self.graph, arrays)
        return self.programs.get(key)


Arrays = list[DeviceArray]
Run = Callable[[Arrays], Sequence[Any]]  # from the gradient and the saved arrays to the gradients

_ROW: Any = named_size("n")
_MISSING: Any = object()
_MOST_KNOWN = 4096  # kinds of calls that are remembered
_MOST_TRACED = 64  # of one rule: where sizes vary without end, its ops run one by one, with open sizes
_known: dict[Any, Run | None] = {}  # by all that a rule was given
_traces: dict[Any, _Traced | None] = {}  # by types, which may be those of rows
_varied: dict[Any, Varied] = {}  # by all that tells calls apart but sizes
_counts: Counter[Backward] = Counter()
_short: list[dict[Any, Any]] = []  # of each rule, what it does by form


def pull_on_device(rule: Backward, g: Any, saved: Saved, edges: Edges) -> Sequence[Any] | None:
    """What a rule gives on arrays of a device; None where it must be given tensors.

    Args:
        rule: of an op.
        g: the gradient of its output, or a list of those of its outputs.
        saved: what the op kept.
        edges: of its inputs, None for those that need no gradient.
    """
    if rule.takes_devices:
        return rule.run(g, saved, edges)
    if rule.is_users:  # it runs once for each backward, on tensors that hold values
        return None
    call = (*g, *saved) if type(g) is list else (g, *saved)
    arrays: Arrays = []
    try:
        twice = len(edges) == 2 and edges[0] is edges[1] is not None
        key = (rule, twice, *[e is None for e in edges], *[_taken_down(x, arrays) for x in call])
        run = _known.get(key, _MISSING)
    except TypeError:  # tensors, arrays of the host, or what cannot be compared
        return None
    if run is _MISSING:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        run = _known[key] = _find(rule, call, arrays, _Wanted(tuple([e is not None for e in edges]), twice))
    return None if run is None else run(arrays)


def short_pull(rule: Backward, needed: tuple[bool, ...], twice: bool) -> Callable[[Any, Saved], Any]:
    """The short way of the rule of an op that worked element by element, on arrays of one form or a number.

    It is a function of the gradient of the output and what was saved that gives those of the inputs, or
    None where something is unusual.

    Args:
        rule: of an op.
        needed: for each input, whether its gradient is wanted.
        twice: whether both are one, which gets the sum.
    """
    wanted = _Wanted(needed, twice)
    by_form: dict[DeviceForm, Pull] = {}
    _short.append(by_form)

    def pull(g: Any, saved: Saved) -> Sequence[Any] | None:
        return by_form.get(g.form, first)(g, saved) if type(g) is DeviceArray else None

    def first(g: DeviceArray, saved: Saved) -> Sequence[Any] | None:
        """Find what is to be done on arrays of a form, and do it."""
        form, kept = g.form, [(i, x) for i, x in enumerate(saved) if x is not None]
        if form is None or not all(type(x) is DeviceArray and _is_of(x, form) for _, x in kept):
            return None
        if len(by_form) >= _MOST_KNOWN:
            by_form.clear()
        arrays = [g, *[x for _, x in kept]]
        traced = _trace_of(rule, (g, *saved), wanted, in_rows(arrays))
        found = None
        if traced is not None:
            run = traced.run_on(arrays) if traced.graph.outputs else None
            found = direct_pull(run, form, arrays, traced.places, [(i, not x.shape) for i, x in kept])
        by_form[form] = _unusual if found is None else found
        return by_form[form](g, saved)

    return pull


def _is_of(x: DeviceArray, form: DeviceForm) -> bool:
    """Whether an array is of a form, or a number beside such."""
    return x.form is form or (x.shape == () and x.dtype is form.dtype and x.card is form.card)


def _unusual(g: Any, saved: Saved) -> None:
    """Leave it to the general way."""


def forget_rules() -> None:
    """Drop all programs, for tests that put another driver in place."""
    _known.clear()
    _traces.clear()
    _varied.clear()
    _counts.clear()
    for by_form in _short:
        by_form.clear()


def _taken_down(x: Any, arrays: Arrays) -> Any:
    """What a program depends on; arrays are put into a list. A TypeError for what it does not take."""
    if type(x) is DeviceArray:
        arrays.append(x)
        return x.shape, x.dtype, x.gaps is None, id(x.card)
    if x is None:
        return None
    if isinstance(x, tuple):
        return tuple([_taken_down(i, arrays) for i in x])
    if isinstance(x, TensorLike) or hasattr(x, "__array__"):
        raise TypeError
    return type(x), repr(x) if isinstance(x, float) else x  # 0.0 is not -0.0, nor is 1 True


def _find(rule: Backward, call: tuple[Any, ...], arrays: Arrays, wanted: _Wanted) -> Run | None:
    """What runs calls like this one; None if it runs on tensors."""
    if not arrays or _counts[rule] >= _MOST_TRACED:
        return None
    if rule.is_flat and eager.is_flat(arrays):
        traced = _trace_of(rule, call, wanted, in_rows(arrays))
        run = None if traced is None else _placing(traced, arrays, rows=True)
        if run is not None:
            return run
    key = (rule, wanted, id(arrays[0].card), _without_arrays(call), *map(open_kind, arrays))
    made = partial(_made, rule, call, arrays, wanted)
    found: Run | None = _varied.setdefault(key, Varied()).find([a.shape for a in arrays], made)
    return found


def in_rows(arrays: Arrays) -> list[TensorType]:
    """The types of arrays of one shape as rows of any length, and those of numbers."""
    return [TensorType((_ROW,), a.dtype) if a.shape else a.type for a in arrays]


def _made(
    rule: Backward, call: tuple[Any, ...], arrays: Arrays, wanted: _Wanted, shapes: Sequence[Shape]
) -> Run | None:
    """What runs a rule on arrays of shapes, whose sizes may have names."""
    types = [TensorType(shape, a.dtype) for shape, a in zip(shapes, arrays, strict=True)]
    traced = _trace_of(rule, call, wanted, types)
    return None if traced is None else _placing(traced, arrays)


def _trace_of(
    rule: Backward, call: tuple[Any, ...], wanted: _Wanted, types: list[TensorType]
) -> _Traced | None:
    key = (rule, wanted, *types, _without_arrays(call))
    if key not in _traces:
        _traces[key] = _traced(rule, call, wanted, types) if _counts[rule] < _MOST_TRACED else None
    return _traces[key]


def _without_arrays(x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple([_without_arrays(i) for i in x])
    return DeviceArray if type(x) is DeviceArray else (type(x), repr(x) if isinstance(x, float) else x)


def _traced(
    rule: Backward, call: tuple[Any, ...], wanted: _Wanted, types: Sequence[TensorType]
) -> _Traced | None:
    """The graph of a rule on tensors of types; gradients that are its inputs are passed on."""
    from weft.backends.eager.graphs import trace

    missing: list[bool] = []

    def function(*tensors: Any) -> list[Any]:
        given = _filled(call, iter(tensors))
        edges = tuple([True if n else None for n in wanted.needed])
        g = given[0] if rule.outputs == 1 else list(given[: rule.outputs])
        grads = rule.run(g, given[rule.outputs :], edges)
        if wanted.twice and not any(x is None for x in grads):
            grads = [grads[0] + grads[1], None]
        missing[:] = [x is None for x in grads]
        return [x for x in grads if x is not None]

    _counts[rule] += 1
    try:
        graph = trace(function, types, rule.name)
    except Exception:  # it is no function of tensors alone: it says so itself when it runs on them
        return None
    if graph is None:
        return None
    inputs = {v: i for i, v in enumerate(graph.inputs)}
    made = list(dict.fromkeys(v for v in graph.outputs if v not in inputs))
    numbers = inputs | {v: len(inputs) + i for i, v in enumerate(made)}
    outputs = iter(graph.outputs)
    places = [None if absent else numbers[next(outputs)] for absent in missing]
    return _Traced(graph.replace(outputs=made), places, {})


def _filled(x: Any, tensors: Iterator[Any]) -> Any:
    """What a rule is given, with tensors for arrays."""
    if isinstance(x, tuple):
        return tuple([_filled(i, tensors) for i in x])
    return next(tensors) if type(x) is DeviceArray else x


def _placing(traced: _Traced, arrays: Arrays, *, rows: bool = False) -> Run | None:
    """What runs the graph of a rule, be it for rows, and puts the gradients in their places."""
    graph, places = traced.graph, traced.places
    run = _compiled(traced, arrays, rows=rows) if graph.outputs else None
    if run is None and graph.outputs:
        return None

    def placed(given: Arrays) -> Sequence[Any]:
        found = given if run is None else [*given, *run(given)]
        return [None if p is None else found[p] for p in places]

    return placed


def _compiled(traced: _Traced, arrays: Arrays, *, rows: bool) -> Run | None:
    """One program, or views of the arrays; None where there is no kernel for something in it."""
    graph = traced.graph
    known = all(is_known(v.type.shape) for v in graph.inputs)
    if known and all(node.op.view is not None for node in graph.nodes):
        most = max(prod(v.type.shape) for v in graph.inputs)
        if all(prod(v.type.shape) <= most for v in graph.outputs):  # what is repeated is better written out
            return _views(graph)
    run = traced.run_on(arrays)
    return eager.InRows(run) if run is not None and rows else run


def built(build: Any, graph: Graph, arrays: Arrays) -> Any:
    """What runs a graph on a device; None where something in it has no kernel."""
    try:
        return build(graph.optimize(), arrays[0].card)
    except DeviceError:  # of the device itself
        raise
    except WeftError:
        return None


def _views(graph: Graph) -> Run:
    """The views of a graph, one after another."""

    def run(given: Arrays) -> Sequence[Any]:
        known: dict[Any, Any] = dict(zip(graph.inputs, given, strict=True))
        for node in graph.nodes:
            known[node.outputs[0]] = view_of(node.op, known[node.inputs[0]], dict(node.attrs))
        return [known[v] for v in graph.outputs]

    return run

"""Graphs that are called or run by themselves: ``graph.run(fetches, feeds)`` and ``graph(*args)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.base.concrete import is_concrete
from weft.base.sizes import Size, bind, solve
from weft.capture.program.cutting import cut_out
from weft.capture.static.block import generators, parameters
from weft.capture.static.feeds import describe
from weft.capture.static.session import Session, missing_feed
from weft.errors import ArgumentError, ShapeError
from weft.ir.graph import Graph, Value
from weft.ops.op import type_of
from weft.tensor.creation import asarray
from weft.tensor.dispatch import recording
from weft.tensor.mode import no_grad, thread
from weft.tensor.tensor import Tensor, wrap
from weft.transform.tracing import replay


def run(graph: Graph, fetches: Any, feeds: Mapping[Any, Any] | None = None, *, updates: bool = False) -> Any:
    """The values of fetches: ``graph.run(y, {x: ...})``, a session for one run.

    >>> import weft
    >>> with weft.Graph("f") as g:
    ...     x = weft.placeholder("x")
    ...     y = x + 1.0
    >>> g.run(y, {"x": 2.0})
    tensor(3.)
    """
    return Session(graph).run(fetches, feeds, updates=updates)


def call_graph(graph: Graph, *args: Any, **kwargs: Any) -> Any:
    """The outputs for arguments, by position or by name; all updates of the graph are applied.

    On tensors that are differentiated, or inside another graph or transform, its ops run on the tensors, so
    that gradients flow and the other graph gets its nodes.
    """
    given = _arguments(graph, args, kwargs)
    if thread.capture is None and not any(map(_is_followed, (*given.values(), *_parameters(graph)))):
        out = Session(graph).run(graph.outputs, given, updates=True, effects=True)
    else:
        out = _replayed(graph, given)
    return out[0] if len(out) == 1 else tuple(out)


def _arguments(graph: Graph, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[Value, Any]:
    wanted = [v for v, role in zip(graph.inputs, graph.roles, strict=True) if role == "arg"]
    if len(args) > len(wanted):
        raise ArgumentError(graph.name, f"takes {len(wanted)} arguments, got {len(args)}")
    given = dict(zip(wanted, args, strict=False))
    for name, item in kwargs.items():
        value: Value = graph.value(name)
        if value in given:
            raise ArgumentError(graph.name, f"got two values for {name}")
        given[value] = item
    return given


def _parameters(graph: Graph) -> list[Tensor]:
    return [parameters[v] for v in graph.inputs if v in parameters]


def _is_followed(x: Any) -> bool:
    """Whether something follows what is computed from x: the tape, a transform, or another graph."""
    if not isinstance(x, Tensor):
        return False
    return not is_concrete(x._data) or (x._node is not None and recording())


def _replayed(graph: Graph, given: Mapping[Value, Any]) -> list[Any]:
    """The outputs by the ops of the graph, on tensors."""
    part, inputs = cut_out(graph, graph.results, effects=True)
    sizes: dict[str, Any] = {}
    found = replay(part, [_input(v, given, sizes) for v in inputs])
    count = len(graph.outputs)
    with no_grad():
        for (old, _), new in zip(graph.updates, found[count:], strict=True):
            if old in generators:
                generators[old].set_state(new)
            else:
                parameters[old]._set(new._value())
    return found[:count]


def _input(value: Value, given: Mapping[Value, Any], sizes: dict[str, Any]) -> Tensor:
    if value in given:
        item = given[value]
        tensor: Tensor = item if isinstance(item, Tensor) else asarray(item, dtype=value.type.dtype)
        _check(value, tensor, sizes)
        return tensor
    if value in parameters:
        return parameters[value]
    if value in generators:
        state: Tensor = wrap(generators[value].get_state()._data)
        return state
    raise missing_feed(value)


def _check(value: Value, tensor: Tensor, sizes: dict[str, Any]) -> None:
    """Raise unless a tensor has the type of an argument."""
    wanted, fits = value.type, tensor.dtype == value.type.dtype and tensor.ndim == value.type.ndim
    for size, actual in zip(wanted.shape, tensor.shape, strict=False):
        known = bind(size, sizes)
        if isinstance(known, Size) and isinstance(actual, int):
            solve(known, actual, sizes)
        elif str(known).isidentifier():
            sizes[str(known)] = actual
        fits = fits and bind(size, sizes) == actual
    if not fits:
        raise ShapeError("call", f"{describe(value)} must be {wanted}, got {type_of(tensor)}")

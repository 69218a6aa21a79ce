"""Ops, gradients and modules outside of graphs: one entry for each op that runs, and each step of a backward.

A step of a backward belongs to the line of its op. Nodes of the dynamic graph do not know it, so it is kept
beside them, by their identity, together with what tells a later node in the same memory from this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft.base.concrete import CONCRETE, is_concrete
from weft.base.hooks import hooks
from weft.capture.call.version import _Gradient
from weft.nn.module import Module
from weft.profiler.log import Place, _Switch, here, now, take_down, trackers, user_place
from weft.tensor import creation, engine, fast
from weft.tensor.dispatch import apply
from weft.tensor.large import call_large
from weft.tensor.node import Node, Output
from weft.tensor.watch import here as watched
from weft.tensor.watch import watch_ops, watched_by
from weft.transform.scopes import run_composite

ndarray = np.ndarray

_origins: dict[int, tuple[Any, int, Place | None, str]] = {}  # by id of a node: rule, number, line, module


def install(switch: _Switch) -> None:
    """Begin to watch."""
    switch.replace(fast, "apply", _apply)
    switch.replace(engine, "_Sweep", _Sweep)
    switch.replace(Module, "__call__", _call_module)
    switch.replace(creation, "leaf", _leaf)
    switch.replace(hooks, "call_large", _call_large)
    switch.replace(hooks, "run_composite", _call_composite)
    watch_ops(_watch)
    switch.at_end(_end)


def _end() -> None:
    watch_ops(None)
    _origins.clear()


# Ops


def _watch(name: str, run: Any, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    place = user_place(2)
    watched.inside = True
    out: Any = None
    begin = now()
    try:
        out = run(*inputs, **attrs)
        if len(CONCRETE) > 1:
            _await(out)
        return out
    finally:
        end = now()
        watched.inside = False
        if out is not NotImplemented:
            _note(name, begin, end, place, inputs, out)


def _await(out: Any) -> None:
    """Wait for a device that computes a result, so that its time is that of the op."""
    for t in out if isinstance(out, tuple | list) else (out,):
        data = getattr(t, "_data", None)
        if type(data) is not ndarray and is_concrete(data):
            weft.cuda.synchronize(data.device)  # type: ignore[union-attr]
            return


def _note(name: str, begin: int, end: int, place: Place | None, inputs: Sequence[Any], out: Any) -> None:
    outs = out if isinstance(out, tuple | list) else (out,)
    for t in outs:
        node = getattr(t, "_node", None)
        if node is not None:
            node = node.node if type(node) is Output else node
            _origins[id(node)] = (getattr(node, "rule", None), node.nr, place, here.module)
    take_down("op", name, begin, end, place, (specs(inputs), specs(outs)))
    if trackers:
        track(outs, name, place)


def specs(values: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Shape and dtype of the arrays among values."""
    datas = [getattr(v, "_data", v) for v in values]
    return [(d.shape, d.dtype) for d in datas if is_concrete(d)]


def track(outs: Sequence[Any], name: str, place: Place | None) -> None:
    """Tell memory profiles of new arrays."""
    for tracker in trackers:
        tracker.add([getattr(v, "_data", v) for v in outs], name, place, here.module)


def _apply(op: Any, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """What runs ops that have no flat path."""
    if watched_by() is None:
        return apply(op, inputs, attrs)
    return _watch(op.name, lambda *xs, **own: apply(op, xs, own), inputs, attrs)


def _leaf(array: Any, requires_grad: bool = False) -> Any:
    out = made_leaf(array, requires_grad)
    if trackers and watched_by() is not None:
        track([out], "new tensor", user_place(2))
    return out


made_leaf = creation.leaf


# Composites that one kernel runs


def _call_large(entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if watched_by() is None:
        return call_large(entry, args, kwargs)
    place = user_place(2)
    watched.inside = True
    begin = now()
    try:
        out = call_large(entry, args, kwargs)
    finally:
        end = now()
        watched.inside = False
    if out is not None:
        _note(entry.name, begin, end, place, args, out)
    return out


def _call_composite(entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if watched_by() is None:
        return run_composite(entry, args, kwargs)
    out = _call_large(entry, args, kwargs) if entry.whole else None
    return entry.function(*args, **kwargs) if out is None else out


# Gradients


class _Sweep(engine._Sweep):
    """A backward sweep that takes down each step."""

    __slots__ = ()

    def run_pending(self, *, plain: bool) -> None:
        super().run_pending(plain=plain and watched_by() is None)

    def step(self, node: Node, g: Any, edges: tuple[Any, ...]) -> Sequence[Any] | None:
        if watched_by() is None:
            return super().step(node, g, edges)
        rule, number, place, module = _origins.get(id(node), (None, 0, None, ""))
        if rule is not node.rule or number != node.nr:
            place, module = user_place(2), ""
        name = f"{node.rule.name} backward"
        watched.inside = not isinstance(getattr(node.rule.run, "__self__", None), _Gradient)
        before, here.module = here.module, module
        found: Sequence[Any] | None = None
        begin = now()
        try:
            found = super().step(node, g, edges)
            return found
        finally:
            end = now()
            watched.inside = False
            outs = [x for x in found or () if x is not None]
            take_down("op", name, begin, end, place, (specs(g if isinstance(g, list) else [g]), specs(outs)))
            if trackers:
                track(outs, name, place)
            here.module = before


# Modules


def _call_module(self: Any, *args: Any, **kwargs: Any) -> Any:
    if watched_by() is None:
        return called_module(self, *args, **kwargs)
    place, before = user_place(2), here.module
    here.module = self._path()
    begin = now()
    try:
        return called_module(self, *args, **kwargs)
    finally:
        take_down("module", type(self).__name__, begin, now(), place)
        here.module = before


called_module = Module.__call__

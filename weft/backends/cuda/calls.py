"""Graphs called on arrays of a device: by a program for it, or op by op where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from weft.backends.cuda.array import DeviceArray
from weft.backends.cuda.eager import Runner, current_build
from weft.errors import DeviceError, WeftError
from weft.ir.graph import Graph
from weft.tensor.dispatch import wrap
from weft.tensor.mode import no_grad
from weft.transform.tracing import replay

_programs: WeakKeyDictionary[Graph, dict[int, Runner | None]] = WeakKeyDictionary()


def run_on_device(graph: Graph, arrays: Sequence[Any]) -> list[Any]:
    """The results of a graph, on the device of the first of the arrays that is on any."""
    on = next(a for a in arrays if type(a) is DeviceArray).card
    known = _programs.setdefault(graph, {})
    if id(on) not in known:
        known[id(on)] = _compiled(graph, on)
    run = known[id(on)]
    if run is not None:
        return list(run(arrays))
    with no_grad():
        return [t._data for t in replay(graph, [wrap(a) for a in arrays])]


def _compiled(graph: Graph, on: Any) -> Runner | None:
    build = current_build()
    if build is None:
        return None
    try:
        return build(graph, on)
    except DeviceError:  # of the device itself
        raise
    except WeftError:  # something in it has no kernel
        return None

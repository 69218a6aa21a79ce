"""Floats among the arguments that change from call to call: they become inputs of one graph.

The first call captures a float by its value, as all plain arguments. A call that differs from an earlier one
by floats alone makes them inputs: the function then gets Numbers, which compute as Python's floats do. Where
captured code needs the value itself, floats stay values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from weft.capture.program.arguments import Arguments
from weft.capture.program.call_keys import CallKey
from weft.capture.program.program import Program
from weft.capture.program.sources import Argument
from weft.capture.runtime.number import Number
from weft.ops.guard import guard
from weft.tensor.tensor import wrap


def changed_floats(key: CallKey, others: Iterable[CallKey]) -> frozenset[int]:
    """The leaves by which a call differs from an earlier one, if these are floats in both; else nothing."""
    for other in others:
        if other.shape == key.shape and other.settings == key.settings:
            pairs = enumerate(zip(key.leaves, other.leaves, strict=True))
            places = {i: pair for i, pair in pairs if pair[0] != pair[1]}
            if places and all(_is_float(a) and _is_float(b) for a, b in places.values()):
                return frozenset(places)
    return frozenset()


def _is_float(part: Any) -> bool:
    return part is float or (isinstance(part, tuple) and part[0] is float)


def as_inputs(arguments: Arguments, places: Iterable[int]) -> Arguments:
    """Arguments in which the floats at some places are tensors of the graph, to the function Numbers."""
    leaves, tensors, keys = list(arguments.leaves), list(arguments.tensors), list(arguments.keys)
    for i in sorted(places):
        if type(leaves[i]) is float:
            tensors.append(wrap(np.asarray(leaves[i], np.float64)))
            leaves[i], keys[i] = Number(float, tensors[-1]), float
    return arguments._replace(leaves=leaves, tensors=tensors, keys=tuple(keys), converted=True)


def relies_on_floats(program: Program, count: int) -> bool:
    """Whether a program relies on the value of one of its last arguments, which are floats."""
    first = len(program.arguments) - count
    inputs = zip(program.graph.inputs, program.sources, strict=True)
    floats = {v for v, s in inputs if isinstance(s, Argument) and s.number >= first}
    return any(n.op is guard and n.inputs[0] in floats for n in program.graph.nodes)

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
from weft.capture.program.program import Program
from weft.capture.program.sources import Argument
from weft.capture.runtime.number import Number
from weft.ops.guard import guard
from weft.tensor.tensor import wrap

Key = tuple[Any, ...]


def changed_floats(key: Key, others: Iterable[Key]) -> frozenset[int]:
    """The leaves by which a call differs from an earlier one, if these are floats in both; else nothing."""
    for other in others:
        if len(other) == len(key) and other[0] == key[0]:
            places = [i for i, (a, b) in enumerate(zip(key, other, strict=True)) if a != b]
            if places and all(_is_float(key[i]) and _is_float(other[i]) for i in places):
                return frozenset(i - 1 for i in places)  # the structure comes first in a key
    return frozenset()


def _is_float(part: Any) -> bool:
    return part is float or (isinstance(part, tuple) and part[0] is float)


def as_inputs(arguments: Arguments, places: Iterable[int]) -> Arguments:
    """Arguments in which the floats at some places are tensors of the graph, to the function Numbers."""
    leaves, tensors, key = list(arguments.leaves), list(arguments.tensors), list(arguments.key)
    for i in sorted(places):
        if type(leaves[i]) is float:
            tensors.append(wrap(np.asarray(leaves[i], np.float64)))
            leaves[i], key[i + 1] = Number(float, tensors[-1]), float
    return arguments._replace(leaves=leaves, tensors=tensors, key=tuple(key), converted=True)


def relies_on_floats(program: Program, count: int) -> bool:
    """Whether a program relies on the value of one of its last arguments, which are floats."""
    first = len(program.arguments) - count
    inputs = zip(program.graph.inputs, program.sources, strict=True)
    floats = {v for v, s in inputs if isinstance(s, Argument) and s.number >= first}
    return any(n.op is guard and n.inputs[0] in floats for n in program.graph.nodes)

"""States that a run may write over: those whose array nobody holds but their tensor.

A tensor that was detached from it, a view of NumPy, a graph that saved it hold an array too, and must keep
its values. How many hold one, CPython tells.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.records import NamedTuple
from weft.capture.program.sources import Argument, Fixed
from weft.tensor.alias import change, is_aliased
from weft.tensor.tensor import wrap


@functools.cache
def held_count() -> int:
    """What getrefcount says of an array that one tensor and the list of the arrays of a call hold."""
    probe = wrap(np.empty(1))
    arrays = [probe._data]
    return sys.getrefcount(arrays[0])


def is_lease(base: Any) -> bool:
    """Whether the base of an array is memory that a backend lent to that array alone.

    A view of such an array has the array itself as its base, so that it counts as a holder.
    """
    return getattr(type(base), "is_lease", False)


def unshared(arrays: Sequence[Any], given: Sequence[bool]) -> tuple[bool, ...]:
    """Which of the arrays of a call that are ``given`` away nobody else holds."""
    return tuple([free and _is_unshared(arrays, i) for i, free in enumerate(given)])


def _is_unshared(arrays: Sequence[Any], i: int) -> bool:
    if sys.getrefcount(arrays[i]) != held_count():
        return False
    if type(arrays[i]) is not np.ndarray:
        return bool(arrays[i].is_sole)  # on a device, which knows who holds its memory
    base = arrays[i].base
    return base is None or is_lease(base)


class Rebound(NamedTuple):
    """A state whose new array is a result, where it was not written in place.

    Attributes:
        target: the tensor that holds it.
        result: the number of the result.
        form: of the array.
    """

    target: Argument | Fixed
    result: int
    form: Any


def rebind(states: Sequence[Rebound], results: Sequence[Any], tensors: Sequence[Any]) -> None:
    """Let states hold the arrays of results; ``tensors`` are those among the arguments of the call."""
    for target, result, form in states:
        tensor = target.held if isinstance(target, Fixed) else tensors[target.number]
        put_array(tensor, results[result], form)


def put_array(tensor: Any, array: Any, form: Any, *, recorded: bool = False) -> None:
    """Let a tensor hold an array; its views see the change, and with ``recorded`` its place in the graph."""
    if is_aliased(tensor):
        change(tensor, wrap(array, tensor._node if recorded else None), history=recorded)
    else:
        tensor._data, tensor._form = array, form

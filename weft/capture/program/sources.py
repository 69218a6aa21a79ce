"""Sources: where the array of each input of a captured graph is found when the graph is called.

``tensor_code`` gives the expression, in a generated function, of the tensor that holds the array, and
``array_code`` that of the array. In them ``a`` are the tensors among the arguments of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import DType, kind
from weft.base.records import NamedTuple
from weft.capture.program.slots import Bind, PythonSlot
from weft.errors import CaptureError


class Argument(NamedTuple):
    """A tensor among the arguments of the call."""

    number: int


class Fixed(NamedTuple):
    """A tensor from outside, always the same one."""

    held: Any


class Gradient(NamedTuple):
    """The gradient that a tensor holds."""

    owner: Argument | Fixed


class InSlot(NamedTuple):
    """The tensor that a slot holds, which the captured code replaces."""

    slot: PythonSlot


class ParentOf(NamedTuple):
    """The tensor that a view was taken from."""

    view: Any


class State(NamedTuple):
    """The state of a random generator."""

    generator: Any


class Dynamic(NamedTuple):
    """A Python number that a function gives at each call."""

    function: Callable[[], Any]
    dtype: DType

    def read(self) -> Any:
        """The number as an array."""
        return self.array_of(self.function())

    def array_of(self, number: Any) -> Any:
        """A number that the function gave as an array."""
        if kind(self.dtype) != "f" and not isinstance(number, int):
            hint = "begin with a float"
            raise CaptureError("dynamic", f"a number must stay an int, got {number!r}", hint=hint)
        return np.asarray(number, self.dtype)


class LastNumber:
    """Gives the array of a dynamic number, the same one while the number is the same object."""

    __slots__ = ("array", "number", "source")

    def __init__(self, source: Dynamic) -> None:
        self.source = source
        self.number: Any = None
        self.array: Any = None

    def read(self) -> Any:
        """The number as an array."""
        number = self.source.function()
        if number is not self.number or number is None:
            self.array = self.source.array_of(number)
            self.number = number
        return self.array


TensorSource = Argument | Fixed | Gradient | InSlot | ParentOf
Source = TensorSource | State | Dynamic


def tensor_code(source: Source, bind: Bind) -> str:
    """The expression of the tensor that a source is; None for what is no tensor."""
    match source:
        case Argument(number):
            return f"a[{number}]"
        case Fixed(held):
            return bind(held)
        case Gradient(owner):
            return f"{tensor_code(owner, bind)}._grad"
        case InSlot(slot):
            return slot.code(bind)
        case ParentOf(view):
            return f"{tensor_code(view, bind)}._link[0]"
        case _:
            return "None"


def array_code(source: Source, bind: Bind) -> str:
    """The expression of the array that a source gives."""
    match source:
        case State(generator):
            return f"{bind(generator)}._state_array()"
        case Dynamic():
            return f"{bind(LastNumber(source))}.read()"
        case _:
            return f"{tensor_code(source, bind)}._data"

"""What an import knows of tensors beyond their types: values, narrow element types, where they come from.

A value that is known while a model is imported is a ``Constant``. Its array holds numbers, or, where it was
computed from the sizes of a tensor, ints and named sizes (it is then an array of objects).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import weft
from weft.base.dtypes import DType
from weft.base.sizes import Size
from weft.errors import WeftError
from weft.ops.size import size_value
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor, wrap

Array = np.ndarray[Any, Any]
NOTHING: frozenset[str] = frozenset()
_LARGE, _MOST_FOLDED = 2**12, 2**22  # elements


@dataclass(eq=False, slots=True)
class Constant:
    """A value that is known while a model is imported.

    Attributes:
        array: numbers, or ints and named sizes.
        dtype: of the value.
        narrow: the name of its ONNX element type, where weft has no dtype for it.
        parameter: of an initializer, makes the tensor that the graph reads it from.
    """

    array: Array
    dtype: DType
    narrow: str | None = None
    parameter: Callable[[], Tensor] | None = None
    _tensors: dict[int, tuple[Any, Tensor]] = field(default_factory=dict)

    @property
    def holds_sizes(self) -> bool:
        """Whether named sizes are in it."""
        return bool(self.array.dtype == object)

    @property
    def folds(self) -> bool:
        """Whether what is computed from it is computed at once: not from weights, nor from what is large."""
        return self.parameter is None and self.array.size <= _MOST_FOLDED

    def tensor(self) -> Tensor:
        """It as a tensor: of the graph that is being captured, or of its array where none is."""
        capture = thread.capture
        if capture is None:
            whole: Tensor = wrap(self.array)
            return whole
        if self.parameter is not None:
            capture = capture.root
        if id(capture) not in self._tensors:
            self._tensors[id(capture)] = capture, self._made()
        return self._tensors[id(capture)][1]

    def _made(self) -> Any:
        if self.parameter is not None:
            return self.parameter()
        if self.holds_sizes:
            items = [weft.asarray(size_value(item, self.dtype)) for item in self.array.reshape(-1)]
            return weft.reshape(weft.stack(items), self.array.shape)
        if self.array.size > _LARGE and not any(self.array.strides):  # one number everywhere
            return weft.broadcast_to(weft.asarray(self.array.reshape(-1)[0]), self.array.shape)
        return weft.asarray(self.array)


def constant_of_sizes(array: Any, dtype: Any = np.int64) -> Constant:
    """A constant of ints and sizes; plain numbers where there are no sizes."""
    whole = np.asarray(array, object)
    sized = any(isinstance(item, Size) for item in whole.reshape(-1))
    return Constant(whole if sized else whole.astype(dtype), np.dtype(dtype))


@dataclass(slots=True)
class Fact:
    """What is known of one tensor.

    Attributes:
        tensor: itself; the fact keeps it alive.
        constant: its value, or None.
        later: gives its value, where that is known but was not worth computing.
        narrow: the name of its ONNX element type, where weft has no dtype for it.
        sources: names of the model's inputs that it was computed from.
    """

    tensor: Tensor
    constant: Constant | None = None
    later: Callable[[], Constant | None] | None = None
    narrow: str | None = None
    sources: frozenset[str] = NOTHING

    @property
    def value(self) -> Constant | None:
        """The value, or None."""
        if self.constant is None and self.later is not None:
            self.constant, self.later = self.later(), None
        return self.constant


class Facts:
    """The facts of one import, by tensor.

    Attributes:
        left_to_run: the error to raise where the import fails because a run tells a number that decides
            shapes; None where there is no such number.
    """

    def __init__(self) -> None:
        self._facts: dict[int, Fact] = {}
        self.left_to_run: WeftError | None = None

    def of(self, tensor: Tensor) -> Fact:
        """What is known of a tensor."""
        return self._facts.get(id(tensor)) or Fact(tensor)

    def note(self, fact: Fact) -> Tensor:
        """Remember what is known of a tensor; gives it back."""
        self._facts[id(fact.tensor)] = fact
        return fact.tensor

    def tensor_of(self, constant: Constant) -> Tensor:
        """A constant as a tensor, of which the value is remembered."""
        return self.note(Fact(constant.tensor(), constant, narrow=constant.narrow))

    def array(self, tensor: Tensor) -> Array | None:
        """The value of a tensor, numbers or ints and sizes; None where it is not known."""
        value = self.of(tensor).value
        return None if value is None else value.array

    def as_narrow(self, tensor: Tensor, name: str | None) -> Tensor:
        """The same data as a tensor of a narrow type (or of none)."""
        fact = self.of(tensor)
        if fact.narrow == name:
            return tensor
        value = fact.value
        if value is not None:
            return self.tensor_of(Constant(value.array, value.dtype, name))
        alias: Tensor = wrap(tensor._data, tensor._node)
        return self.note(Fact(alias, narrow=name, sources=fact.sources))

"""How lax primitives become weft: a rule for each, found by name, that calls weft's functions.

A rule gets a ``Call`` first, which tells what JAX says of the results, then the operands, which are tensors
of the graph being made, and the parameters of the equation by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import weft
from weft.base.dtypes import DType, as_dtype
from weft.base.size_text import parse_size
from weft.errors import CaptureError, DtypeError
from weft.interop.forms.elements import astype
from weft.interop.rules import Rules
from weft.ir.types import TensorType
from weft.tensor.tensor import Tensor

lax = Rules()  # by name of a primitive


class Call(NamedTuple):
    """One equation, as its rule sees it.

    Attributes:
        primitive: its name.
        types: of the results.
        known: of each operand the array, if it is known now, or None.
        run: runs another jaxpr on tensors: ``run(closed_jaxpr, tensors)``.
    """

    primitive: str
    types: Sequence[TensorType]
    known: Sequence[Any]
    run: Callable[[Any, Sequence[Any]], list[Any]]

    @property
    def type(self) -> TensorType:
        """The type of the first result."""
        return self.types[0]

    def cast(self, x: Tensor) -> Tensor:
        """A tensor in the dtype of the first result."""
        return astype(x, self.type.dtype)

    def error(self, message: str, hint: str | None = None) -> CaptureError:
        """An error about this equation, to be raised."""
        return CaptureError("import_jaxpr", f"{self.primitive}: {message}", hint=hint)


def dtype_of(dtype: Any) -> DType:
    """The dtype of weft for one of JAX."""
    try:
        return as_dtype(np.dtype(dtype).name)
    except (TypeError, ValueError):
        raise DtypeError("import_jaxpr", f"dtype must be one that weft has, got {dtype}") from None


def size_of(size: Any) -> Any:
    """A size of JAX as an int or a named size."""
    if isinstance(size, int | np.integer):
        return int(size)
    try:
        return parse_size(str(size).replace(" ", ""))
    except Exception:
        raise CaptureError("import_jaxpr", f"sizes must be made of + - *, got {size}") from None


def sizes_of(shape: Sequence[Any]) -> tuple[Any, ...]:
    """The sizes of a shape."""
    return tuple(size_of(s) for s in shape)


def type_of_aval(aval: Any) -> TensorType:
    """The type of what JAX calls an abstract value; a key is its two words."""
    if is_key(aval):
        return TensorType((*sizes_of(aval.shape), 2), weft.uint32)
    return TensorType(sizes_of(aval.shape), dtype_of(aval.dtype))


def is_key(aval: Any) -> bool:
    """Whether an abstract value is a key of random numbers, which has a dtype of its own."""
    return str(getattr(aval, "dtype", "")).startswith("key<")

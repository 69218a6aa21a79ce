"""Named sizes as values: what only a run tells, ``batch`` as a number, and counting up to it.

Next to a tensor a size is a weak number, as Python's are: ``x / batch`` has the dtype of x.
"""

from __future__ import annotations

import operator as operators
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import DEFAULT_INT, DType
from weft.base.hooks import hooks
from weft.base.shapes import Shape
from weft.base.sizes import Size, is_known
from weft.errors import CaptureError
from weft.ir.types import TensorType
from weft.ops.families import primitive
from weft.ops.op import OPS, Array, Op, Sample, Tensor, TensorLike, intercepted, no_gradient

_NUMBERS = (int, float, complex, np.generic)

size: Op = primitive(
    "size",
    type_rule=lambda *, value, dtype: TensorType((), dtype),
    eval=lambda *, value, dtype: np.asarray(value, dtype),
    vjp=no_gradient("a size is whole"),
    batch=None,
    samples=lambda: [
        Sample((), {"value": 3, "dtype": np.dtype("int64")}),
        Sample((), {"value": 3, "dtype": np.dtype("float32")}),
    ],
    total=True,
)

iota: Op = primitive(
    "iota",
    type_rule=lambda *, size, dtype: TensorType((size,), dtype),
    eval=lambda *, size, dtype: np.arange(size).astype(dtype),
    vjp=no_gradient("it has no inputs"),
    batch=None,
    samples=lambda: [
        Sample((), {"size": 3, "dtype": np.dtype("int64")}),
        Sample((), {"size": 0, "dtype": np.dtype("float32")}),
    ],
)


def size_value(value: int | Size, dtype: DType) -> Any:
    """A size as a tensor of rank 0, or an array if it is known."""
    if not isinstance(value, Size):
        return np.asarray(value, dtype)
    _need_graph("size", value)
    return size.on_tensors(value=value, dtype=dtype)


def divided(x: Tensor, count: int | Size) -> Tensor:
    """``x / count``, of a known count as a product.

    ``1 / n`` of an open size is a number of Python's where code is captured, and is checked against zero.
    """
    return x / count if isinstance(count, Size) else x * (1 / count)


def count_to(value: int, dtype: DType) -> Any:
    """The numbers 0, 1, ... below a size; an array if the size is known."""
    if not isinstance(value, Size):
        return np.arange(value).astype(dtype)
    _need_graph("arange", value)
    return iota.on_tensors(size=value, dtype=dtype)


def positions(value: int, after: int) -> Tensor:
    """The numbers below a size along an axis that has so many axes of size 1 after it."""
    return OPS["reshape"](count_to(value, DEFAULT_INT), shape=(value, *(1,) * after))


def triangle(rows: int, columns: int, k: int) -> Any:
    """A matrix that is true on and below its k-th diagonal; an array if the sizes are known."""
    if is_known((rows, columns)):
        return np.tri(rows, columns, k, dtype=np.bool_)
    return OPS["less_equal"](count_to(columns, DEFAULT_INT), positions(rows, 1) + k)


def shared(key: tuple[Any, ...], make: Callable[[], Array]) -> Array:
    """The array that ``make`` gives, for those who only read it: one for equal keys, unless it is large.

    So all layers of a model have one constant in a graph.
    """
    found = _shared.get(key)
    if found is None:
        found = make()
        if found.nbytes > _MOST_SHARED:
            return found
        found.flags.writeable = False
        if len(_shared) >= _FEW:
            _shared.clear()
        _shared[key] = found
    return found


def is_shared(array: Array) -> bool:
    """Whether an array is one of ``shared``, which nobody changes."""
    return any(array is one for one in tuple(_shared.values()))


_shared: dict[tuple[Any, ...], Array] = {}
_FEW, _MOST_SHARED = 4, 1 << 26  # arrays, and bytes of each


def unit_matrix(value: int, dtype: DType) -> Tensor:
    """The unit matrix of a size; an array if the size is known."""
    if is_known((value,)):
        return np.eye(value, dtype=dtype)  # type: ignore[return-value]
    diagonal = OPS["equal"](count_to(value, DEFAULT_INT), positions(value, 1))
    return diagonal if dtype == np.bool_ else OPS["cast"](diagonal, dtype=dtype)


def filled(shape: Shape, value: object, dtype: DType) -> Any:
    """One number in a shape: an array, or a tensor where a size of the shape is not known yet."""
    if is_known(shape):
        return np.full(shape, value, dtype) if value else np.zeros(shape, dtype)
    _need_graph("full", shape)
    return OPS["broadcast_to"].on_tensors(np.asarray(value, dtype), shape=shape)


def _need_graph(op: str, value: object) -> None:
    if not intercepted.threads:
        raise CaptureError(
            op,
            f"a named size has a value only while its graph runs, got {value} outside of one",
            hint="use it inside `with weft.Graph(...)` or a captured function",
        )


def compute_with_size(operator: str, value: Size, other: object, swap: bool) -> Any:
    """Arithmetic of a size that gives no size: with a tensor, an array or a float, or a division."""
    if not isinstance(other, (TensorLike, np.ndarray, Size, *_NUMBERS)):
        return NotImplemented
    number_of = hooks.number_of_size
    if isinstance(other, TensorLike | np.ndarray) or number_of is None:
        return OPS[operator].on_tensors(*((other, value) if swap else (value, other)))
    number = number_of(value)
    function = getattr(operators, _PYTHON[operator])
    return function(other, number) if swap else function(number, other)


_PYTHON = {"div": "truediv", "floor_divide": "floordiv", "remainder": "mod"} | {
    name: name for name in ("add", "sub", "mul", "pow")
}

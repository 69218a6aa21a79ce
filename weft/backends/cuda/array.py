"""``DeviceArray``: what a tensor on a device holds, as a tensor on the host holds an array of NumPy.

Elements are values: nobody writes to an array that others may see, so views share memory without a thought.
What a tensor is a view of is known to ``weft.ops.alias``, on any device.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import prod
from sys import getrefcount
from typing import Any, NoReturn

import numpy as np

from weft.backends.cuda.card import Card
from weft.backends.cuda.memory import Block, Borrowed
from weft.backends.cuda.streams import Stream
from weft.base.device import Device
from weft.base.dtypes import DType, float32, float64
from weft.errors import DeviceError
from weft.ir.types import TensorType

Strides = tuple[int, ...]
Host = np.ndarray[Any, Any]


@cache
def _forms() -> Any:
    """The short way of ops, which stands on all that runs them."""
    from weft.backends.cuda import forms

    return forms


class DeviceArray:
    """Elements in the memory of a device.

    Attributes:
        card: the device.
        block: the memory, which lives as long as an array in it.
        pointer: where the first element is.
        shape: the sizes.
        dtype: of the elements.
        size: how many elements there are.
        gaps: bytes from an element to the next along each axis; None if they lie one after another.
        form: what the short way of ops knows it by, found when it is first asked for; None where ops go the
            general way.
    """

    __slots__ = ("__weakref__", "block", "card", "dtype", "form", "gaps", "pointer", "shape", "size")
    form: Any
    __array_ufunc__ = None  # NumPy's functions do not take it for an object of theirs

    def __init__(
        self,
        card: Card,
        block: Block | Borrowed,
        pointer: int,
        shape: tuple[int, ...],
        dtype: DType,
        gaps: Strides | None = None,
    ) -> None:
        self.card = card
        self.block = block
        self.pointer = pointer
        self.shape = shape
        self.dtype = dtype
        self.size = prod(shape)
        self.gaps = gaps

    def __repr__(self) -> str:
        return f"<{self.dtype.name}{list(self.shape)} on {self.device} at {self.pointer:#x}>"

    @property
    def device(self) -> Device:
        """Where it is."""
        return self.card.device

    @property
    def type(self) -> TensorType:
        """Its shape and dtype."""
        return TensorType(self.shape, self.dtype)

    def __getattr__(self, name: str) -> Any:
        if name != "form":  # which is the only one that is not there from the beginning
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        even = self.gaps is None and not self.pointer & 15 and self.shape != ()
        self.form = _forms().form_of(self) if even and self.dtype in (float32, float64) else None
        return self.form

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> Strides:
        """Bytes from an element to the next, along each axis."""
        return packed_strides(self.shape, self.dtype.itemsize) if self.gaps is None else self.gaps

    @property
    def base(self) -> Block | Borrowed:
        """What owns the memory: it may be shared with views."""
        return self.block

    @property
    def is_sole(self) -> bool:
        """Whether the memory is this array's, all of it, and no other array is there."""
        block = self.block
        return (
            getrefcount(block) == _ALONE
            and self.gaps is None
            and self.pointer == block.pointer
            and type(block) is Block
        )

    def copy(self) -> DeviceArray:
        """The same elements in memory of their own, one after another."""
        from weft.backends.cuda.copies import packed_copy

        return packed_copy(self)

    def packed(self) -> DeviceArray:
        """The same elements one after another: itself, or a copy."""
        return self if self.gaps is None else self.copy()

    def to_host(self) -> Host:
        """The elements as an array of NumPy; waits for them."""
        from weft.backends.cuda.copies import to_host

        return to_host(self)

    def item(self) -> Any:
        """The one element."""
        return self.to_host().item()

    def any(self) -> Any:
        """Whether any element is not zero."""
        return self.to_host().any()

    def __bool__(self) -> bool:
        return bool(self.to_host())

    def __add__(self, other: Any) -> DeviceArray:
        """The sum, of gradients that meet."""
        form = self.form
        alike = form is not None and type(other) is DeviceArray and other.form is form
        found: DeviceArray = form.add(self, other) if alike else _forms().add_arrays(self, other)
        return found

    __radd__ = __add__

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return self.to_host().__index__()

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        raise DeviceError(
            "numpy", f"the array must be on the cpu, got one on {self.device}", hint="use x.cpu() first"
        )

    def __len__(self) -> NoReturn:
        self.__array__()

    def __iter__(self) -> Iterator[Any]:
        self.__array__()


def _alone() -> int:
    """What getrefcount says of the memory of an array that nobody else holds."""
    probe = DeviceArray.__new__(DeviceArray)
    probe.block = Block.__new__(Block)
    probe.block.size = 0  # so that nothing is given back
    block = probe.block
    return getrefcount(block)


_ALONE = _alone()


def packed_strides(shape: tuple[int, ...], itemsize: int) -> Strides:
    """Those of elements that lie one after another."""
    out, step = [], itemsize
    for size in reversed(shape):
        out.append(step)
        step *= size
    return tuple(reversed(out))


def new_array(card: Card, shape: tuple[int, ...], dtype: DType, stream: Stream | None = None) -> DeviceArray:
    """An array of any content, that the current stream may write to."""
    stream = card.current() if stream is None else stream
    block = card.pool.take(prod(shape) * dtype.itemsize, stream)
    return DeviceArray(card, block, block.pointer, shape, dtype)


def same_place(array: DeviceArray) -> DeviceArray:
    """The same elements in the same memory, as an array that nobody else holds."""
    return DeviceArray(array.card, array.block, array.pointer, array.shape, array.dtype, array.gaps)


def strided(array: DeviceArray, shape: tuple[int, ...], strides: Strides, offset: int) -> DeviceArray:
    """Elements of an array in another order; strides and offset are in bytes."""
    small = 0 in shape
    pairs = zip(shape, strides, packed_strides(shape, array.dtype.itemsize), strict=True)
    even = small or all(size == 1 or own == step for size, own, step in pairs)
    at = array.pointer + (0 if small else offset)
    return DeviceArray(array.card, array.block, at, shape, array.dtype, None if even else strides)

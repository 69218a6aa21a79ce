"""Instructions that processors have for products of narrow numbers: short inner products in one lane.

``dot_i8(total, x, y)`` takes two words of 32 bits, each four bytes, and adds their four products to a total
of 32 bits; so do the others. An op's scalar code has no use for them: the schedule writes them where the
machine has a unit for it (``weft.schedule.cpu.units``), and a backend without an instruction expands them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import DType, bfloat16, float32, int8, int32, uint8, uint32
from weft.base.records import NamedTuple


class Dot(NamedTuple):
    """What such an instruction takes.

    Attributes:
        left, right: the dtypes of the numbers in the words of both sides.
        total: the dtype that their products are added in.
    """

    left: DType
    right: DType
    total: DType

    @property
    def group(self) -> int:
        """How many numbers are in a word; the first has the lowest bits."""
        return uint32.itemsize // self.left.itemsize


DOTS: dict[str, Dot] = {
    "dot_i8": Dot(int8, int8, int32),
    "dot_u8i8": Dot(uint8, int8, int32),
    "dot_bf16": Dot(bfloat16, bfloat16, float32),
}
"""Integers wrap around. Of bfloat16 each product is exact, and sums are rounded as the processor does it: two
at a time or one after the other, to the nearest or to odd; what is below the normal numbers may be 0."""


def add_products(name: str, total: Any, x: Any, y: Any) -> Any:
    """The reference, on arrays of NumPy.

    >>> import numpy as np
    >>> from weft.loop.dots import add_products
    >>> words = [np.array(numbers, np.int8).view(np.uint32)[0] for numbers in ([1, 2, 3, -4], [1, 1, 1, 10])]
    >>> int(add_products("dot_i8", np.int32(100), *words))
    66
    """
    dot = DOTS[name]
    left, right = (
        np.asarray(word, uint32)[..., None].view(dtype).astype(dot.total)
        for word, dtype in ((x, dot.left), (y, dot.right))
    )
    return np.asarray(total + (left * right).sum(axis=-1, dtype=dot.total), dot.total)


def expanded(e: Any, name: str, total: Any, x: Any, y: Any) -> Any:
    """The same in instructions of ``weft.ops.scalar``, for machines without one."""
    dot = DOTS[name]
    for place in reversed(range(dot.group)):
        pair = [_UNPACK[dtype](e, word, place) for word, dtype in ((x, dot.left), (y, dot.right))]
        total = e.add(total, e.mul(*pair))
    return total


def _signed(e: Any, word: Any, place: int) -> Any:
    return e.shr(e.shl(e.bitcast(word, int32), 24 - 8 * place), 24)


def _unsigned(e: Any, word: Any, place: int) -> Any:
    return e.bitcast(e.and_(e.shr(word, 8 * place), 255), int32)


def _half(e: Any, word: Any, place: int) -> Any:
    return e.bitcast(e.and_(word, 0xFFFF0000) if place else e.shl(word, 16), float32)


_UNPACK: dict[DType, Callable[[Any, Any, int], Any]] = {int8: _signed, uint8: _unsigned, bfloat16: _half}

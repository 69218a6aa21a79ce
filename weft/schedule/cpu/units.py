"""Units for products of narrow numbers: which a processor has, and how numbers are laid out for them.

Such a unit adds the products of a few numbers along the sum at once, in lanes of 32 bits
(``weft.loop.dots``). So both sides of a product are packed into words of 32 bits, and then it is a product of
words like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.dtypes import DType, bfloat16, int8, uint8, uint16, uint32
from weft.base.records import NamedTuple
from weft.loop.builder import Builder
from weft.loop.dots import DOTS, Dot
from weft.loop.index import Index
from weft.loop.ir import Buffer, Value

_BITS: dict[DType, DType] = {int8: uint8, bfloat16: uint16}
_SIGN = 0x80  # of a byte: flipped, a signed number becomes itself and 128, unsigned
FLIPPED_ZEROS = _SIGN * 0x01010101  # a word of zeros of which the signs are flipped


class Unit(NamedTuple):
    """A unit as a product uses it.

    Attributes:
        instruction: of ``weft.loop.dots``.
        flips: whether the left side is signed and the instruction takes it unsigned: then numbers are 128
            too large, and so are sums by 128 times those of the right side.
    """

    instruction: str
    flips: bool = False

    @property
    def dot(self) -> Dot:
        """What the instruction takes."""
        return DOTS[self.instruction]

    @property
    def group(self) -> int:
        """Numbers in a word."""
        return self.dot.group

    def load_word(
        self, b: Builder, buffer: Buffer, index: Any, apart: Any, count: int, *, left: bool
    ) -> Value:
        """Numbers of a buffer that lie so far apart as a word; what is beyond a count is 0."""
        bits = 8 * uint32.itemsize // self.group
        word: Value | None = None
        for i in range(count):
            value = b.load(buffer, Index.of(index) + i * apart)
            part = b.cast(b.bitcast(value, _BITS[value.dtype]), uint32)
            part = b.shl(part, i * bits) if i else part
            word = part if word is None else b.or_(word, part)
        assert word is not None
        return b.xor(word, FLIPPED_ZEROS >> (32 - count * bits)) if self.flips and left else word


class Words(NamedTuple):
    """The sides of a product as words.

    Attributes:
        unit: that multiplies them.
        tail: numbers in the last word along the sum, or 0 if it is full.
    """

    unit: Unit
    tail: int

    def loader(self, apart: Any, filled: int, *, left: bool) -> Callable[[Builder, Buffer, Any], Value]:
        """What reads a word of a side whose words lie so far apart; with so many numbers, or 0 for all."""
        unit = self.unit
        count = filled or unit.group
        return lambda b, buffer, index: unit.load_word(
            b, buffer, index, apart // unit.group, count, left=left
        )


_FOR: dict[tuple[DType, DType], tuple[Unit, ...]] = {
    (int8, int8): (Unit("dot_i8"), Unit("dot_u8i8", flips=True)),
    (bfloat16, bfloat16): (Unit("dot_bf16"),),
}


def idle_passes(units: tuple[str, ...]) -> tuple[str, ...]:
    """Passes that have nothing to do for a processor with such instructions."""
    return () if unit_for(units, int8, int8) else ("narrow_products",)


def unit_for(units: tuple[str, ...], left: DType, right: DType) -> Unit | None:
    """The unit for products of two dtypes, among the instructions that a processor has; or None.

    >>> from weft.base.dtypes import int8
    >>> from weft.schedule.cpu.units import unit_for
    >>> unit_for(("dot_u8i8", "dot_bf16"), int8, int8)
    Unit(instruction='dot_u8i8', flips=True)
    """
    return next((unit for unit in _FOR.get((left, right), ()) if unit.instruction in units), None)

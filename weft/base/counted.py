"""What is read here and called in PyTorch: ``x.size`` is an int to the array API, ``x.size(0)`` PyTorch's."""

from __future__ import annotations

from typing import Any

from weft.base.shapes import normalize_axis
from weft.base.sizes import Size


class Count(int):
    """A number of elements, which knows the shape that has them."""

    shape: tuple[Any, ...]

    def __call__(self, dim: int | None = None) -> Any:
        """The shape, or its size along an axis."""
        return self.shape if dim is None else self.shape[normalize_axis("size", dim, len(self.shape))]

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)


class NamedCount(Size):
    """The same where sizes have names."""

    __slots__ = ("shape",)

    shape: tuple[Any, ...]

    def __call__(self, dim: int | None = None) -> Any:
        """The shape, or its size along an axis."""
        return self.shape if dim is None else self.shape[normalize_axis("size", dim, len(self.shape))]


class Answer(int):
    """A bool that gives itself when it is called: ``s.is_coalesced()``; as a bool, it has no subclass."""

    def __call__(self) -> bool:
        """The bool itself."""
        return bool(self)

    def __repr__(self) -> str:
        return repr(bool(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return bool, (bool(self),)


COUNTS: dict[tuple[Any, ...], Count] = {}  # by shape, so that asking for a size costs little
_MOST = 4096


def counted(number: Any, shape: tuple[Any, ...]) -> Any:
    """The number of elements of a shape, as one that can be called."""
    if isinstance(number, Size):
        named = NamedCount.__new__(NamedCount)
        named._terms, named._text = number._terms, number._text
        named.shape = shape
        return named
    count = Count(number)
    count.shape = shape
    if len(COUNTS) >= _MOST:
        COUNTS.clear()
    COUNTS[shape] = count
    return count

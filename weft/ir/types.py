"""Types of values: what is known of a tensor without its data."""

from __future__ import annotations

from typing import Any, NoReturn

from weft.base.dtypes import DType, short_name

Shape = tuple[int, ...]


class TensorType:
    """Shape and dtype of a tensor; prints as ``f32[2,3]``. Frozen, equal by value.

    A size may be a name, which each call chooses: files, exports and graphs are made for such types.

    >>> import weft
    >>> kind = weft.TensorType(("batch", 3), weft.float32)
    >>> kind, kind.ndim
    (TensorType(('batch', 3), float32), 2)
    >>> weft.make_graph(lambda x: x.sum(axis=1))(kind)(weft.ones((5, 3))).shape
    (5,)
    """

    # Written out: one is made for most recorded ops, and a frozen dataclass takes three times as long.

    __slots__ = ("dtype", "shape")

    shape: Shape
    dtype: DType

    def __init__(self, shape: Shape, dtype: DType) -> None:
        _set_shape(self, shape)
        _set_dtype(self, dtype)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a TensorType is frozen, its {name} cannot be set")

    @property
    def ndim(self) -> int:
        """The rank."""
        return len(self.shape)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorType):
            return NotImplemented
        return self.shape == other.shape and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __reduce__(self) -> Any:
        return TensorType, (self.shape, self.dtype)

    def __str__(self) -> str:
        return f"{short_name(self.dtype)}[{','.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        return f"TensorType({self.shape}, {self.dtype.name})"


_set_shape = TensorType.__dict__["shape"].__set__
_set_dtype = TensorType.__dict__["dtype"].__set__

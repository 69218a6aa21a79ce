"""Types of values: what is known of a tensor without its data."""

from __future__ import annotations

from dataclasses import dataclass

from weft.base.dtypes import DType, short_name

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and dtype of a tensor; prints as ``f32[2,3]``."""

    shape: Shape
    dtype: DType

    @property
    def ndim(self) -> int:
        """The rank."""
        return len(self.shape)

    def __str__(self) -> str:
        return f"{short_name(self.dtype)}[{','.join(map(str, self.shape))}]"

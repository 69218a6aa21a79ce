"""What normalisations give beside their result."""

from __future__ import annotations

from collections.abc import Sequence

import weft
from weft.tensor.tensor import Tensor


def moments(
    x: Tensor, axes: int | Sequence[int], eps: float, *, keepdims: bool = True
) -> tuple[Tensor, Tensor]:
    """The mean along axes, and one over the deviation."""
    variance = weft.var(x, axis=axes, keepdims=keepdims)
    return weft.mean(x, axis=axes, keepdims=keepdims), weft.rsqrt(variance + eps)

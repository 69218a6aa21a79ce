"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import weft
from weft import Tensor
from weft.errors import ShapeError


def parameters_to_vector(parameters: Iterable[Any]) -> Tensor:
    """All elements of parameters, one after another; gradients flow to the parameters.

    >>> import weft
    >>> from weft import nn
    >>> nn.utils.parameters_to_vector(nn.Linear(2, 3).parameters()).shape
    (9,)
    """
    return weft.concat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Give parameters the elements of a vector.

    >>> import weft
    >>> from weft import nn
    >>> layer = nn.Linear(1, 2)
    >>> nn.utils.vector_to_parameters(weft.arange(4.0), layer.parameters())
    >>> layer.bias
    tensor([2., 3.], requires_grad=True)
    """
    listed = list(parameters)
    total = sum(p.numel() for p in listed)
    if vec.shape != (total,):
        raise ShapeError("vector_to_parameters", f"the vector must have shape ({total},), got {vec.shape}")
    parts = weft.split(vec._value(), [p.numel() for p in listed], axis=0)
    for p, part in zip(listed, parts, strict=True):
        p._set(part.reshape(p.shape).astype(p.dtype))

"""Functions that make tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import as_dtype, default_float
from weft.tensor.tensor import Tensor, wrap


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A new tensor with a copy of data."""
    array = np.array(data)
    if dtype is not None:
        array = array.astype(as_dtype(dtype))
    elif array.dtype == np.float64 and not isinstance(data, np.ndarray | np.generic):
        array = array.astype(default_float())
    out: Tensor = wrap(array)
    return out.requires_grad_(requires_grad)

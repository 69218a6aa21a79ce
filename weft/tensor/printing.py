"""How tensors print."""
from __future__ import annotations
from typing import Any
import numpy as np
def format_tensor(t: Any) -> str:
    return f"tensor({np.array2string(t._data, separator=', ')})"

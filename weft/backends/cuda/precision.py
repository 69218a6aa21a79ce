"""How exact products of float32 matrices are on GPUs."""

from __future__ import annotations

import sys

from weft.config import settings
from weft.errors import ArgumentError

_NAMES = ("float32", "tf32")


def set_matmul_precision(name: str) -> None:
    """Say how exact products of float32 matrices are on GPUs, from now on, compiled functions included.

    "float32" multiplies float32 numbers. "tf32" rounds factors to ten bits behind the point before they are
    multiplied, and is several times faster. Sums are float32 both ways. Processors always use float32.

    >>> import weft
    >>> weft.set_matmul_precision("tf32")
    >>> weft.get_matmul_precision()
    'tf32'
    >>> weft.set_matmul_precision("float32")
    """
    if name not in _NAMES:
        raise ArgumentError("set_matmul_precision", f"must be 'float32' or 'tf32', got {name!r}")
    settings.matmul_precision = name
    executing = sys.modules.get("weft.backends.cuda.execute")
    if executing is not None:
        executing.forget_plans()


def get_matmul_precision() -> str:
    """How exact products of float32 matrices are on GPUs: "float32" or "tf32".

    >>> import weft
    >>> weft.get_matmul_precision()
    'float32'
    """
    return settings.matmul_precision

"""Factorisations by the LAPACK that OpenBLAS brings: what NumPy would do, without its copies and its threads.

These take the place of kernels that Python runs. They write into the memory of the result. A matrix that they
cannot do is left to the op's own kernel, which knows how to say why.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.backends.llvm.blas import load_blas
from weft.base.dtypes import complex64, complex128, float32, float64
from weft.ops.linalg.common import write_lower_hermitian

Kernel = Callable[..., bool]

_LETTERS = {float32: "s", float64: "d", complex64: "c", complex128: "z"}
MOST = {"cholesky": 2048, "solve": 512}  # rows of a matrix; larger ones are worth the threads of NumPy


def native_kernel(name: str) -> Kernel | None:
    """What computes an op into the array of its result, and says whether it could; None if there is none.

    >>> import numpy as np
    >>> from weft.backends.llvm.lapack import native_kernel
    >>> out = np.empty((2, 2))
    >>> native_kernel("cholesky")(out, np.array([[4.0, 2.0], [2.0, 5.0]])), out.tolist()
    (True, [[2.0, 0.0], [1.0, 2.0]])
    """
    return _KERNELS.get(name)


def _cholesky(out: Any, x: Any) -> bool:
    if not _suits("cholesky", x):
        return False
    n = x.shape[-1]
    write_lower_hermitian(out, x)
    potrf = getattr(load_blas(), f"scipy_{_LETTERS[x.dtype]}potrf_")
    size, info = ctypes.c_int(n), ctypes.c_int(0)
    for at in np.ndindex(x.shape[:-2]):
        # What is the lower triangle by rows is the upper one by columns, as LAPACK reads it.
        potrf(b"U", _by(size), _place(out[at]), _by(size), _by(info), ctypes.c_size_t(1))
        if info.value:
            return False
    _clear_above(out)
    return True


def _solve(out: Any, a: Any, b: Any) -> bool:
    if not _suits("solve", a) or a.ndim != 2 or b.ndim != 2 or b.size == 0:
        return False
    left, right = np.array(a, order="F"), np.array(b, order="F")
    n, columns, info = ctypes.c_int(a.shape[0]), ctypes.c_int(b.shape[1]), ctypes.c_int(0)
    pivots = np.empty(a.shape[0], np.intc)
    gesv = getattr(load_blas(), f"scipy_{_LETTERS[a.dtype]}gesv_")
    gesv(_by(n), _by(columns), _place(left), _by(n), _place(pivots), _place(right), _by(n), _by(info))
    if info.value:
        return False
    out[...] = right
    return True


_KERNELS: dict[str, Kernel] = {"cholesky": _cholesky, "solve": _solve}
_by = ctypes.byref


def _suits(name: str, x: Any) -> bool:
    return x.dtype in _LETTERS and x.size > 0 and x.shape[-1] <= MOST[name]


def _place(x: Any) -> Any:
    return ctypes.c_void_p(x.ctypes.data)


_BLOCK = 64


def _clear_above(x: Any) -> None:
    """Put zeros above the diagonal."""
    n = x.shape[-1]
    for i in range(0, n, _BLOCK):
        x[..., i : i + _BLOCK, i + _BLOCK :] = 0
        corner = x[..., i : i + _BLOCK, i : i + _BLOCK]
        corner[...] = np.tril(corner)

"""Matrix products by OpenBLAS, from the package scipy-openblas32: where its functions are.

It runs in the thread that calls it and in no other: work is shared out by weft's own pool.
"""

from __future__ import annotations

import ctypes
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from weft.base.forks import Level, lock_of
from weft.errors import DeviceError

if TYPE_CHECKING:
    from pathlib import Path


NAMES = tuple(f"scipy_cblas_{letter}{name}" for letter in "sdcz" for name in ("gemm", "gemv", "axpy", "scal"))
_THREADS = "OPENBLAS_NUM_THREADS"

_loaded: list[Any] = []
_lock = lock_of(Level.LIBRARY)


def load_blas() -> Any:
    """The library, as ``ctypes`` sees it.

    >>> from weft.backends.llvm.blas import load_blas
    >>> load_blas().scipy_openblas_get_num_threads()
    1
    """
    with _lock:
        if not _loaded:
            _loaded.append(_load())
        return _loaded[0]


def blas_address(name: str) -> int:
    """Where a function of the library is."""
    return int(ctypes.cast(getattr(load_blas(), name), ctypes.c_void_p).value or 0)


def blas_file() -> Path:
    """The file of the library."""
    from pathlib import Path

    return Path(_find())


def _load() -> Any:
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"  # read when it is loaded: then it starts no threads of its own
    try:
        library = ctypes.CDLL(_find())
    finally:
        if before is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = before
    library.scipy_openblas_set_num_threads(1)
    return library


def _find() -> str:
    """The file of the library; the package itself takes longer to import than the library."""
    spec = find_spec("scipy_openblas32")
    folder = os.path.join(os.path.dirname(spec.origin), "lib") if spec is not None and spec.origin else ""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    found = sorted(name for name in names if name.startswith("libscipy_openblas"))
    if not found:
        hint = "pip install scipy-openblas32"
        raise DeviceError("llvm", "matrix products need scipy-openblas32, which is not installed", hint=hint)
    return os.path.join(folder, found[0])

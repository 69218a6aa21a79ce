"""Matrix products by OpenBLAS, from the threads of the pool."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest

from weft.backends.llvm import blas
from weft.backends.llvm.blas import NAMES, blas_address, load_blas
from weft.backends.llvm.cache import Cache
from weft.backends.llvm.compiler import Source
from weft.backends.llvm.engine import Engine
from weft.backends.llvm.target import host_target
from weft.errors import DeviceError

Array = np.ndarray[Any, Any]
_GEMM = ctypes.CFUNCTYPE(
    None, *[ctypes.c_int32] * 6, ctypes.c_float, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p,
    ctypes.c_int32, ctypes.c_float, ctypes.c_void_p, ctypes.c_int32,
)  # fmt: skip


def product(a: Array, b: Array) -> Array:
    """The product of two matrices, by the library."""
    (m, k), n = a.shape, b.shape[1]
    c = np.empty((m, n), np.float32)
    gemm = _GEMM(blas_address("scipy_cblas_sgemm"))
    gemm(101, 111, 111, m, n, k, 1.0, a.ctypes.data, k, b.ctypes.data, n, 0.0, c.ctypes.data, n)
    return c


def test_library_runs_in_one_thread() -> None:
    assert load_blas().scipy_openblas_get_num_threads() == 1


def test_product_is_that_of_numpy() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((37, 53), np.float32), rng.random((53, 41), np.float32)
    np.testing.assert_allclose(product(a, b), a @ b, rtol=1e-5)


def test_products_at_the_same_time_are_the_same_as_one_after_the_other() -> None:
    rng = np.random.default_rng(0)
    pairs = [(rng.random((150, 90), np.float32), rng.random((90, 130), np.float32)) for _ in range(4)]
    expected = [product(a, b) for a, b in pairs]
    wrong: list[int] = []

    def work(number: int) -> None:
        found = [product(*pairs[number]) for _ in range(50)]
        wrong.extend(number for c in found if not np.array_equal(c, expected[number]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_text_calls_the_library() -> None:
    engine = Engine(host_target(), Cache(None))
    engine.provide(NAMES, blas_address)
    text = (
        "declare void @scipy_cblas_sscal(i32, float, ptr, i32)\n"
        "define void @f(ptr %x) {\n"
        "  call void @scipy_cblas_sscal(i32 3, float 2.0, ptr %x, i32 1)\n  ret void\n}"
    )
    x = np.arange(3, dtype=np.float32)
    code = engine.load([Source(text)])["f"]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address)(x.ctypes.data)
    assert x.tolist() == [0.0, 2.0, 4.0]


def test_missing_package_is_an_error_that_tells_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match=r"llvm: matrix products need scipy-openblas32(.|\n)*pip install"):
        blas._find()

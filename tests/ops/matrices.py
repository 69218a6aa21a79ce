"""What tests of linear algebra share: dtypes, comparisons, and checks of derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.ops import checks
from weft.ops.op import Sample

DTYPES = [weft.float32, weft.float64, weft.complex64, weft.complex128]
SHAPES = [(3, 3), (4, 2), (2, 4), (2, 3, 2), (1, 1)]
complexity = pytest.mark.parametrize("complex", [False, True], ids=["real", "complex"])


def tensor(array: Any) -> Any:
    """A tensor of an array."""
    return weft.tensor(np.asarray(array))


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    return weft.matrix_transpose(x.conj())


def assert_near(actual: Any, expected: Any, tolerance: float = 1e-9) -> None:
    """Elements agree within a tolerance."""
    np.testing.assert_allclose(
        np.asarray(actual.detach()), np.asarray(expected), rtol=tolerance, atol=tolerance
    )


def assert_derivatives(function: Callable[..., Any], *arrays: Any) -> None:
    """First and second derivatives against finite differences, and forward against reverse mode."""
    entry = checks.Entry("function", function, Sample(arrays), None)  # type: ignore[arg-type]
    checks.check_jvp(entry)
    checks.check_transposed(entry)
    checks.check_second_order(entry)


def gradient(function: Callable[[Any], Any], array: Any) -> Any:
    """The gradient of a number that a function makes of an array."""
    x = tensor(array).requires_grad_()
    function(x).backward()
    return x.grad.numpy()


def tolerance_of(dtype: Any) -> float:
    """How near results in a dtype are."""
    return 2e-4 if dtype in (weft.float32, weft.complex64) else 1e-9

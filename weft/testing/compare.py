"""``assert_close``: trees of tensors compared, with a message that says where they differ and by how much."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import as_dtype, bfloat16, complex64, float16, float32, kind
from weft.base.trees import flatten_like, tree_flatten
from weft.tensor.tensor import Tensor

# (rtol, atol) for the least precise of the dtypes compared; float64 and complex128 where none is found.
_TOLERANCES = {
    float16: (1e-3, 1e-5),
    bfloat16: (1.6e-2, 1e-5),
    float32: (1.3e-6, 1e-5),
    complex64: (1.3e-6, 1e-5),
}
_DOUBLE = (1e-7, 1e-7)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    check_dtype: bool = True,
) -> None:
    """Raise an AssertionError unless two trees of tensors, arrays or numbers agree.

    Args:
        actual: what was computed.
        expected: what it should be: the same structure, shapes and, for tensors and arrays, dtypes.
        rtol: relative tolerance; follows from the dtype if None.
        atol: absolute tolerance; likewise.
        equal_nan: NaN agrees with NaN.
        check_dtype: dtypes must be equal.

    >>> import weft
    >>> weft.testing.assert_close({"a": weft.tensor([1.0, 2.0])}, {"a": weft.tensor([1.0, 3.0])})
    Traceback (most recent call last):
    AssertionError: ['a'] differs in 1 of 2 elements
      greatest absolute difference 1 at (1,), relative 0.333: got 2.0, expected 3.0
      tolerances: atol=1e-05, rtol=1.3e-06
    """
    wanted, structure = tree_flatten(expected)
    given = flatten_like("assert_close", structure, actual, "actual")
    for a, e, path in zip(given, wanted, structure.paths(), strict=True):
        message = describe_difference(a, e, rtol, atol, equal_nan, check_dtype)
        if message is not None:
            raise AssertionError(f"{path or 'the value'} {message}")


def as_array(x: Any) -> Any:
    """The concrete values of a tensor, an array or a number."""
    return x.detach().numpy() if isinstance(x, Tensor) else np.asarray(x)


def describe_difference(
    actual: Any, expected: Any, rtol: Any, atol: Any, equal_nan: bool = True, check_dtype: bool = True
) -> str | None:
    """Where two arrays differ and by how much, as ``assert_close`` says it; None if they agree."""
    a, e = as_array(actual), as_array(expected)
    if a.shape != e.shape:
        return f"must be of shape {e.shape}, got {a.shape}"
    typed = hasattr(actual, "dtype") and hasattr(expected, "dtype")
    if check_dtype and typed and a.dtype != e.dtype:
        return f"must be of dtype {e.dtype.name}, got {a.dtype.name}"
    rtol, atol = _tolerances(a, e, rtol, atol)
    x, y = _wide(a), _wide(e)
    with np.errstate(all="ignore"):
        error = np.abs(x - y)
        close = (x == y) | (np.isfinite(error) & (error <= atol + rtol * np.abs(y)))
        if equal_nan:
            close |= np.isnan(x) & np.isnan(y)
        if close.all():
            return None
        return _describe(x, y, error, ~close) + f"\n  tolerances: atol={atol:g}, rtol={rtol:g}"


def _describe(x: Any, y: Any, error: Any, wrong: Any) -> str:
    shown = np.where(wrong, np.nan_to_num(error, nan=np.inf), -1.0)
    worst = np.unravel_index(int(np.argmax(shown)), shown.shape)
    index = tuple(int(i) for i in worst)
    return (
        f"differs in {int(wrong.sum())} of {x.size} elements\n"
        f"  greatest absolute difference {error[worst]:.3g} at {index}, "
        f"relative {error[worst] / np.abs(y[worst]):.3g}: got {x[worst].item()}, expected {y[worst].item()}"
    )


def _wide(a: Any) -> Any:
    """Values in a dtype wide enough for exact differences."""
    if kind(as_dtype(a.dtype)) in "iu" and a.dtype.itemsize == 8:
        return a.astype(np.longdouble)
    return a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)


def _tolerances(a: Any, e: Any, rtol: float | None, atol: float | None) -> tuple[float, float]:
    if all(kind(as_dtype(x.dtype)) in "biu" for x in (a, e)):
        found = (0.0, 0.0)
    else:
        pairs = [_TOLERANCES.get(as_dtype(x.dtype), _DOUBLE) for x in (a, e)]
        found = (max(p[0] for p in pairs), max(p[1] for p in pairs))
    return found[0] if rtol is None else rtol, found[1] if atol is None else atol

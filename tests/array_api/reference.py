"""The reference implementation of the standard, and how weft is compared with it.

Both get the same NumPy arrays. Where the reference makes floats of its own, they are float64; weft's are
float32, so tests name the dtype. Examples are drawn the same way in every run of the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import array_api_strict as strict
import numpy as np
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import weft
from tests.of_code import examples

strict.set_array_api_strict_flags(api_version="2024.12")

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
REALS = INTEGERS + FLOATS
FLOATING = FLOATS + COMPLEX
NUMERIC = REALS + COMPLEX
ALL = ("bool", *NUMERIC)

few = examples(
    20,
    8,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
filled_shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=4)

Array = np.ndarray[Any, Any]
Arrays = st.SearchStrategy[Array]


def arrays(dtypes: Sequence[str], shape: Any = shapes, **elements: Any) -> Arrays:
    """Arrays of one of the dtypes, special values among the elements; ``elements`` bound them."""

    def of(dtype: str) -> Arrays:
        bounds = elements if np.dtype(dtype).kind not in "biu" else integer_bounds(dtype, elements)
        return hnp.arrays(dtype, shape, elements=hnp.from_dtype(np.dtype(dtype), **bounds))

    return st.sampled_from(dtypes).flatmap(of)


def integer_bounds(dtype: str, elements: dict[str, Any]) -> dict[str, Any]:
    if dtype == "bool":
        return {}
    limits = np.iinfo(dtype)
    out = {}
    if "min_value" in elements:
        out["min_value"] = max(int(limits.min), int(elements["min_value"]))
    if "max_value" in elements:
        out["max_value"] = min(int(limits.max), int(elements["max_value"]))
    return out


def promotable(dtypes: Sequence[str], count: int = 2) -> st.SearchStrategy[tuple[str, ...]]:
    """Dtypes that the standard promotes to a common one."""

    def fits(chosen: tuple[str, ...]) -> bool:
        try:
            strict.result_type(*[getattr(strict, d) for d in chosen])
        except TypeError:
            return False
        return True

    return st.tuples(*[st.sampled_from(dtypes)] * count).filter(fits)


def broadcastable(dtypes: Sequence[str], **elements: Any) -> st.SearchStrategy[tuple[Array, Array]]:
    """Two arrays of promotable dtypes and shapes that broadcast."""
    pairs = hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=4, min_side=0)

    def pair(drawn: Any) -> st.SearchStrategy[tuple[Array, Array]]:
        (d1, d2), (s1, s2) = drawn[0], drawn[1].input_shapes
        return st.tuples(arrays((d1,), s1, **elements), arrays((d2,), s2, **elements))

    return st.tuples(promotable(dtypes), pairs).flatmap(pair)


def to_weft(value: Any) -> Any:
    """Arrays, in lists and tuples too, as tensors; dtype names as dtypes."""
    return _convert(value, weft, weft.tensor)


def to_strict(value: Any) -> Any:
    """Arrays, in lists and tuples too, as arrays of the reference; dtype names as its dtypes."""
    return _convert(value, strict, lambda a: strict.asarray(a, copy=True))


def _convert(value: Any, namespace: Any, make: Callable[[Any], Any]) -> Any:
    if isinstance(value, np.ndarray):
        return make(value)
    if isinstance(value, list | tuple):
        return type(value)(_convert(v, namespace, make) for v in value)
    return getattr(namespace, value) if isinstance(value, str) and value in ALL else value


def assert_same(ours: Any, reference: Any, ulps: float | None = None) -> None:
    """Equal dtype, shape and values: NaN equals NaN and the signs of zeros and infinities count.

    With ``ulps``, finite values may differ by so many units of their dtype's precision, a complex number
    by its magnitude, and the signs of zeros do not count.
    """
    if isinstance(reference, list | tuple):
        assert len(ours) == len(reference)
        for a, b in zip(ours, reference, strict=True):
            assert_same(a, b, ulps)
        return
    if not hasattr(reference, "dtype"):
        assert (type(ours), ours) == (type(reference), reference)
        return
    assert isinstance(ours, weft.Tensor)
    a, b = np.asarray(ours), np.asarray(reference)
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    if ulps is not None and a.dtype.kind in "fc":
        size = np.maximum(np.abs(b.real), np.abs(b.imag))
        with np.errstate(all="ignore"):
            close = np.abs(a - b) <= ulps * np.finfo(a.dtype).eps * size + np.finfo(a.dtype).tiny
        b = np.where(close & np.isfinite(size), a, b)
    for x, y in ((a.real, b.real), (a.imag, b.imag)) if a.dtype.kind == "c" else ((a, b),):
        np.testing.assert_array_equal(x, y)
        if ulps is None and x.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(x[x == 0]), np.signbit(y[y == 0]))


def call_both(name: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """What a function gives in weft and in the reference, on the same arguments."""
    ours, reference = weft, strict
    for part in name.split("."):
        ours, reference = getattr(ours, part), getattr(reference, part)
    with np.errstate(all="ignore"):
        expected = reference(*to_strict(args), **{k: to_strict(v) for k, v in kwargs.items()})
    return ours(*to_weft(args), **{k: to_weft(v) for k, v in kwargs.items()}), expected


def assert_agrees(name: str, *args: Any, ulps: float | None = None, **kwargs: Any) -> None:
    """A function gives the same in weft and in the reference."""
    assert_same(*call_both(name, *args, **kwargs), ulps=ulps)

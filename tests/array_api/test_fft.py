"""The fft extension agrees with the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import weft
from tests.array_api.reference import COMPLEX, FLOATING, FLOATS, Array, arrays, assert_agrees, call_both, few

NORMS = st.sampled_from(["backward", "ortho", "forward"])
shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=2, max_side=5)

INPUTS = {
    "fft": COMPLEX,
    "ifft": COMPLEX,
    "rfft": FLOATS,
    "irfft": COMPLEX,
    "hfft": COMPLEX,
    "ihfft": FLOATS,
    "fftn": COMPLEX,
    "ifftn": COMPLEX,
    "rfftn": FLOATS,
    "irfftn": COMPLEX,
}


def drawn(dtypes: tuple[str, ...]) -> Any:
    values = {"max_magnitude": 9} if dtypes == COMPLEX else {"min_value": -9, "max_value": 9}
    return arrays(dtypes, shapes, allow_nan=False, allow_infinity=False, **values)


def compare(name: str, x: Array, **kwargs: Any) -> None:
    ours, expected = (np.asarray(r) for r in call_both(name, x, **kwargs))
    assert (ours.dtype, ours.shape) == (expected.dtype, expected.shape)
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    np.testing.assert_allclose(ours, expected, rtol=0, atol=100 * np.finfo(ours.dtype).eps * scale)


@pytest.mark.parametrize("name", [n for n in INPUTS if not n.endswith("n")])
@few
@given(data=st.data(), norm=NORMS)
def test_transform_of_one_axis(name: str, data: Any, norm: str) -> None:
    x = data.draw(drawn(INPUTS[name]))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    n = data.draw(st.none() | st.integers(1, 8))
    assume(n is not None or x.shape[axis] > 1)
    compare(f"fft.{name}", x, n=n, axis=axis, norm=norm)


@pytest.mark.parametrize("name", [n for n in INPUTS if n.endswith("n")])
@few
@given(data=st.data(), norm=NORMS, as_list=st.booleans())
def test_transform_of_several_axes(name: str, data: Any, norm: str, as_list: bool) -> None:
    x = data.draw(drawn(INPUTS[name]))
    axes = data.draw(st.none() | st.lists(st.integers(0, x.ndim - 1), min_size=1, unique=True))
    s = None
    if axes is not None:
        s = data.draw(st.none() | st.tuples(*[st.integers(2, 6)] * len(axes)))
        axes = axes if as_list else tuple(axes)
    compare(f"fft.{name}", x, s=s, axes=axes, norm=norm)


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
@pytest.mark.parametrize("dtype", FLOATS)
@few
@given(n=st.integers(1, 20), d=st.floats(0.1, 5))
def test_frequencies(name: str, dtype: str, n: int, d: float) -> None:
    assert_agrees(f"fft.{name}", n, d=d, dtype=dtype, ulps=4)
    assert getattr(weft.fft, name)(n).dtype == weft.float32


@pytest.mark.parametrize("name", ["fftshift", "ifftshift"])
@few
@given(x=drawn(FLOATING[:2]), data=st.data())
def test_shift(name: str, x: Array, data: Any) -> None:
    axes = data.draw(st.none() | st.lists(st.integers(0, x.ndim - 1), min_size=1, unique=True))
    assert_agrees(f"fft.{name}", x, axes=axes)
    assert_agrees(f"fft.{name}", x, axes=-1)

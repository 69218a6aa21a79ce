"""Errors of the scalar code of float32 ops, run as compiled code runs it: with expanded functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

import weft.ops.activation  # noqa: F401 (declares ops)
from tests.loop.math_emitters import FUSED, FusingEmitter, units
from weft.loop.math.functions import EXPANSIONS
from weft.ops.op import OPS
from weft.ops.scalar import NUMPY, NumpyEmitter

RNG = np.random.default_rng(0)


class Expanding(NumpyEmitter):
    """Functions are expanded."""


class FusingExpanding(FusingEmitter):
    """Functions are expanded, products fused."""


def expand(code: Callable[..., Any]) -> Callable[..., Any]:
    """As backends do it: half precision is computed in float32."""

    def method(self: Any, *operands: Any) -> Any:
        dtype = operands[0].dtype
        if dtype.itemsize > 2:
            return code(self, *operands)
        return self.cast(code(self, *[x.astype(np.float32) for x in operands]), dtype)

    return method


for _name, _code in EXPANSIONS.items():
    if _name != "sqrt":
        for _emitter in (Expanding, FusingExpanding):
            setattr(_emitter, _name, expand(_code))

EMITTERS: dict[str, Any] = {"plain": Expanding(), "fused": FusingExpanding()}


def log_sum(x: Any, y: Any) -> Any:
    return np.maximum(x, y) + np.log1p(np.exp(-np.abs(x - y)))


def erfinv(x: Any) -> Any:
    """SciPy refuses numbers slowly, and loses the sign of a zero."""
    return np.copysign(special.erfinv(np.where(np.abs(x) <= 1, x, np.nan)), x)


def sigmoid(x: Any) -> Any:
    return special.expit(x)


ORACLES: dict[str, Callable[..., Any]] = {
    "erf": special.erf, "erfc": special.erfc, "normal_cdf": special.ndtr, "sigmoid": sigmoid,
    "softplus": lambda x: log_sum(x, 0.0), "expm1": np.expm1, "log1p": np.log1p, "exp2": np.exp2,
    "log2": np.log2, "log10": np.log10, "sinh": np.sinh, "cosh": np.cosh, "rsqrt": lambda x: 1 / np.sqrt(x),
    "atan": np.arctan, "asin": np.arcsin, "acos": np.arccos, "tan": np.tan, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh,
    "erfinv": erfinv,
}  # fmt: skip


def arguments(count: int) -> Any:
    bits = np.arange(count, dtype=np.uint64) * np.uint64(2**32 // count)
    every = bits.astype(np.uint32).view(np.float32)
    dense = [RNG.uniform(-a, a, count // 3).astype(np.float32) for a in (1, 4, 20, 105)]
    return np.concatenate([every[np.isfinite(every)], *dense])


def error(name: str, oracle: Callable[..., Any], emitter: str, *inputs: Any) -> float:
    code = OPS[name].scalar
    assert code is not None
    with np.errstate(all="ignore"):
        actual = np.asarray(code(EMITTERS[emitter], *inputs))
        exact = np.asarray(oracle(*[x.astype(np.float64) for x in inputs]))
    return float(units(actual, exact).max())


@pytest.mark.rotating(4)
@pytest.mark.parametrize("emitter", EMITTERS)
@pytest.mark.parametrize("name", ORACLES)
def test_float32_ops_are_accurate(name: str, emitter: str) -> None:
    count = 300_000 if emitter == "plain" else 100_000
    assert error(name, ORACLES[name], emitter, arguments(count)) <= 2


@pytest.mark.parametrize("emitter", EMITTERS)
def test_logaddexp_is_within_3_units_of_its_larger_input(emitter: str) -> None:
    x, y = RNG.uniform(-20, 20, (2, 100_000)).astype(np.float32)
    code = OPS["logaddexp"].scalar
    assert code is not None
    exact = log_sum(x.astype(np.float64), y.astype(np.float64))
    scale = np.spacing(np.maximum(np.maximum(np.abs(x), np.abs(y)), 1))
    assert (np.abs(np.asarray(code(EMITTERS[emitter], x, y)) - exact) / scale).max() <= 3


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_special_values_of_ops(name: str, dtype: Any) -> None:
    x = np.array([0.0, -0.0, 1.0, -1.0, 0.25, np.inf, -np.inf, np.nan], dtype)
    code = OPS[name].scalar
    assert code is not None
    with np.errstate(all="ignore"):
        expected = ORACLES[name](x.astype(np.float64)).astype(dtype)
        actual = code(EMITTERS["plain"], x)
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, expected, rtol=4 * float(np.finfo(dtype).eps))
    zero = expected == 0
    np.testing.assert_array_equal(np.signbit(actual[zero]), np.signbit(expected[zero]))


def test_elu_is_accurate_next_to_zero() -> None:
    x = np.float32([-1e-6, -1e-3, -0.0, 0.5, -200.0])
    code = OPS["elu"].scalar
    assert code is not None
    actual = code(FUSED, x, np.ones_like(x))
    expected = np.where(x < 0, np.expm1(x.astype(np.float64)), x)
    np.testing.assert_allclose(actual, expected, rtol=2.4e-7)
    np.testing.assert_array_equal(code(NUMPY, x, np.ones_like(x)), actual)


def test_tangents_of_large_angles_are_within_2_units() -> None:
    """Where the sine and the cosine, rounded before they are divided, would be further off."""
    near = np.float32(4.164401e15).view(np.int32) + np.arange(-2000, 2000, dtype=np.int32)
    poles = (np.arange(1, 40_000, 2) * (np.pi / 2)).astype(np.float32)
    x = np.concatenate([near.view(np.float32), poles, -poles])
    for emitter in EMITTERS:
        assert error("tan", np.tan, emitter, x) <= 2

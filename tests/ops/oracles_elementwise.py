"""Oracles of the elementwise ops: NumPy and SciPy, or the definition written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import integrate, special


def _of_integers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Rounding leaves integers alone."""
    return lambda x: x if x.dtype.kind in "iu" else function(x)


def _pow(x: Any, y: Any) -> Any:
    if y.dtype.kind != "i":
        return np.power(x, y)
    exact = [a**b if b >= 0 else a**-b if a in (1, -1) else 0 for a, b in _pairs(x, y)]
    return np.array(exact, x.dtype).reshape(np.broadcast_shapes(x.shape, y.shape))


def _pairs(x: Any, y: Any) -> list[tuple[int, int]]:
    left, right = np.broadcast_arrays(x, y)
    return [(int(a), int(b)) for a, b in zip(left.flat, right.flat, strict=True)]


def _cast(x: Any, dtype: Any) -> Any:
    if x.dtype.kind == "c" and np.dtype(dtype).kind not in "cb":
        x = x.real
    return x.astype(dtype)


def _floor_divide(x: Any, y: Any) -> Any:
    """NumPy's, but for values that are not finite, where it follows Python and not the standard."""
    if x.dtype.kind in "iu":
        return np.floor_divide(x, y)
    return np.where(np.isfinite(x) & np.isfinite(y), np.floor_divide(x, y), np.floor(x / y))


def _logaddexp(x: Any, y: Any) -> Any:
    """Of complex numbers the logarithm whose imaginary part is next to that of the larger one."""
    if x.dtype.kind != "c":
        return np.logaddexp(x, y)
    plain = np.log(np.exp(x) + np.exp(y))
    large: Any = np.where(x.real < y.real, y, x)
    return plain + 2j * np.pi * np.round((large.imag - plain.imag) / (2 * np.pi))


ORACLES: dict[str, Callable[..., Any]] = {
    "where": np.where,
    "reinterpret": lambda x, dtype: np.frombuffer(x.tobytes(), dtype).reshape(
        (*x.shape[:-1], x.shape[-1] * x.itemsize // dtype.itemsize) if x.ndim else ()
    ),
    "bitcast": lambda x, dtype: np.frombuffer(x.tobytes(), dtype).reshape(x.shape),
    "cast": _cast,
    # arithmetic
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "neg": np.negative,
    "positive": np.positive,
    "stop_gradient": np.positive,
    "when_chosen": lambda x, truth: np.positive(x),
    "in_place_of": lambda x, y: np.broadcast_arrays(x, y)[0],
    "square": np.square,
    "reciprocal": lambda x: 1 / x,
    "pow": _pow,
    "floor_divide": _floor_divide,
    "remainder": np.remainder,
    "fmod": np.fmod,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "clip": np.clip,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    # complex numbers
    "abs": np.abs,
    "sign": np.sign,
    "angle": lambda x: np.angle(x if x.dtype.kind == "c" else x + 0.0),  # -0.0 has no angle of its own
    "real": np.real,
    "imag": np.imag,
    "conj": np.conj,
    "complex": lambda x, y: np.vectorize(complex, otypes=[complex])(x, y),
    # exponentials
    "exp": np.exp,
    "exp2": lambda x: np.power(2.0, x) if x.dtype.kind == "c" else np.exp2(x),
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "log10": np.log10,
    "logaddexp": _logaddexp,
    "root": np.sqrt,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)) if x.dtype.kind == "c" else special.expit(x),
    # trigonometry
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    # comparison, logic, bits
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "signbit": np.signbit,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_invert": np.invert,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
    # rounding
    "floor": _of_integers(np.floor),
    "ceil": _of_integers(np.ceil),
    "trunc": _of_integers(np.trunc),
    "round": _of_integers(np.round),
    # made of others
    "isclose": np.isclose,
    "allclose": np.allclose,
    "nan_to_num": np.nan_to_num,
    "lerp": lambda start, end, weight: (1 - weight) * start + weight * end,
    # special functions
    "betainc": special.betainc,
    "betaincc": special.betaincc,
    "entr": special.entr,
    "erf": special.erf,
    "erfc": special.erfc,
    "erfinv": special.erfinv,
    "gammainc": special.gammainc,
    "gammaincc": special.gammaincc,
    "log_ndtr": special.log_ndtr,
    "logit": special.logit,
    "ndtr": special.ndtr,
    "ndtri": special.ndtri,
    "sinc": lambda x: np.where(x == 0, 1, np.sin(np.pi * np.fmod(x, 2)) / (np.pi * x)),
    "xlog1py": special.xlog1py,
    "xlogy": special.xlogy,
    "lgamma": lambda x: np.where(x == -np.inf, np.inf, special.gammaln(x)),
    "digamma": special.digamma,
    "gamma_path": lambda x, y: np.broadcast_arrays(x, y)[0],
    "gamma_slope": lambda a, y: _gamma_slope(a, y),
    "polygamma": lambda x, n: special.polygamma(n, x) if (x > 0).all() else _polygamma(x, n),
}


def _polygamma(x: Any, n: int) -> Any:
    """By the recurrence, from the right half where SciPy is right."""
    steps = 10
    total = special.polygamma(n, x + steps)
    sign = (-1) ** (n + 1) * special.factorial(n)
    return total + sign * sum((x + k) ** -(n + 1.0) for k in range(steps))


def _gamma_slope(a: Any, y: Any) -> Any:
    return np.vectorize(_gamma_slope_of_one, otypes=[np.float64])(a, y)


def _gamma_slope_of_one(a: float, y: float) -> float:
    """-(dP/da) / (x p(x)), P the incomplete gamma function: an adaptive integral over v = t / x."""
    x, off = np.exp(y), special.digamma(a) - y

    def density(v: float) -> float:
        return float(np.exp((a - 1) * np.log(v) + x * (1 - v)))

    if y > np.log(a):  # from above
        wide = min(15 / np.sqrt(a) + 45 / x, 45 / (x - a))
        return float(
            integrate.quad(lambda v: (np.log(v) - off) * density(v), 1, 1 + wide, epsrel=1e-13, limit=200)[0]
        )
    if a > 5:
        start = max(0.0, 1 - 12 / np.sqrt(a))
        return float(
            integrate.quad(lambda v: (off - np.log(v)) * density(v), start, 1, epsrel=1e-13, limit=200)[0]
        )
    falling = {"a": 0, "b": 1, "wvar": (a - 1, 0), "epsrel": 1e-13}
    plain = integrate.quad(lambda v: np.exp(x * (1 - v)), weight="alg", **falling)[0]
    logs = integrate.quad(lambda v: np.exp(x * (1 - v)), weight="alg-loga", **falling)[0]
    return float(off * plain - logs)

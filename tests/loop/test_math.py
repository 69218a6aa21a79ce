"""Errors of the mathematical functions over their whole range, whether or not products are fused into sums.

``python -m tests.loop.test_math`` prints a table of the largest errors and of the number of instructions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from tests.loop import math_oracle
from tests.loop.math_emitters import BASIC, EMITTERS, Recorder, Scaling, Signed, Sparing, instructions, units
from weft.loop.math.functions import EXPANSIONS
from weft.ops import exponent, logarithm
from weft.ops.scalar import NUMPY

RNG = np.random.default_rng(0)
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
HAS_WIDE = np.finfo(np.longdouble).nmant > 60
WIDE = {F32: F64, F64: np.dtype(np.longdouble)}

UNARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    **{name: (EXPANSIONS[name], getattr(np, name)) for name in ("exp", "log", "sin", "cos", "tanh")},
    "sigmoid": (EXPANSIONS["sigmoid"], lambda x: 1 / (1 + np.exp(-x))),
    "expm1": (exponent.expm1, np.expm1),
    "log1p": (logarithm.log1p, np.log1p),
    "sinh": (exponent.sinh, np.sinh),
    "cosh": (exponent.cosh, np.cosh),
    "exp2": (exponent.exp2, np.exp2),
    "log2": (logarithm.log2, np.log2),
    "log10": (logarithm.log10, np.log10),
    # Where the sign of the argument is known, there is less code.
    "exp_of_negative": (
        lambda e, x: exponent.exp(cast(Any, Signed(e, -1)), e.neg(e.abs(x))),
        lambda x: np.exp(-np.abs(x)),
    ),
    "log1p_of_size": (
        lambda e, x: logarithm.log1p(cast(Any, Signed(e, 1)), e.abs(x)),
        lambda x: np.log1p(np.abs(x)),
    ),
}
BINARY = {"atan2": np.arctan2, "pow": np.power}
# Instructions are within 1 unit in float64, but for a quotient of them; the other functions are parts of ops.
BOUND64 = {name: 1.0 if name in EXPANSIONS else 2.2 for name in UNARY} | {"sigmoid": 2.0}


def bit_patterns(dtype: np.dtype[Any], count: int) -> Any:
    """Numbers evenly spaced by their bits, so of every size: subnormal ones, the largest, both signs."""
    bits = dtype.itemsize * 8
    step = 2**bits // count
    words = np.arange(count, dtype=np.uint64) * np.uint64(step) + RNG.integers(0, step, count, np.uint64)
    x = words.astype(f"uint{bits}").view(dtype)
    return x[np.isfinite(x)]


def points(dtype: np.dtype[Any], count: int) -> Any:
    """Numbers of every size, more where the functions bend, and next to multiples of pi / 2."""
    turns = np.arange(count // 8) * (np.pi / 2)
    dense = [RNG.uniform(-a, a, count // 4) for a in (1, 10, 100, 720)]
    return np.concatenate([bit_patterns(dtype, count), *[x.astype(dtype) for x in [*dense, turns]]])


def pairs(name: str, dtype: np.dtype[Any], count: int) -> tuple[Any, Any]:
    """Pairs of numbers; for pow, some whose power is in range."""
    x, y = RNG.permutation(bit_patterns(dtype, count)), RNG.permutation(bit_patterns(dtype, count))
    size = min(x.size, y.size)
    if name == "atan2":
        near = RNG.uniform(-1, 1, (2, count))
        return np.concatenate([x[:size], near[0].astype(dtype)]), np.concatenate(
            [y[:size], near[1].astype(dtype)]
        )
    base = np.abs(x[:size])
    highest = 700 if dtype == F64 else 88
    with np.errstate(all="ignore"):
        exponent = (RNG.uniform(-highest - 14, highest, size) / np.log(base)).astype(dtype)
    small = RNG.uniform(0.5, 2, count).astype(dtype), RNG.uniform(-50, 50, count).astype(dtype)
    return np.concatenate([base, small[0], x[:size]]), np.concatenate([exponent, small[1], y[:size]])


def largest_error(code: Any, oracle: Any, emitter: str, *inputs: Any) -> float:
    with np.errstate(all="ignore"):
        exact = oracle(*[x.astype(WIDE[x.dtype]) for x in inputs])
        actual = np.asarray(code(EMITTERS[emitter], *inputs))
    assert actual.dtype == inputs[0].dtype
    return float(units(actual, exact).max())


@pytest.mark.rotating(4)
@pytest.mark.parametrize("emitter", EMITTERS)
@pytest.mark.parametrize("name", UNARY)
def test_float32_functions_are_within_2_units(name: str, emitter: str) -> None:
    code, oracle = UNARY[name]
    count = 1_000_000 if emitter == "plain" else 250_000
    assert largest_error(code, oracle, emitter, points(F32, count)) <= 2


@pytest.mark.rotating(2)
@pytest.mark.parametrize("emitter", EMITTERS)
@pytest.mark.parametrize("name", BINARY)
def test_float32_functions_of_two_numbers_are_within_2_units(name: str, emitter: str) -> None:
    assert largest_error(EXPANSIONS[name], BINARY[name], emitter, *pairs(name, F32, 250_000)) <= 2


@pytest.mark.rotating(4)
@pytest.mark.parametrize("emitter", EMITTERS)
@pytest.mark.parametrize("name", UNARY)
def test_float64_functions_are_within_their_bound(name: str, emitter: str) -> None:
    code, oracle = UNARY[name]
    x = points(F64, 100_000)
    if HAS_WIDE:
        assert largest_error(code, oracle, emitter, x) <= BOUND64[name]
    else:  # a unit more, for the platform's function has an error of its own
        exact = oracle(x)
        assert units(code(EMITTERS[emitter], x), exact).max() <= BOUND64[name] + 1


@pytest.mark.rotating(2)
@pytest.mark.parametrize("emitter", EMITTERS)
@pytest.mark.parametrize("name", BINARY)
def test_float64_functions_of_two_numbers_are_within_1_unit(name: str, emitter: str) -> None:
    inputs = pairs(name, F64, 50_000)
    if HAS_WIDE:
        assert largest_error(EXPANSIONS[name], BINARY[name], emitter, *inputs) <= 1
    else:
        with np.errstate(all="ignore"):
            exact = BINARY[name](*inputs)
            assert units(EXPANSIONS[name](EMITTERS[emitter], *inputs), exact).max() <= 2


# Next to a multiple of pi / 2 as no other float64 is; and around them
HARD_ANGLES = np.array(
    [6381956970095103 * 2.0**797, 2.0**20, 1e22, 1.7e308, 5.319372648326541e255, 1e-20, 0.7]
)
DECIMAL_INPUTS: dict[str, tuple[Any, ...]] = {
    "exp": (RNG.uniform(-700, 700, 200),),
    "log": (np.exp(RNG.uniform(-700, 700, 200)),),
    "sin": (np.concatenate([HARD_ANGLES, np.exp(RNG.uniform(-5, 700, 100))]),),
    "cos": (np.concatenate([HARD_ANGLES, np.exp(RNG.uniform(-5, 700, 100))]),),
    "tanh": (np.concatenate([RNG.uniform(-2, 2, 100), np.exp(RNG.uniform(-100, 3, 50))]),),
    "atan2": (RNG.normal(size=100), RNG.normal(size=100)),
    "pow": (np.exp(RNG.uniform(-30, 30, 150)), RNG.uniform(-20, 20, 150)),
}


@pytest.mark.rotating(4)
@pytest.mark.parametrize("emitter", EMITTERS)
@pytest.mark.parametrize("name", DECIMAL_INPUTS)
def test_float64_functions_are_within_1_unit_of_decimal_arithmetic(name: str, emitter: str) -> None:
    inputs = DECIMAL_INPUTS[name]
    with np.errstate(all="ignore"):
        actual = np.asarray(EXPANSIONS[name](EMITTERS[emitter], *inputs))
    assert max(math_oracle.errors(name, actual, *inputs)) <= 1


def special_values(dtype: np.dtype[Any]) -> Any:
    tiny, info = float(np.finfo(dtype).smallest_subnormal), np.finfo(dtype)
    positive = [
        0.0,
        tiny,
        float(info.tiny),
        0.5,
        1.0,
        1.5,
        2.0,
        3.0,
        2.0**24,
        2.0**53,
        float(info.max),
        np.inf,
    ]
    return np.array([*positive, *[-x for x in positive], np.nan], dtype)


def assert_same(actual: Any, expected: Any, places: float) -> None:
    """Equal up to some units, zeros with their signs, infinities and NaN."""
    assert units(actual, expected.astype(WIDE[actual.dtype])).max() <= places
    exact = (expected == 0) | np.isinf(expected)
    np.testing.assert_array_equal(actual[exact], expected[exact])
    np.testing.assert_array_equal(np.signbit(actual[exact]), np.signbit(expected[exact]))


@pytest.mark.parametrize("emitter", EMITTERS)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_special_values(name: str, dtype: np.dtype[Any], emitter: str) -> None:
    code, oracle = UNARY[name]
    x = special_values(dtype)
    with np.errstate(all="ignore"):
        assert_same(np.asarray(code(EMITTERS[emitter], x)), oracle(x.astype(F64)).astype(dtype), 3)


@pytest.mark.parametrize("emitter", EMITTERS)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_special_values_of_two_numbers(name: str, dtype: np.dtype[Any], emitter: str) -> None:
    x, y = (a.ravel() for a in np.meshgrid(special_values(dtype), special_values(dtype)))
    with np.errstate(all="ignore"):
        expected = BINARY[name](x.astype(F64), y.astype(F64)).astype(dtype)
        assert_same(np.asarray(EXPANSIONS[name](EMITTERS[emitter], x, y)), expected, 2)


@pytest.mark.parametrize("name", ["sin", "tanh", "sinh"])
def test_odd_functions_are_odd_to_the_last_bit(name: str) -> None:
    x = points(F32, 10_000)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(UNARY[name][0](NUMPY, -x), -UNARY[name][0](NUMPY, x))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_what_is_rarely_needed_runs_only_where_it_is(name: str, dtype: np.dtype[Any]) -> None:
    emitter: Any = Sparing()
    near, far = np.linspace(-99, 99, 9, dtype=dtype), np.array([1.0, 1e30, -1e10], dtype)
    np.testing.assert_array_equal(EXPANSIONS[name](emitter, near), EXPANSIONS[name](NUMPY, near))
    assert emitter.ran == 0
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(EXPANSIONS[name](emitter, far), EXPANSIONS[name](NUMPY, far))
    assert emitter.ran == 1


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("code", [exponent.exp, exponent.exp2])
def test_an_instruction_for_powers_of_two_gives_the_same_bits(code: Any, dtype: np.dtype[Any]) -> None:
    x = np.concatenate([points(dtype, 20_000), special_values(dtype)])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(code(cast(Any, Scaling()), x), code(NUMPY, x))


# Instructions of float32 code without bitcasts; a fused product and sum count as one, a comparison and a
# choice as two, although x86 clamps by one instruction.
MOST = {
    "exp": 23, "log": 27, "sin": 19, "cos": 21, "tanh": 23, "expm1": 22, "log1p": 22, "exp_of_negative": 20,
    "log1p_of_size": 19, "sigmoid": 29, "sinh": 30, "cosh": 19, "exp2": 23, "log2": 31, "log10": 32,
    "atan2": 37, "pow": 75,
}  # fmt: skip


@pytest.mark.parametrize("name", MOST)
def test_float32_code_stays_short_and_basic(name: str) -> None:
    code, arity = (EXPANSIONS[name], 2) if name in BINARY else (UNARY[name][0], 1)
    for dtype in (F32, F64):
        usual, rare = instructions(code, *[dtype] * arity)
        assert set(usual) | set(rare) <= BASIC
        divides = name in ("tanh", "sigmoid", "atan2", "sinh", "cosh") or (name == "pow" and dtype == F64)
        assert usual["div"] <= divides
    assert instructions(code, *[F32] * arity)[0].total() <= MOST[name]


def test_the_recorder_has_every_instruction() -> None:
    assert all(hasattr(Recorder, name) for name in BASIC)


# Complex numbers

COMPLEX = ["exp", "log", "sin", "cos", "tanh", "sqrt"]


def complex_points(dtype: Any, count: int) -> Any:
    size = np.exp(RNG.uniform(-20, 4, count)) * RNG.choice([-1, 1], count)
    ring = np.exp(1j * RNG.uniform(-4, 4, count)) * (1 + RNG.uniform(-1e-3, 1e-3, count))
    return np.concatenate(
        [size + 1j * RNG.permutation(size), RNG.normal(size=(count, 2)) @ [1, 1j], ring]
    ).astype(dtype)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_functions_are_within_6_units_of_their_size(name: str, dtype: Any) -> None:
    z = complex_points(dtype, 20_000)
    wide = np.complex128 if dtype == np.complex64 or not HAS_WIDE else np.clongdouble
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(z.astype(wide))
        actual = EXPANSIONS[name](NUMPY, z)
    assert actual.dtype == dtype
    normal = np.abs(exact) < float(np.finfo(dtype).max) / 4
    error = np.abs(actual - exact)[normal] / np.abs(exact)[normal]
    assert error.max() <= 6 * np.finfo(dtype).eps


def test_complex_powers_are_accurate() -> None:
    x, y = complex_points(np.complex128, 5_000)[5_000:], complex_points(np.complex128, 5_000)[5_000:]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(EXPANSIONS["pow"](NUMPY, x, y), np.power(x, y), rtol=1e-13)
        zero = np.zeros(2, np.complex128)
        np.testing.assert_array_equal(EXPANSIONS["pow"](NUMPY, zero, np.array([0j, 2 + 1j])), [1, 0])


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", COMPLEX)
def test_special_complex_values(name: str, dtype: Any) -> None:
    parts = np.array([0.0, -0.0, 1, -2.5, 1e30, np.inf, -np.inf, np.nan])
    z = np.empty((8, 8), dtype)
    z.real, z.imag = parts[:, None], parts
    with np.errstate(all="ignore"):
        expected, actual = getattr(np, name)(z), EXPANSIONS[name](NUMPY, z)
    np.testing.assert_allclose(actual, expected, rtol=1e-6 if dtype == np.complex64 else 1e-14)


def print_table() -> None:
    """The largest errors, and numbers of instructions (usual, and rarely run besides)."""
    lines = [f"{'function':16} {'f32':>6} {'fused':>6} {'f64':>6} {'fused':>6}   instructions f32, f64"]
    for name in [*UNARY, *BINARY]:
        code, oracle = (EXPANSIONS[name], BINARY[name]) if name in BINARY else UNARY[name]
        worst = []
        for dtype in (F32, F64):
            inputs = pairs(name, dtype, 200_000) if name in BINARY else (points(dtype, 400_000),)
            worst += [largest_error(code, oracle, emitter, *inputs) for emitter in EMITTERS]
        counts = [instructions(code, *[d] * len(inputs)) for d in (F32, F64)]
        text = ", ".join(f"{usual.total()}+{rare.total()}" for usual, rare in counts)
        lines.append(f"{name:16} " + " ".join(f"{w:6.3f}" for w in worst) + f"   {text}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    print_table()

"""Every scalar instruction on every dtype, on numbers at the edges, in lanes and not, against NumPy.

A run takes one width of vectors for each case, or none, another one whenever weft's code is another; with
``WEFT_ALL=1`` each case goes through all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.backends.llvm.harness import Kernel
from tests.of_code import one_of
from weft.backends.llvm.target import host_target
from weft.base.dtypes import (
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    DType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int64,
    kind,
)
from weft.loop.builder import Builder
from weft.ops.scalar import INSTRUCTIONS, NUMPY

Array = np.ndarray[Any, Any]
WIDTHS = [width for width in (16, 32, 64) if width <= host_target().vector_bytes]

REALS = (*INTEGERS, *FLOATS)
BINARY: dict[str, tuple[DType, ...]] = {
    "add": (*DTYPES,), "sub": (*REALS, *COMPLEX), "mul": (*DTYPES,), "div": (*REALS, *COMPLEX), "rem": REALS,
    "min": (bool_, *REALS), "max": (bool_, *REALS), "eq": DTYPES, "lt": (bool_, *REALS),
    "le": (bool_, *REALS),
    "and_": (bool_, *INTEGERS), "or_": (bool_, *INTEGERS), "xor": (bool_, *INTEGERS), "atan2": FLOATS,
}  # fmt: skip
UNARY: dict[str, tuple[DType, ...]] = {
    "neg": (*REALS, *COMPLEX), "abs": (*REALS, *COMPLEX), "sqrt": FLOATS, "floor": FLOATS, "trunc": FLOATS,
    "round": FLOATS, "exp": FLOATS, "log": FLOATS, "sin": FLOATS, "cos": FLOATS, "tan": FLOATS,
    "tanh": FLOATS, "sigmoid": FLOATS,
    "not_": (bool_, *INTEGERS), "real": COMPLEX, "imag": COMPLEX,
}  # fmt: skip
FUNCTIONS = {"exp", "log", "sin", "cos", "tan", "tanh", "sigmoid", "atan2", "pow"}


def edges(dtype: DType) -> Array:
    """Numbers at the edges of a dtype, and some in between."""
    if dtype == bool_:
        return np.array([False, True])
    if kind(dtype) in "iu":
        limits = np.iinfo(dtype)
        return np.array([limits.min, limits.min + 1, 0, 1, 2, 3, 7, 100, limits.max - 1, limits.max], dtype)
    real = dtype if kind(dtype) == "f" else np.dtype(f"f{dtype.itemsize // 2}")
    limits = _finfo(real)
    numbers = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.7, -3.7, 100.25, np.inf, -np.inf, np.nan]
    numbers += [float(limits.max), -float(limits.max), float(limits.tiny), float(limits.smallest_subnormal)]
    found = np.array(numbers).astype(real)
    if kind(dtype) == "f":
        return found
    re, im = np.array(list(itertools.product(found[:12], repeat=2))).T
    out: Array = NUMPY.complex(re, im)
    return out


def _finfo(dtype: DType) -> Any:
    import ml_dtypes

    return ml_dtypes.finfo(dtype)


def pairs(dtype: DType) -> tuple[Array, Array]:
    numbers = edges(dtype)
    if kind(dtype) == "c":
        rng = np.random.default_rng(0)
        numbers = rng.choice(numbers[np.isfinite(numbers)], 12, replace=False)
    i, j = np.indices((numbers.size, numbers.size)).reshape(2, -1)
    return numbers[i], numbers[j]


def register(array: Array) -> Array:
    """Half precision is computed in float32."""
    return array.astype(np.float32) if array.dtype in (float16, bfloat16) else array


def run(code: Callable[..., Any], inputs: tuple[Array, ...], width: int, vector: bool) -> Array:
    """What a kernel computes that applies code to each element."""
    b = Builder()
    n = inputs[0].size
    buffers = [b.buffer(f"x{i}", x.dtype, n) for i, x in enumerate(inputs)]
    with b.vector(n) if vector else b.loop(n) as i:
        value = code(b, *[b.load(buffer, i) for buffer in buffers])
        out = b.buffer("y", value.dtype, n)
        b.store(out, i, value)
    result = np.zeros(n, out.dtype)
    Kernel(b.function("f", written=[out]), host_target(width))([*inputs, result])
    return result


def equal(got: Array, want: Array) -> None:
    """Equal, where a NaN is a NaN."""
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(register(got), register(want))


def compare(name: str, got: Array, want: Array) -> None:
    if kind(got.dtype) not in "fc":
        equal(got, want)
        return
    assert got.dtype == want.dtype
    wide = np.complex128 if kind(got.dtype) == "c" else np.float64
    tolerance = {float16: 1e-3, bfloat16: 8e-3, float32: 3e-7, float64: 5e-16}
    exact = name not in {*FUNCTIONS, "abs"} and kind(got.dtype) == "f"
    rtol = 0 if exact else 4 * tolerance.get(got.dtype, 1e-6 if got.dtype == complex64 else 1e-15)
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=0)


def check(name: str, inputs: tuple[Array, ...], code: Callable[..., Any]) -> None:
    with np.errstate(all="ignore"):
        want = np.asarray(code(NUMPY, *[register(x) for x in inputs]))
        if want.dtype == np.float32 and inputs[0].dtype in (float16, bfloat16) and name != "cast":
            want = want.astype(inputs[0].dtype)
    ways = [*[(width, True) for width in WIDTHS], (WIDTHS[-1], False)]
    for width, vector in one_of(ways, f"{name} {[x.dtype for x in inputs]} {want.dtype} {want.size}"):
        compare(name, run(code, inputs, width, vector), want)


@pytest.mark.rotating(4)
@pytest.mark.parametrize(("name", "dtype"), [(name, d) for name, ds in BINARY.items() for d in ds])
def test_instruction_of_two_numbers_is_numpys(name: str, dtype: DType) -> None:
    x, y = pairs(dtype)
    if kind(dtype) == "c" and name == "div":
        x, y = x[y != 0], y[y != 0]
    check(name, (x, y), lambda e, x, y: getattr(e, name)(x, y))


@pytest.mark.rotating(4)
@pytest.mark.parametrize(("name", "dtype"), [(name, d) for name, ds in UNARY.items() for d in ds])
def test_instruction_of_one_number_is_numpys(name: str, dtype: DType) -> None:
    check(name, (edges(dtype),), lambda e, x: getattr(e, name)(x))


@pytest.mark.parametrize("dtype", [float32, float64])
def test_pow_is_numpys(dtype: DType) -> None:
    x, y = pairs(dtype)
    check("pow", (x, y), lambda e, x, y: e.pow(x, y))


@pytest.mark.rotating(3)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_power_of_integers_is_numpys(dtype: DType) -> None:
    x, y = (a.reshape(-1) for a in np.meshgrid(edges(dtype), np.array([0, 1, 2, 3, 7, 13], dtype)))
    check("pow", (x, y), lambda e, x, y: e.pow(x, y))
    check("pow", (x,), lambda e, x: e.pow(x, 5))


@pytest.mark.parametrize("name", ["shl", "shr"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_shift_is_numpys(name: str, dtype: DType) -> None:
    bits = 8 * dtype.itemsize
    x, y = (a.reshape(-1) for a in np.meshgrid(edges(dtype), np.array([0, 1, 5, bits - 1], dtype)))
    check(name, (x, y), lambda e, x, y: getattr(e, name)(x, y))
    check(name, (x,), lambda e, x: getattr(e, name)(x, 3))


@pytest.mark.rotating(4)
@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_cast_is_numpys_where_the_number_fits(source: DType, target: DType) -> None:
    x = edges(source)
    if kind(target) in "iu" and kind(source) in "fc":
        limits, real = np.iinfo(target), x.real.astype(np.float64)
        x = x[(np.trunc(real) >= limits.min) & (np.trunc(real) <= limits.max) & (np.abs(real) < 2.0**62)]
    check("cast", (x,), lambda e, x: e.cast(x, target))


@pytest.mark.parametrize("source", [float16, bfloat16, float32, float64])
def test_cast_of_what_does_not_fit_an_integer_is_some_integer(source: DType) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 6e4, -6e4]).astype(source)
    run(lambda e, x: e.cast(x, int64), (x,), WIDTHS[-1], True)


@pytest.mark.parametrize(
    ("source", "target"),
    [(s, t) for s in DTYPES for t in DTYPES if s.itemsize == t.itemsize and s != complex128],
)
def test_bitcast_keeps_the_bits(source: DType, target: DType) -> None:
    x = edges(source)
    if target == bool_:
        x = x[np.isin(x.view(np.uint8), (0, 1))]
    got = run(lambda e, x: e.bitcast(x, target), (x,), WIDTHS[-1], True)
    equal(got, x.view(target))


@pytest.mark.parametrize("dtype", DTYPES)
def test_select_chooses_by_a_bool(dtype: DType) -> None:
    x, y = pairs(dtype)
    condition = np.arange(x.size) % 3 == 0
    got = run(lambda e, c, x, y: e.select(c, x, y), (condition, x, y), WIDTHS[-1], True)
    equal(got, np.where(condition, x, y))


@pytest.mark.parametrize("dtype", [float32, float64])
def test_complex_is_made_of_its_parts(dtype: DType) -> None:
    x, y = pairs(dtype)
    got = run(lambda e, x, y: e.complex(x, y), (x, y), WIDTHS[-1], True)
    np.testing.assert_array_equal(got, NUMPY.complex(x, y))


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_are_constants_of_the_operand_dtype(dtype: DType) -> None:
    x = edges(dtype)
    check("mul", (x,), lambda e, x: e.mul(x, 0.5))
    check("max", (x,), lambda e, x: e.max(x, 0.0))
    check("min", (x,), lambda e, x: e.min(1.0, x))


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", ["exp", "log", "sin", "cos", "tanh", "sqrt"])
@pytest.mark.parametrize("dtype", COMPLEX)
def test_function_of_complex_numbers_is_numpys(name: str, dtype: DType) -> None:
    x = NUMPY.complex(*np.random.default_rng(0).normal(0, 3, (2, 40)).astype(dtype.type(0).real.dtype))
    got, want = (
        run(lambda e, x: getattr(e, name)(x), (x,), WIDTHS[-1], True),
        getattr(NUMPY, name)(x.astype(np.complex128)),
    )
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype).eps)


def test_every_instruction_is_in_a_table() -> None:
    others = {"constant", "select", "cast", "bitcast", "complex", "pow", "shl", "shr"}
    assert set(INSTRUCTIONS) == {*BINARY, *UNARY, *others}

"""Functions whose results are half precision: by instructions that are not exact, and as good as ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from tests.backends.cuda.emulator import EmulatedCard
from tests.gpu.plain_driver import run_on_card
from weft.backends.cuda.build import build_program
from weft.base.dtypes import bfloat16, float16, float32

EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 200.0, -200.0, 87.0, -87.0, 1e-30, -1e-30]
HALVES = {"bfloat16": (bfloat16, 7, -126), "float16": (float16, 10, -14)}


def _gelu(x: Any) -> Any:
    return F.gelu(x, approximate="tanh")


def _gelu_gradient(x: Any) -> Any:
    return weft.grad(lambda x: _gelu(x).sum())(x)


def _sigmoid64(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _inner(x: Any) -> Any:
    return 2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)


def _gelu64(x: Any) -> Any:
    return x * _sigmoid64(_inner(x))


def _gelu_gradient64(x: Any) -> Any:
    s = _sigmoid64(_inner(x))
    return s + x * s * (1 - s) * 2 * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x * x)


CASES = {
    "exp": (weft.exp, np.exp),
    "sigmoid": (weft.sigmoid, _sigmoid64),
    "silu": (F.silu, lambda x: x * _sigmoid64(x)),
    "gelu": (_gelu, _gelu64),
    "gradient of gelu": (_gelu_gradient, _gelu_gradient64),
}


def _on_card(function: Any, x: Any) -> tuple[str, Any]:
    program = build_program(weft.make_graph(function)(x).optimize())
    return program.ptx, run_on_card(EmulatedCard(), program, [x.numpy()])[0]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_is_rounded_as_from_exact_numbers(dtype: str, name: str) -> None:
    """Within half a unit, and hardly more, although the emulator errs by as much as a card may."""
    kind, mantissa, least = HALVES[dtype]
    function, oracle = CASES[name]
    x = weft.tensor(np.linspace(-9.5, 9.5, 2048, dtype=np.float32)).astype(kind)
    ptx, found = _on_card(function, x)
    assert "ex2.approx" in ptx
    exact = oracle(x.numpy().astype(np.float64))
    unit = 2.0 ** (np.maximum(np.floor(np.log2(np.maximum(np.abs(exact), 1e-300))), least) - mantissa)
    errors = np.abs(found.astype(np.float64) - exact) / unit
    # What cancels, near the minimum of gelu, has the errors of float32: they are of numbers near 1.
    slack = 2.0**-20 / unit if name.startswith("gradient") else 0.0
    assert np.max(errors - slack) <= 0.51


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", HALVES)
def test_edges_are_what_the_processor_gives(dtype: str, name: str) -> None:
    function, _ = CASES[name]
    x = weft.tensor(np.array(EDGES, np.float32)).astype(HALVES[dtype][0])
    _, found = _on_card(function, x)
    want = weft.compile(function)(x).numpy()
    np.testing.assert_array_equal(np.signbit(found[:3]), np.signbit(want[:3]))  # of zeros above all
    np.testing.assert_allclose(found.astype(np.float64), want.astype(np.float64), rtol=2**-7, atol=2e-38)


@pytest.mark.parametrize(
    "function",
    [
        weft.sigmoid,
        lambda x: weft.sigmoid(x.astype(float32)),
        lambda x: (weft.exp(x.astype(float32)) > 1.5).astype(bfloat16),
        lambda x: weft.exp(x.astype(float32)).sum().astype(bfloat16),
        lambda x: weft.log_softmax(x, axis=-1)[0],
        lambda x: weft.exp(-weft.abs(x.astype(bfloat16).astype(float32))).cumsum(0),
        lambda x: [(y := weft.exp(x.astype(float32))), y.astype(bfloat16)],
        lambda x: weft.log(weft.exp(x.astype(float32))).astype(bfloat16),
    ],
    ids=[
        "float32",
        "stored",
        "compared",
        "summed",
        "summed, of float32",
        "running sums",
        "stored, too",
        "of another function",
    ],
)
def test_what_is_seen_in_single_precision_is_exact(function: Any) -> None:
    x = weft.tensor(np.linspace(-4, 4, 64, dtype=np.float32))
    ptx, _ = _on_card(function, x)
    assert "ex2.approx" not in ptx


def _first_of_log_softmax(x: Any) -> Any:
    return weft.log_softmax(x.astype(float32), axis=-1)[:, 0]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("columns", [96, 5000, 20_000], ids=["short", "in registers", "in shared memory"])
def test_powers_of_half_precision_are_summed_up_as_well_as_others(columns: int, dtype: str) -> None:
    """Errors of single powers are nothing beside those of what they are of, and do not add up."""
    drawn = 4 * np.random.default_rng(0).standard_normal((3, columns))
    x = weft.tensor(drawn.astype(np.float32)).astype(HALVES[dtype][0])
    ptx, found = _on_card(_first_of_log_softmax, x)
    assert "ex2.approx.ftz" in ptx
    wide = x.numpy().astype(np.float64)
    top = wide.max(-1, keepdims=True)
    exact = (wide - top)[:, 0] - np.log(np.exp(wide - top).sum(-1))
    np.testing.assert_allclose(found, exact, rtol=0, atol=4e-6)


def test_edges_of_powers_that_are_summed_up() -> None:
    rows = np.zeros((7, 40), np.float32)
    rows[0, 1:] = -np.inf
    rows[1, :] = -np.inf
    rows[2, 5], rows[3, 6] = np.inf, np.nan
    rows[4, 1:], rows[5, 2] = -1e30, 3e38
    rows[6, :] = np.linspace(-200, 0, 40)
    x = weft.tensor(rows).astype(bfloat16)
    _, found = _on_card(_first_of_log_softmax, x)
    want = weft.compile(_first_of_log_softmax)(x).numpy()
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)
    assert found[0] == 0
    assert np.isnan(found[1:4]).all()


def test_powers_below_the_normal_numbers_count_as_nothing_in_sums() -> None:
    x = weft.tensor(np.array([88.0, 90.0, 95.0, 200.0] * 8, np.float32)).astype(bfloat16)
    _, found = _on_card(lambda x: weft.exp(-abs(x.astype(float32))).sum(), x)
    exact = np.exp(-x.numpy().astype(np.float64)).sum()
    np.testing.assert_allclose(found, exact, rtol=0, atol=32 * 2.0**-126)

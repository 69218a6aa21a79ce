"""Functions that NumPy's programs use: against NumPy, captured, with gradients, and on bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, DomainError, ShapeError, WeftError

NAN, INF = np.nan, np.inf
A = np.array([[1.0, 3.0, 2.0, 8.0], [6.0, 5.0, 4.0, -7.0], [0.5, -0.0, 9.0, 2.0]])
HOLED = np.array([[1.0, NAN, 2.0, INF], [NAN, NAN, NAN, NAN], [-INF, 5.0, 4.0, -0.0]])
LINE = np.array([3.0, 1.0, 2.0, 2.0, 5.0])
TAPS = np.array([1.0, -2.0, 0.5])
WHOLE = np.array([4, 1, 7, 1])
KNOTS, HEIGHTS = np.array([0.0, 1.0, 1.5, 4.0]), np.array([2.0, -1.0, 3.0, 0.1])
PLACES = np.array([-1.0, 0.0, 0.25, 1.0, 1.5, 2.7, 4.0, 9.0, NAN, INF, -INF])

# Expressions that mean the same of weft, m, as of NumPy
SAME = [
    "m.append(a, a)",
    "m.append(a, a, axis=1)",
    "m.append(w, 5)",
    "m.append(w, [1, 2])",
    "m.array_split(line, 3)",
    "m.average(a)",
    "m.average(a, axis=1)",
    "m.average(a, 0, m.asarray([1.0, 2.0, 3.0]))",
    "m.average(a, 1, m.asarray([1.0, 2.0, 3.0, 4.0]))",
    "m.average(a, weights=a * a)",
    "m.average(a, -1, a * a, keepdims=True)",
    "m.average(w)",
    "m.convolve(line, taps)",
    "m.convolve(taps, line)",
    "m.convolve(line, taps, mode='same')",
    "m.convolve(taps[:2], line, 'same')",
    "m.convolve(line, taps[:2], 'same')",
    "m.convolve(line, taps, mode='valid')",
    "m.convolve(w, w)",
    "m.correlate(line, taps)",
    "m.correlate(taps, line)",
    "m.correlate(line, taps, 'same')",
    "m.correlate(taps[:2], line, 'same')",
    "m.correlate(taps, line, 'full')",
    "m.correlate(line * 1j, taps + 2j, 'full')",
    "m.correlate(taps + 2j, line * 1j, 'full')",
    "m.cumsum(a)",
    "m.cumprod(a)",
    "m.cumsum(w)",
    "m.digitize(places, knots)",
    "m.digitize(places, knots, right=True)",
    "m.dot(a, a.T)",
    "m.dot(a, line[:4])",
    "m.dot(line[:4], a.T)",
    "m.dot(a, a.reshape(1, 4, 3))",
    "m.dot(a.reshape(3, 2, 2), a.reshape(2, 2, 3))",
    "m.dsplit(a.reshape(1, 3, 4), [1, 2])",
    "m.ediff1d(a)",
    "m.flatnonzero(a > 2)",
    "m.fmax(holed, a)",
    "m.fmax(a, holed)",
    "m.fmin(holed, 1.5)",
    "m.fmin(w, 3)",
    "m.geomspace(1, 1000, 4)",
    "m.geomspace(-2.0, -32.0, 4, endpoint=False)",
    "m.hsplit(a, 2)",
    "m.hsplit(line, [1, 3])",
    "m.identity(3)",
    "m.interp(places, knots, heights)",
    "m.interp(places, knots, heights, left=-5.0, right=7.0)",
    "m.interp(places[:8], knots[:1], heights[:1])",
    "m.interp(2.0, knots, heights)",
    "m.interp(w, knots, heights)",
    "m.intersect1d(line, taps)",
    "m.nanmax(holed, axis=1)",
    "m.nanmax(holed, axis=0, keepdims=True)",
    "m.nanmin(holed)",
    "m.nanmin(w)",
    "m.nanstd(holed[:, 1:3], axis=1)",
    "m.nanvar(holed[:, 1:3], axis=0, ddof=1)",
    "m.nanvar(a, axis=(0, 1), keepdims=True)",
    "m.nanvar(w)",
    "m.percentile(a, 30)",
    "m.percentile(a, [0, 50, 100], axis=1)",
    "m.polyval([1, -2, 3], a)",
    "m.polyval(taps, 2.0)",
    "m.ptp(a, axis=1)",
    "m.ptp(a, axis=0, keepdims=True)",
    "m.setdiff1d(line, taps)",
    "m.sort(a, axis=None)",
    "m.argsort(a, axis=None)",
    "m.tri(3, 4, 1)",
    "m.tri(3, k=-1, dtype=int)",
    "m.union1d(line, taps)",
    "m.unravel_index(m.asarray([0, 5, 23]), (2, 3, 4))",
    "m.unravel_index(5, (6,))",
    "m.vander(line)",
    "m.vander(w, 3, increasing=True)",
    "m.vdot(a, a)",
    "m.vdot(taps + 2j, taps * 1j)",
    "m.vsplit(a, 3)",
]
GIVEN = {"a": A, "holed": HOLED, "line": LINE, "taps": TAPS, "w": WHOLE, "knots": KNOTS, "heights": HEIGHTS}
GIVEN |= {"places": PLACES}


def evaluate(expression: str, names: dict[str, Any]) -> Any:
    return eval(expression, names)  # noqa: S307 - of the table above


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("expression", SAME)
def test_function_gives_what_numpy_gives(expression: str) -> None:
    wanted = evaluate(expression, {**GIVEN, "m": np})
    found = evaluate(expression, {**{k: weft.tensor(v) for k, v in GIVEN.items()}, "m": weft})
    if not isinstance(wanted, tuple | list):
        wanted, found = [wanted], [found]
    assert len(wanted) == len(found)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-6, atol=1e-12)
        assert one.numpy().dtype.kind == np.asarray(other).dtype.kind


SMOOTH = [
    lambda x: weft.append(x, x[0]),
    lambda x: weft.average(x, 1, weft.tensor([1.0, 2.0, 3.0, 4.0])),
    lambda x: weft.convolve(x[0], x[1], "same"),
    lambda x: weft.correlate(x[0], x[1, :2], "full"),
    lambda x: weft.cumsum(x),
    lambda x: weft.dot(x, x.T),
    lambda x: weft.fmax(x, 2.5),
    lambda x: weft.fmin(x, x[::-1]),
    lambda x: weft.hsplit(x, 2)[1],
    lambda x: weft.interp(x, weft.tensor([-1.0, 2.25, 9.5]), x[:, 1]),
    lambda x: weft.nanmax(x, axis=1),
    lambda x: weft.nanstd(x, axis=1),
    lambda x: weft.percentile(x, 30),
    lambda x: weft.polyval(x[0], x[1]),
    lambda x: weft.ptp(x, axis=0),
    lambda x: weft.select([x < 1.5, x > 3], [x * x, weft.sin(x)], x[0]),
    lambda x: weft.sort(x, axis=None),
    lambda x: weft.vander(x[0]),
    lambda x: weft.vdot(x, x * x),
]


@pytest.mark.parametrize("f", SMOOTH)
def test_function_has_its_gradient_and_compiles(f: Any) -> None:
    x = weft.tensor(A + np.linspace(0, 0.3, 12).reshape(3, 4))
    weft.testing.gradcheck(f, (x,))
    weft.testing.assert_close(weft.compile(f)(x), f(x))


def test_nan_are_left_out_of_gradients_too() -> None:
    x = weft.tensor([1.0, NAN, 4.0], requires_grad=True)
    (weft.nanmax(x) + weft.fmax(x, 2.0).sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 2.0]
    y = weft.tensor([1.0, NAN, 4.0], requires_grad=True)
    weft.nanvar(y).backward()
    assert y.grad is not None
    assert y.grad.tolist() == [-1.5, 0.0, 1.5]


def test_numbers_beside_halves_leave_them_halves() -> None:
    x = weft.ones(2, dtype=weft.float16)
    assert weft.append(x, 2.0).dtype == weft.float16
    assert weft.fmax(x, 2.0).dtype == weft.float16


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: weft.hsplit(weft.ones(2, 3), 2),
            ShapeError,
            "hsplit: axis 1 must divide into 2 equal",
        ),
        (
            lambda: weft.hsplit(weft.ones(2, 3), 0),
            ShapeError,
            "hsplit: axis 1 must divide into 0 equal",
        ),
        (lambda: weft.hsplit(weft.ones(()), 1), ShapeError, "hsplit: the tensor must have at least 1 axes"),
        (lambda: weft.vsplit(weft.ones(4), 2), ShapeError, "vsplit: the tensor must have at least 2 axes"),
        (lambda: weft.dsplit(weft.ones(4, 2), 2), ShapeError, "dsplit: the tensor must have at least 3 axes"),
        (lambda: weft.geomspace(0, 1, 3), DomainError, "geomspace: start and stop must have one sign"),
        (lambda: weft.identity(weft.ones(2)), ArgumentError, "identity: n must be an int, got f32[2]"),
        (lambda: weft.vander(weft.ones(2, 2)), ShapeError, "vander: takes a vector, got f32[2,2]"),
        (lambda: weft.percentile(weft.ones(2), 101), DomainError, "percentile: q must be in 0..100, got 101"),
        (
            lambda: weft.convolve(weft.ones(2), weft.ones(0)),
            ShapeError,
            "convolve: takes two vectors",
        ),
        (lambda: weft.correlate(weft.ones(2, 2), weft.ones(2)), ShapeError, "correlate: takes two vectors"),
        (lambda: weft.convolve(weft.ones(2), weft.ones(2), "all"), ArgumentError, "convolve: mode must be"),
        (
            lambda: weft.interp(weft.ones(1), weft.ones(2), weft.ones(3)),
            ShapeError,
            "interp: xp and fp must be vectors of one length, got f32[2] and f32[3]",
        ),
        (
            lambda: weft.average(weft.ones(2, 3), weights=weft.ones(3)),
            ShapeError,
            "average: weights must have the shape of x, or of one axis, got f32[3]",
        ),
        (lambda: weft.dot(weft.ones(2, 3), weft.ones(2)), ShapeError, "matmul: inner dimensions must agree"),
        (lambda: weft.append(weft.ones(2), weft.ones(2, 2), axis=0), WeftError, "concat: "),
    ],
)
def test_bad_input_is_an_error_of_weft(call: Any, error: type[WeftError], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)

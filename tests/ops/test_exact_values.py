"""Values and gradients at the edges: infinities, NaN, ties, long sums, sizes of 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import weft

INF, NAN = math.inf, math.nan


def _pulled(f: Callable[[Any], Any], x: list[float], g: float = INF) -> list[float]:
    """The gradient of f at x for an incoming gradient of g everywhere, which all ways agree on."""

    def pull(t: Any) -> Any:
        out, back = weft.vjp(f, t)
        return back(weft.full(out.shape, g))[0]

    found = pull(weft.tensor(x))
    compiled = weft.compile(pull)(weft.tensor(x))
    np.testing.assert_array_equal(found.numpy(), compiled.numpy())
    long = pull(weft.tensor(x * 500)).numpy() if found.shape == (len(x),) and f not in _WHOLE else None
    if long is not None:  # arrays of another length take another way
        np.testing.assert_array_equal(long[: len(x)], found.numpy())
    return found.tolist()


def _largest(t: Any) -> Any:
    return t.max()


_WHOLE = (_largest,)


def test_infinite_gradients_stop_where_a_gate_is_closed() -> None:
    other = weft.tensor(2.0)
    assert _pulled(lambda t: weft.maximum(t, other), [1.0, 2.0, 3.0]) == [0, INF, INF]
    assert _pulled(lambda t: weft.minimum(other, t), [1.0, 2.0, 3.0]) == [INF, INF, 0]
    assert _pulled(lambda t: weft.clip(t, 1.5, 2.5), [1.0, 2.0, 3.0]) == [0, INF, 0]
    assert _pulled(weft.relu, [-1.0, 2.0]) == [0, INF]
    assert _pulled(weft.hardtanh, [-2.0, 0.5]) == [0, INF]
    assert _pulled(_largest, [1.0, 3.0, 3.0]) == [0, INF, INF]
    assert _pulled(lambda t: weft.maximum(t, other), [1.0, 2.0, 3.0], 1.0) == [0, 0.5, 1]


def test_tangents_stop_there_too() -> None:
    x, t = weft.tensor([-1.0, 2.0]), weft.tensor([INF, INF])
    assert weft.jvp(weft.relu, (x,), (t,))[1].tolist() == [0, INF]
    assert weft.jvp(lambda v: weft.clip(v, max=1.0), (x,), (t,))[1].tolist() == [INF, 0]


def test_gradient_of_std_is_zero_where_nothing_varies() -> None:
    assert _pulled(weft.std, [2.0, 2.0], 1.0) == [0, 0]
    assert weft.std(weft.full((10,), 0.1)).item() == 0
    both = weft.grad(lambda t: weft.std(t, axis=1).sum())(weft.tensor([[2.0, 2.0], [1.0, 3.0]]))
    np.testing.assert_allclose(both.numpy(), [[0, 0], [-0.5, 0.5]], rtol=1e-6)


def test_gradient_of_logsumexp_does_not_hide_what_is_not_finite() -> None:
    rows = weft.tensor([[1.0, NAN], [INF, 1.0], [-INF, 0.0], [-INF, -INF]])
    found = weft.grad(lambda t: weft.logsumexp(t, axis=1).sum())(rows).numpy()
    np.testing.assert_array_equal(found, [[NAN, NAN], [NAN, 0], [0, 1], [0, 0]])


def test_ranges_have_gradients_by_their_ends() -> None:
    weights = weft.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    a, b = weft.tensor(1.0, requires_grad=True), weft.tensor(3.0, requires_grad=True)
    (weft.linspace(a, b, 5) * weights).sum().backward()
    assert (a.grad.item(), b.grad.item()) == (1 + 1.5 + 1.5 + 1, 0.5 + 1.5 + 3 + 5)
    start, step = weft.tensor(1.0, requires_grad=True), weft.tensor(0.5, requires_grad=True)
    (weft.arange(start, 3.5, step) * weights).sum().backward()
    assert (start.grad.item(), step.grad.item()) == (15, 2 + 6 + 12 + 20)
    assert weft.jvp(lambda t: weft.linspace(t, 2.0, 3), (a.detach(),), (weft.tensor(1.0),))[1].tolist() == [
        1,
        0.5,
        0,
    ]
    np.testing.assert_array_equal(weft.linspace(a, b, 7).detach().numpy(), weft.linspace(1.0, 3.0, 7).numpy())


def test_bounds_of_clip_outside_the_dtype_are_its_ends() -> None:
    x = weft.tensor([-128, -5, 127], dtype=weft.int8)
    assert weft.clip(x, weft.tensor(-300), weft.tensor(300)).tolist() == [-128, -5, 127]
    assert weft.clip(x, weft.tensor([200, -200, 0])).tolist() == [127, -5, 127]
    unsigned = weft.tensor([3, 250], dtype=weft.uint8)
    assert weft.clip(unsigned, weft.tensor(-1), weft.tensor(260)).tolist() == [3, 250]
    large = weft.tensor(2**64 - 1, dtype=weft.uint64)
    assert weft.clip(weft.tensor([5, 9]), max=large).tolist() == [5, 9]


def test_integer_weights_are_counted_exactly() -> None:
    found = weft.bincount(weft.tensor([0, 1, 1]), weft.tensor([2**25 + 1, 1, 2]))
    assert found.dtype == weft.float64
    assert found.tolist() == [2**25 + 1, 3]


def test_zero_differences_are_the_tensor_itself() -> None:
    x = weft.tensor([1.0, 4.0])
    assert weft.diff(x, n=0, prepend=weft.tensor([0.0])).tolist() == [1, 4]
    assert weft.compile(lambda t: weft.diff(t, n=0))(x).tolist() == [1, 4]


def test_quantiles_of_long_and_of_infinite_rows() -> None:
    for dtype, n in ((weft.bfloat16, 1025), (weft.float16, 8195), (weft.float32, 5001)):
        x = np.random.default_rng(0).permutation(np.linspace(0, 1, n)).astype(dtype)
        ordered = np.sort(x.astype(np.float64))
        for way in (weft.median, weft.compile(lambda t: weft.median(t))):
            assert float(way(weft.tensor(x))) == ordered[n // 2]
    assert weft.median(weft.tensor([INF, INF])).item() == INF
    assert weft.quantile(weft.tensor([1.0, INF]), 0.5).item() == INF
    assert math.isnan(weft.quantile(weft.tensor([1.0, NAN]), 0.0).item())
    with pytest.raises(weft.errors.DomainError, match="interpolation must be one of"):
        weft.quantile(weft.tensor([1.0]), 0.5, interpolation="cubic")


def test_broadcasting_gives_a_list_and_shapes() -> None:
    found = weft.broadcast_arrays(weft.ones((3, 1)), weft.ones(4))
    assert type(found) is list
    assert weft.broadcast_shapes((3, 1), 4, ()) == (3, 4)
    assert weft.broadcast_shapes() == ()
    with pytest.raises(weft.errors.ShapeError, match="shapes must broadcast together"):
        weft.broadcast_shapes((2,), (3,))


def _exact(values: Any) -> list[Fraction]:
    return [Fraction(float(v)) for v in values]


def test_long_sums_and_products_keep_their_digits() -> None:
    """Compared with exact fractions: running ones and products are within a unit in the last place."""
    rng = np.random.default_rng(0)
    x = rng.random(20_000).astype(np.float32)
    near_one = (1 + rng.standard_normal(3000) * 1e-3).astype(np.float32)
    total, product, sums = Fraction(0), Fraction(1), []
    for v in _exact(x):
        total += v
        sums.append(float(total))
    for v in _exact(near_one):
        product *= v
    offset = (rng.standard_normal(3000) + 1e5).astype(np.float32)
    values = _exact(offset)
    mean = sum(values, Fraction(0)) / len(values)
    variance = float(sum(((v - mean) ** 2 for v in values), Fraction(0)) / len(values))

    def run(a: Any, b: Any, c: Any) -> Any:
        return a.cumsum(0), b.prod(), b.cumprod(0)[-1], c.var(correction=0), c.std(correction=0)

    given = [weft.tensor(v) for v in (x, near_one, offset)]
    for outs in (run(*given), weft.compile(run)(*given)):
        np.testing.assert_allclose(outs[0].numpy(), sums, rtol=1.2e-7)
        np.testing.assert_allclose([outs[1].item(), outs[2].item()], [float(product)] * 2, rtol=1.2e-7)
        np.testing.assert_allclose(outs[3].item(), variance, rtol=1e-6)
        np.testing.assert_allclose(outs[4].item(), math.sqrt(variance), rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((20_011, 3), (0,)),
        ((2, 9_000, 3), (1,)),
        ((5_000, 2, 3), (0, 2)),
        ((150, 2, 150, 2), (0, 2)),
        ((3, 9_000), (1,)),
    ],
)
def test_sums_along_any_axis_keep_their_digits(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """Of numbers far from 0, whose sum is rounded each time to one side; also as they lie in other orders."""
    exact = np.random.default_rng(1).uniform(0, 1, shape) + 1e4
    x = exact.astype(np.float32)
    expected = x.astype(np.float64)
    for given in (x, np.asfortranarray(x), x[::-1]):
        wide = expected[::-1] if given.base is x else expected
        t = weft.tensor(0.0) + weft.tensor(given)
        for found in (weft.mean(weft.tensor(given), axis=axes), weft.mean(t, axis=axes)):
            np.testing.assert_allclose(found.numpy(), wide.mean(axes), rtol=5e-7)
        np.testing.assert_allclose(weft.var(t, axis=axes).numpy(), wide.var(axes), rtol=2e-6)
        half = weft.tensor(given).astype(weft.bfloat16)
        of_half = half.astype(weft.float64).numpy().mean(axes)
        np.testing.assert_allclose(
            weft.mean(half, axis=axes).astype(weft.float32).numpy(), of_half, rtol=2**-8
        )


@pytest.mark.parametrize(
    "shape", [(100_000, 1), (60_001, 8), (20_000, 100), (3, 70_000), (2, 30_000, 3), (70, 1000)]
)
def test_compiled_sums_keep_their_digits(shape: tuple[int, ...]) -> None:
    """With sizes that are known and with the longest open; alone and beside what is done with rows."""
    x = (np.random.default_rng(3).uniform(0, 1, shape) + 1e4).astype(np.float32)
    wide = x.astype(np.float64)

    def sums(t: Any) -> Any:
        first, last = t.mean(axis=0), weft.mean(t * 2.0, axis=-1)
        return (
            first,
            last,
            weft.mean(weft.sqrt(t)),
            weft.var(t, axis=0),
            (t - weft.max(t, axis=-1, keepdims=True)).sum(),
        )

    expected = [
        wide.mean(0),
        wide.mean(-1) * 2,
        np.sqrt(wide).mean(),
        wide.var(0),
        (wide - wide.max(-1, keepdims=True)).sum(),
    ]
    opened = weft.compile(sums)
    longest = shape.index(max(shape))
    for n in (2, 3):
        opened(weft.ones(*(s + n * (i == longest) for i, s in enumerate(shape))))
    for run in (weft.compile(sums), opened):
        found = [y.numpy() for y in run(weft.tensor(x))]
        for y, e, tolerance in zip(found, expected, (2e-6, 2e-6, 2e-6, 5e-6, 5e-6), strict=True):
            np.testing.assert_allclose(y, e, rtol=tolerance)


def test_gradients_of_what_was_repeated_keep_their_digits() -> None:
    g = (np.random.default_rng(2).uniform(0, 1, (20_000, 3)) + 1e4).astype(np.float32)
    _, pull = weft.vjp(lambda b: b + weft.zeros(20_000, 3), weft.zeros(3))
    np.testing.assert_allclose(pull(weft.tensor(g))[0].numpy(), g.astype(np.float64).sum(0), rtol=5e-7)


def _compiled_and_eager(f: Callable[..., Any], *xs: Any) -> list[Any]:
    given = [weft.tensor(x) for x in xs]
    return [f(*given).numpy(), weft.compile(f)(*given).numpy()]


def test_complex_inverses_keep_to_their_side_of_a_cut() -> None:
    """At zeros of either sign and at infinities, against NumPy."""
    x = np.array([complex(a, b) for a in (100.0, -100.0, 0.5, -1.0) for b in (0.0, -0.0, 1e-3)])
    turned = np.array([complex(a, b) for b in (100.0, -100.0) for a in (0.0, -0.0)])
    far = np.array([complex(0, INF), complex(-0.0, -INF), complex(1, INF), complex(INF, 1)])
    cases = {"asin": x, "acos": x, "acosh": x, "atanh": np.concatenate([x[2::3], far]), "asinh": turned}
    for name, values in cases.items():
        expected = getattr(np, {"asin": "arcsin", "acos": "arccos"}.get(name, f"arc{name[1:]}"))(values)
        for found in _compiled_and_eager(getattr(weft, name), values):
            np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=name)


def test_log1p_of_complex_numbers_near_its_pole() -> None:
    x = np.array([complex(-1, 1e-3), complex(-1 + 1e-9, 1e-9), complex(1e200, 1.0)])
    for found in _compiled_and_eager(weft.log1p, x):
        np.testing.assert_allclose(found, np.log(1 + x), rtol=1e-12)


def test_shifts_beyond_all_bits() -> None:
    x, y = np.array([255, 200, 1], np.uint8), np.array([8, 200, 255], np.uint8)
    for found in _compiled_and_eager(lambda a, b: a >> b, x, y):
        assert found.tolist() == [0, 0, 0]
    for found in _compiled_and_eager(
        lambda a, b: a >> b, np.array([-5, 5], np.int8), np.array([9, 9], np.int8)
    ):
        assert found.tolist() == [-1, 0]


def test_binary_cross_entropy_of_small_chances() -> None:
    x = np.array([1e-3, 1e-6, 1e-20], np.float32)
    expected = -np.log1p(-x.astype(np.float64))
    for found in _compiled_and_eager(
        lambda a: weft.binary_cross_entropy(a, weft.zeros(3), reduction="none"), x
    ):
        np.testing.assert_allclose(found, expected, rtol=3e-7)


def test_slope_of_a_large_power_of_a_half_has_its_sign() -> None:
    x, y = weft.tensor([-1.0], dtype=weft.float16), weft.tensor([1e4], dtype=weft.float16)
    slope = weft.grad(lambda a: (a**y).sum())
    assert slope(x).tolist() == weft.compile(slope)(x).tolist() == [-1e4]

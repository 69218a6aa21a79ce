"""Fourier transforms beyond the matrix of samples: every argument, derivatives, frequencies, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.fft
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from tests.ops import checks
from weft import fft
from weft.errors import ArgumentError, AxisError, DomainError, DtypeError, ShapeError, WeftError
from weft.ops.op import Sample
from weft.ops.samples import complex_array, real_array

NORMS = ["backward", "ortho", "forward"]
COMPLEX_INPUT = ["fft", "ifft", "irfft", "hfft"]
ONE_AXIS = [*COMPLEX_INPUT, "rfft", "ihfft"]
COMPLEX_INPUTS = ["fftn", "ifftn", "irfftn"]
MANY_AXES = [*COMPLEX_INPUTS, "rfftn"]


def tensor(array: Any) -> Any:
    return weft.tensor(np.asarray(array))


def assert_near(actual: Any, expected: Any, tolerance: float = 1e-12) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=tolerance, atol=tolerance)


def assert_derivatives(function: Callable[..., Any], array: Any) -> None:
    entry = checks.Entry("function", function, Sample((array,)), None)  # type: ignore[arg-type]
    checks.check_jvp(entry)
    checks.check_transposed(entry)
    checks.check_second_order(entry)


def sample(name: str, shape: tuple[int, ...]) -> Any:
    return (complex_array if name in COMPLEX_INPUT + COMPLEX_INPUTS else real_array)(shape)


# Values


@pytest.mark.parametrize("name", ONE_AXIS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [None, 1, 4, 5, 9])
@pytest.mark.parametrize("axis", [0, -1])
def test_transform_of_one_axis_agrees_with_scipy(name: str, norm: str, n: int | None, axis: int) -> None:
    x = sample(name, (5, 6))
    actual = getattr(fft, name)(tensor(x), n=n, axis=axis, norm=norm)
    assert_near(actual, getattr(scipy.fft, name)(x, n=n, axis=axis, norm=norm))


@pytest.mark.parametrize("name", MANY_AXES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("s", "axes"),
    [(None, None), (None, (1,)), (None, (2, 0)), ((5, 3), (0, 1)), ((2, 6), (-1, -3)), ((3, 7), None)],
)
def test_transform_of_many_axes_agrees_with_scipy(name: str, norm: str, s: Any, axes: Any) -> None:
    x = sample(name, (3, 4, 5))
    actual = getattr(fft, name)(tensor(x), s=s, axes=axes, norm=norm)
    assert_near(actual, getattr(scipy.fft, name)(x, s=s, axes=axes, norm=norm))


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2"])
def test_transform_of_two_axes_takes_the_last_two(name: str) -> None:
    x = (real_array if name == "rfft2" else complex_array)((2, 3, 4))
    assert_near(getattr(fft, name)(tensor(x)), getattr(scipy.fft, name)(x))


def test_no_axes_leave_the_numbers_as_they_are() -> None:
    x = complex_array((2, 3))
    assert_near(fft.fftn(tensor(x), axes=()), x)


@examples(40, 13)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(0, 1000), st.sampled_from(NORMS))
def test_inverse_gives_the_numbers_back(shape: list[int], seed: int, norm: str) -> None:
    x, z = real_array(shape, seed=seed), complex_array(shape, seed=seed)
    assert_near(fft.ifftn(fft.fftn(tensor(z), norm=norm), norm=norm), z)
    assert_near(fft.irfftn(fft.rfftn(tensor(x), norm=norm), s=tuple(shape), norm=norm), x)
    assert_near(fft.hfft(fft.ihfft(tensor(x), norm=norm), n=shape[-1], norm=norm), x)


@examples(25, 8)
@given(st.integers(1, 40), st.integers(0, 1000))
def test_ortho_keeps_lengths(n: int, seed: int) -> None:
    x = tensor(complex_array((n,), seed=seed))
    np.testing.assert_allclose(weft.linalg.norm(fft.fft(x, norm="ortho")).item(), weft.linalg.norm(x).item())


# Types


@pytest.mark.parametrize(
    ("real", "complex"), [(weft.float32, weft.complex64), (weft.float64, weft.complex128)]
)
def test_precision_is_kept(real: Any, complex: Any) -> None:
    x, z = weft.ones((2, 4), dtype=real), weft.ones((2, 4), dtype=complex)
    for out in (fft.fft(x), fft.ifft(z), fft.rfft(x), fft.ihfft(x), fft.fftn(x), fft.rfftn(x), fft.ifft(x)):
        assert out.dtype == complex
    for out in (fft.irfft(z), fft.hfft(z), fft.irfftn(z), fft.irfft(x), fft.hfft(x)):
        assert out.dtype == real


def test_integers_become_the_default_float() -> None:
    assert fft.fft(weft.arange(4)).dtype == weft.complex64
    assert fft.rfft(weft.arange(4)).dtype == weft.complex64


# Derivatives


@pytest.mark.parametrize("name", ONE_AXIS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [None, 3, 8])
def test_derivatives_of_one_axis(name: str, norm: str, n: int | None) -> None:
    x = sample(name, (2, 5))
    assert_derivatives(lambda x: getattr(fft, name)(x, n=n, norm=norm), x)


@pytest.mark.parametrize("name", MANY_AXES)
@pytest.mark.parametrize("s", [None, (2, 5), (5, 2)])
def test_derivatives_of_many_axes(name: str, s: Any) -> None:
    x = sample(name, (3, 4))
    assert_derivatives(lambda x: getattr(fft, name)(x, s=s, axes=(1, 0)), x)


@pytest.mark.parametrize("name", ["fft", "ifft"])
def test_gradient_of_a_real_input_is_real(name: str) -> None:
    x = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    weft.abs(getattr(fft, name)(x)).sum().backward()
    assert x.grad.dtype == weft.float32
    assert_derivatives(lambda x: weft.abs(getattr(fft, name)(x)), real_array((3,)))


def test_convolution_by_transforms_has_the_gradient_of_a_convolution() -> None:
    kernel = real_array((4,), seed=1)
    x = tensor(real_array((6,))).requires_grad_()
    product = fft.irfft(fft.rfft(x, n=9) * fft.rfft(tensor(kernel), n=9), n=9)
    np.testing.assert_allclose(product.detach().numpy(), np.convolve(x.detach().numpy(), kernel), rtol=1e-12)
    g = real_array((9,), seed=2)
    product.backward(tensor(g))
    np.testing.assert_allclose(x.grad.numpy(), np.correlate(g, kernel, "valid"), rtol=1e-12)


def test_vmap_equals_a_loop() -> None:
    x = real_array((4, 3, 5))
    for axis in (0, 1, 2):
        together = weft.vmap(lambda a: fft.rfftn(a, s=(2, 6)), in_axes=axis)(tensor(x))
        alone = [fft.rfftn(tensor(a), s=(2, 6)).numpy() for a in np.moveaxis(x, axis, 0)]
        assert_near(together, np.stack(alone))


# Frequencies


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("d", [1.0, 0.1])
def test_frequencies_agree_with_numpy(n: int, d: float) -> None:
    assert_near(fft.fftfreq(n, d=d, dtype=weft.float64), np.fft.fftfreq(n, d))
    assert_near(fft.rfftfreq(n, d=d, dtype=weft.float64), np.fft.rfftfreq(n, d))
    assert fft.fftfreq(n).dtype == fft.rfftfreq(n).dtype == weft.float32


@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2), ()])
@pytest.mark.parametrize("name", ["fftshift", "ifftshift"])
def test_shift_agrees_with_numpy(name: str, axes: Any) -> None:
    x = real_array((3, 4, 5))
    assert_near(getattr(fft, name)(tensor(x), axes=axes), getattr(np.fft, name)(x, axes))


# Errors

X, Z = weft.ones((2, 3)), weft.ones((2, 3), dtype=weft.complex64)
ERRORS: list[tuple[Callable[[], Any], type[WeftError], str]] = [
    (lambda: fft.fft(X, n=0), DomainError, "fft: the length must be at least 1, got 0"),
    (lambda: fft.fft(X, n=1.5), ArgumentError, "fft: the length must be an int, got 1.5"),
    (lambda: fft.fft(X, axis=2), AxisError, "fft: axis must be in -2..1 for rank 2, got 2"),
    (
        lambda: fft.fft(X, norm="none"),
        DomainError,
        "fft: norm must be 'backward', 'ortho' or 'forward', got 'none'",
    ),
    (lambda: fft.fft(weft.ones(())), AxisError, "fft: axis must be absent for rank 0, got -1"),
    (lambda: fft.fft(weft.ones((0,))), ShapeError, "fft: axes must not be empty, got c64[0] along (0,)"),
    (lambda: fft.rfft(weft.ones((0,))), ShapeError, "rfft: axes must not be empty, got f32[0] along (0,)"),
    (lambda: fft.irfft(Z[:, :1]), DomainError, "irfft: the length must be at least 1, got 0"),
    (lambda: fft.rfft(Z), DtypeError, "rfft: dtype must be real, got complex64"),
    (lambda: fft.rfftn(Z), DtypeError, "rfftn: dtype must be real, got complex64"),
    (lambda: fft.ihfft(Z), DtypeError, "ihfft: dtype must be real, got complex64"),
    (
        lambda: fft.fft(X.astype(weft.float16)),
        DtypeError,
        "fft: dtype must be float32 or float64, or complex, got float16",
    ),
    (
        lambda: fft.rfft(X.astype(weft.bfloat16)),
        DtypeError,
        "rfft: dtype must be float32 or float64, or complex, got bfloat16",
    ),
    (lambda: fft.fftn(X, axes=(0, 0)), AxisError, "fftn: axes must be distinct, got (0, 0)"),
    (
        lambda: fft.fftn(X, s=(2,), axes=(0, 1)),
        ShapeError,
        "fftn: s and axes must be equally long, got (2,) and (0, 1)",
    ),
    (
        lambda: fft.fftn(X, s=(1, 2, 3)),
        ShapeError,
        "fftn: s must have at most one length an axis, got (1, 2, 3) for f32[2,3]",
    ),
    (lambda: fft.fftn(X, s=4), ArgumentError, "fftn: s must be a tuple of ints, got 4"),
    (lambda: fft.rfftn(X, axes=()), AxisError, "rfftn: there must be at least one axis, got none"),
    (lambda: fft.irfftn(Z, axes=()), AxisError, "irfftn: there must be at least one axis, got none"),
    (lambda: fft.fft(X, along=0), ArgumentError, "fft: unknown keyword 'along'"),
    (lambda: fft.fft([1.0, 2.0]), ArgumentError, "fft: takes tensors, got list"),
    (lambda: fft.fftfreq(0), DomainError, "fftfreq: n must be at least 1, got 0"),
    (lambda: fft.rfftfreq(2.5), ArgumentError, "rfftfreq: n must be an int, got 2.5"),
    (lambda: fft.fftfreq(3, d=0), DomainError, "fftfreq: the distance d must not be 0"),
    (lambda: fft.fftfreq(3, dtype=weft.int64), DtypeError, "fftfreq: dtype must be floating, got int64"),
    (lambda: fft.fftshift(X, axes=3), AxisError, "fftshift: axis must be in -2..1 for rank 2, got 3"),
]


@pytest.mark.parametrize(
    ("call", "kind", "text"), ERRORS, ids=[text.partition(",")[0] for _, _, text in ERRORS]
)
def test_error_says_what_must_hold_and_what_was_got(
    call: Callable[[], Any], kind: type[WeftError], text: str
) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value).splitlines()[0].startswith(text)

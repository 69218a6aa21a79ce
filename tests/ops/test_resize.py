"""Resampling: locality, corners, shuffles, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
def test_nan_stays_where_it_is(mode: str) -> None:
    image = np.ones((1, 1, 12, 12))
    image[0, 0, 6, 6] = np.nan
    out = weft.interpolate(weft.tensor(image), size=(24, 24), mode=mode).numpy()[0, 0]
    assert np.isnan(out).any()
    assert np.isfinite(out[:6]).all()
    assert np.isfinite(out[:, 20:]).all()


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize("size", [(3, 20), (7, 9), (14, 18)])
def test_constant_image_stays_constant(mode: str, size: tuple[int, int]) -> None:
    out = weft.interpolate(weft.full((1, 2, 7, 9), 3.25), size=size, mode=mode)
    np.testing.assert_allclose(out.numpy(), np.full((1, 2, *size), 3.25), rtol=1e-6)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_aligned_corners_keep_their_values(mode: str) -> None:
    x = weft.randn(1, 1, 5, 6, dtype=weft.float64)
    out = weft.interpolate(x, size=(9, 4), mode=mode, align_corners=True)
    np.testing.assert_allclose(out.numpy()[0, 0, ::8, ::3], x.numpy()[0, 0, ::4, ::5])


def test_ramp_is_reproduced_by_linear_interpolation() -> None:
    ramp = weft.arange(5, dtype=weft.float64).reshape(1, 1, 5)
    out = weft.interpolate(ramp, size=9, mode="linear", align_corners=True)
    np.testing.assert_allclose(out.numpy()[0, 0], np.linspace(0, 4, 9))


def test_gradient_of_whole_number_scaling_counts_copies() -> None:
    x = weft.ones((1, 1, 2, 3), requires_grad=True)
    weft.interpolate(x, scale_factor=(3, 2)).sum().backward()
    assert (x.grad.numpy() == 6).all()


def test_shuffles_are_inverse() -> None:
    x = weft.randn(2, 8, 3, 4)
    assert weft.pixel_unshuffle(weft.pixel_shuffle(x, 2), 2).tolist() == x.tolist()


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_identity_grid_gives_the_image_back(mode: str, align_corners: bool) -> None:
    x = weft.randn(2, 3, 4, 5, dtype=weft.float64)
    identity = weft.tensor(np.tile(np.eye(2, 3), (2, 1, 1)))
    grid = weft.affine_grid(identity, x.shape, align_corners)
    out = weft.grid_sample(x, grid, mode=mode, align_corners=align_corners)
    np.testing.assert_allclose(out.numpy(), x.numpy(), atol=1e-12)


IMAGE = weft.ones((1, 1, 4, 4))
ERRORS = [
    (lambda: weft.interpolate(IMAGE), "one of size and scale_factor must be given"),
    (lambda: weft.interpolate(IMAGE, size=2, scale_factor=2), "one of size and scale_factor"),
    (lambda: weft.interpolate(IMAGE, size=2, mode="cubic"), "mode must be one of"),
    (lambda: weft.interpolate(IMAGE, size=2, mode="linear"), "does not fit 2 sizes"),
    (lambda: weft.interpolate(IMAGE, size=2, align_corners=True), "align_corners must be None"),
    (lambda: weft.interpolate(IMAGE, size=2, antialias=True), "antialias is for modes"),
    (lambda: weft.interpolate(IMAGE, scale_factor=0.1), "the output must not be empty"),
    (lambda: weft.interpolate(IMAGE, scale_factor=-1), "positive numbers"),
    (lambda: weft.interpolate(IMAGE[0], size=(2, 2, 2)), "size must be an int or 1"),
    (lambda: weft.interpolate(IMAGE.astype(weft.int64), size=2, mode="bilinear"), "dtype must be floating"),
    (lambda: weft.pixel_shuffle(IMAGE, 2), "a multiple of 4"),
    (lambda: weft.pixel_unshuffle(IMAGE, 3), "multiples of 3"),
    (lambda: weft.channel_shuffle(IMAGE, 2), "a multiple of 2 groups"),
    (lambda: weft.grid_sample(IMAGE, weft.ones((1, 2, 2, 3))), "needs \\(N, C, \\*S\\) and"),
    (
        lambda: weft.grid_sample(IMAGE, weft.ones((1, 2, 2, 2)), padding_mode="wrap"),
        "padding_mode must be one of",
    ),
    (lambda: weft.affine_grid(weft.ones((1, 2, 2)), (1, 1, 2, 2)), "theta must be"),
]


@pytest.mark.parametrize(("call", "text"), ERRORS, ids=[text for _, text in ERRORS])
def test_bad_arguments_are_named(call: Any, text: str) -> None:
    with pytest.raises(weft.errors.WeftError, match=text):
        call()

"""Convolutions of random shape against a plain loop; strategies of the kernel; memory; errors."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.ops.oracles_network import naive_conv
from weft.ops.conv import kernel as conv_kernel
from weft.ops.conv.primitive import conv


@st.composite
def convolutions(draw: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Arrays and attributes of a convolution, padding that cuts and windows that do not fit among them."""
    rank, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    inputs, outputs, batch = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(0, 3))

    def ints(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    sizes, taps = ints(0, 6 if rank < 3 else 3), ints(1, 4 if rank < 3 else 2)
    attrs = {
        "stride": ints(1, 3),
        "padding": tuple(zip(ints(-1, 3), ints(-1, 3), strict=True)),
        "dilation": ints(1, 3),
        "input_dilation": ints(1, 3),
        "groups": groups,
    }
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    return (
        rng.normal(size=(batch, groups * inputs, *sizes)),
        rng.normal(size=(groups * outputs, inputs, *taps)),
        attrs,
    )


@pytest.fixture(params=["large buffer", "tiny buffer", "always adding", "never adding"])
def strategy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel forced to go each of its ways."""
    if request.param == "tiny buffer":
        monkeypatch.setattr(conv_kernel, "_BUFFER_BYTES", 200)
    elif request.param == "always adding":
        monkeypatch.setattr(conv_kernel, "_adds_less", lambda *_: True)
    elif request.param == "never adding":
        monkeypatch.setattr(conv_kernel, "_adds_less", lambda *_: False)


def run_checks(check: Any, examples: int) -> None:
    settings(max_examples=examples, deadline=None, database=None)(given(convolutions())(check))()


@pytest.mark.rotating(2)
@pytest.mark.usefixtures("strategy")
def test_conv_of_random_shape_equals_a_loop() -> None:
    def check(case: tuple[Any, Any, dict[str, Any]]) -> None:
        x, w, attrs = case
        out = conv(weft.tensor(x), weft.tensor(w), **attrs)
        np.testing.assert_allclose(out.numpy(), naive_conv(x, w, **attrs), rtol=1e-10, atol=1e-10)

    run_checks(check, 60)


def test_gradients_of_random_shape_are_the_transposes_of_the_loop() -> None:
    def check(case: tuple[Any, Any, dict[str, Any]]) -> None:
        x, w, attrs = case
        rng = np.random.default_rng(0)
        a, b = weft.tensor(x, requires_grad=True), weft.tensor(w, requires_grad=True)
        out = conv(a, b, **attrs)
        u, v, z = (rng.normal(size=s) for s in (out.shape, x.shape, w.shape))
        out.backward(weft.tensor(u))
        by_input, by_weight = np.vdot(a.grad.numpy(), v), np.vdot(b.grad.numpy(), z)
        np.testing.assert_allclose(by_input, np.vdot(u, naive_conv(v, w, **attrs)), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(by_weight, np.vdot(u, naive_conv(x, z, **attrs)), rtol=1e-9, atol=1e-9)

    run_checks(check, 80)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("batched", [(0, None), (None, 0), (1, 2)])
def test_vmap_of_random_shape_equals_a_loop(batched: tuple[int | None, int | None]) -> None:
    def check(case: tuple[Any, Any, dict[str, Any]]) -> None:
        x, w, attrs = case
        stacked = [
            a if axis is None else np.stack([a, 2 * a, a - 1], axis=axis)
            for a, axis in zip((x, w), batched, strict=True)
        ]
        out = weft.vmap(lambda a, b: conv(a, b, **attrs), in_axes=batched)(*map(weft.tensor, stacked))
        for i in range(3):
            one = [
                s if axis is None else s.take(i, axis=axis) for s, axis in zip(stacked, batched, strict=True)
            ]
            np.testing.assert_allclose(out[i].numpy(), naive_conv(*one, **attrs), rtol=1e-10, atol=1e-10)

    run_checks(check, 25)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "uint16", "int64", "complex64"])
def test_conv_keeps_the_dtype(dtype: str) -> None:
    x = weft.tensor(np.arange(12.0).reshape(1, 2, 6)).astype(dtype)
    w = weft.tensor(np.arange(8.0).reshape(2, 2, 2)).astype(dtype)
    out = weft.conv1d(x, w)
    expected = naive_conv(
        np.arange(12.0).reshape(1, 2, 6),
        np.arange(8.0).reshape(2, 2, 2),
        stride=(1,),
        padding=((0, 0),),
        dilation=(1,),
        input_dilation=(1,),
        groups=1,
    )
    assert out.dtype == getattr(weft, dtype)
    wrapped = expected.astype(np.int64).astype(dtype) if dtype[0] in "iu" else expected
    np.testing.assert_allclose(
        out.astype("complex64" if dtype == "complex64" else "float64").numpy(), wrapped, rtol=4e-3
    )


def test_memory_does_not_grow_with_the_batch() -> None:
    w = weft.ones((32, 16, 3, 3))

    def peak(n: int) -> int:
        x = weft.ones((n, 16, 32, 32))
        tracemalloc.start()
        out = weft.conv2d(x, w)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most - out.nbytes

    small, large = peak(8), peak(32)
    assert large <= small + 2 * (1 << 20)
    assert large < 8 * (1 << 20)  # windows of all examples would take 18 MiB


def test_single_example_needs_no_batch_axis() -> None:
    x, w = weft.rand(3, 8, 8), weft.rand(4, 3, 3, 3)
    assert weft.conv2d(x, w).shape == (4, 6, 6)
    np.testing.assert_allclose(weft.conv2d(x, w).numpy(), weft.conv2d(x[None], w)[0].numpy(), rtol=1e-6)


def test_transposed_convolution_is_the_gradient_of_convolution() -> None:
    x = weft.rand(2, 3, 9, 9, dtype=weft.float64).requires_grad_()
    w = weft.rand(4, 3, 3, 3, dtype=weft.float64)
    out = weft.conv2d(x, w, stride=2, padding=1)
    g = weft.rand(*out.shape, dtype=weft.float64)
    out.backward(g)
    np.testing.assert_allclose(weft.conv_transpose2d(g, w, stride=2, padding=1).numpy(), x.grad.numpy())


ERRORS = [
    (lambda: weft.conv2d(weft.ones((1, 3, 4, 4)), weft.ones((2, 4, 3, 3))), "input channels must be 4"),
    (lambda: weft.conv2d(weft.ones((1, 3, 4)), weft.ones((2, 3, 3))), "the weight must have 4 axes"),
    (lambda: weft.conv2d(weft.ones((4, 4)), weft.ones((2, 3, 3, 3))), "the input must have 3 or 4 axes"),
    (lambda: weft.conv2d(weft.ones((1, 3, 2, 2)), weft.ones((2, 3, 3, 3))), "the window must fit"),
    (
        lambda: weft.conv1d(weft.ones((1, 4, 4)), weft.ones((3, 2, 3)), groups=2),
        "output channels must be a multiple",
    ),
    (
        lambda: weft.conv1d(weft.ones((1, 2, 4)), weft.ones((3, 2, 3)), weft.ones(2)),
        "one value for each of 3 output",
    ),
    (lambda: weft.conv1d(weft.ones((1, 2, 4)), weft.ones((3, 2, 3)), stride=0), "stride must be at least 1"),
    (lambda: weft.conv2d(weft.ones((1, 2, 4, 4)), weft.ones((3, 2, 3, 3)), stride=(1, 1, 1)), "or 2 of them"),
    (lambda: weft.conv1d(weft.ones((1, 2, 4)), weft.ones((3, 2, 3)), stride=1.5), "stride must be an int"),
    (
        lambda: weft.conv1d(weft.ones((1, 2, 4)), weft.ones((3, 2, 3)), stride=2, padding="same"),
        "stride must be 1",
    ),
    (lambda: weft.conv1d(weft.ones((1, 2, 4)), weft.ones((3, 2, 3)), padding="full"), "'same' or 'valid'"),
    (lambda: weft.conv1d(weft.ones((1, 2, 4)), weft.ones((3, 2, 3)), strides=2), "unknown keyword 'strides'"),
    (
        lambda: weft.conv_transpose1d(weft.ones((1, 2, 4)), weft.ones((2, 2, 3)), output_padding=1),
        "output_padding must",
    ),
    (
        lambda: weft.conv_transpose1d(weft.ones((1, 2, 4)), weft.ones((3, 2, 3)), groups=2),
        "a multiple of groups",
    ),
]


@pytest.mark.parametrize(("call", "text"), ERRORS, ids=[text for _, text in ERRORS])
def test_bad_arguments_are_named(call: Any, text: str) -> None:
    with pytest.raises(weft.errors.WeftError, match=text) as caught:
        call()
    assert str(caught.value).startswith("conv")

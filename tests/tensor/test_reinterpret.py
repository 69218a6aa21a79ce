"""``x.view(dtype)``: bits against NumPy's views, changes through either, and what cannot be a view."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import DtypeError, ShapeError

RNG = np.random.default_rng(0)
NAMES = [
    "int8",
    "uint8",
    "int16",
    "float16",
    "int32",
    "float32",
    "uint64",
    "float64",
    "complex64",
    "complex128",
]


def drawn(name: str, shape: tuple[int, ...] = (2, 16)) -> Any:
    """Bytes that are finite numbers in all dtypes."""
    size = shape[-1] * np.dtype(name).itemsize
    return RNG.integers(0, 60, (*shape[:-1], size), np.uint8).view(name)


@pytest.mark.parametrize("source", NAMES)
def test_bits_are_those_of_numpys_view(source: str) -> None:
    array = drawn(source)
    x = weft.asarray(array)
    every = [np.dtype(n) for n in NAMES]
    compiled = weft.compile(lambda x: [x.view(dtype) for dtype in every])(x)
    for dtype, other in zip(every, compiled, strict=True):
        expected, found = array.view(dtype), x.view(dtype)
        assert found.dtype == other.dtype == dtype
        assert found.shape == expected.shape
        assert found.numpy().tobytes() == other.numpy().tobytes() == expected.tobytes()


def test_bfloat16_bools_and_names_of_dtypes() -> None:
    x = weft.tensor([1.0, -2.0], dtype=weft.bfloat16)
    assert x.view(weft.int16).tolist() == [0x3F80, -0x4000]
    assert x.view("uint8").tolist() == [0x80, 0x3F, 0x00, 0xC0]
    assert weft.tensor([True, False]).view(weft.uint8).tolist() == [1, 0]
    assert weft.tensor(1.0).view(weft.int32).item() == 0x3F800000
    same = x.view(weft.bfloat16)
    same[0] = 3.0
    assert x.tolist() == [3.0, -2.0]


def changed(x: Any) -> Any:
    """Changes through views of bits, of a part, and of the base itself; with what each shows at the end."""
    words, octets = x.view(weft.int32), x[1].view(weft.uint8)
    words[0, 0] = 0x40400000  # 3.0
    octets[4:] = 0
    x[0, 1] += 1.0
    words.view(weft.float32)[0, 2] = 9.0
    return words * 1, octets * 1, x * 1


def test_changes_show_through_all_views() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = array.copy()
    words, octets = expected.view(np.int32), expected[1].view(np.uint8)
    words[0, 0], octets[4:] = 0x40400000, 0
    expected[0, 1] += 1.0
    words.view(np.float32)[0, 2] = 9.0
    for run in (changed, weft.compile(changed)):
        x = weft.tensor(array)
        found = run(x)
        for mine, theirs in zip(found, (words, octets, expected), strict=True):
            assert mine.numpy().tobytes() == theirs.tobytes()
        assert x.numpy().tobytes() == expected.tobytes()


def test_batched_views_are_those_of_each_example() -> None:
    array = drawn("float32", (3, 2, 4))
    found = weft.vmap(lambda x: x.view(weft.uint8))(weft.asarray(array))
    assert (found.numpy() == array.view(np.uint8)).all()


def test_axes_that_were_permuted_keep_their_size_alone() -> None:
    array = drawn("float32", (2, 3))
    x = weft.asarray(array).T
    assert (x.view(weft.int32).numpy() == array.view(np.int32).T).all()
    with pytest.raises(ShapeError, match=r"one piece along the last axis, got f32\[3,2\]") as told:
        x.view(weft.uint8)
    assert told.value.hint == "take x.contiguous() before"
    assert (x.contiguous().view(weft.uint8).numpy() == array.T.copy().view(np.uint8)).all()
    with pytest.raises(ShapeError, match="one piece along the last axis"):
        weft.asarray(array)[:, ::2].view(weft.uint8)


def test_no_gradient_goes_through_bits() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    assert not x.view(weft.int32).requires_grad
    assert not x.view(weft.complex64).requires_grad


def test_what_does_not_fit_is_told() -> None:
    with pytest.raises(ShapeError, match=r"whole numbers of float64, got f32\[3\]"):
        weft.ones(3).view(weft.float64)
    with pytest.raises(ShapeError, match="need an axis to lie along"):
        weft.tensor(1.0).view(weft.uint8)
    with pytest.raises(DtypeError, match="truth values") as told:
        weft.ones(3).view(weft.bool)
    assert told.value.hint == "use x != 0"

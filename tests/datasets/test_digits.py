from __future__ import annotations

import numpy as np

import weft
import weft.datasets


def test_digits_are_complete_and_scaled() -> None:
    images, labels = weft.datasets.digits()
    assert (images.shape, images.dtype) == ((1797, 8, 8), weft.float32)
    assert (labels.shape, labels.dtype) == ((1797,), weft.int64)
    assert (images.numpy().min(), images.numpy().max()) == (0.0, 1.0)


def test_digits_have_about_equal_classes() -> None:
    counts = np.bincount(weft.datasets.digits().labels.numpy())
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_first_digit_is_a_zero_with_a_hole() -> None:
    images, labels = weft.datasets.digits()
    first = images.numpy()[0]
    assert labels.numpy()[0] == 0
    assert first[2:6, 2].min() > 0.1
    assert first[2:5, 4].max() == 0.0

"""Small real data sets that ship with weft, for examples and tests. Files are read when asked for."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from weft.tensor.creation import tensor
from weft.tensor.tensor import Tensor

_HERE = Path(__file__).parent


class Digits(NamedTuple):
    """Images of handwritten digits, float32[1797, 8, 8] from 0 to 1, and their labels, int64[1797]."""

    images: Tensor
    labels: Tensor


def digits() -> Digits:
    """1,797 handwritten digits of 8 by 8 pixels. Source and licence are in ``weft/datasets/README.md``.

    >>> import weft.datasets
    >>> images, labels = weft.datasets.digits()
    >>> images.shape, labels.shape
    ((1797, 8, 8), (1797,))
    """
    with np.load(_HERE / "digits.npz", allow_pickle=False) as file:
        images, labels = file["images"], file["labels"]
    return Digits(tensor(images.astype(np.float32) / 16), tensor(labels.astype(np.int64)))

"""Small real data sets that ship with weft, for examples and tests. Files are read when asked for.

Sources and licences are in ``weft/datasets/README.md``.
"""

from __future__ import annotations

import gzip
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


class Karate(NamedTuple):
    """The friendships of a karate club's members, int64[78, 2], and who went where, int64[34]."""

    edges: Tensor
    clubs: Tensor


def digits() -> Digits:
    """1,797 handwritten digits of 8 by 8 pixels.

    >>> import weft.datasets
    >>> images, labels = weft.datasets.digits()
    >>> images.shape, labels.shape
    ((1797, 8, 8), (1797,))
    """
    with np.load(_HERE / "digits.npz", allow_pickle=False) as file:
        images, labels = file["images"], file["labels"]
    return Digits(tensor(images.astype(np.float32) / 16), tensor(labels.astype(np.int64)))


def alice() -> str:
    """The text of *Alice's Adventures in Wonderland* by Lewis Carroll.

    >>> import weft.datasets
    >>> "Alice was beginning to get very tired" in weft.datasets.alice()
    True
    """
    return _text("alice")


def as_you_like_it() -> str:
    """The text of *As You Like It* by William Shakespeare.

    >>> import weft.datasets
    >>> "All the world's a stage" in weft.datasets.as_you_like_it()
    True
    """
    return _text("as_you_like_it")


def sunspots() -> Tensor:
    """The mean number of sunspots in each month from January 1749 on, float32.

    >>> import weft.datasets
    >>> weft.datasets.sunspots()[:3]
    tensor([58.0000, 62.6000, 70.0000])
    """
    with np.load(_HERE / "sunspots.npz", allow_pickle=False) as file:
        return tensor(file["numbers"].astype(np.float32) / np.float32(10))


def karate() -> Karate:
    """The 34 members of a karate club, who is friends with whom, and how the club split up.

    >>> import weft.datasets
    >>> edges, clubs = weft.datasets.karate()
    >>> edges.shape, clubs[0].item(), clubs[33].item()
    ((78, 2), 0, 1)
    """
    with np.load(_HERE / "karate.npz", allow_pickle=False) as file:
        return Karate(tensor(file["edges"].astype(np.int64)), tensor(file["clubs"].astype(np.int64)))


def _text(name: str) -> str:
    return gzip.decompress((_HERE / f"{name}.txt.gz").read_bytes()).decode("ascii")

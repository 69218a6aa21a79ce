"""Saved models, made once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weft
from weft import nn

KIND = weft.TensorType


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of models.

    - affine: x @ w + b over rows; matrices are in affine.npz.
    - pair: of two inputs, with named outputs, and an open size besides the rows.
    - coupled: rows minus their mean.
    - scaled: rows times how many there are.
    - types: one input of each datatype, given back.
    - lookup: rows of a table by number; numbers that are too large are an error.
    - count: a number that grows with each call.
    - slow: the same loop for each row, some milliseconds long.
    - fixed: without open sizes.
    - endless: counts up from x until it is above a limit; never, if x is above 0 and the limit is not finite.
    - forever: a loop that ends for no number.
    """
    folder = tmp_path_factory.mktemp("models")
    layer = nn.Linear(3, 2)
    arrays = {"w": layer.weight.detach().numpy(), "b": layer.bias.detach().numpy()}
    np.savez(folder / "affine.npz", **arrays)
    weft.compile(layer).save(folder / "affine.weft", KIND(("batch", 3), weft.float32))
    rows = KIND(("batch", "n"), weft.float32)
    weft.compile(lambda x, y: {"sum": x + y, "total": (x * y).sum(axis=1)}).save(
        folder / "pair.weft", rows, rows
    )
    weft.compile(lambda x: x - x.mean(axis=0)).save(folder / "coupled.weft", KIND(("batch", 3), weft.float32))
    weft.compile(lambda x: x * x.shape[0]).save(folder / "scaled.weft", KIND(("batch", 3), weft.float32))
    types = [weft.bool, weft.uint8, weft.uint16, weft.uint32, weft.uint64, weft.int8, weft.int16, weft.int32,
             weft.int64, weft.float16, weft.float32, weft.float64, weft.bfloat16]  # fmt: skip
    given = {t.name: KIND(("batch", 2), t) for t in types}
    weft.compile(lambda xs: {k: weft.flip(x, axis=1) for k, x in xs.items()}).save(
        folder / "types.weft", given
    )
    table = weft.arange(12.0).reshape(4, 3)
    weft.compile(lambda i: table[i]).save(folder / "lookup.weft", KIND(("batch",), weft.int64))
    total = weft.zeros(())

    @weft.compile
    def count(x: weft.Tensor) -> weft.Tensor:
        total.data = total + x.sum()
        return x + total

    count.save(folder / "count.weft", KIND(("batch",), weft.float32))

    @weft.compile
    def slow(x: weft.Tensor) -> weft.Tensor:
        for _ in range(400_000):
            x = weft.sin(x)
        return x

    slow.save(folder / "slow.weft", KIND(("batch",), weft.float32))

    @weft.compile
    def endless(x: weft.Tensor, limit: weft.Tensor) -> weft.Tensor:
        while x.sum() < limit.sum():
            x = x + 1.0
        return x

    endless.save(folder / "endless.weft", KIND((2,), weft.float32), KIND((1,), weft.float32))

    @weft.compile
    def forever(x: weft.Tensor) -> weft.Tensor:
        while x.sum() < 1e30:
            x = x * 0.5
        return x

    forever.save(folder / "forever.weft", KIND(("batch", 2), weft.float32))
    weft.compile(lambda x: x * 2.0).save(folder / "fixed.weft", KIND((2, 2), weft.float32))
    return folder

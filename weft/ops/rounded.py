"""Quotients and numbers rounded as asked: what ``div(rounding_mode=...)`` and ``round(decimals=...)`` do."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.base.shapes import as_ints
from weft.errors import DomainError, DtypeError
from weft.ops.arithmetic import div, floor_divide, fmod
from weft.ops.compare import isfinite
from weft.ops.op import Sample, Tensor, composite
from weft.ops.rounding import round, trunc
from weft.ops.samples import int_array, real_array
from weft.ops.select import same_dtype, select


def _quotients() -> list[Sample]:
    x, y = real_array((3, 4)) * 10, real_array((3, 4), seed=1)
    return [
        Sample(inputs, {"rounding_mode": mode}, smooth=False)
        for mode in ("trunc", "floor")
        for inputs in (
            (x, y),
            (int_array((3, 4), -20, 20), int_array((4,), 1, 6)),
            (np.array([7.5, -7.5]), y[0, :1]),
        )
    ]


@composite(samples=_quotients)
def divide_rounded(x1: Any, x2: Any, rounding_mode: str) -> Tensor:
    """x1 / x2 rounded towards 0 ("trunc") or down ("floor"); integers give integers.

    >>> import weft
    >>> weft.div(weft.tensor([7, -7]), 2, rounding_mode="trunc")
    tensor([ 3, -3])
    """
    if rounding_mode == "floor":
        return floor_divide(x1, x2)
    if rounding_mode != "trunc":
        raise DomainError("div", f"rounding_mode must be None, 'trunc' or 'floor', got {rounding_mode!r}")
    x1, x2 = same_dtype("div", x1, x2)
    if kind(x1.dtype) in "iu":
        return floor_divide(x1 - fmod(x1, x2), x2)
    return trunc(div(x1, x2))


def _decimals() -> list[Sample]:
    x = real_array((3, 4)) * 1000
    edges = np.array([0.25, 0.35, -0.25, 1e300, np.inf, -np.inf, np.nan])
    found = [Sample((x,), {"decimals": d}, smooth=False) for d in (0, 2, -2)]
    return [
        *found,
        Sample((edges,), {"decimals": 1}, smooth=False),
        Sample((int_array((3,)),), {"decimals": 2}),
    ]


@composite(samples=_decimals, single=True)
def round_decimals(x: Any, decimals: int = 0) -> Tensor:
    """The nearest number with so many decimals, the even one of two; fewer than 0 round to tens, hundreds ...

    >>> import weft
    >>> weft.round(weft.tensor([0.126, 123.456]), decimals=2)
    tensor([  0.1300, 123.4600])
    """
    (decimals,) = as_ints("round", "decimals", decimals)
    if decimals == 0 or (kind(x.dtype) in "iu" and decimals > 0):
        return round(x)
    if kind(x.dtype) != "f":
        raise DtypeError("round", f"dtype must be floating for {decimals} decimals, got {x.dtype.name}")
    scale = 10.0 ** abs(decimals)
    scaled = x * scale if decimals > 0 else x / scale
    rounded = round(scaled) / scale if decimals > 0 else round(scaled) * scale
    return select(isfinite(scaled), rounded, x)  # what is so large has no decimals

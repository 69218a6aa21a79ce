"""Rounding to integers. Integers are returned as they are; the gradient is zero wherever there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.ops.families import elementwise
from weft.ops.op import Op
from weft.ops.samples import integers, join, reals
from weft.ops.scalar import ScalarEmitter, Value


def _rounding(name: str, ufunc: Any, scalar: Callable[..., Any], accepts: str = "iuf") -> Op:
    def eval(x: Any) -> Any:
        return x.copy() if kind(x.dtype) in "iu" else ufunc(x)

    def code(e: ScalarEmitter[Value], x: Value) -> Value:
        return x if kind(e.dtype(x)) in "iu" else scalar(e, x)

    samples = join(reals(1, complex="c" in accepts), integers(1))
    return elementwise(name, eval=eval, partials=(0,), accepts=accepts, samples=samples, scalar=code)


def _round_code(e: ScalarEmitter[Value], x: Value) -> Value:
    if kind(e.dtype(x)) == "c":
        return e.complex(e.round(e.real(x)), e.round(e.imag(x)))
    return e.round(x)


floor = _rounding("floor", np.floor, lambda e, x: e.floor(x))
ceil = _rounding("ceil", np.ceil, lambda e, x: e.neg(e.floor(e.neg(x))))
trunc = _rounding("trunc", np.trunc, lambda e, x: e.trunc(x))
round = _rounding("round", np.rint, _round_code, "iufc")

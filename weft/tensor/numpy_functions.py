"""What NumPy's functions do with tensors.

A ufunc or a reduction is the op of the same meaning: it gives a tensor, and gradients flow. Every other
function sees a read-only array in the tensor's memory and gives arrays, so that a tensor which requires grad
is an error there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.errors import ArgumentError
from weft.ops import complex as complexes
from weft.ops import contract
from weft.tensor import functions as f
from weft.tensor.published import UFUNCS
from weft.tensor.tensor import Tensor

Function = Callable[..., Any]

UFUNCS |= {
    np.ceil: f.ceil,
    np.conjugate: complexes.conj,
    np.fabs: f.abs,
    np.floor: f.floor,
    np.floor_divide: f.floor_divide,
    np.matmul: contract.matmul,
    np.power: f.pow,
    np.rint: f.round,
    np.trunc: f.trunc,
}
# Those that NumPy would hand to the method of the same name, with keywords of its own
_REDUCTIONS: dict[Any, str] = {
    np.all: "all",
    np.amax: "max",
    np.amin: "min",
    np.any: "any",
    np.argmax: "argmax",
    np.argmin: "argmin",
    np.max: "max",
    np.mean: "mean",
    np.min: "min",
    np.prod: "prod",
    np.std: "std",
    np.sum: "sum",
    np.var: "var",
}
_KEYWORDS = {"correction": "correction", "ddof": "correction"} | {k: k for k in ("axis", "dtype", "keepdims")}
# Those that are asked for tensors by like=, which weft's functions of the same name make
_CREATION = {np.arange, np.array, np.asarray, np.empty, np.eye, np.full, np.ones, np.zeros}
_ARRAY = np.empty(0)


def _array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """NumPy calls this for its ufuncs: the op of the same meaning, or else NumPy on the data."""
    if method == "__call__" and not kwargs and ufunc in UFUNCS:
        return UFUNCS[ufunc](*inputs)
    if any(isinstance(out, Tensor) for out in kwargs.get("out", ())):
        raise ArgumentError(
            ufunc.__name__, "out must be a NumPy array, got a tensor", hint="assign the result instead"
        )
    arrays = [x.numpy() if isinstance(x, Tensor) else x for x in inputs]
    return getattr(ufunc, method)(*arrays, **kwargs)


def _array_function(self: Tensor, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
    """NumPy calls this for its other functions: a reduction is ours, the rest is NumPy on the data."""
    if function in _REDUCTIONS:
        return _reduce(function, *args, **kwargs)
    if function in _CREATION:
        return NotImplemented
    if function is np.nonzero and isinstance(args[0], Tensor):  # whose method of that name gives rows
        return args[0].nonzero(as_tuple=True)
    return np.ndarray.__array_function__(_ARRAY, function, (), args, kwargs)


def _reduce(function: Callable[..., Any], a: Tensor, *args: Any, **kwargs: Any) -> Any:
    given = {key: value for key, value in kwargs.items() if value is not None}
    if not isinstance(a, Tensor) or len(args) > 1 or not given.keys() <= _KEYWORDS.keys():
        return np.ndarray.__array_function__(_ARRAY, function, (), (np.asarray(a), *args), kwargs)
    if function in (np.std, np.var) and "dtype" in given:
        a = a.astype(given.pop("dtype"))
    method = getattr(a, _REDUCTIONS[function])
    named = {_KEYWORDS[key]: value for key, value in given.items()}
    return method(**{"axis": args[0] if args else None, **named})  # which spells it as NumPy means it


Tensor.__array_ufunc__ = _array_ufunc  # type: ignore[attr-defined]
Tensor.__array_function__ = _array_function  # type: ignore[attr-defined]

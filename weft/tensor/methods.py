"""Operators and methods of Tensor that are ops, attached to the class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.dtypes import as_dtype
from weft.ops import contract, elementwise, reduce, view
from weft.tensor import functions
from weft.tensor.tensor import Tensor


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: function(other, self)


def _in_place(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Tensor, other: Any) -> Tensor:
        return self._rebind(name, function(self, other))

    return method


def attach(name: str, function: Callable[..., Any]) -> None:
    """Make a function a method of Tensor."""
    setattr(Tensor, name, function)


def _attach_operators() -> None:
    for name, function in (
        ("add", functions.add),
        ("sub", functions.sub),
        ("mul", functions.mul),
        ("truediv", functions.div),
        ("matmul", contract.matmul),
    ):
        attach(f"__{name}__", function)
        attach(f"__r{name}__", _reflected(function))
        attach(f"__i{name}__", _in_place(name, function))
    attach("__neg__", functions.neg)
    attach("__eq__", functions.equal)


def _astype(self: Tensor, dtype: Any, *, copy: bool = True) -> Any:
    return elementwise.cast(self, dtype=as_dtype(dtype))


def _reshape(self: Tensor, *shape: Any) -> Any:
    if len(shape) == 1 and isinstance(shape[0], tuple | list):
        shape = tuple(shape[0])
    return view.reshape(self, shape=shape)


attach("sum", lambda self, axis=None, dtype=None, keepdims=False: reduce.sum(self, axis=axis, dtype=dtype, keepdims=keepdims))
attach("astype", _astype)
attach("reshape", _reshape)
_attach_operators()

"""Elementwise functions as methods of Tensor, in place too, and NumPy's ufuncs on tensors.

``x.exp()`` is ``weft.exp(x)``; ``x.exp_()`` rebinds x to it, and returns x.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.ops import arithmetic, compound, contract
from weft.ops import complex as complexes
from weft.ops.select import cast
from weft.ops.view_axes import broadcast_to
from weft.tensor import functions as f
from weft.tensor.creation import as_tensor
from weft.tensor.operators import rebind
from weft.tensor.tensor import Tensor

_METHODS = """
abs absolute acos acosh angle asin asinh atan atanh bitwise_not ceil cos cosh digamma erf erfc erfinv exp exp2
expm1 floor isfinite isinf isnan lgamma log log10 log1p log2 logical_not neg negative positive reciprocal round
rsqrt sigmoid sign signbit sin sinh sqrt square tan tanh trunc
atan2 bitwise_and bitwise_or bitwise_xor copysign div divide eq equal floor_divide fmod ge greater
greater_equal gt hypot le less less_equal logaddexp logical_and logical_or logical_xor lt maximum minimum mul
multiply ne nextafter not_equal pow remainder
""".split()


def _add(self: Tensor, other: Any, *, alpha: Any = 1) -> Any:
    """``self + alpha * other``."""
    return f.add(self, other if alpha == 1 else f.mul(other, alpha))


def _sub(self: Tensor, other: Any, *, alpha: Any = 1) -> Any:
    """``self - alpha * other``."""
    return f.sub(self, other if alpha == 1 else f.mul(other, alpha))


def _in_place(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        out: Tensor = rebind(self, name, function(self, *args, **kwargs))
        return out

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"``{name[:-1]}`` in place: rebinds the tensor to the result, and returns it."
    return method


def _filled(self: Tensor, value: Any) -> Any:
    """A number everywhere."""
    return _copied(self, value)


def _zeros(self: Tensor) -> Any:
    """Zero everywhere."""
    return _copied(self, 0)


def _copied(self: Tensor, source: Any) -> Any:
    """A source as it fits into a tensor: cast and broadcast."""
    source = source if isinstance(source, Tensor) else as_tensor(source)
    return broadcast_to(cast(source, dtype=self.dtype), self.shape)


def _attach() -> None:
    functions = {name: getattr(f, name) for name in _METHODS}
    functions |= {"add": _add, "sub": _sub, "subtract": _sub, "clip": arithmetic.clip, "clamp": arithmetic.clip}
    functions |= {"lerp": arithmetic.lerp, "nan_to_num": compound.nan_to_num}
    for name, function in functions.items():
        setattr(Tensor, name, function)
        setattr(Tensor, f"{name}_", _in_place(f"{name}_", function))
    changes = {"fill_": _filled, "zero_": _zeros, "copy_": _copied}
    others = {"conj": complexes.conj, "isclose": compound.isclose, "allclose": compound.allclose}
    for name, function in changes.items():
        setattr(Tensor, name, _in_place(name, function))
    for name, function in others.items():
        setattr(Tensor, name, function)
    Tensor.real = property(complexes.real)  # type: ignore[attr-defined]
    Tensor.imag = property(complexes.imag)  # type: ignore[attr-defined]


# NumPy's ufuncs

_SAME_NAME = """
absolute add bitwise_and bitwise_or bitwise_xor ceil copysign cos cosh divide equal exp exp2 expm1 floor
floor_divide fmod greater greater_equal hypot isfinite isinf isnan less less_equal log log10 log1p log2 logaddexp
logical_and logical_not logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive
reciprocal remainder sign signbit sin sinh sqrt square subtract tan tanh trunc
""".split()
_UFUNCS: dict[Any, Callable[..., Any]] = {getattr(np, name): getattr(f, name) for name in _SAME_NAME} | {
    np.arccos: f.acos,
    np.arccosh: f.acosh,
    np.arcsin: f.asin,
    np.arcsinh: f.asinh,
    np.arctan: f.atan,
    np.arctan2: f.atan2,
    np.arctanh: f.atanh,
    np.conjugate: complexes.conj,
    np.fabs: f.abs,
    np.invert: f.bitwise_invert,
    np.left_shift: f.bitwise_left_shift,
    np.matmul: contract.matmul,
    np.power: f.pow,
    np.right_shift: f.bitwise_right_shift,
    np.rint: f.round,
}


def _array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """NumPy calls this for its ufuncs: the op of the same meaning, or else NumPy on the data."""
    if method == "__call__" and not kwargs and ufunc in _UFUNCS:
        return _UFUNCS[ufunc](*inputs)
    arrays = [x.numpy() if isinstance(x, Tensor) else x for x in inputs]
    return getattr(ufunc, method)(*arrays, **kwargs)


_attach()
Tensor.__array_ufunc__ = _array_ufunc  # type: ignore[attr-defined]

"""Elementwise functions as methods of Tensor, in place too.

``x.exp()`` is ``weft.exp(x)``; ``x.exp_()`` rebinds x to it, and returns x.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.public import public
from weft.ops import arithmetic, compound
from weft.ops import complex as complexes
from weft.ops.op import Number, Operand
from weft.ops.select import cast
from weft.ops.view.axes import broadcast_to
from weft.tensor import functions as f
from weft.tensor.creation import as_tensor
from weft.tensor.operators import rebind
from weft.tensor.tensor import Tensor

Function = Callable[..., Any]


@public
def add(self: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """``self + alpha * other``."""
    return f.add(self, other if alpha == 1 else f.mul(other, alpha))


@public
def sub(self: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """``self - alpha * other``."""
    return f.sub(self, other if alpha == 1 else f.mul(other, alpha))


def _in_place(name: str, function: Function) -> Function:
    def method(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        out: Tensor = rebind(self, name, function(self, *args, **kwargs))
        return out

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"``{name[:-1]}`` in place: rebinds the tensor to the result, and returns it."
    return method


def _zeros(self: Tensor) -> Tensor:
    """Zero everywhere."""
    return _copied(self, 0)


def _copied(self: Tensor, source: object) -> Tensor:
    """A source as it fits into a tensor: cast and broadcast."""
    source = source if isinstance(source, Tensor) else as_tensor(source)
    return broadcast_to(cast(source, dtype=self.dtype), self.shape)


def _attach() -> None:
    functions: dict[str, Function] = {name: v for name, v in vars(f).items() if hasattr(v, "__wrapped__")}
    functions |= {
        "add": add,
        "sub": sub,
        "subtract": sub,
        "clip": arithmetic.clip,
        "clamp": arithmetic.clip,
        "lerp": compound.lerp,
        "nan_to_num": compound.nan_to_num,
    }
    for name, function in functions.items():
        setattr(Tensor, name, function)
        setattr(Tensor, f"{name}_", _in_place(f"{name}_", function))
    changes: dict[str, Function] = {"fill_": _copied, "zero_": _zeros, "copy_": _copied}
    for name, function in changes.items():
        setattr(Tensor, name, _in_place(name, function))
    for function in (complexes.conj, compound.isclose, compound.allclose):
        setattr(Tensor, function.__name__, function)
    for function in (complexes.real, complexes.imag):
        setattr(Tensor, function.__name__, property(function))


_attach()

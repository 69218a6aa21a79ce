"""The operators of Python on tensors.

An operand that is no number, array or tensor gets its own turn (``NotImplemented``) if its class is not one
of Python's builtins. ``x += y`` rebinds x to the result, which must have x's shape and dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.concrete import CONCRETE
from weft.errors import DtypeError, ShapeError
from weft.ops import arithmetic, compare, contract
from weft.ops.complex import absolute
from weft.ops.op import Op, Operand, TensorLike, intercepted, type_of
from weft.tensor.dispatch import wrap
from weft.tensor.fast import build
from weft.tensor.form import constant
from weft.tensor.promotion import NUMBERS
from weft.tensor.tensor import Tensor

Function = Callable[..., Any]
_OPERANDS = (TensorLike, np.ndarray, *NUMBERS)


def _is_foreign(x: Tensor) -> bool:
    return not isinstance(x, _OPERANDS) and type(x).__module__ != "builtins"


def _operator(op: Op) -> Function:
    """The function of an op that leaves operands it does not know to their own class."""
    return build(op, leaves=_is_foreign)


def _comparison(op: Op) -> Function:
    """Nothing that is no number, array or tensor equals a tensor; Python says so if we do not."""
    return build(op, leaves=lambda x: not isinstance(x, _OPERANDS))


def _power() -> Function:
    power, square = _operator(arithmetic.pow), build(arithmetic.square)

    def function(x: Tensor, y: Operand, /) -> Any:
        return square(x) if type(y) is int and y == 2 else power(x, y)

    return function


def _reflected(function: Function) -> Function:
    def method(self: object, other: Operand, /) -> Any:
        if type(other) is float or type(other) is int:
            form = getattr(self, "_form", None)
            if form is not None and not intercepted.threads:
                return function(wrap(constant(form, other)), self)
        return function(other, self)

    return method


def rebind(self: Tensor, name: str, value: Tensor) -> Any:
    """Make a tensor the result of a change in place, which must not change its type."""
    if value is NotImplemented:
        return value
    if value.dtype != self.dtype:
        hint = f"write x = ... to let x become {value.dtype.name}"
        raise DtypeError(
            name, f"the result must stay {self.dtype.name} in place, got {value.dtype.name}", hint=hint
        )
    if value.shape != self.shape:
        raise ShapeError(name, f"the result must stay {type_of(self)} in place, got {type_of(value)}")
    return self._rebind(name, self._beside(value) if len(CONCRETE) > 1 else value)


def _in_place(name: str, function: Function) -> Function:
    return lambda self, other: rebind(self, name, function(self, other))


_COMMUTATIVE = {
    "add": _operator(arithmetic.add),
    "mul": _operator(arithmetic.mul),
    "and": _operator(compare.bitwise_and),
    "or": _operator(compare.bitwise_or),
    "xor": _operator(compare.bitwise_xor),
}
_BINARY = {
    "sub": _operator(arithmetic.sub),
    "truediv": _operator(arithmetic.div),
    "floordiv": _operator(arithmetic.floor_divide),
    "mod": _operator(arithmetic.remainder),
    "pow": _power(),
    "lshift": _operator(compare.left_shift),
    "rshift": _operator(compare.right_shift),
    "matmul": contract.matmul,
}
_COMPARISON = {
    "eq": _comparison(compare.equal),
    "ne": _comparison(compare.not_equal),
    "lt": _comparison(compare.less),
    "le": _comparison(compare.less_equal),
    "gt": _comparison(compare.greater),
    "ge": _comparison(compare.greater_equal),
}
_UNARY = {
    "neg": build(arithmetic.neg),
    "pos": build(arithmetic.positive),
    "abs": build(absolute),
    "invert": build(compare.bitwise_invert),
}


def attach_operators(kind: type) -> None:
    """Give a class of tensors the operators of Python."""
    for name, function in (_COMMUTATIVE | _BINARY).items():
        setattr(kind, f"__{name}__", function)
        setattr(kind, f"__r{name}__", function if name in _COMMUTATIVE else _reflected(function))
    for name, function in (_COMPARISON | _UNARY).items():
        setattr(kind, f"__{name}__", function)


attach_operators(Tensor)
for _name, _function in (_COMMUTATIVE | _BINARY).items():
    setattr(Tensor, f"__i{_name}__", _in_place(_name, _function))

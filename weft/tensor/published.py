"""Elementwise ops as public functions and methods: made of what their declarations say of their public side.

Operators and rules call the ops directly; these add what a caller by name needs: a signature, a text, and an
error in weft's form for a call that does not fit. ``weft.tensor.functions`` has them by their names.
``x.exp()`` is ``weft.exp(x)``; ``x.exp_()`` rebinds x to it, and returns x.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.tracebacks import hide_weft
from weft.errors import WeftError
from weft.ops import arithmetic, compare, exponential, gamma, rounding, special, trigonometric  # noqa: F401
from weft.ops import complex as complexes  # noqa: F401 - the modules that declare what is public at once
from weft.ops.op import OPS, Op, Operand
from weft.tensor.fast import MISSING, build, with_options
from weft.tensor.operators import rebind
from weft.tensor.tensor import Tensor
from weft.tensor.ufunc_methods import with_methods

Function = Callable[..., Any]
FUNCTIONS: dict[str, Function] = {}  # by each of their names
UFUNCS: dict[Any, Function] = {}  # NumPy's ufuncs, each with the function of the same meaning
__test__: dict[str, str] = {}  # the examples, where doctest finds them


def publish(op: Op) -> None:
    """Make an op a function under all names that it declares, and methods of them if it says so."""
    if op.public is None:
        return
    names = op.public.names or (op.name,)
    if op.public.options is not None:  # so that errors name it as users do
        op.public.options.__name__ = op.public.options.__qualname__ = names[0]
    function: Function = _of_one(op) if len(op.inputs) == 1 else _of_two(op)
    function.__name__ = function.__qualname__ = names[0]
    function.__module__ = "weft.tensor.functions"
    __test__[names[0]] = function.__doc__ = op.public.docstring(names[0])
    ufunc = op.public.ufunc or op.eval
    if isinstance(ufunc, np.ufunc):
        UFUNCS[ufunc] = function
    if len(op.inputs) == 2:
        with_methods(names[0], function)
    for name in names:
        FUNCTIONS[name] = function
        if op.public.is_method:
            attach(name, function)


def attach(name: str, function: Function) -> None:
    """Make a function a method of Tensor, and one that works in place."""
    setattr(Tensor, name, function)
    setattr(Tensor, f"{name}_", in_place(f"{name}_", function))


def in_place(name: str, function: Function) -> Function:
    """The method that rebinds a tensor to what a function gives of it."""

    def method(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        try:
            out: Tensor = rebind(self, name, function(self, *args, **kwargs))
        except WeftError as error:
            hide_weft(error)
            raise
        return out

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"``{name[:-1]}`` in place: rebinds the tensor to the result, and returns it."
    return method


def _of_one(op: Op) -> Function:
    op.on_tensors = function = build(op)
    function.__wrapped__ = op.public.options or _one  # type: ignore[attr-defined,union-attr]
    return function


def _of_two(op: Op) -> Function:
    """Apart from the op's own function, which operators share, so that these do not pay for the check."""

    def function(x1: Operand = MISSING, x2: Operand = MISSING, /, *more: object, **unknown: object) -> Any:
        try:
            if more or unknown:
                return with_options(op, (x1, x2, *more), unknown)
            return op.on_tensors(x1, x2)
        except WeftError as error:
            hide_weft(error)
            raise

    function.__wrapped__ = op.public.options or _two  # type: ignore[attr-defined,union-attr]
    return function


def _one(x: Operand, /) -> Tensor:  # type: ignore[empty-body]
    """The signature that tools see of a function of one tensor."""


def _two(x1: Operand, x2: Operand, /) -> Tensor:  # type: ignore[empty-body]
    """The signature that tools see of a function of two tensors."""


for _op in OPS.values():
    publish(_op)

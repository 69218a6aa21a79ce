"""The public functions that are ops as they stand: each elementwise op as a function on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ops import elementwise
from weft.ops.op import Op
from weft.tensor.dispatch import build


def public(op: Op) -> Callable[..., Any]:
    """The function on tensors of an op, built now."""
    op.on_tensors = build(op)
    return op.on_tensors


add = public(elementwise.add)
subtract = sub = public(elementwise.sub)
multiply = mul = public(elementwise.mul)
divide = div = public(elementwise.div)
negative = neg = public(elementwise.neg)
exp = public(elementwise.exp)
log = public(elementwise.log)
sqrt = public(elementwise.sqrt)
tanh = public(elementwise.tanh)
equal = public(elementwise.equal)

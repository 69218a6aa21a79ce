"""Marks: of which operands a value was computed in this run, as truth values that flow beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import bool_, kind
from weft.ir.types import TensorType
from weft.ops import compare, control
from weft.ops.op import NoGradient, Op
from weft.ops.stop import when_chosen
from weft.ops.view.primitives import broadcast_to
from weft.tensor.choices import Truth
from weft.tensor.dispatch import apply, captured_constant
from weft.tensor.tensor import Tensor, wrap
from weft.transform.control.forward import Beside, push_branches, push_scan, push_while
from weft.transform.control.regions import has_partial
from weft.transform.forward import Dual
from weft.transform.levels import Traced


def told_by_marks(
    pairs: Sequence[tuple[int, int]],
    push: Callable[[list[Any], Marks], tuple[Sequence[Any], Sequence[Any]]],
    operands: Sequence[Tensor],
    first: int,
) -> list[Truth]:
    """The truths of pairs of a result and an operand, by marks that are pushed along with the values.

    Args:
        pairs: of numbers.
        push: gives results of the op, and their marks, from those of all operands.
        operands: these.
        first: how many of them come before those that the numbers count.
    """
    wanted = sorted({i for _, i in pairs})
    given: list[Any] = [None] * len(operands)
    for mark, i in zip(np.eye(len(wanted), dtype=bool_), wanted, strict=True):
        given[first + i] = captured_constant(mark)
    _, found = push(given, Marks(len(wanted)))
    return [False if found[k] is None else found[k][wanted.index(i)] for k, i in pairs]


class Marked(Dual):
    """A value, and of which operands it was computed: a truth value for each (None stands for none)."""

    __slots__ = ()

    def interpret(self, op: Op, inputs: Sequence[Tensor], attrs: dict[str, Any]) -> tuple[Any, ...]:
        """Run op on the values, and join their marks."""
        level = self.level
        pairs = [_MARKS.take(level, t) for t in inputs]
        primals, marks = [p for p, _ in pairs], [m for _, m in pairs]
        beside = Marks(next(m.shape[0] for m in marks if m is not None))
        outs, pushed = _push(op, primals, marks, beside, attrs)
        return tuple(
            Marked(level, o, m) if m is not None and kind(o.dtype) in "fc" else o._data
            for o, m in zip(outs, pushed, strict=True)
        )

    def lift(self, constant: Tensor) -> Tensor:
        """A constant as a tensor of the same transform."""
        return wrap(Marked(self.level, constant, None), constant._node)

    def map(self, function: Callable[[Tensor], Tensor]) -> Marked:
        """Value and marks after a function that keeps their values."""
        return Marked(self.level, function(self.primal), self.tangent)


def _push(
    op: Op, primals: list[Tensor], marks: list[Any], beside: Marks, attrs: dict[str, Any]
) -> tuple[Sequence[Any], Sequence[Any]]:
    """The outputs of an op, and their marks."""
    if op in (control.cond, control.switch):
        return push_branches(op, primals, marks, beside, **attrs, with_values=True)
    if op is control.while_loop:
        return push_while(primals, marks, beside, **attrs)
    if op is control.scan:
        return push_scan(primals, marks, beside, **attrs)
    result = apply(op, primals, attrs)
    outs = result if op.outputs != 1 else (result,)
    return outs, [_joined(op, primals, marks)] * len(outs)


def _joined(op: Op, primals: list[Tensor], marks: list[Any]) -> Tensor | None:
    """The mark of what an op without regions gives."""
    if isinstance(op.vjp, NoGradient):
        return None
    if op is when_chosen:
        return None if marks[0] is None else compare.logical_and(marks[0], primals[1])
    joined = None
    for i, m in enumerate(marks):
        if m is not None and has_partial(op, i):
            joined = m if joined is None or joined is m else compare.logical_or(joined, m)
    return joined


class Marks(Beside):
    """Truth values that flow beside values, one for each of some operands."""

    def __init__(self, count: int) -> None:
        self._count = count

    def put(self, level: int, primal: Tensor, beside: Tensor) -> Traced:
        """Data that stand for a value with its marks."""
        return Marked(level, primal, beside)

    def type_of(self, t: TensorType) -> TensorType:
        """One truth value for each operand."""
        return TensorType((self._count,), bool_)

    def nothing(self, t: TensorType) -> Tensor:
        """No operand."""
        return captured_constant(np.zeros(self._count, bool_))

    def in_rows(self, beside: Tensor, length: object) -> Tensor:
        """The same for each row."""
        return broadcast_to(beside, shape=(length, self._count))

    def of_rows(self, beside: Tensor) -> Tensor:
        """A stack is computed from what one of its rows is."""
        return beside.any(axis=0)


_MARKS = Marks(0)

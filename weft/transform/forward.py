"""Forward mode: dual numbers, which push a tangent through an op along with its value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from weft.base.device import Device
from weft.base.dtypes import kind
from weft.base.public import parameters
from weft.errors import GradientError
from weft.ops.op import NoGradient, Op
from weft.ops.view.primitives import broadcast_to
from weft.tensor.dispatch import apply, declared_rule, filled_like, recording, wrap
from weft.tensor.engine import run_backward
from weft.tensor.mode import running_levels
from weft.tensor.node import Leaf
from weft.tensor.rules import multiply_gated, multiply_unless_zero
from weft.tensor.tensor import Tensor
from weft.transform.levels import Traced


class Dual(Traced):
    """A value and its tangent (None stands for zero)."""

    __slots__ = ("primal", "tangent")

    place = "jvp"

    def __init__(self, level: int, primal: Tensor, tangent: Tensor | None) -> None:
        self.level = level
        self.primal = primal
        self.tangent = tangent

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return self.primal.shape

    @property
    def device(self) -> Device:
        """Where the value is."""
        return self.primal.device

    @property
    def dtype(self) -> Any:
        """Dtype of the value."""
        return self.primal.dtype

    @property
    def size(self) -> int:
        """Number of elements of the value."""
        return self.primal.size

    def interpret(self, op: Op, inputs: Sequence[Tensor], attrs: dict[str, Any]) -> tuple[Any, ...]:
        """Run op on the values, and its derivative on the tangents."""
        level = self.level
        if level not in running_levels:
            raise self.escaped(op.name)
        primals: list[Tensor] = []
        tangents: list[Tensor | None] = []
        for t in inputs:
            data = t._data
            ours = type(data) is Dual and data.level == level
            primals.append(data.primal if ours else t)
            tangents.append(data.tangent if ours else None)
        result = apply(op, primals, attrs)
        outs = result if op.outputs != 1 else (result,)
        if not recording():  # results are constants, to this transform as to the tape
            return tuple(o._data for o in outs)
        pushed = push_forward(op, primals, tangents, outs, attrs)
        return tuple(self._output(o, t) for o, t in zip(outs, pushed, strict=True))

    def _output(self, value: Tensor, tangent: Tensor | None) -> Any:
        """Truth values and integers have no tangent, and need not be traced: Python may decide on them."""
        return Dual(self.level, value, tangent) if kind(value.dtype) in "fc" else value._data

    def lift(self, constant: Tensor) -> Tensor:
        """A constant as a tensor of the same transform, in the graph it was in."""
        return wrap(Dual(self.level, constant, None), constant._node)

    def map(self, function: Callable[[Tensor], Tensor]) -> Dual:
        """Value and tangent after a function that keeps their values."""
        tangent = None if self.tangent is None else function(self.tangent)
        return Dual(self.level, function(self.primal), tangent)

    def detached(self) -> Any:
        """The value alone, a constant."""
        return self.primal._value()._data

    def concrete(self, op: str) -> Any:
        """The array, which is known, though its derivative is lost where Python takes it."""
        if op == "numpy" and recording():
            message = "the tensor must not be differentiated, got one inside jvp"
            raise GradientError(op, message, hint="use .detach().numpy()")
        return self.primal._array(op)


Tangents = Sequence[Tensor | None]


def push_forward(
    op: Op, primals: list[Tensor], tangents: Tangents, outs: Tangents, attrs: dict[str, Any]
) -> Tangents:
    """The tangents of an op's outputs."""
    if isinstance(op.vjp, NoGradient) or all(t is None for t in tangents):
        return [None] * len(outs)
    if op.jvp is not None and (op.partials is None or kind(primals[0].dtype) == "c"):
        pushed = op.jvp(primals, tangents, outs if op.outputs != 1 else outs[0], **attrs)
        return pushed if op.outputs != 1 else [pushed]
    if op.linear == "joint":
        return [op(*_or_zeros(primals, tangents), **attrs)]
    if op.linear == "each":
        given = [(i, t) for i, t in enumerate(tangents) if t is not None]
        return [_sum([op(*primals[:i], t, *primals[i + 1 :], **attrs) for i, t in given])]
    if op.partials is not None:
        pushes, values = zip(_pushes(op), tangents, strict=True), (*primals, outs[0])
        total = _sum([push(t, values) for push, t in pushes if t is not None])
        assert outs[0] is not None
        return [total if total.shape == outs[0].shape else broadcast_to(total, shape=outs[0].shape)]
    return [transposed_vjp(op, primals, tangents, outs, attrs, k) for k in range(len(outs))]


def _sum(terms: list[Any]) -> Any:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _or_zeros(primals: list[Tensor], tangents: Tangents) -> list[Any]:
    """Tangents, with zeros for the missing ones; inputs that have no tangent (masks, indices) as they are."""
    return [
        t if t is not None else filled_like(p, 0) if kind(p.dtype) in "fc" else p
        for p, t in zip(primals, tangents, strict=True)
    ]


@cache
def _pushes(op: Op) -> tuple[Callable[[Any, Sequence[Any]], Any], ...]:
    """By input, the function from its tangent and (*inputs, output) to its share of the output tangent."""
    names = (*op.inputs, "out")
    return tuple(_push(op, p, names) for p in op.partials or ())


def _push(op: Op, partial: object, names: tuple[str, ...]) -> Callable[[Any, Sequence[Any]], Any]:
    if not callable(partial):
        return lambda t, values: t if partial == 1 else -t if partial == -1 else t * partial
    positions = [names.index(n) for n in parameters(partial)[0]]
    if op.gated:
        return lambda t, values: multiply_gated(t, partial(*[values[i] for i in positions]))
    if op.singular:
        return lambda t, values: multiply_unless_zero(t, partial(*[values[i] for i in positions]))
    return lambda t, values: t * partial(*[values[i] for i in positions])


def transposed_vjp(
    op: Op, primals: list[Tensor], tangents: Tangents, outs: Tangents, attrs: dict[str, Any], k: int
) -> Tensor | None:
    """The tangent of output k of an op that declares only a vjp.

    A vjp is linear in the gradient u, so its own vjp, by u, is the map we want.
    """
    if kind(outs[k].dtype) not in "fc":  # type: ignore[union-attr]
        return None
    rule, plan = declared_rule(op)
    saved = plan.save(primals, outs, attrs)
    seeds = [wrap(filled_like(o, 1)._data) for o in outs if o is not None]
    seeds[k]._node = leaf = Leaf(seeds[k])
    edges = tuple(None if t is None else leaf for t in tangents)
    grads = rule.run(seeds if op.outputs != 1 else seeds[0], saved, edges)
    roots = [
        (g._node, t)
        for g, t in zip(grads, tangents, strict=True)
        if t is not None and g is not None and g._node
    ]
    if not roots:
        return None
    found: Tensor | None = run_backward(roots, retain_graph=True, create_graph=True, targets=[leaf])[0]
    return found

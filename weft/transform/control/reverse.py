"""Gradients of control flow: by differentiating its regions.

The gradient of a loop is two loops: the same one with a body that also gives what the gradient of each
iteration needs, and one in the opposite order that runs the gradient of the body. Both are ordinary ops, so
higher orders need nothing more. Rules run on arrays and on tensors alike.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import bool_
from weft.ir.graph import Graph, Value
from weft.ir.order import sizes_needed, sizes_of
from weft.ir.rewrite import map_regions
from weft.ir.types import TensorType
from weft.ops import control
from weft.ops.op import Op
from weft.tensor.tensor import Tensor
from weft.transform.control.regions import (
    Values,
    active_inputs,
    inputs_behind,
    inputs_behind_loop,
    is_smooth,
    reached_outputs,
    split_groups,
    trace_closed,
    types_of,
    zeros,
)
from weft.transform.control.segments import Segments, WhileSegments, states_kept
from weft.transform.fresh import fresh_size
from weft.transform.joint import Derivative, differentiate
from weft.transform.tracing import replay


def _derivative(
    graph: Graph, wrt: Sequence[int], free: Collection[int], seeded: Collection[int]
) -> Derivative:
    """A region split in two; what has a size that only its inside knows is computed again, not kept."""
    found = differentiate(graph, wrt, free=free, seeded=seeded)
    if sizes_needed(found.backward) <= sizes_of(graph.inputs):
        return found
    return differentiate(graph, wrt, free=free, seeded=seeded, recompute=True)


def _listed(gradients: Any, count: int) -> list[Any]:
    """The gradients of all outputs; the engine gives that of a single one by itself."""
    return [gradients] if count == 1 and not isinstance(gradients, list | tuple) else list(gradients)


def _spread(count: int, places: Sequence[int], items: Sequence[Any]) -> list[Any]:
    """A list with items at places, None elsewhere."""
    out: list[Any] = [None] * count
    for i, item in zip(places, items, strict=True):
        out[i] = item
    return out


# Loops


def _without_effects(region: Graph) -> Graph:
    """A region that is run again for its residuals: what it prints and checks, the loop itself does."""
    nodes = [map_regions(n, _without_effects) for n in region.nodes if n.outputs or n.is_pure]
    return region.replace(nodes=nodes) if nodes != list(region.nodes) else region


class Reverse:
    """A loop and its reverse: what is differentiated, and what the first hands over to the second.

    Attributes:
        forward: the body that also gives what is to be stacked: residuals, and some carries as they come in.
        stacks: how many values that are.
        marks: the type of one more, if there is no other that tells how many iterations there were.
    """

    def __init__(
        self, body: Graph, carries: int, rows: int, gradients: Values, needed: Sequence[bool]
    ) -> None:
        self.body = body
        self.gradients = gradients
        asked = [k for k, g in enumerate(gradients) if g is not None]
        active = active_inputs(body, carries, [i for i, n in enumerate(needed) if n])
        active &= inputs_behind_loop(body, carries, asked)
        fixed = carries + rows  # where the operands begin that stay the same
        self.carries, self.rows, self.fixed = _in_three(sorted(active), carries, fixed)
        reached = reached_outputs(body, active)
        self.collected = [
            k for k in range(carries, len(body.outputs)) if k in reached and gradients[k] is not None
        ]
        self.wrt = [*self.carries, *self.fixed, *self.rows]
        seeded = [*self.carries, *self.collected]
        self.derivative = _derivative(body, self.wrt, range(carries, len(body.inputs)), seeded)
        self.kept_carries, self.kept_rows, self.kept_fixed = _in_three(self.derivative.kept, carries, fixed)
        graph = _without_effects(self.derivative.forward)
        self.forward = graph.replace(outputs=[*graph.outputs, *[graph.inputs[i] for i in self.kept_carries]])
        self.stacks = self.derivative.saved + len(self.kept_carries)
        self.marks: list[TensorType] = []

    def mark(self) -> None:
        """Let something be stacked, so that the number of iterations has an array to be read from."""
        if self.stacks == 0:
            self.marks, self.stacks = [TensorType((), bool_)], 1
            mark, forward = Value(self.marks[0]), self.forward
            constants = {**forward.constants, mark: np.asarray(True)}
            self.forward = forward.replace(outputs=[*forward.outputs, mark], constants=constants)

    def run(
        self, operands: Values, stacks: Values, steps: Values, length: object, reverse: bool
    ) -> list[Any]:
        """The gradients of the operands, None where none is needed, from what the first loop handed over."""
        if not self.carries and not self.collected:
            return [None] * len(self.body.inputs)
        given = [self.gradients[k] for k in self.collected]
        return self.spread(self.sweep(self.starts(), operands, stacks, given, steps, length, reverse))

    def starts(self) -> list[Any]:
        """The gradients of what the loop ends with, then zeros for those of what stays the same."""
        inputs = self.body.inputs
        ends = [zeros(inputs[i].type) if (g := self.gradients[i]) is None else g for i in self.carries]
        return [*ends, *[zeros(inputs[i].type) for i in self.fixed]]

    def sweep(
        self,
        starts: Values,
        operands: Values,
        stacks: Values,
        collected: Values,
        steps: Values,
        length: object,
        reverse: bool,
    ) -> list[Any]:
        """The gradients of the carries, of what stays the same, and of the rows, after the way back.

        Args:
            starts: the gradients of the first two before it.
            operands: of the loop.
            stacks: what the first loop handed over.
            collected: the gradients of what it collected.
            steps: how many iterations there were, in a tuple, or nothing.
            length: of the stacks.
            reverse: go from the last row to the first.
        """
        along = [*stacks, *[operands[i] for i in self.kept_rows], *collected]
        outs = control.scan(
            *steps,
            *starts,
            *along,
            *[operands[i] for i in self.kept_fixed],
            body=self._body(),
            carries=len(starts),
            mapped=len(along),
            length=length,
            reverse=reverse,
            counted=bool(steps),
            checkpoint_every=None,
        )
        return list(outs)

    def spread(self, found: Values) -> list[Any]:
        """What ``sweep`` gives by operand, None where no gradient is needed."""
        return _spread(len(self.body.inputs), self.wrt, found)

    def _body(self) -> Graph:
        """From the gradients so far and what one iteration handed over to the gradients before it."""
        body, derivative = self.body, self.derivative
        moving = [*self.kept_carries, *self.kept_rows]
        groups = [
            types_of(body.inputs[i] for i in self.carries),
            types_of(body.inputs[i] for i in self.fixed),
            types_of(derivative.backward.inputs[: derivative.saved]),
            [*types_of(body.inputs[i] for i in moving), *self.marks],
            types_of(body.outputs[k] for k in self.collected),
            types_of(body.inputs[i] for i in self.kept_fixed),
        ]

        def function(*given: Tensor) -> list[Any]:
            coming, sums, residuals, items, collected, same = split_groups(given, groups)
            held = dict(zip([*moving, *self.kept_fixed], [*items[: len(moving)], *same], strict=True))
            kept = [held[i] for i in derivative.kept]
            grads = replay(derivative.backward, [*residuals, *kept, *coming, *collected])
            before, parts, rows = split_groups(grads, [self.carries, self.fixed, self.rows])
            return [*before, *[total + part for total, part in zip(sums, parts, strict=True)], *rows]

        return trace_closed(function, [t for group in groups for t in group], f"{body.name}_backward")


def _in_three(numbers: Sequence[int], first: int, second: int) -> tuple[list[int], list[int], list[int]]:
    """Numbers below the first bound, from there below the second, and the rest."""
    return (
        [i for i in numbers if i < first],
        [i for i in numbers if first <= i < second],
        [i for i in numbers if i >= second],
    )


def scan_vjp(
    g: object,
    xs: Values,
    body: Graph,
    carries: int,
    mapped: int,
    length: object,
    reverse: bool,
    counted: bool,
    checkpoint_every: int | None,
    needed: Sequence[bool],
) -> list[Any]:
    """The gradients of the operands of a scan."""
    first = int(counted)
    back = Reverse(body, carries, mapped, _listed(g, len(body.outputs)), needed[first:])
    checkpoint_every = states_kept(length, checkpoint_every)
    if checkpoint_every is not None and back.stacks and length != 0 and (back.carries or back.collected):
        segments = Segments(back, carries, mapped, length, reverse, counted, checkpoint_every)
        return [*[None] * first, *segments.run(xs)]
    stacks: Values = ()
    if back.stacks:
        outs = control.scan(
            *xs,
            body=back.forward,
            carries=carries,
            mapped=mapped,
            length=length,
            reverse=reverse,
            counted=counted,
            checkpoint_every=None,
        )
        stacks = outs[len(body.outputs) :]  # type: ignore[assignment]
    return [*[None] * first, *back.run(xs[first:], stacks, xs[:first], length, not reverse)]


def while_vjp(
    g: object,
    xs: Values,
    test: Graph,
    body: Graph,
    carries: int,
    trips: object,
    checkpoint_every: int | None,
    needed: Sequence[bool],
) -> list[Any]:
    """The gradients of the operands of a while loop."""
    given = len(body.outputs)
    gradients = _listed(g, given if trips is None else given + 1)[:given]
    back = Reverse(body, carries, 0, gradients, needed)
    back.mark()
    checkpoint_every = states_kept(None, checkpoint_every)
    if checkpoint_every is not None and trips is None and back.carries:
        return WhileSegments(back, test, carries, checkpoint_every).run(xs)
    outs = control.while_loop(
        *xs,
        test=test,
        body=back.forward,
        carries=carries,
        trips=fresh_size() if trips is None else trips,
        checkpoint_every=None,
    )
    stacks, count = outs[given:-1], outs[-1]
    return back.run(xs, stacks, (count,), stacks[0].shape[0], True)  # type: ignore[arg-type]


# Branches


def branch_vjp(
    op: Op, g: object, index: object, xs: Values, branches: Sequence[Graph], needed: Sequence[bool]
) -> list[Any]:
    """The gradients of the operands of ``cond`` or ``switch``: those of the branch that ran."""
    first = branches[0].outputs
    gradients = _listed(g, len(first))
    seeded = [k for k, v in enumerate(first) if is_smooth(v) and gradients[k] is not None]
    behind = set[int]().union(*[inputs_behind(b, seeded) for b in branches])
    wrt = [i for i, n in enumerate(needed[1:]) if n and i in behind]
    parts = [_BranchParts(b, wrt, seeded) for b in branches]
    types = _share_places(parts)
    stacks: Values = ()
    if types:
        stacks = op(index, *xs, branches=tuple(p.forward(types) for p in parts))[len(first) :]  # type: ignore[assignment]
    kept = sorted({i for p in parts for i in p.derivative.kept})
    backwards = tuple(p.backward(types, kept) for p in parts)
    given = [*stacks, *[xs[i] for i in kept], *[gradients[k] for k in seeded]]
    return [None, *_spread(len(xs), wrt, op(index, *given, branches=backwards))]  # type: ignore[arg-type]


class _BranchParts:
    """A branch split in two.

    Attributes:
        places: where its residuals go among what all branches hand over.
    """

    def __init__(self, branch: Graph, wrt: Sequence[int], seeded: Sequence[int]) -> None:
        self.branch = branch
        self.seeded = seeded
        self.derivative = _derivative(branch, wrt, range(len(branch.inputs)), seeded)
        self.residuals = types_of(self.derivative.backward.inputs[: self.derivative.saved])
        self.places: list[int] = []

    def forward(self, types: Sequence[TensorType]) -> Graph:
        """The branch that also gives its residuals, and zeros at the places of the others'."""
        count = len(self.branch.outputs)

        def function(*given: Tensor) -> list[Any]:
            outs = replay(_without_effects(self.derivative.forward), given)
            saved = dict(zip(self.places, outs[count:], strict=True))
            return [*outs[:count], *[saved[i] if i in saved else zeros(t) for i, t in enumerate(types)]]

        return trace_closed(function, types_of(self.branch.inputs), self.branch.name)

    def backward(self, types: Sequence[TensorType], kept: Sequence[int]) -> Graph:
        """The gradient of the branch, from what all branches handed over."""
        branch = self.branch
        groups = [
            types,
            types_of(branch.inputs[i] for i in kept),
            types_of(branch.outputs[k] for k in self.seeded),
        ]

        def function(*items: Tensor) -> list[Any]:
            stacks, values, gradients = split_groups(items, groups)
            held = dict(zip(kept, values, strict=True))
            given = [*[stacks[i] for i in self.places], *[held[i] for i in self.derivative.kept], *gradients]
            return replay(self.derivative.backward, given)

        return trace_closed(function, [t for group in groups for t in group], f"{branch.name}_backward")


def _share_places(parts: Sequence[_BranchParts]) -> list[TensorType]:
    """Give the residuals of each branch places, shared where types agree; the types of the places."""
    types: list[TensorType] = []
    for part in parts:
        free = list(range(len(types)))
        for t in part.residuals:
            at = next((i for i in free if types[i] == t), len(types))
            if at == len(types):
                types.append(t)
            else:
                free.remove(at)
            part.places.append(at)
    return types

"""Gradients of loops that keep every k-th state alone: two levels of reversal.

The first loop writes the state at the start of each segment of k iterations into an array. The way back goes
from segment to segment: it runs the k iterations again, keeping all that their gradients need, and then runs
these. Sums are added up in the order in which the plain way back does it, so the bits are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.dtypes import int64
from weft.base.sizes import Size
from weft.ir.graph import Graph
from weft.ir.types import TensorType
from weft.ops import control
from weft.ops.arithmetic import maximum, minimum
from weft.ops.index import gather_nd, scatter_nd
from weft.ops.size import count_to, size_value
from weft.ops.view.primitives import broadcast_to, reshape
from weft.ops.view.slices import slice_axis
from weft.tensor.dispatch import captured_constant
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.control.regions import Values, split_groups, trace_closed, types_of
from weft.transform.tracing import replay

if TYPE_CHECKING:
    from weft.transform.control.reverse import Reverse

_NUMBER = TensorType((), int64)


class Segments:
    """A scan and its way back by segments.

    Args:
        back: the loop and its reverse, of one iteration.
        carries, mapped, length, reverse, counted: of the scan.
        every: how many iterations a segment has.
    """

    def __init__(
        self, back: Reverse, carries: int, mapped: int, length: Any, reverse: bool, counted: bool, every: int
    ) -> None:
        self.back = back
        self.carries, self.mapped, self.length = carries, mapped, length
        self.reverse, self.counted = reverse, counted
        self.every = every if isinstance(length, Size) else min(every, length)
        self.count = (length + self.every - 1) // self.every
        types = types_of(back.body.inputs)
        self.states, self.rows, self.same = split_groups(
            types, [range(carries), range(mapped), range(len(types) - carries - mapped)]
        )
        whole = not isinstance(length, Size) and length % self.every == 0
        self.partial = counted or not whole  # whether a segment may be shorter

    def run(self, xs: Values) -> list[Any]:
        """The gradients of the operands, None where none is needed."""
        first = int(self.counted)
        operands = xs[first:]
        steps = xs[0] if self.counted else _constant(size_value(self.length, int64))
        steps = _cast(steps)
        kept = self._keep_starts(steps, xs[:first], operands)
        back = self.back
        starts = back.starts()
        numbers = _constant(count_to(self.count, int64))
        along = operands[self.carries : self.carries + self.mapped]
        collected = [back.gradients[k] for k in back.collected]
        outs = control.scan(
            *starts,
            numbers,
            *kept,
            steps,
            *along,
            *operands[self.carries + self.mapped :],
            *collected,
            body=self._segment(),
            carries=len(starts),
            mapped=1 + len(kept),
            length=self.count,
            reverse=not self.reverse,
            counted=False,
        )
        found = [*outs[: len(starts)], *map(self._joined, outs[len(starts) :])]  # type: ignore[index]
        return back.spread(found)

    def _joined(self, stack: Any) -> Any:
        """The rows of all segments, one after another."""
        shape = stack.shape
        flat = reshape(stack, shape=(shape[0] * shape[1], *shape[2:]))
        return slice_axis(flat, 0, 0, self.length) if self.partial else flat

    # The first loop

    def _keep_starts(self, steps: Any, counts: Values, operands: Values) -> list[Any]:
        """For each carry the array of its values at the start of each segment."""
        inits, rest = operands[: self.carries], operands[self.carries :]
        held = [
            broadcast_to(reshape(x, shape=(1, *x.shape)), shape=(self.count + 1, *x.shape)) for x in inits
        ]
        number = steps - 1 if self.reverse else _constant(np.zeros((), int64))
        outs = control.scan(
            *counts,
            *inits,
            number,
            *held,
            *rest,
            body=self._keeping(),
            carries=2 * self.carries + 1,
            mapped=self.mapped,
            length=self.length,
            reverse=self.reverse,
            counted=self.counted,
        )
        kept = outs[self.carries + 1 : 2 * self.carries + 1]  # type: ignore[index]
        low = 1 if self.reverse else 0
        return [slice_axis(x, 0, low, self.count + low) for x in kept]

    def _keeping(self) -> Graph:
        """The body that also writes the state down; what stays is that of the first turn of a segment.

        A turn writes to the place of the next segment, which those after it write over, up to its first.
        """
        body, every, count = self.back.body, self.every, self.carries
        held = [TensorType((self.count + 1, *t.shape), t.dtype) for t in self.states]
        groups = [self.states, [_NUMBER], held, [*self.rows, *self.same]]

        def function(*given: Tensor) -> list[Any]:
            state, (number,), kept, rest = split_groups(given, groups)
            place = (number + 1) // every if self.reverse else (number + (every - 1)) // every
            after = replay(body, [*state, *rest])
            kept = [scatter_nd.on_tensors(x, s, place) for x, s in zip(kept, state, strict=True)]
            step = number - 1 if self.reverse else number + 1
            return [*after[:count], step, *kept, *after[count:]]

        return trace_closed(function, [t for group in groups for t in group], body.name)

    # The way back

    def _segment(self) -> Graph:
        """From the gradients so far to those before a segment, which is run again."""
        back, every = self.back, self.every
        body = back.body
        arrays = [TensorType((self.length, *t.shape), t.dtype) for t in self.rows]
        stacks = [body.outputs[k].type for k in back.collected]
        groups: list[Sequence[TensorType]] = [
            types_of(body.inputs[i] for i in (*back.carries, *back.fixed)),
            [_NUMBER],
            self.states,
            [_NUMBER],
            arrays,
            self.same,
            [TensorType((self.length, *t.shape), t.dtype) for t in stacks],
        ]

        def function(*given: Tensor) -> list[Any]:
            starts, (number,), state, (steps,), along, same, collected = split_groups(given, groups)
            first = number * every
            places = first + captured_constant(np.arange(every, dtype=int64))
            if self.partial:
                last = _constant(size_value(self.length, int64)) - 1
                places = minimum(places, last)
            rows = [gather_nd(x, places) for x in along]
            counts = [maximum(minimum(steps - first, every), 0)] if self.partial else []
            again = control.scan(
                *counts,
                *state,
                *rows,
                *same,
                body=back.forward,
                carries=self.carries,
                mapped=self.mapped,
                length=every,
                reverse=self.reverse,
                counted=self.partial,
            )
            saved = again[len(body.outputs) :]  # type: ignore[index]
            gradients = [gather_nd(x, places) for x in collected]
            operands = [*state, *rows, *same]
            return back.sweep(starts, operands, saved, gradients, counts, every, not self.reverse)

        types = [t for group in groups for t in group]
        return trace_closed(function, types, f"{body.name}_segment")


def _constant(x: Any) -> Any:
    """An array as a constant of the graph, if there is one that it goes into."""
    return captured_constant(x) if isinstance(x, np.ndarray) and thread.capture is not None else x


def _cast(x: Any) -> Any:
    return x if x.dtype == int64 else x.astype(int64)

"""Gradients of loops that keep every k-th state alone: two levels of reversal.

The first loop writes the state at the start of each segment of k iterations into an array. The way back goes
from segment to segment: it runs the k iterations again, keeping all that their gradients need, and then runs
these. Sums are added up in the order in which the plain way back does it, so the bits are the same.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil, sqrt
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
from weft.transform.fresh import fresh_size
from weft.transform.tracing import replay

if TYPE_CHECKING:
    from weft.transform.control.reverse import Reverse

_NUMBER = TensorType((), int64)
_FEW = 8  # iterations of a loop that is short enough to keep all of its states
_OPEN = 32  # iterations at a time, where only a run tells how many there are


class _Keeping(threading.local):
    few = False


_keeping = _Keeping()


@contextmanager
def keeping_few_states() -> Iterator[None]:
    """Let the gradients of loops that say nothing of it keep as many states as the root of their turns."""
    before, _keeping.few = _keeping.few, True
    try:
        yield
    finally:
        _keeping.few = before


def states_kept(length: Any, every: int | None) -> int | None:
    """Of how many turns a loop of a length keeps one state: as it says, or as is chosen for it."""
    if every is not None or not _keeping.few:
        return every
    if not isinstance(length, int):
        return _OPEN
    return ceil(sqrt(length)) if length > _FEW else None


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
        outs: Any = control.scan(
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
            checkpoint_every=None,
        )
        found = [*outs[: len(starts)], *map(self._joined, outs[len(starts) :])]
        return back.spread(found)

    def _joined(self, stack: Tensor) -> Tensor:
        """The rows of all segments, one after another."""
        shape = stack.shape
        flat = reshape(stack, shape=(shape[0] * shape[1], *shape[2:]))
        return slice_axis(flat, 0, 0, self.length) if self.partial else flat

    # The first loop

    def _keep_starts(self, steps: Tensor, counts: Values, operands: Values) -> list[Tensor]:
        """For each carry the array of its values at the start of each segment."""
        inits, rest = operands[: self.carries], operands[self.carries :]
        held = [
            broadcast_to(reshape(x, shape=(1, *x.shape)), shape=(self.count + 1, *x.shape)) for x in inits
        ]
        number = steps - 1 if self.reverse else _constant(np.zeros((), int64))
        outs: Any = control.scan(
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
            checkpoint_every=None,
        )
        kept = outs[self.carries + 1 : 2 * self.carries + 1]
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
            again: Any = control.scan(
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
                checkpoint_every=None,
            )
            saved = again[len(body.outputs) :]
            gradients = [gather_nd(x, places) for x in collected]
            operands = [*state, *rows, *same]
            return back.sweep(starts, operands, saved, gradients, counts, every, not self.reverse)

        types = [t for group in groups for t in group]
        return trace_closed(function, types, f"{body.name}_segment")


class WhileSegments:
    """A while loop and its way back by segments.

    Args:
        back: the loop and its reverse, of one iteration.
        test: whether the loop goes on.
        carries: how many operands it changes.
        every: how many iterations a segment has; the last one may have fewer.
    """

    def __init__(self, back: Reverse, test: Graph, carries: int, every: int) -> None:
        self.back, self.test, self.carries, self.every = back, test, carries, every
        self.types = types_of(back.body.inputs)

    def run(self, xs: Values) -> list[Any]:
        """The gradients of the operands, None where none is needed."""
        outs: Any = control.while_loop(
            *xs,
            test=self.test,
            body=self._keeping(),
            carries=self.carries,
            trips=fresh_size(),
            checkpoint_every=None,
        )
        kept, count = outs[self.carries : -1], outs[-1]
        starts = self.back.starts()
        found: Any = control.scan(
            count,
            *starts,
            *kept,
            *xs[self.carries :],
            body=self._segment(),
            carries=len(starts),
            mapped=len(kept),
            length=kept[0].shape[0],
            reverse=True,
            counted=True,
            checkpoint_every=None,
        )
        return self.back.spread(found)

    def _keeping(self) -> Graph:
        """A body that does the iterations of one segment, and also gives the state that it begins with."""

        def function(*given: Tensor) -> list[Any]:
            outs = self._iterations(given, self.back.body, None)
            return [*outs[: self.carries], *given[: self.carries]]

        return trace_closed(function, self.types, "chunk")

    def _segment(self) -> Graph:
        """From the gradients so far to those before a segment, which is run again."""
        back = self.back
        groups = [types_of(back.body.inputs[i] for i in (*back.carries, *back.fixed)), self.types]

        def function(*given: Tensor) -> list[Any]:
            starts, operands = split_groups(given, groups)
            outs = self._iterations(operands, back.forward, fresh_size())
            saved, count = outs[self.carries + 1 : -1], outs[-1]
            return back.sweep(starts, operands, saved, (), (count,), saved[0].shape[0], True)

        types = [t for group in groups for t in group]
        return trace_closed(function, types, f"{back.body.name}_segment")

    def _iterations(self, operands: Sequence[Tensor], body: Graph, trips: Any) -> Any:
        """A segment: as many iterations as it has, or as are left."""
        n, every = self.carries, self.every
        inner = [*self.types[:n], _NUMBER, *self.types[n:]]

        def more(*given: Tensor) -> list[Any]:
            (going,) = replay(self.test, [*given[:n], *given[n + 1 :]])
            return [going & (given[n] < every)]

        def step(*given: Tensor) -> list[Any]:
            after = replay(body, [*given[:n], *given[n + 1 :]])
            return [*after[:n], given[n] + 1, *(after[n:] if trips is not None else ())]

        return control.while_loop.on_tensors(
            *operands[:n],
            captured_constant(np.zeros((), int64)),
            *operands[n:],
            test=trace_closed(more, inner, "test"),
            body=trace_closed(step, inner, body.name),
            carries=n + 1,
            trips=trips,
            checkpoint_every=None,
        )


def _constant(x: Any) -> Any:
    """An array as a constant of the graph, if there is one that it goes into."""
    return captured_constant(x) if isinstance(x, np.ndarray) and thread.capture is not None else x


def _cast(x: Tensor) -> Tensor:
    return x if x.dtype == int64 else x.astype(int64)

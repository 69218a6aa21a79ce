"""Control flow: branches and loops with graphs of their own; sequences and optionals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import weft
from weft import Tensor
from weft.base.sizes import Size
from weft.errors import WeftError
from weft.interop.forms.elements import cut
from weft.interop.forms.loops import scanned
from weft.onnx.operators.registry import Call, UnknownValueError, enter_handlers, operator
from weft.transform.control.flat import run_while

if TYPE_CHECKING:
    from weft.onnx.scope import Body

_MOST_ROUNDS = 1000  # of a loop that is written out


@operator("If", folds=False)
def branch(call: Call, condition: Tensor, *, then_branch: Body, else_branch: Body) -> tuple[Any, ...]:
    """One of two graphs, as a condition says."""
    known = call.known(condition)
    if known is not None:
        return tuple((then_branch if known.reshape(-1)[0] else else_branch)())
    try:
        return tuple(weft.cond(condition.reshape(()), lambda: then_branch(), lambda: else_branch()))
    except UnknownValueError:
        raise
    except WeftError as error:  # of different structure or types: only one of them can be imported
        raise call.unknown(condition, "cond", because=error.message) from error


# Loops


@operator("Loop", folds=False)
def loop(call: Call, most: Tensor | None, going: Tensor | None, *states: Any, body: Body) -> tuple[Any, ...]:
    """A graph run again and again, up to a number of times, as long as a condition holds."""
    return tuple(_Loop(call, body, most, going, list(states)).run())


@dataclass
class _Loop:
    call: Call
    body: Body
    most: Tensor | None
    going: Tensor | None
    states: list[Any]

    @property
    def collected(self) -> int:
        """How many results of the body are stacked."""
        return len(self.body.output_names) - 1 - len(self.states)

    def run(self) -> list[Any]:
        """As a node of the graph where that can be, else written out, round by round."""
        if any(not isinstance(s, Tensor) for s in self.states):  # a sequence
            return self._written_out()
        try:
            return self._as_node()
        except WeftError as error:  # a state that changes its shape, or a number that must be known
            reason = error.message
        return self._written_out(reason)

    def _rounds(self, reason: str) -> int:
        """How often the body may run; an error with a reason if that is not known."""
        if self.most is None:
            return _MOST_ROUNDS
        known = self.call.known(self.most)
        if known is None:
            raise self.call.unknown(self.most, "M", because=reason)
        return int(known.reshape(-1)[0])

    # Written out

    def _written_out(self, reason: str = "the states of the loop do not keep their types") -> list[Any]:
        states, rows, going = self.states, list[list[Any]](), self.going
        for i in range(self._rounds(reason)):
            if going is not None and not self.call.values(going, "cond").reshape(-1)[0]:
                break
            if i >= _MOST_ROUNDS:
                raise self.call.error(f"a loop must end after {_MOST_ROUNDS} rounds, got more")
            number = self.call.constant(i)
            now = self.call.constant(True) if going is None else going
            going, states, given = self._outputs(self.body(number, now, *states))
            rows.append(given)
        if not rows:
            return [*states, *self._nothing_collected()]
        return [*states, *[weft.stack(list(column)) for column in zip(*rows, strict=True)]]

    def _nothing_collected(self) -> list[Any]:
        """What a loop stacks that runs not once: rows of the types that its body would give."""
        if not self.collected:
            return []
        first = self.call.constant(True) if self.going is None else self.going
        _, _, given = self._outputs(self.body(self.call.constant(0), first, *self.states))
        return [weft.zeros((0, *x.shape), dtype=x.dtype) for x in given]

    def _outputs(self, found: list[Any]) -> tuple[Any, list[Any], list[Any]]:
        count = len(self.states)
        return found[0], found[1 : 1 + count], found[1 + count :]

    # As a node

    def _as_node(self) -> list[Any]:
        known = None if self.going is None else self.call.known(self.going)
        always = self.going is None or (known is not None and bool(known.reshape(-1)[0]))
        length = self.call.sizes(self.most)
        if always and length is not None and self.body.passes_on(1, 0):
            return self._as_scan(length.reshape(-1)[0])
        return self._as_while()

    def _as_scan(self, length: Any) -> list[Any]:
        def step(states: list[Tensor], i: Tensor) -> tuple[list[Tensor], list[Tensor]]:
            _, after, given = self._outputs(self.body(i, weft.tensor(True), *states))
            return after, given

        count = length if isinstance(length, Size) else max(int(length), 0)
        states, rows = weft.scan(step, self.states, weft.arange(count))
        return [*states, *rows]

    def _as_while(self) -> list[Any]:
        first = weft.tensor(True) if self.going is None else self.going.reshape(())
        carry = [weft.tensor(0), first, *self.states]
        limit = None if self.most is None else self.most.reshape(())
        collected: list[Tensor] = []

        def test(carry: Sequence[Tensor]) -> Tensor:
            return carry[1] if limit is None else weft.logical_and(carry[1], carry[0] < limit)

        def step(carry: Sequence[Tensor]) -> list[Tensor]:
            going, states, given = self._outputs(self.body(*carry))
            collected[:] = given
            return [carry[0] + 1, going.reshape(()), *states]

        collect = (lambda after: list(collected)) if self.collected else None
        outs = run_while(test, step, carry, collect=collect)
        return list(outs[2:])


# Scan


@operator("Scan", until=8, folds=False)
def scan_batches(call: Call, lengths: Tensor | None, *inputs: Tensor) -> tuple[Tensor, ...]:
    """As in later versions, for each example of a batch."""
    if lengths is not None:
        raise call.error("sequence_lens must be left out, got some", "use version 9 of the operator set")
    examples = [_scan(call, [x[i] for x in inputs], old=True) for i in range(int(inputs[0].shape[0]))]
    return tuple([weft.stack(list(column)) for column in zip(*examples, strict=True)])


def _scan(call: Call, inputs: Sequence[Tensor], *, old: bool = False) -> list[Tensor]:
    """A graph run along axes of tensors, whose states go from step to step."""
    body: Body = call.attribute("body")
    rows = call.attribute("num_scan_inputs")
    states, xs = inputs[: len(inputs) - rows], inputs[len(inputs) - rows :]
    count = len(body.output_names) - len(states)
    directions = call.attribute("directions" if old else "scan_input_directions", (0,) * rows)
    in_axes = call.attribute("scan_input_axes", (0,) * rows)
    out_axes = call.attribute("scan_output_axes", (0,) * count)
    backwards = call.attribute("scan_output_directions", (0,) * count)
    given = [weft.moveaxis(x, axis, 0) for x, axis in zip(xs, in_axes, strict=True)]
    given = [weft.flip(x, axis=0) if d else x for x, d in zip(given, directions, strict=True)]

    outs = scanned(lambda given: body(*given), states, given)
    last, stacked = outs[: len(states)], outs[len(states) :]
    stacked = [weft.flip(x, axis=0) if d else x for x, d in zip(stacked, backwards, strict=True)]
    return [*last, *[weft.moveaxis(x, 0, axis) for x, axis in zip(stacked, out_axes, strict=True)]]


enter_handlers({"Scan": lambda call, *inputs: tuple(_scan(call, inputs))}, since=9, folds=False)


# Sequences and optionals


def _place(call: Call, items: list[Tensor], position: Tensor | None, default: int, last: int) -> int:
    if position is None:
        return default
    found = int(call.scalar(position, "position"))
    if not -len(items) <= found <= last:
        raise call.error(f"position must be in {-len(items)}..{last}, got {found}")
    return found


@operator("SequenceInsert")
def insert(call: Call, items: list[Tensor], x: Tensor, position: Tensor | None = None) -> list[Tensor]:
    """With one more tensor, by default at the end."""
    place = _place(call, items, position, len(items), len(items))
    place = place + len(items) if place < 0 else place
    return [*items[:place], x, *items[place:]]


@operator("SequenceErase")
def erase(call: Call, items: list[Tensor], position: Tensor | None = None) -> list[Tensor]:
    """Without one of the tensors, by default the last."""
    place = _place(call, items, position, len(items) - 1, len(items) - 1) % len(items)
    return [*items[:place], *items[place + 1 :]]


@operator("SplitToSequence", moves=True)
def split_to_sequence(
    call: Call, x: Tensor, parts: Tensor | None = None, *, axis: int = 0, keepdims: int = 1
) -> list[Tensor]:
    """Cut along an axis, into parts of a size, of several sizes, or of one element."""
    axis %= x.ndim
    total = x.shape[axis]
    if isinstance(total, Size):
        raise call.error(f"the size of axis {axis} must be known, got {total}", "fix it with sizes=")
    if parts is None:
        pieces = cut(x, axis, (1,) * total)
        return pieces if keepdims else [weft.squeeze(p, axis=axis) for p in pieces]
    sizes = call.ints(parts, "split")
    if parts.ndim == 0:
        step = sizes[0]
        sizes = tuple([min(step, total - start) for start in range(0, total, step)])
    return cut(x, axis, sizes)


@operator("SequenceMap", folds=False)
def sequence_map(call: Call, items: Any, *others: Any, body: Body) -> tuple[list[Any], ...]:
    """What a graph gives for each tensor."""
    rows = [body(x, *[o[i] if isinstance(o, list) else o for o in others]) for i, x in enumerate(items)]
    return tuple([list(column) for column in zip(*rows, strict=True)] or [[] for _ in call.outputs])


@operator("OptionalGetElement", moves=True)
def get_element(call: Call, x: Any) -> Any:
    """What there is."""
    if x is None:
        raise call.error("there must be an element, got none")
    return x


enter_handlers(
    {
        "SequenceConstruct": lambda call, *inputs: list(inputs),
        "ConcatFromSequence": lambda call, items, *, axis, new_axis=0: (
            weft.stack(items, axis=axis) if new_axis else weft.concat(items, axis=axis)
        ),
    },
    moves=True,
)
enter_handlers(
    {
        "SequenceEmpty": lambda call: [],
        "SequenceLength": lambda call, items: np.array(len(items), np.int64),
        "SequenceAt": lambda call, items, at: items[_place(call, items, at, 0, len(items) - 1)],
        "Optional": lambda call, x=None: x,
        "OptionalHasElement": lambda call, x=None: np.array(x is not None),
    }
)

"""Control flow: branches and loops with graphs of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft import Tensor
from weft.base.sizes import Size
from weft.errors import WeftError
from weft.interop.forms.control import scanned
from weft.onnx.operators.registry import Call, Subgraph, UnknownValueError, operator
from weft.transform.control.flat import run_while

_MOST_ROUNDS = 1000  # of a loop that is written out


@operator("If", folds=False)
def branch(call: Call, condition: Tensor) -> tuple[Any, ...]:
    """One of two graphs, as a condition says."""
    yes: Subgraph = call.attribute("then_branch")
    no: Subgraph = call.attribute("else_branch")
    known = call.known(condition)
    if known is not None:
        return tuple((yes if known.reshape(-1)[0] else no)())
    try:
        return tuple(weft.cond(condition.reshape(()), lambda: yes(), lambda: no()))
    except UnknownValueError:
        raise
    except WeftError as error:  # of different structure or types: only one of them can be imported
        raise call.unknown(condition, "cond", because=error.message) from error


# Loops


@operator("Loop", folds=False)
def loop(call: Call, most: Tensor | None, going: Tensor | None, *states: Any) -> tuple[Any, ...]:
    """A graph run again and again, up to a number of times, as long as a condition holds."""
    body: Subgraph = call.attribute("body")
    kept = _Loop(call, body, most, going, list(states))
    return tuple(kept.run())


class _Loop:
    def __init__(
        self, call: Call, body: Subgraph, most: Tensor | None, going: Tensor | None, states: list[Any]
    ) -> None:
        self.call = call
        self.body = body
        self.most = most
        self.going = going
        self.states = states
        self.collected = len(body.output_names) - 1 - len(states)

    def run(self) -> list[Any]:
        """As a node of the graph where that can be, else written out, round by round."""
        if self._holds_sequences():
            return self._written_out()
        try:
            return self._as_node()
        except WeftError as error:  # a state that changes its shape, or a number that must be known
            if self._rounds() is None:
                raise self._unknown(error.message) from error
        return self._written_out()

    def _holds_sequences(self) -> bool:
        return any(not isinstance(s, Tensor) for s in self.states)

    def _rounds(self) -> int | None:
        """How often the body may run, if that is known."""
        known = None if self.most is None else self.call.known(self.most)
        if self.most is None:
            return _MOST_ROUNDS
        return None if known is None else int(known.reshape(-1)[0])

    def _unknown(self, reason: str) -> WeftError:
        return self.call.unknown(self.most, "M", because=reason)

    # Written out

    def _written_out(self) -> list[Any]:
        most = self._rounds()
        if most is None:
            raise self._unknown("the states of the loop do not keep their types")
        states, rows = self.states, list[list[Any]]()
        going = self.going
        for i in range(most):
            if going is not None and not self.call.values(going, "cond").reshape(-1)[0]:
                break
            if i >= _MOST_ROUNDS:
                raise self.call.error(f"a loop must end after {_MOST_ROUNDS} rounds, got more")
            number = self.call.constant(i)
            now = self.call.constant(True) if going is None else going
            going, states, given = self._outputs(self.body(number, now, *states))
            rows.append(given)
        return [*states, *self._stacked(rows)]

    def _outputs(self, found: list[Any]) -> tuple[Any, list[Any], list[Any]]:
        count = len(self.states)
        return found[0], found[1 : 1 + count], found[1 + count :]

    def _stacked(self, rows: list[list[Any]]) -> list[Tensor]:
        if not rows and self.collected:
            raise self.call.error("a loop that runs not once cannot tell the types of what it collects")
        return [weft.stack(list(column)) for column in zip(*rows, strict=True)]

    # As a node

    def _as_node(self) -> list[Any]:
        known = None if self.going is None else self.call.known(self.going)
        always = self.going is None or (known is not None and bool(known.reshape(-1)[0]))
        if always and self.body.passes_on(1, 0):
            length = self._length()
            if length is not None:
                return self._as_scan(length)
        return self._as_while()

    def _length(self) -> Any:
        """The number of rounds as an int or a size, if it is known."""
        sizes = None if self.most is None else self.call.sizes(self.most)
        return None if sizes is None else sizes.reshape(-1)[0]

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


@operator("Scan", since=9, folds=False)
def scan(call: Call, *inputs: Tensor) -> tuple[Tensor, ...]:
    """A graph run along axes of tensors, whose states go from step to step."""
    return tuple(_scan(call, list(inputs)))


@operator("Scan", until=8, folds=False)
def scan_batches(call: Call, lengths: Tensor | None, *inputs: Tensor) -> tuple[Tensor, ...]:
    """As in later versions, for each example of a batch."""
    if lengths is not None:
        raise call.error("sequence_lens must be left out, got some", "use version 9 of the operator set")
    examples = [_scan(call, [x[i] for x in inputs], old=True) for i in range(int(inputs[0].shape[0]))]
    return tuple([weft.stack(list(column)) for column in zip(*examples, strict=True)])


def _scan(call: Call, inputs: list[Tensor], *, old: bool = False) -> list[Tensor]:
    body: Subgraph = call.attribute("body")
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

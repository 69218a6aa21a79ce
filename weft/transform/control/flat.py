"""Control flow into the graph, flat: ``run_cond``, ``run_while`` and ``run_scan`` on lists of tensors.

Branches and bodies are traced as regions, and one node is applied that holds them. Slots that they change are
further outputs of the node, and carries of a loop; after the node a slot holds the node's output. The public
functions, on trees, are in ``branches`` and ``loops``; captured Python code uses these too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from weft.base.dtypes import bool_
from weft.base.records import NamedTuple
from weft.errors import CaptureError
from weft.ir.graph import Value
from weft.ir.types import TensorType
from weft.ops import control
from weft.ops.op import type_of
from weft.ops.view.primitives import broadcast_to
from weft.tensor.mode import enable_grad, thread
from weft.tensor.tensor import Tensor, wrap
from weft.transform.building import Capture
from weft.transform.captured import is_cut, name_of
from weft.transform.control.presence import left_presence, merge_presence, new_presence, settle_presences
from weft.transform.control.regions import (
    Change,
    Region,
    attempt,
    freeze_regions,
    has_gradient,
    is_recorded,
    put_content,
    reached_of_branches,
    reached_of_loop,
    trace_region,
    zeros,
)
from weft.transform.control.unmet import check_met
from weft.transform.fresh import fresh_size
from weft.transform.slots import DataSlot, GradSlot, PresenceSlot, Slot

__all__ = ["CarryMismatch", "attempt", "run_cond", "run_scan", "run_while"]

Tensors = Sequence[Tensor]
Function = Callable[[list[Tensor]], Tensors]


class CarryMismatch(CaptureError):  # noqa: N818 - says what is wrong, as all that catch it read it
    """A value that must keep its type between branches or iterations does not.

    Attributes:
        index: which of the values it is.
        expected: its type in the first branch, or before the iteration.
        got: its type in another branch, or after the iteration.
        where: "branch 1", "the body".
    """

    def __init__(
        self, op: str, index: int, expected: TensorType, got: TensorType, where: str, name: str = ""
    ) -> None:
        branch = where.startswith("branch")
        what = name or (f"output {index}" if branch else f"carry {index}")
        first = " as from branch 0" if branch else ""
        hint = "make both the same shape and dtype, with .astype(...), .reshape(...) or weft.broadcast_to"
        super().__init__(op, f"{what} must be {expected}{first}, got {got} from {where}", hint=hint)
        self.index = index
        self.expected = expected
        self.got = got
        self.where = where


# Branches


def run_cond(
    index: Tensor,
    branches: Sequence[Function],
    operands: list[Tensor],
    *,
    join: Callable[[Sequence[Region]], None] | None = None,
) -> list[Tensor]:
    """The outputs of one of several functions of operands, as a node.

    Args:
        index: a 0-d bool, for branches (true, false), or a 0-d integer, which is clamped to the branches.
        branches: each gives as many tensors of the same types. They may use tensors from around them.
        operands: what the branches are given.
        join: called with the traced branches before their outputs are compared; it may change what they give.

    Raises:
        CarryMismatch: an output of two branches differs in type.
        Unmet: a tensor must be met before: see ``until_met``.
    """
    op = control.cond if index.dtype == bool_ else control.switch
    (control.check_predicate if op is control.cond else control.check_index)(op.name, type_of(index))
    names = ("true", "false") if op is control.cond else [f"branch_{i}" for i in range(len(branches))]
    types = [type_of(t) for t in operands]
    regions = [trace_region(f, types, name) for f, name in zip(branches, names, strict=True)]
    if join is not None:
        join(regions)
    check_met(regions, [index, *operands])
    _check_branches(op.name, regions)
    recorded = is_recorded(regions)
    merged = _merge_changes(op.name, regions, index)
    outputs = [[*r.outputs, *[m.values[i] for m in merged]] for i, r in enumerate(regions)]
    graphs, shared = freeze_regions(regions, [r.capture.inputs for r in regions], outputs)
    given = [*operands, *shared]
    with _recording(recorded):
        outs = op.on_tensors(index, *given, branches=tuple(graphs))
    outs = _linked(outs, reached_of_branches(graphs, _with_gradient(given)))
    count = len(regions[0].outputs)
    for m, out in zip(merged, outs[count:], strict=True):
        _write(m.slot, out, cut=m.constant, recorded=recorded)
    constant = [all(r.constant[k] for r in regions) for k in range(count)]
    return [wrap(o._data) if cut else o for o, cut in zip(outs[:count], constant, strict=True)]


def _recording(recorded: bool) -> AbstractContextManager[None]:
    """Record a node of which something is recorded, though nothing may be where it stands."""
    return nullcontext() if thread.recording or not recorded else enable_grad()


def _with_gradient(operands: Tensors) -> list[int]:
    """The positions of the operands that a gradient flows to."""
    return [i for i, t in enumerate(operands) if t._node is not None and not is_cut(t)]


def _linked(outs: Tensors, reached: Collection[int]) -> list[Tensor]:
    """The outputs of a node, where those that no gradient flows through are constants."""
    return [out if out._node is None or i in reached else wrap(out._data) for i, out in enumerate(outs)]


def _check_branches(op: str, regions: Sequence[Region]) -> None:
    first = regions[0].outputs
    for i, region in enumerate(regions[1:], 1):
        if len(region.outputs) != len(first):
            counts = f"{len(first)} and {len(region.outputs)}"
            raise CaptureError(op, f"branches must give as many outputs, got {counts}")
        for k, (a, b) in enumerate(zip(first, region.outputs, strict=True)):
            if a.type != b.type:
                raise CarryMismatch(op, k, a.type, b.type, f"branch {i}")


class _Merged(NamedTuple):
    """A slot that some branch changed: for each branch the value it then holds."""

    slot: Slot
    values: list[Value]
    constant: bool


def _merge_changes(op: str, regions: Sequence[Region], index: Tensor) -> list[_Merged]:
    """The slots that some branch changed to hold a tensor; those that hold something else at once hold it."""
    slots = {key: change.slot for region in regions for key, change in region.changes.items()}
    merged = []
    for key, slot in slots.items():
        if isinstance(slot, PresenceSlot):
            continue  # together with the gradient
        before = slot.get()
        changes = [r.changes.get(key) or Change(slot, before, None, True) for r in regions]
        if isinstance(slot, GradSlot):
            found = merge_presence(regions, slot, changes, index)
            merged += [_Merged(*row, constant=True) for row in found.rows]
            if found.absent:
                changes = [c._replace(held=None) for c in changes]
            if isinstance(before, Tensor) and all(c.held is before for c in changes):
                continue  # the same tensor, of which the data changed
        if all(not isinstance(c.held, Tensor) for c in changes):
            _put_same(op, slot, [c.held for c in changes])
            continue
        wanted = next(type_of(c.held) for c in changes if isinstance(c.held, Tensor))
        values = [_content(op, r, c, wanted) for r, c in zip(regions, changes, strict=True)]
        constant = all(c.constant or not isinstance(c.held, Tensor) for c in changes)
        unlinked = not isinstance(before, Tensor) or before._node is None
        merged.append(_Merged(slot, values, constant and unlinked))
    return merged


def _put_same(op: str, slot: Slot, contents: Sequence[Any]) -> None:
    first = contents[0]
    if any(c is not first and c != first for c in contents):
        raise CaptureError(
            op,
            f"what differs between branches must be a tensor, got {slot.describe()} "
            f"with {', '.join(map(repr, contents))}",
        )
    if first is not slot.get():
        _before_write(slot)
        slot.put(first)


def _content(op: str, region: Region, change: Change, wanted: TensorType) -> Value:
    """The value that a slot holds at the end of a region; no gradient counts as zeros."""
    if change.held is None and isinstance(change.slot, GradSlot):
        return _zeros(region.capture, wanted)
    if change.held is None and isinstance(change.slot, PresenceSlot):
        return left_presence(region, change.slot)
    if not isinstance(change.held, Tensor):
        message = f"{change.slot.describe()} must hold a tensor on every way, got {change.held!r}"
        raise CaptureError(op, message)
    if type_of(change.held) != wanted:
        told = f"{change.slot.describe()} must keep its type {wanted}, got {type_of(change.held)}"
        raise CaptureError(op, told)
    if change.value is not None:
        return change.value
    changed = region.changes.get(DataSlot(change.held).key)
    if changed is not None and changed.value is not None:
        return changed.value
    value = Value(wanted, name_of(change.held))
    region.imports.append((value, change.held))
    return value


def _zeros(capture: Capture, t: TensorType) -> Value:
    zero = capture.number(np.zeros((), t.dtype)).value
    return capture.emit(broadcast_to, [zero], {"shape": t.shape})[0].value if t.shape else zero


def _before_write(slot: Slot) -> None:
    if thread.capture is not None:
        thread.capture.before_write(slot)


def _write(slot: Slot, out: Tensor, *, cut: bool, recorded: bool) -> None:
    """Let a slot hold an output; a tensor that was changed while nothing recorded keeps its place."""
    _before_write(slot)
    if isinstance(slot, DataSlot) and not recorded:
        capture = thread.capture
        data = out._data if capture is None else capture.held_by(slot.tensor, out)
        slot.put(wrap(data, slot.tensor._node))
    else:
        put_content(slot, wrap(out._data) if cut else out)


# Loops


def run_while(
    test: Callable[[list[Tensor]], Tensor],
    body: Function,
    carry: list[Tensor],
    *,
    checkpoint_every: int | None = None,
    collect: Callable[[list[Tensor]], Tensors] | None = None,
) -> list[Tensor]:
    """Tensors after a loop of which only a run tells how often it goes round, as a node.

    Args:
        test: of the carry, a 0-d bool; the loop goes on while it holds.
        body: from the carry to the next one, of the same types.
        carry: the tensors at first.
        checkpoint_every: let the gradient keep every so many-th carry, and compute the others again.
        collect: from what body returned to tensors whose values of all iterations come out stacked, after
            the carry, along a first axis of a size that only a run tells.

    Raises:
        CarryMismatch: a carry does not keep its type.
    """

    def step(given: list[Tensor]) -> Tensors:
        after = list(body(given))
        _check_count("while_loop", len(carry), len(after))
        return [*after, *(() if collect is None else collect(after))]

    loop = _Loop("while_loop", step, carry, [])
    tested = trace_region(lambda given: [test(given)], loop.types, "test", loop.slot_types)
    if _really_changes(tested):
        return _test_inside(test, body, carry, checkpoint_every, collect)
    control.check_predicate("while_loop", tested.outputs[0].type)
    count = len(carry)
    recorded = loop.is_recorded(may_skip=True)
    results = loop.results()
    graphs, shared = freeze_regions(
        [tested, loop.region], [tested.capture.inputs, loop.inputs()], [tested.outputs, results]
    )
    carries = count + len(loop.slots)
    trips = fresh_size() if len(results) > carries else None
    given = [*carry, *[content for _, content in loop.slots], *shared]
    with _recording(recorded):
        outs = control.while_loop.on_tensors(
            *given,
            test=graphs[0],
            body=graphs[1],
            carries=carries,
            trips=trips,
            checkpoint_every=checkpoint_every,
        )
    outs = _linked(outs, reached_of_loop(graphs[1], carries, _with_gradient(given)))
    return [*loop.finish(outs, recorded=recorded), *(outs[carries:-1] if trips is not None else ())]


def _test_inside(
    test: Callable[[list[Tensor]], Tensor],
    body: Function,
    carry: list[Tensor],
    checkpoint_every: int | None,
    collect: Callable[[list[Tensor]], Tensors] | None,
) -> list[Tensor]:
    """The loop of a test that changes slots, such as one that draws a random number: it runs in the body."""

    def step(given: list[Tensor]) -> Tensors:
        after = list(body(given[:-1]))
        _check_count("while_loop", len(carry), len(after))
        return [*after, test(after)]

    inner = None if collect is None else lambda after: collect(after[:-1])
    first = test(list(carry))
    control.check_predicate("while_loop", type_of(first))
    outs = run_while(
        lambda given: given[-1], step, [*carry, first], checkpoint_every=checkpoint_every, collect=inner
    )
    return [*outs[: len(carry)], *outs[len(carry) + 1 :]]


def _really_changes(region: Region) -> bool:
    """Whether a region changed a slot, other than by giving it back as it was."""
    inputs = set(region.capture.inputs)
    return any(c.value not in inputs for c in region.changes.values())


def run_scan(
    body: Callable[[list[Tensor], list[Tensor]], tuple[Tensors, Tensors]],
    carry: list[Tensor],
    xs: list[Tensor],
    *,
    length: object = None,
    reverse: bool = False,
    checkpoint_every: int | None = None,
) -> tuple[list[Tensor], list[Tensor]]:
    """Carry and stacked outputs of a loop along the first axis of tensors, as a node.

    Args:
        body: from the carry and one row of each of xs to the next carry, of the same types, and tensors whose
            values of all iterations come out stacked.
        carry: the tensors at first.
        xs: tensors to go along.
        length: the number of rows, an int or a named size; may be left out where there are xs.
        reverse: go from the last row to the first; what comes out stands at the place of its row.
        checkpoint_every: let the gradient keep every so many-th carry, and compute the others again.

    Raises:
        CarryMismatch: a carry does not keep its type.
    """
    length = xs[0].shape[0] if length is None else length
    count = len(carry)

    def step(given: list[Tensor]) -> Tensors:
        after, ys = body(given[:count], given[count:])
        _check_count("scan", count, len(after))
        return [*after, *ys]

    loop = _Loop("scan", step, carry, [TensorType(x.shape[1:], x.dtype) for x in xs])
    recorded = loop.is_recorded(may_skip=not isinstance(length, int) or length == 0)
    (graph,), shared = freeze_regions([loop.region], [loop.inputs()], [loop.results()])
    carries = count + len(loop.slots)
    given = [*carry, *[content for _, content in loop.slots], *xs, *shared]
    with _recording(recorded):
        outs = control.scan.on_tensors(
            *given,
            body=graph,
            carries=carries,
            mapped=len(xs),
            length=length,
            reverse=reverse,
            counted=False,
            checkpoint_every=checkpoint_every,
        )
    ran = isinstance(length, int) and length > 0
    outs = _linked(outs, reached_of_loop(graph, carries, _with_gradient(given), ran=ran))
    return loop.finish(outs, recorded=recorded, ran=ran), list(outs[carries:])


def _check_count(op: str, wanted: int, got: int) -> None:
    if wanted != got:
        raise CaptureError(op, f"the body must give as many carries as it takes, got {wanted} and {got}")


class _Loop:
    """The body of a loop, traced with every slot that it changes as a carry."""

    def __init__(self, op: str, step: Function, carry: Tensors, rows: Sequence[TensorType]) -> None:
        self.op = op
        self.carry = carry
        self.types = [*[type_of(t) for t in carry], *rows]
        self.slots: list[tuple[Slot, Tensor]] = []
        while True:
            self.region = trace_region(step, self.types, "body", self.slot_types)
            found = self._new_slots()
            if not found:
                break
            self.slots += found
        for i, (t, value) in enumerate(zip(carry, self.region.outputs, strict=False)):
            if value.type != type_of(t):
                raise CarryMismatch(op, i, type_of(t), value.type, "the body")

    @property
    def slot_types(self) -> list[tuple[Slot, TensorType]]:
        """The slots that are carries, with their types."""
        return [(slot, type_of(content)) for slot, content in self.slots]

    def _new_slots(self) -> list[tuple[Slot, Tensor]]:
        """Slots that the body changes and that are no carries yet, with what they hold before the loop."""
        carried = {slot.key for slot, _ in self.slots}
        found: list[tuple[Slot, Tensor]] = []
        for key, change in self.region.changes.items():
            if isinstance(change.slot, PresenceSlot):
                continue  # together with the gradient
            before = change.slot.get()
            if isinstance(change.slot, GradSlot):
                told = new_presence(self.region, change, before)
                found += [(slot, truth) for slot, truth in told if slot.key not in carried]
            if key in carried or (not isinstance(change.slot, DataSlot) and before is change.held):
                continue
            found.append((change.slot, self._initial(change, before)))
        return found

    def _initial(self, change: Change, before: object) -> Tensor:
        if isinstance(before, Tensor):
            return before
        if isinstance(change.held, Tensor) and before is None and isinstance(change.slot, GradSlot):
            zero = zeros(type_of(change.held))
            return zero if isinstance(zero, Tensor) else wrap(zero)
        raise CaptureError(
            self.op,
            f"what a loop changes must be a tensor, got {change.slot.describe()} with {before!r} before "
            f"and {change.held!r} after an iteration",
        )

    def is_recorded(self, *, may_skip: bool) -> bool:
        """Whether a gradient flows through the loop; where it may run no iteration, that of what comes in."""
        kept = may_skip and any(has_gradient(t) for t in self.carry)
        return is_recorded([self.region], kept=kept)

    def inputs(self) -> list[Value]:
        """The inputs of the region: the carries, the slots, then the rows."""
        values, count, rows = self.region.capture.inputs, len(self.carry), len(self.types)
        return [*values[:count], *values[rows:], *values[count:rows]]

    def results(self) -> list[Value]:
        """The outputs of the region: the carries, the slots, then what is collected."""
        region, count = self.region, len(self.carry)
        contents = [
            _content(self.op, region, region.changes[slot.key], type_of(content))
            for slot, content in self.slots
        ]
        return [*region.outputs[:count], *contents, *region.outputs[count:]]

    def finish(self, outs: Tensors, *, recorded: bool, ran: bool = False) -> list[Tensor]:
        """The carries after the loop; slots hold theirs. If it ran for sure, more is known of gradients."""
        count = len(self.carry)
        for (slot, before), out in zip(self.slots, outs[count:], strict=False):
            cut = self.region.changes[slot.key].constant and before._node is None
            _write(slot, out, cut=cut, recorded=recorded)
        if ran:
            settle_presences(self.region)
        return list(outs[:count])

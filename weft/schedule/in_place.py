"""Parts of arrays that a loop changes: ``y[:, j] = v``, ``A[1:-1, 1:-1] = ...`` in its body.

What a loop carries is changed in place: the array is copied, the part is written, and the copy goes away
where nobody looks at the old array (``copy_elision``). What makes the part writes it there at once, if all
that it reads of the array is either apart from what it writes, or the very element that it writes; else the
part is made beside it first, so that nothing is overwritten that is still to be read.

Likewise the parts of a concatenation, on targets that ask for it: each is made where it will be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weft.base.records import NamedTuple
from weft.base.size_bounds import lower_bound
from weft.base.sizes import Size, is_known
from weft.ir.graph import Node, Value
from weft.loop.index import Index
from weft.ops.view.primitives import join
from weft.ops.view.slices import slice_axes, update_slice
from weft.passes.base import is_elementwise
from weft.schedule.arrays import Array, view_of
from weft.schedule.fusion import Group, is_reduction
from weft.schedule.region import Scope, is_same, put
from weft.schedule.use_def import UseDef


def find_changes(use_def: UseDef) -> set[int]:
    """The numbers of nodes that change a part of what a loop carries: they are no part of a kernel."""
    found: set[int] = set()
    kept = {use_def.root(v) for v in use_def.results}
    for i in range(len(use_def.nodes) - 1, -1, -1):
        node = use_def.nodes[i]
        if node.op.in_place and (node.outputs[0] in kept or _goes_on(use_def, i, found)):
            found.add(i)
    return {i for i in found if use_def.nodes[i].op is update_slice}


def _goes_on(use_def: UseDef, i: int, found: set[int]) -> bool:
    """Whether what a node gives is changed again, or is what a loop or branch begins with."""
    out = use_def.nodes[i].outputs[0]
    for j in use_def.users[i]:
        node = use_def.nodes[j]
        if (j in found and node.inputs[0] is out) or (node.regions and out in node.inputs):
            return True
    return False


class Fill(NamedTuple):
    """A part that is written where it belongs.

    Attributes:
        change: the node that puts it there.
        made: the value that a group makes: the part, but for axes of size 1.
    """

    change: Node
    made: Value


def find_fills(use_def: UseDef, groups: Mapping[int, Group], changes: set[int]) -> dict[int, Fill]:
    """By the number of the first node of a group, the part that it may write where it belongs."""
    found: dict[int, Fill] = {}
    for i in sorted(changes):
        node = use_def.nodes[i]
        made = use_def.root(node.inputs[1])
        j = use_def.producer.get(made)
        group = None if j is None else groups.get(j)
        if j is None or group is None or group.anchor is not None or use_def.users[j] != {i}:
            continue
        if made in use_def.results or not _keeps_order(use_def, node.inputs[1], made):
            continue
        if is_reduction(use_def.nodes[j]) or min(group.members) in found:
            continue
        if _reads_apart(use_def, group, node, made):
            found[min(group.members)] = Fill(node, made)
    return found


def _keeps_order(use_def: UseDef, value: Value, root: Value) -> bool:
    """Whether a value is another one with other axes."""
    while value is not root:
        node = use_def.nodes[use_def.producer[value]]
        if node.op.view != "flat":
            return False
        value = node.inputs[0]
    return True


def _reads_apart(use_def: UseDef, group: Group, change: Node, made: Value) -> bool:
    """Whether a group reads of the array that changes what it does not write, or each element it writes."""
    x = change.inputs[0]
    alone = use_def.used_outside(group.members) == [made]
    nodes = [use_def.nodes[i] for i in group.members]
    simple = alone and all(is_elementwise(node) for node in nodes)
    for node in nodes:
        for value in node.inputs:
            if use_def.root(value) is not x:
                continue
            view = _first_view(use_def, value, x)
            if view is None or view.op is not slice_axes:
                return False
            same_place = all(view.attrs[k] == change.attrs[k] for k in ("starts", "stops", "steps"))
            if same_place:
                own_element = simple and value.type.shape == made.type.shape == node.outputs[0].type.shape
                if not (own_element and _keeps_order(use_def, value, view.outputs[0])):
                    return False
            elif not _are_apart(view.attrs, change.attrs):
                return False
    return True


def _first_view(use_def: UseDef, value: Value, x: Value) -> Node | None:
    """The view of x that a value is, or is a view of; None if it is x."""
    node = None
    while value is not x:
        node = use_def.nodes[use_def.producer[value]]
        value = node.inputs[0]
    return node


def _are_apart(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two slices of one array surely have no element in common."""
    axes = zip(*[x[k] for x in (a, b) for k in ("starts", "stops", "steps")], strict=True)
    return any(_ranges_apart(*axis) for axis in axes)


def _ranges_apart(start: Any, stop: Any, step: Any, start2: Any, stop2: Any, step2: Any) -> bool:
    if step < 0:
        start, stop = stop + 1, start + 1
    if step2 < 0:
        start2, stop2 = stop2 + 1, start2 + 1
    if _at_most(stop, start2) or _at_most(stop2, start):
        return True
    offset = start - start2
    return step == step2 > 1 and isinstance(offset, int) and bool(offset % step)


def _at_most(a: Any, b: Any) -> bool:
    low = lower_bound(b - a)
    return low is not None and low >= 0


class Part(NamedTuple):
    """A value that is a part of a concatenation.

    Attributes:
        whole: the node that puts parts together.
        first: where along its axis the part begins.
    """

    whole: Node
    first: int


def find_parts(use_def: UseDef, groups: Mapping[int, Group]) -> dict[Value, Part]:
    """By value that a group makes, the concatenation that it is a part of: all of whose parts are such."""
    found: dict[Value, Part] = {}
    for i, node in enumerate(use_def.nodes):
        if node.op is not join or (i in groups and groups[i].members != [i]):
            continue
        if is_known(node.outputs[0].type.shape) and all(_is_part(use_def, groups, v, i) for v in node.inputs):
            first = 0
            for v in node.inputs:
                found[v] = Part(node, first)
                first += v.type.shape[node.attrs["axis"]]
    return found


def _is_part(use_def: UseDef, groups: Mapping[int, Group], v: Value, i: int) -> bool:
    """Whether a group makes a value, element by element, that nobody but a node sees, and that once."""
    j = use_def.producer.get(v)
    group = None if j is None else groups.get(j)
    if j is None or group is None or group.alike or use_def.users[j] != {i} or v in use_def.results:
        return False
    if is_reduction(use_def.nodes[j]) or group.frame.kind(v.type.shape) != "full":
        return False
    return list(use_def.nodes[i].inputs).count(v) == 1


def make_in_parts(scope: Scope, parts: Mapping[Value, Part], values: Iterable[Value]) -> None:
    """Have what is a part of a concatenation written where it will be."""
    for v in values:
        if v in parts:
            node, first = parts[v]
            (out,) = node.outputs
            whole = scope.places[out] if out in scope.places else scope.output(out)
            assert isinstance(whole, Array)
            offset = whole.offset + Index.of(first) * whole.strides[node.attrs["axis"]]
            scope.parts[v] = Array(whole.buffer, v.type.shape, whole.strides, offset)


def change_part(scope: Scope, node: Node) -> bool:
    """Write a part that is there into an array, by itself; False where no strides describe the part."""
    x, v = node.inputs
    old = scope.place(x)
    if not isinstance(old, Array) or _part_of(old, node) is None:
        return False
    part = scope.place(v)
    if isinstance(part, Array) and part.buffer is old.buffer:
        part = scope.writer.copied(part)  # while the array is as it was
    out = scope.output(node.outputs[0])
    scope.writer.copy(old, out)
    target = _part_of(out, node)
    assert target is not None
    shape = tuple(s for s in target.shape if isinstance(s, Size) or s != 1)
    narrow = target.reshaped(shape), part.reshaped(shape) if isinstance(part, Array) else None
    if isinstance(part, Array) and narrow[0] is not None and narrow[1] is not None:
        scope.writer.copy(narrow[1], narrow[0])
    else:
        put(scope, part, target)
    return True


def _part_of(whole: Array, change: Node) -> Array | None:
    """The part of an array that a node changes."""
    part = Node(slice_axes, [change.inputs[0]], change.attrs, [change.inputs[1]], change.location)
    return view_of(whole, part)


class Filling:
    """Gives what a group reads and writes its places while it fills a part of an array."""

    def __init__(self, scope: Scope, use_def: UseDef, fill: Fill) -> None:
        self.scope = scope
        self.fill = fill
        x = fill.change.inputs[0]
        self.views = [v for v in use_def.producer if v is not x and use_def.root(v) is x]
        self.x = x
        self._held: dict[Value, Any] = {}

    def begin(self) -> bool:
        """Copy the array, and have the group read and write the copy; False where strides do not fit."""
        scope, change = self.scope, self.fill.change
        old = scope.place(self.x)
        if not isinstance(old, Array):
            return False
        part = self._part(old)
        if part is None:
            return False
        out = scope.output(change.outputs[0])
        if is_same(out, old):
            return False
        scope.writer.copy(old, out)
        self._held = {v: scope.places.pop(v) for v in (self.x, *self.views) if v in scope.places}
        scope.places[self.x] = out
        target = self._part(out)
        assert target is not None
        scope.parts[self.fill.made] = target
        return True

    def _part(self, whole: Array) -> Array | None:
        """The part of an array that the group makes, in the shape in which it does."""
        made, found = self.fill.made, _part_of(whole, self.fill.change)
        if found is None or found.shape == made.type.shape:
            return found
        return found.reshaped(made.type.shape)

    def end(self) -> None:
        """The old array is where it was."""
        for v in (self.x, *self.views):
            self.scope.places.pop(v, None)
        self.scope.places.update(self._held)

"""Graphs being built: every op that a thread runs while it captures becomes a node.

``Captured`` is the data of a tensor that stands for a value of the graph. A ``Capture`` holds the graph so
far. The outermost one, the *root*, meets tensors of the outside world: one that lives on becomes an input,
read at each call, and one that dies with the capture a constant. A capture inside another one makes a
*region*: what it uses from around it is imported, and becomes an input of the region and an operand of the
node that gets it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from threading import get_ident
from typing import Any, TypeVar

import numpy as np

from weft.base.concrete import is_concrete, on_host
from weft.base.dtypes import kind
from weft.errors import CaptureError, GraphError
from weft.ir.graph import Array, Attrs, Graph, Node, Value
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.ops.effects import said
from weft.ops.op import Op, intercepted
from weft.ops.stop import stop_gradient
from weft.tensor.alias import forget_lone_twin, leave_views, views_of
from weft.tensor.mode import running_levels, thread
from weft.tensor.node import Leaf
from weft.tensor.tensor import Tensor, wrap
from weft.transform.capture_root import CaptureRoot, Notes
from weft.transform.captured import Captured, is_cut, is_dropped, is_given_back, name_of
from weft.transform.fresh import counting_sizes_anew
from weft.transform.frozen import (
    Frozen,
    Telling,
    check_frozen,
    check_replaceable,
    leave_group,
    take_over,
)
from weft.transform.gradient_events import GradientEvents
from weft.transform.levels import new_level
from weft.transform.located import Located
from weft.transform.place import data_in_place, may_have_gradient
from weft.transform.scopes import Scope, fold_scopes
from weft.transform.slots import DataSlot, External, HooksSlot, LinkSlot, Slot

ndarray = np.ndarray
T = TypeVar("T")


class Capture(Located, GradientEvents, CaptureRoot):
    """A graph while it is built.

    Attributes:
        name: of the graph.
        level: as of every transform; higher than that of the captures around.
        parent: the capture around, for a region; None for a root.
        nodes: so far, in order.
        constants: arrays that are known now.
        externals: tensors from outside that were used, in the order of first use (imports, in a region).
        journal: by key, the slots that were changed, with what they held before.
        examples: arrays for the inputs of a root that runs on data, so that values can be looked at.
    """

    escape_hint = "return it from the captured function, instead of storing it outside"
    unknown_hint = "use tensor operations, such as weft.where, weft.cond or weft.while_loop"

    def __init__(self, name: str, level: int, parent: Capture | None, *, region: bool) -> None:
        self.name = name
        self.ident = get_ident()
        self.level = level
        self.parent = parent
        self.region = region
        self.closed = False  # whether arrays that the code makes are constants of this very capture
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        self.externals: list[External] = []
        self.lent: dict[int, External] = {}  # those that are tensors of the outside, by id
        self.journal: dict[tuple[Any, ...], tuple[Slot, Any]] = {}
        self.examples: dict[Value, Array] | None = None
        self.scopes: list[Scope] = []
        self.made: dict[Value, Node] = {}
        self._scalars: dict[tuple[Any, ...], Value] = {}
        self.notes = Notes()  # what upper layers keep with it
        self.dropped: set[Value] = set()  # values that it had before it went back
        self.frozen = Frozen()  # of a root: tensors that may be one with others
        self.replaced: dict[int, weakref.ref[Tensor]] = {}  # of a root: tensors that were assigned data
        self.telling = Telling.NOTHING  # of a root: what loops carry beside values
        self.took_graphs: set[int] = set()  # of a root: ids of tensors that took on the graph of a change
        self.open_counts = False  # of a root: whether a run tells how many elements a mask picks
        self.places: dict[Value, Any] = {}  # by a mask: where it holds, of which a run tells the number
        self._imports: dict[tuple[int, int], Any] = {}  # by ids of data and node, which it keeps alive
        self._stopped: dict[Value, Value] = {}
        self._attempts: list[dict[tuple[Any, ...], tuple[Slot, Any]]] = []
        self._marks = region  # whether the graph must say where gradients stop
        self.records = thread.recording  # whether something in it was recorded
        self._known: dict[Value, Array] = {}
        super().__init__(parent)

    def current(self) -> Capture:
        """The innermost capture of this thread, which takes what is done now."""
        return thread.capture or self

    def rename(self, value: Value, name: str) -> None:
        """Give a value a name."""
        message = "must be set in the block of a graph that is written by hand, got another capture"
        raise GraphError("name", message)

    def has_lent(self, tensor: Tensor) -> bool:
        """Whether a tensor from outside stands for its value in this root."""
        external = self.lent.get(id(tensor))
        return external is not None and external.reference() is tensor

    def wait(self) -> None:
        """Called by another thread that met a tensor of this root: returns when it has its data back."""
        message = "a tensor that one thread captures must not be used in another, got one"
        raise CaptureError(self.name, message)

    @property
    def root(self) -> Capture:
        """The outermost capture around."""
        return self if self.parent is None else self.parent.root

    # Values

    def input(self, type: TensorType, name: str = "") -> Tensor:
        """A new input, as a tensor."""
        value = Value(type, name)
        self.inputs.append(value)
        return wrap(Captured(self, value))

    def as_captured(self, tensor: Tensor) -> Captured:
        """The data that stands for a tensor in this capture."""
        data = tensor._data
        if type(data) is Captured and data.capture is self:
            return data
        return Captured(self, self.value_of(tensor))

    def value_of(self, tensor: Tensor) -> Value:
        """The value that a tensor is in this graph: one of its own, an import, a constant or an input."""
        data = tensor._data
        if type(data) is Captured and data.capture is self:
            return data.value
        if not is_concrete(data) and data.level not in running_levels:
            raise data.escaped("capture")
        return self._value_from_around(tensor)

    def _value_from_around(self, tensor: Tensor) -> Value:
        """That of a tensor which this capture did not make."""
        data = tensor._data
        if is_concrete(data):
            if self.closed:
                return self._own_constant(data)
            if not self.root.region:
                self.root.adopt(tensor)
                return self.value_of(tensor)
        return self._import(tensor)

    def _own_constant(self, array: Array) -> Value:
        key = (id(array), 0)
        if key not in self._imports:
            self._imports[key] = (array, None, self.constant(array).value)
        found: Value = self._imports[key][2]
        return found

    def number(self, array: Array) -> Captured:
        """A number that code wrote, as a 0-d array: one constant for equal ones."""
        key = (array.dtype, array.tobytes())
        if key not in self._scalars:
            self._scalars[key] = self.constant(array).value
        return Captured(self, self._scalars[key])

    def constant(self, array: Array, name: str = "") -> Captured:
        """A new constant."""
        value = Value(TensorType(array.shape, array.dtype), name)
        self.constants[value] = array
        return Captured(self, value)

    def meet(self, tensor: Tensor) -> None:
        """Let a tensor from outside stand for its value from now on, so that it sees what changes."""
        if is_concrete(tensor._data) and not self.closed and not self.root.region:
            self.root.adopt(tensor)

    def adopt(self, tensor: Tensor) -> None:
        """Let a tensor from outside stand for its value in this root, until the capture ends."""
        data = tensor._data
        value = Value(TensorType(data.shape, data.dtype))
        external = self.lent[id(tensor)] = External(tensor, value)
        self.externals.append(external)
        tensor._data, tensor._form = Captured(self, value), None

    def _import(self, tensor: Tensor) -> Value:
        data = tensor._data
        key = (id(data), id(tensor._node))
        if key in self._imports:
            return self._imports[key][2]  # type: ignore[no-any-return]
        if self.parent is not None and type(data) is Captured and data.level < self.parent.level:
            tensor = wrap(self.parent.as_captured(tensor), tensor._node)
        value = Value(TensorType(data.shape, data.dtype), name_of(tensor))
        external = External(tensor, value)
        external.array = tensor if tensor._node is not None or not is_concrete(data) else data
        self.externals.append(external)
        self._imports[key] = (data, tensor._node, value)
        return value

    # Nodes

    def interpret(self, op: Op, inputs: Sequence[Tensor], attrs: dict[str, Any]) -> tuple[Any, ...]:
        """Append a node for an op on tensors; gives the data of its outputs."""
        if op.raises is not None:
            self.root.before_failing(op, inputs, attrs)
        values = [self.value_of(t) for t in inputs]
        if not self._marks:
            return self.emit(op, values, attrs)
        cuts = [is_cut(t) for t in inputs]
        lives = [not cut and self.flows(v) for cut, v in zip(cuts, values, strict=True)]
        if thread.recording and any(lives):
            self.records = True
            values = [self.stop(v) if cut else v for cut, v in zip(cuts, values, strict=True)]
            return self.emit(op, values, attrs)
        outs = self.emit(op, values, attrs)
        if any(cuts) or any(lives):
            outs = tuple([Captured(self, o.value, cut=kind(o.dtype) in "fc") for o in outs])
        return outs

    def flows(self, value: Value) -> bool:
        """Whether a gradient could flow to a value by the graph alone."""
        return kind(value.type.dtype) in "fc" and value not in self.constants

    def stop(self, value: Value) -> Value:
        """The value behind a node that lets no gradient through; one for each value."""
        if not self.flows(value):
            return value
        if value not in self._stopped:
            self._stopped[value] = self.emit(stop_gradient, [value], {})[0].value
        return self._stopped[value]

    def result_of(self, tensor: Tensor) -> Value:
        """The value of a tensor as a result of this graph, behind a stop if no gradient flows through it."""
        value = self.value_of(tensor)
        return self.stop(value) if self._marks and self.records and is_cut(tensor) else value

    def held_by(self, tensor: Tensor, value: Tensor) -> Any:
        """The data of a tensor that is changed while nothing records: it keeps its place in the graph."""
        return data_in_place(self, tensor, value)

    def has_gradient(self, tensor: Tensor) -> bool:
        """Whether gradients may flow to a tensor."""
        return may_have_gradient(tensor._data, tensor._node)

    def imported(self) -> dict[Value, tuple[Any, Any]]:
        """The values of a region that are from around it, with the data and the node of each as it was."""
        return {value: (data, node) for data, node, value in self._imports.values()}

    def emit(self, op: Op, values: Sequence[Value], attrs: Attrs) -> tuple[Captured, ...]:
        """Append a node on values."""
        types = op.type_rule(*[v.type for v in values], **attrs)
        outs = [Value(t) for t in ((types,) if op.outputs == 1 else types)]
        node = Node(op, values, dict(attrs), outs, self.location())
        self.nodes.append(node)
        for out in outs:
            self.made[out] = node
        return tuple([Captured(self, v) for v in outs])

    def uses(self, tensor: Tensor) -> bool:
        """Whether a region has used a tensor from around it."""
        return (id(tensor._data), id(tensor._node)) in self._imports

    # Changes

    def before_write(self, slot: Slot) -> None:
        """Told before a slot changes: remembers what it holds, unless that was made in this very capture."""
        self.remember(slot)
        self._check_change(slot)
        if slot.key in self.journal:
            return
        held = slot.get()
        data: Any = getattr(held, "_data", None)
        if isinstance(slot, DataSlot) and type(data) is Captured and data.capture is self:
            lent = self.lent.get(id(slot.tensor))
            if lent is None or lent.reference() is not slot.tensor:
                return
        elif isinstance(slot, DataSlot) and not is_concrete(data) and data.level > self.level:
            return  # of a transform that runs inside
        self.journal[slot.key] = (slot, held)

    def _check_change(self, slot: Slot) -> None:
        if isinstance(slot, DataSlot) and (frozen := self.root.frozen):
            check_frozen(frozen, slot.tensor)

    def take_over(self, tensor: Tensor, source: Tensor) -> None:
        """Told that a tensor is to show the elements of another one: they share them from now on."""
        forget_lone_twin(tensor)
        check_replaceable(tensor, always=not self.region)
        frozen = self.root.frozen
        if not self.region:
            leave_group(frozen, tensor)
        for view in views_of(tensor):
            self.remember(LinkSlot(view))
        leave_views(tensor)
        tensor._assign(source, history=False)
        here = self.location()
        take_over(frozen, tensor, source, None if here is None else here.place, always=not self.region)
        self.root.replaced[id(tensor)] = weakref.ref(tensor)

    def meet_parent(self, parent: Tensor, view: Tensor) -> None:
        """Told before a change of a view reaches its parent."""

    def remember(self, slot: Slot) -> None:
        """Told before a slot of something that this capture made changes: an attempt puts it back."""
        for attempt in self._attempts:
            if slot.key not in attempt:
                attempt[slot.key] = (slot, slot.get())

    def take_changes(self) -> list[tuple[Slot, Any]]:
        """The changed slots with what they hold, which is then put back as it was before."""
        changes = [(s, s.get()) for s, _ in self.journal.values() if not isinstance(s, HooksSlot)]
        for slot, held in reversed(self.journal.values()):
            slot.put(held)
        self.journal.clear()
        return changes

    def mark(self) -> tuple[Any, ...]:
        """How the capture stands now, to go back to; from now on every change is remembered."""
        self._attempts.append({})
        tables: tuple[dict[Any, Any], ...]
        tables = (self.constants, self.journal, self.made, self._scalars, self._imports, self._known)
        tables = (*tables, self.frozen, self.frozen.groups, self.replaced)
        lists = (self.inputs, self.nodes, self.externals, self.scopes)
        copies = [(t, dict(t)) for t in (*tables, self._tape, self._stopped, self.lent)]
        return copies, [(x, len(x)) for x in lists]

    def go_back(self, mark: tuple[Any, ...]) -> None:
        """Be as it was at a mark."""
        tables, lists = mark
        for slot, held in reversed(self._attempts[-1].values()):
            if not (is_dropped(held) or is_given_back(slot, held)):
                slot.put(held)
        start = next(n for x, n in lists if x is self.externals)
        if not self.region:
            for external in self.externals[start:]:
                tensor = external.reference()
                if tensor is not None:
                    tensor._data, tensor._node, tensor._form = external.array, external.node, None
        kept = next(n for x, n in lists if x is self.nodes)
        self.dropped.update(v for node in self.nodes[kept:] for v in node.outputs)
        self.dropped.update(e.value for e in self.externals[start:])
        for table, copy in tables:
            table.clear()
            table.update(copy)
        for x, length in lists:
            del x[length:]

    def note_leaf(self, leaf: Leaf) -> None:
        """Note that gradients of a tensor are asked for from here on."""
        self.notes.leaves.add(leaf)

    def note_made(self, obj: T) -> T:
        """Note that this capture made an object: nobody outside holds it. Returns it."""
        self.notes.made[id(obj)] = obj
        return self.root.made_inside(obj)

    # Looking at values

    def concrete(self, op: str, data: Captured) -> Any:
        """The array of a value; the root decides whether that is allowed, and what it costs."""
        if self.region or data.capture is not self:
            raise self.unknown(op, data)
        return self.root.look(op, data)

    def look(self, op: str, data: Captured) -> Any:
        """The array of a value of a root that has examples. Subclasses add a guard."""
        if self.examples is None:
            raise self.unknown(op, data)
        return self.known(data.value)

    def unknown(self, op: str, data: Captured) -> CaptureError:
        """The error where Python asks for a value that only a run tells."""
        return CaptureError(
            op,
            f"needs a value that is known while {self.root.name} is captured, got {data.value.type}, "
            "which only a run tells",
            hint=self.root.unknown_hint,
        )

    def known(self, value: Value) -> Array:
        """The array of a value, computed on the examples by the interpreter; each node runs once."""
        if value not in self._known:
            assert self.examples is not None
            have = {
                **self.constants,
                **{e.value: e.array for e in self.externals},
                **self.examples,
                **self._known,
            }
            graph = Graph(self.name, list(have), self.nodes, ())
            wanted = [value]
            with said.silence():  # what a run prints, this does not
                (self._known[value],) = interpret(graph, [on_host(x) for x in have.values()], wanted)
        return self._known[value]

    # The end

    def settle(self) -> list[tuple[External, Tensor | None]]:
        """Give tensors from outside their data back; those that died are constants; returns the others."""
        self.notes = Notes()
        alive = []
        for external in self.externals:
            tensor = external.reference()
            if self.region:
                if is_concrete(external.array) and tensor is None:
                    self.constants[external.value] = external.array
                else:
                    held = external.array if not is_concrete(external.array) else tensor
                    alive.append((external, held))
            elif tensor is None:
                self.constants[external.value] = external.array
            else:
                tensor._data, tensor._form = external.array, None
                alive.append((external, tensor))
        if self.region:  # nothing of it may keep tensors alive that the root then takes for inputs
            self._tape.clear()
            self._imports.clear()
        return alive

    def graph(
        self,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        *,
        roles: Sequence[str] | None = None,
        updates: Sequence[tuple[Value, Value]] = (),
        prune: bool = True,
        count: int | None = None,
    ) -> Graph:
        """The graph so far, frozen; with nothing that the results do not need, unless said otherwise.

        With ``count`` the effects are those of the first nodes: behind them are those of a backward pass, in
        which loops that are run again check what they checked before.
        """
        results = [*outputs, *[new for _, new in updates]]
        nodes = fold_scopes(self.nodes, self.scopes, self.constants, results, prune=prune, count=count)
        used = {v for node in nodes for v in node.inputs}.union(results)
        constants = {v: a for v, a in self.constants.items() if v in used}
        return Graph(self.name, inputs, nodes, outputs, constants=constants, roles=roles, updates=updates)


@contextmanager
def capturing(
    name: str, *, region: bool = False, make: Callable[..., Capture] = Capture
) -> Iterator[Capture]:
    """Capture what this thread does: a root, or a region of the capture that runs (or of none)."""
    if region:
        from weft.transform import function_region  # noqa: F401 - how a Function runs there
    outer = thread.capture if region else None
    before, added = thread.capture, get_ident() not in intercepted.threads
    outermost = not region and before is None
    with new_level() as level, counting_sizes_anew() if outermost else nullcontext():
        capture = make(name, level, outer, region=region)
        thread.capture = capture
        intercepted.threads.add(get_ident())
        observer = thread.observer
        if outermost:
            thread.observer = None  # of a checkpoint around: it is told of what a call records, not of this
        try:
            yield capture
        except BaseException:
            capture.take_changes()
            capture.settle()
            raise
        finally:
            thread.capture, thread.observer = before, observer
            if added:
                intercepted.threads.discard(get_ident())

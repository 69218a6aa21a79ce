"""Graphs being built: every op that a thread runs while it captures becomes a node.

``Captured`` is the data of a tensor that stands for a value of the graph. A ``Capture`` holds the graph so far. The
outermost one, the *root*, meets tensors of the outside world: one that lives on becomes an input, read at each
call, and one that dies with the capture a constant. A capture inside another one makes a *region*: what it uses
from around it is imported, and becomes an input of the region and an operand of the node that gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import numpy as np

from weft import errors
from weft.base.shapes import size_of
from weft.errors import CaptureError
from weft.ir.graph import Array, Attrs, Graph, Node, Value
from weft.ir.interpret import interpret
from weft.ir.location import Location
from weft.ir.types import TensorType
from weft.ops.op import Op, staging
from weft.tensor.mode import running_levels, thread
from weft.tensor.tensor import Tensor, wrap
from weft.transform.levels import Traced, new_level
from weft.transform.scopes import Scope, fold_scopes
from weft.transform.slots import DataSlot, External, GradSlot, Slot

ndarray = np.ndarray


class Captured(Traced):
    """Stands for a value of a graph that is being captured."""

    __slots__ = ("capture", "value")

    place = "capture"

    def __init__(self, capture: Capture, value: Value) -> None:
        self.level = capture.level
        self.capture = capture
        self.value = value

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value; sizes may be named."""
        return self.value.type.shape

    @property
    def dtype(self) -> Any:
        """Dtype of the value."""
        return self.value.type.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return size_of(self.value.type.shape)

    def interpret(self, op: Op, inputs: Sequence[Tensor], attrs: dict[str, Any]) -> tuple[Any, ...]:
        """Only reached where the capture is not the innermost running one of this thread."""
        raise self.escaped(op.name)

    def escaped(self, op: str) -> CaptureError:
        """The error where a value is used after its capture, naming the line that made it."""
        made = self.capture.location_of(self.value)
        where = "" if made is None else f", made at {errors.format_location(made.place)}"
        return CaptureError(
            op,
            f"tensors of a capture must not be used after it ended, got one that escaped{where}",
            hint="return it from the captured function, instead of storing it outside",
        )

    def lift(self, constant: Tensor) -> Tensor:
        """A constant as a value of the running capture."""
        return wrap(self.capture.current().as_captured(constant), constant._node)  # type: ignore[no-any-return]

    def map(self, function: Callable[[Tensor], Tensor]) -> Any:
        """The value after a function that keeps it."""
        return function(wrap(self))._data

    def detached(self) -> Captured:
        """Itself: gradients are the tape's."""
        return self

    def concrete(self, op: str) -> Any:
        """The array, if the capture knows it and may rely on it: it then holds a guard."""
        if self.level not in running_levels:
            raise self.escaped(op)
        return self.capture.current().concrete(op, self)


class Capture:
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

    def __init__(self, name: str, level: int, parent: Capture | None, *, region: bool) -> None:
        self.name = name
        self.level = level
        self.parent = parent
        self.region = region
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        self.externals: list[External] = []
        self.journal: dict[tuple[Any, ...], tuple[Slot, Any]] = {}
        self.examples: dict[Value, Array] | None = None
        self.scopes: list[Scope] = []
        self.made: dict[Value, Node] = {}
        self._scalars: dict[tuple[Any, ...], Captured] = {}
        self._imports: dict[int, tuple[Any, Value]] = {}  # by id of the data, which is kept alive here
        self._known: dict[Value, Array] = {}
        self._tape: dict[Any, Location | None] = {}
        self._phase: Location | None = None
        self.module_path: tuple[str, ...] = () if parent is None else parent.module_path

    def current(self) -> Capture:
        """The innermost capture of this thread, which takes what is done now."""
        return thread.capture or self

    @property
    def root(self) -> Capture:
        """The outermost capture around."""
        return self if self.parent is None else self.parent.root

    # Values

    def input(self, type: TensorType, name: str = "") -> Tensor:
        """A new input, as a tensor."""
        value = Value(type, name)
        self.inputs.append(value)
        return wrap(Captured(self, value))  # type: ignore[no-any-return]

    def as_captured(self, tensor: Tensor) -> Captured:
        """The data that stands for a tensor in this capture."""
        data = tensor._data
        if type(data) is Captured and data.capture is self:
            return data
        return Captured(self, self.value_of(tensor))

    def value_of(self, tensor: Tensor) -> Value:
        """The value that a tensor is in this graph: one of its own, an import, a constant or an external input."""
        data = tensor._data
        if type(data) is Captured and data.capture is self:
            return data.value
        if type(data) is not ndarray and data.level not in running_levels:
            raise data.escaped("capture")
        if type(data) is ndarray:
            if not self.root.region:
                self.root.adopt(tensor)
                return self.value_of(tensor)
        return self._import(tensor)

    def number(self, array: Array) -> Captured:
        """A number that code wrote, as a 0-d array: one constant for equal ones."""
        key = (array.dtype, array.tobytes())
        if key not in self._scalars:
            self._scalars[key] = self.constant(array)
        return self._scalars[key]

    def constant(self, array: Array, name: str = "") -> Captured:
        """A new constant."""
        value = Value(TensorType(array.shape, array.dtype), name)
        self.constants[value] = array
        return Captured(self, value)

    def adopt(self, tensor: Tensor) -> None:
        """Let a tensor from outside stand for its value in this root, until the capture ends."""
        data = tensor._data
        value = Value(TensorType(data.shape, data.dtype))
        self.externals.append(External(tensor, value))
        tensor._data, tensor._form = Captured(self, value), None

    def _import(self, tensor: Tensor) -> Value:
        data = tensor._data
        known = self._imports.get(id(data))
        if known is not None:
            return known[1]
        if self.parent is not None and type(data) is Captured and data.level < self.parent.level:
            tensor = wrap(self.parent.as_captured(tensor), tensor._node)
        value = Value(TensorType(data.shape, data.dtype))
        external = External(tensor, value)
        external.array = tensor if tensor._node is not None or type(data) is not ndarray else data
        self.externals.append(external)
        self._imports[id(data)] = (data, value)
        return value

    # Nodes

    def interpret(self, op: Op, inputs: Sequence[Tensor], attrs: dict[str, Any]) -> tuple[Any, ...]:
        """Append a node for an op on tensors; gives the data of its outputs."""
        return self.emit(op, [self.value_of(t) for t in inputs], attrs)

    def emit(self, op: Op, values: Sequence[Value], attrs: Attrs) -> tuple[Captured, ...]:
        """Append a node on values."""
        types = op.type_rule(*[v.type for v in values], **attrs)
        outs = [Value(t) for t in ((types,) if op.outputs == 1 else types)]
        node = Node(op, values, dict(attrs), outs, self.location())
        self.nodes.append(node)
        for out in outs:
            self.made[out] = node
        return tuple([Captured(self, v) for v in outs])

    def location(self) -> Location | None:
        """Where the user's code is now, or where the op came from whose gradient is computed."""
        if self._phase is not None:
            return self._phase
        found = errors.user_frame(2)
        return None if found is None else Location(*found, ".".join(self.module_path))

    def location_of(self, value: Value) -> Location | None:
        """The line that made a value, if it is known."""
        node = self.made.get(value)
        return None if node is None else node.location

    def note(self, node: Any) -> None:
        """Remember where a node of the tape was recorded."""
        self._tape[node] = self.location()

    @contextmanager
    def differentiating(self, node: Any) -> Iterator[None]:
        """Give what is emitted the location of the op that a node of the tape came from."""
        before = self._phase
        found = self._tape_location(node)
        self._phase = before if found is None else found._replace(phase="backward")
        try:
            yield
        finally:
            self._phase = before

    def _tape_location(self, node: Any) -> Location | None:
        if node in self._tape:
            return self._tape[node]
        return None if self.parent is None else self.parent._tape_location(node)

    # Changes

    def before_write(self, slot: Slot) -> None:
        """Told before a slot changes: remembers what it holds, unless that was made in this very capture."""
        if slot.key in self.journal:
            return
        held = slot.get()
        data = getattr(held, "_data", None)
        if isinstance(slot, DataSlot) and type(data) is Captured and data.capture is self:
            adopted = not self.region and any(e.reference() is slot.tensor for e in self.externals)
            if not adopted:
                return
        self.journal[slot.key] = (slot, held)

    def before_data_write(self, tensor: Tensor) -> None:
        """Told before the value of a tensor changes."""
        self.before_write(DataSlot(tensor))

    def before_grad_write(self, tensor: Tensor) -> None:
        """Told before the gradient of a tensor changes."""
        self.before_write(GradSlot(tensor))

    def before_grad_read(self, tensor: Tensor) -> None:
        """Told before the gradient of a tensor is read."""

    def take_changes(self) -> list[tuple[Slot, Any]]:
        """The changed slots with what they hold, which is then put back as it was before."""
        changes = [(slot, slot.get()) for slot, _ in self.journal.values()]
        for slot, held in reversed(self.journal.values()):
            slot.put(held)
        self.journal.clear()
        return changes

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
            hint="use tensor operations, such as weft.where, weft.cond or weft.while_loop",
        )

    def known(self, value: Value) -> Array:
        """The array of a value, computed on the examples by the interpreter; each node runs once."""
        if value not in self._known:
            assert self.examples is not None
            have = {**self.constants, **{e.value: e.array for e in self.externals}, **self.examples, **self._known}
            graph = Graph(self.name, list(have), self.nodes, ())
            wanted = [value]
            (self._known[value],) = interpret(graph, list(have.values()), wanted)
        return self._known[value]

    # The end

    def settle(self) -> list[tuple[External, Tensor | None]]:
        """Give tensors from outside their data back; those that died are constants, the others are returned."""
        alive = []
        for external in self.externals:
            tensor = external.reference()
            if self.region:
                if type(external.array) is ndarray and tensor is None:
                    self.constants[external.value] = external.array
                else:
                    held = external.array if type(external.array) is not ndarray else tensor
                    alive.append((external, held))
            elif tensor is None:
                self.constants[external.value] = external.array
            else:
                tensor._data, tensor._form = external.array, None
                alive.append((external, tensor))
        return alive

    def graph(
        self,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        *,
        roles: Sequence[str] | None = None,
        updates: Sequence[tuple[Value, Value]] = (),
        prune: bool = True,
    ) -> Graph:
        """The graph so far, frozen; with nothing that the results do not need, unless said otherwise."""
        results = [*outputs, *[new for _, new in updates]]
        nodes = fold_scopes(self.nodes, self.scopes, self.constants, results, prune=prune)
        used = {v for node in nodes for v in node.inputs}.union(results)
        constants = {v: a for v, a in self.constants.items() if v in used}
        return Graph(self.name, inputs, nodes, outputs, constants=constants, roles=roles, updates=updates)


@contextmanager
def capturing(
    name: str, *, region: bool = False, make: Callable[..., Capture] = Capture
) -> Iterator[Capture]:
    """Capture what this thread does: a root, or a region of the capture that runs (or of none)."""
    outer = thread.capture if region else None
    if not region and thread.capture is not None:
        outer = None
    before, added = thread.capture, get_ident() not in staging.threads
    with new_level() as level:
        capture = make(name, level, outer, region=region)
        thread.capture = capture
        staging.threads.add(get_ident())
        try:
            yield capture
        except BaseException:
            capture.take_changes()
            capture.settle()
            raise
        finally:
            thread.capture = before
            if added:
                staging.threads.discard(get_ident())


@contextmanager
def not_capturing() -> Iterator[None]:
    """Let ops run on arrays though this thread captures."""
    before = thread.capture
    thread.capture = None
    try:
        yield
    finally:
        thread.capture = before


def trace_graph(
    function: Callable[..., Any], types: Sequence[TensorType], name: str = "graph", names: Sequence[str] = ()
) -> tuple[Graph, list[Tensor]]:
    """The closed graph of a function of tensors that returns a tensor or a sequence of them.

    Returns:
        The graph, whose inputs are those of the types and then what the function used from around it, and
        the tensors that these last inputs stand for.
    """
    with capturing(name, region=True) as capture:
        given = [capture.input(t, n) for t, n in zip(types, names or [""] * len(types), strict=True)]
        out = function(*given)
        listed = out if isinstance(out, tuple | list) else (out,)
        values = [capture.value_of(t) for t in listed]
        del out, listed, given
        if capture.journal:
            slot = next(iter(capture.journal.values()))[0]
            raise CaptureError(name, f"the function must not change what is outside of it, got {slot.describe()}")
    imports = capture.settle()
    inputs = [*capture.inputs, *[e.value for e, _ in imports]]
    return capture.graph(inputs, values), [t for _, t in imports if t is not None]


def replay(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """Run a graph on tensors by its ops, so that it records, or becomes part of another graph or transform."""
    values: dict[Value, Any] = {v: wrap(a) for v, a in graph.constants.items()}
    values |= dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        result = node.op.on_tensors(*[values[v] for v in node.inputs], **node.attrs)
        outs = (result,) if node.op.outputs == 1 else result
        values |= dict(zip(node.outputs, outs, strict=True))
    return [values[v] for v in graph.results]

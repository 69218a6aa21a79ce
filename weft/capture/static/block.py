"""The block of a graph that is written by hand: ``with weft.Graph("f") as g``.

Everything that the thread computes inside the block becomes a node of g, and none is left out; when the
block ends g is frozen. Tensors from outside are parameters: their value is read at each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from weft.base.dtypes import kind
from weft.base.frames import format_location
from weft.capture.program.slots import GeneratorSlot
from weft.capture.record.root import Draw, Root, lock
from weft.capture.runtime import number as number  # gives sizes their arithmetic with numbers
from weft.errors import ArgumentError, CaptureError, GraphError
from weft.ir.graph import Graph, Value
from weft.ir.labels import LABEL
from weft.ir.location import Location
from weft.ir.types import TensorType
from weft.tensor.generator import CURRENT, generator_outside
from weft.tensor.mode import running_levels, thread
from weft.tensor.node import Leaf, make_node
from weft.tensor.rules import Backward
from weft.tensor.tensor import Tensor
from weft.transform.building import Capture, capturing
from weft.transform.captured import Captured
from weft.transform.slots import DataSlot

_PATIENCE = 60.0  # seconds that a thread waits for another one that writes a graph
_SOURCE = Backward("source", lambda g, saved, edges: (), ())  # of what gradients may be asked for

captures: WeakKeyDictionary[Graph, Static] = WeakKeyDictionary()  # by graph, what its tensors belong to
parameters: WeakKeyDictionary[Value, Tensor] = (
    WeakKeyDictionary()
)  # by input, the tensor that is read at each run
generators: WeakKeyDictionary[Value, Any] = WeakKeyDictionary()  # by input, the generator whose state it is
places: WeakKeyDictionary[Value, Location] = WeakKeyDictionary()  # by placeholder, its line
_open: WeakKeyDictionary[Graph, ExitStack] = WeakKeyDictionary()


class Static(Capture):
    """The capture behind a graph that is written by hand.

    Every tensor of it that may have a gradient is on the tape, so that ``gradients`` can ask for any.
    """

    escape_hint = "run the graph to have its value: weft.Session(graph).run(tensor, feeds)"

    keeps_generators = True

    def __init__(self, name: str, level: int, parent: Capture | None, *, region: bool) -> None:
        super().__init__(name, level, parent, region=region)
        self.updates: dict[
            int, tuple[Tensor, Tensor]
        ] = {}  # by id of the parameter, which is kept alive here
        self.values: set[Value] = set()  # all that are in the graph, once it is frozen
        self.states: dict[Any, Any] = {}  # by generator, the tensor that is its state
        self.draws: list[Draw] = []

    def before_hooks_write(self, hooks: dict[int, Any], *, is_own: bool) -> None:
        """Told before hooks change: as a block runs once, this stays."""

    # Random numbers: the state of a generator is an input, and each run that draws from it changes it

    def _same_generator(self, generator: Any) -> Any:
        """What stands for a generator: the current one is the one that a run finds."""
        return CURRENT if generator is generator_outside() else generator

    def begin_generator(self, generator: Any, state: Any) -> None:
        """Note a generator that the block makes: it is one of outside, whose state each run changes."""

    state_of = Root.state_of
    set_state = Root.set_state
    _put_state = Root._put_state
    draw_key = Root.draw_key

    def placeholder(self, type: TensorType, name: str) -> Tensor:
        """A new input."""
        out = self.input(type, name)
        value = out._data.value
        if (found := self.location()) is not None:
            places[value] = found
        return _on_tape(out)

    def adopt(self, tensor: Tensor) -> None:
        """Let a tensor from outside stand for its value, and be one that gradients may be asked for.

        What lies behind it in the dynamic graph stays outside.
        """
        super().adopt(tensor)
        if type(tensor._node) is not Leaf:
            tensor._node = None
            _on_tape(tensor)

    def value_of(self, tensor: Tensor) -> Value:
        """The value that a tensor is in this graph."""
        data = tensor._data
        if type(data) is Captured and data.capture is not self and self.parent is None:
            if data.level not in running_levels:
                raise data.escaped(self.name)
            if not any(e.value is data.value for e in data.capture.externals):
                raise self._foreign(data)
            self.adopt(tensor)
        return super().value_of(tensor)

    def _foreign(self, data: Captured) -> CaptureError:
        made = data.capture.location_of(data.value) or places.get(data.value)
        where = "" if made is None else f", made at {format_location(made.place)}"
        return CaptureError(
            self.name,
            f"tensors in the block of graph {self.name} must be its own or from outside of all graphs, "
            f"got one of graph {data.capture.name}{where}",
            hint=f"end the block of graph {data.capture.name} first, and feed what a run of it gives",
        )

    def rename(self, value: Value, name: str) -> None:
        """Give a value a name, which no other has."""
        if self.level not in running_levels:
            raise GraphError(
                "name", f"must be set before the block of graph {self.name} ends, got {name!r} after it"
            )
        check_name("name", self, name, value)
        object.__setattr__(value, "name", name)

    def in_place(self) -> list[tuple[Tensor, Tensor]]:
        """The parameters that the block has changed so far, each with its new value."""
        slots = [slot for slot, _ in self.journal.values() if isinstance(slot, DataSlot)]
        adopted = {id(e.reference()) for e in self.externals}
        return [(slot.tensor, slot.get()) for slot in slots if id(slot.tensor) in adopted]

    def forget_tape(self) -> None:
        """Free what only gradients in the block need."""
        self._tape.clear()

    def wait(self) -> None:
        """Called by another thread that met a tensor of this graph: returns when it has its data back."""
        if not lock.acquire(timeout=_PATIENCE):
            raise CaptureError(
                self.name, f"another thread must end the block of graph {self.name} first, got none"
            )
        lock.release()

    def settle(self) -> list[Any]:
        """Give tensors from outside back as they were."""
        alive: list[Any] = super().settle()
        for external, tensor in alive:
            tensor._node = external.node
        return alive


def _on_tape(tensor: Tensor) -> Tensor:
    if tensor._node is None and kind(tensor.dtype) in "fc":
        tensor._node = make_node(_SOURCE, (), ())
    return tensor


def static_capture(op: str) -> Static:
    """The graph that this thread writes, or an error that tells how to begin one."""
    found = None if thread.capture is None else thread.capture.root
    if not isinstance(found, Static):
        raise CaptureError(
            op,
            "must be called inside the block of a graph, got a call outside",
            hint='write `with weft.Graph("f") as g:` around it',
        )
    return found


def check_name(op: str, capture: Static, name: Any, own: Value | None = None) -> None:
    """Raise unless a name is one, and free."""
    if not isinstance(name, str) or not LABEL.fullmatch(name):
        raise ArgumentError(op, f"a name must be a string such as 'x' or 'layer.w', got {name!r}")
    everything = [*capture.inputs, *[e.value for e in capture.externals], *capture.made, *capture.constants]
    if any(value.name == name and value is not own for value in everything):
        raise GraphError(op, f"names must be distinct in a graph, got {name!r} twice")


# The block


def enter_graph(graph: Graph) -> Graph:
    """Begin the block of a graph: ``with weft.Graph("f") as g``."""
    if graph in captures or graph.nodes or graph.inputs:
        raise GraphError(
            "Graph", f"a graph must be written in one block, got {graph.name}, which is complete"
        )
    stack = ExitStack()
    stack.enter_context(lock)
    capture: Any = stack.enter_context(capturing(graph.name, make=Static))
    captures[graph], _open[graph] = capture, stack
    object.__setattr__(graph, "nodes", capture.nodes)  # so that it can be printed before it is frozen
    object.__setattr__(graph, "constants", capture.constants)
    object.__setattr__(graph, "inputs", _Inputs(capture))
    object.__setattr__(graph, "roles", _Roles(capture))
    return graph


def exit_graph(
    graph: Graph, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    """End the block of a graph: freeze it, or empty it if the block failed."""
    capture, stack = captures[graph], _open.pop(graph)
    made = Graph(graph.name)
    try:
        if error is None:
            made = _freeze(capture)
    finally:
        for part in ("inputs", "roles", "constants", "nodes", "outputs", "updates"):
            object.__setattr__(graph, part, getattr(made, part))
        stack.__exit__(kind, error, trace)
    capture.values.update(graph.inputs, graph.constants, *[node.outputs for node in graph.nodes])
    capture.forget_tape()


class _Live(Sequence[Any]):
    """A part of a graph that is still being written."""

    __slots__ = ("capture",)

    def __init__(self, capture: Static) -> None:
        self.capture = capture

    def items(self) -> list[Any]:
        raise NotImplementedError  # each part says it

    def __len__(self) -> int:
        return len(self.items())

    def __getitem__(self, index: Any) -> Any:
        return self.items()[index]


class _Inputs(_Live):
    def items(self) -> list[Any]:
        outside = [e.value for e in self.capture.externals]
        return [*self.capture.inputs, *outside, *generators_of(self.capture)]


class _Roles(_Live):
    def items(self) -> list[Any]:
        count = len(self.capture.externals) + len(self.capture.draws)
        return ["arg"] * len(self.capture.inputs) + ["param"] * count


def _freeze(capture: Static) -> Graph:
    """The graph of a block, all of it."""
    for tensor, new in capture.in_place():
        capture.updates.setdefault(id(tensor), (tensor, new))
    pairs = [(tensor, capture.value_of(new)) for tensor, new in capture.updates.values()]
    drawn = _drawn(capture)
    capture.take_changes()
    alive = capture.settle()
    for external, tensor in alive:
        parameters[external.value] = tensor
    by_tensor = {id(tensor): external.value for external, tensor in alive}
    updates = [(by_tensor[id(tensor)], new) for tensor, new in pairs if id(tensor) in by_tensor] + drawn
    changed = {old for old, _ in updates}
    others = [*by_tensor.values(), *generators_of(capture)]
    inputs = [*capture.inputs, *others]
    roles = ["arg"] * len(capture.inputs) + ["state" if v in changed else "param" for v in others]
    visible = _visible(capture)
    whole = capture.graph(inputs, visible, roles=roles, updates=updates, prune=False)
    capture.externals.clear()
    return whole.replace(outputs=_outputs(capture, visible, [new for _, new in updates]))


def _drawn(capture: Static) -> list[tuple[Value, Value]]:
    """The states of generators before and after the block."""
    slots = [slot for slot, _ in capture.journal.values() if isinstance(slot, GeneratorSlot)]
    after = {id(slot.generator): capture.value_of(slot.get()) for slot in slots}
    for draw in capture.draws:
        generators[draw.value] = draw.generator
    return [(d.value, after[id(d.generator)]) for d in capture.draws if id(d.generator) in after]


def generators_of(capture: Static) -> list[Value]:
    """The inputs that are states of generators."""
    return [draw.value for draw in capture.draws]


def _outputs(capture: Static, visible: Sequence[Value], updates: Sequence[Value]) -> list[Value]:
    """The results that have a name, or if none has, those of nodes of which nothing is used."""
    named = [v for v in visible if v.name]
    used = {v for node in capture.nodes for v in node.inputs}.union(updates)
    ends = {v for node in capture.nodes if used.isdisjoint(node.outputs) for v in node.outputs}
    return named or [v for v in visible if v in ends]


def _visible(capture: Static) -> list[Value]:
    """The values that code in the block could hold: all but those inside a call of a composite."""
    inner_first = sorted(capture.scopes, key=lambda scope: scope.stop - scope.start)
    hidden = {i: scope for scope in inner_first for i in range(scope.start, scope.stop)}
    out: dict[Value, None] = {}
    for i, node in enumerate(capture.nodes):
        shown = hidden[i].results if i in hidden else node.outputs
        out |= dict.fromkeys(v for v in node.outputs if v in shown)
    return list(out)

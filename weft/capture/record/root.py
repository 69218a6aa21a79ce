"""The root of a capture: what a captured function meets of the world outside, and what it leaves there.

A root gives each tensor from outside a *source*, where its array is found at each call: an argument, a
tensor itself, a gradient, an attribute that the function replaces, a generator. What the function reads of
Python outside is noted as a guard; what it asks of a tensor's value, if the root knows examples, is a guard
in the graph.

Reads of Python are noted in ``weft.capture.record.reads``; the innermost capture is told of writes by
``before_write``.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

import numpy as np

from weft.base.concrete import is_concrete, on_host
from weft.base.device import CPU, Device
from weft.base.dtypes import uint64
from weft.base.forks import Level, lock_of
from weft.base.frames import PACKAGE
from weft.base.records import NamedTuple
from weft.base.sizes import Size, is_known
from weft.capture.program.slots import (
    GeneratorSlot,
    Reading,
    current_slot,
    device_slot,
    layout_slot,
    leaf_slot,
    view_slot,
)
from weft.capture.record.counting import Counted
from weft.capture.record.reads import Reads
from weft.capture.runtime.failing import before_failing
from weft.errors import CaptureError
from weft.ir.graph import Array, Graph, Node, Value
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.ops.alias import CHOICE, parents_of
from weft.ops.arithmetic import add
from weft.ops.compare import bitwise_or
from weft.ops.effects import said
from weft.ops.guard import expected_array, guard
from weft.tensor.alias import catch_up, family_of, is_aliased
from weft.tensor.choices import is_met
from weft.tensor.dispatch import captured_constant
from weft.tensor.generator import CURRENT
from weft.tensor.mode import thread
from weft.tensor.node import Node as TapeNode
from weft.tensor.node import Output, make_node
from weft.tensor.rules import Backward
from weft.tensor.tensor import Tensor, wrap
from weft.transform.building import Capture
from weft.transform.captured import Captured, not_capturing
from weft.transform.slots import DataSlot, External, Slot

_DRAWS = np.array([0, 2**63], np.uint64)  # set in the keys of generators, see weft.tensor.generator
_ONE_DRAW = np.array([0, 1], np.uint64)

# Held while a function is captured, or while compiled code changes state: a capture lends tensors of the
# outside to its graph, and another thread that meets one waits.
lock = lock_of(Level.CAPTURE)


def _reached_outside(g: Any, saved: Any, edges: Any) -> Any:
    raise CaptureError(
        "backward",
        "must end at leaves and at what the captured function makes, got a tensor that was computed outside",
        hint="call backward() outside of the captured function, or compute the tensor inside",
    )


def _asks_for_user(frame: FrameType | None) -> bool:
    """Whether who asks for the device of a tensor is code of the user, and not a function of weft."""
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        if frame.f_code.co_name not in _ASKING and not frame.f_code.co_filename.startswith(_RUNTIME):
            return False
        frame = frame.f_back
    return frame is not None


_RUNTIME = os.path.join(PACKAGE, "capture", "runtime")  # which converted code calls
_ASKING = {"read_device", "device", "is_cuda", "move", "to", "cuda", "cpu"}  # the ways to ask
_BOUNDARY = Backward("argument", _reached_outside, ())


class Draw(NamedTuple):
    """A generator that captured code drew from, and the input that is its state before."""

    generator: Any
    value: Value


class Root(Reads, Capture):
    """A capture that is not inside another one, with its guards, slots and examples.

    Attributes:
        keeps_references: whether results are the very tensors, or views of those, that eager code would give;
            else they are values of a graph alone.
        grads: gradients that were read, by key of their slot: the owner and the gradient, or None.
        states: the tensor that stands for the state of each generator.
        draws: generators that were drawn from.
        rebound: keys of slots that each call is to look up, whatever tensor it finds there.
        counted: places whose numbers calls change; None where none may.
        asked: what was asked of tensors from outside that are no arguments, with the slot and the answer.
        filters: of warnings, as the capture found them.
        lent_numbers: the inputs that such places hold meanwhile, with the place and its number.
    """

    keeps_generators = True

    def __init__(self, name: str, level: int, parent: Capture | None, *, region: bool) -> None:
        super().__init__(name, level, None, region=False)
        self.keeps_references = False
        self.begin_reads()
        self.arguments: dict[int, int] = {}
        self.arrays: frozenset[int] = frozenset()  # the ids of arguments that were arrays
        self.grads: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self.states: dict[Any, Any] = {}
        self.draws: list[Draw] = []
        self.rebound: frozenset[tuple[Any, ...]] = frozenset()
        self.parents: dict[int, Any] = {}  # by id of a tensor from outside, a view that it was met by
        self.numbers: list[tuple[Any, Value]] = []
        self.counted: Counted | None = None
        self.lent_numbers: dict[Value, tuple[Any, Array]] = {}
        self.asked: list[tuple[Tensor, Reading, Any]] = []
        self.filters = warnings.filters
        self.lines: dict[tuple[Any, ...], Any] = {}  # where each slot was first changed
        self._given_numbers: dict[Value, Array] = {}  # what the numbers are in the call that is captured
        self._looked: set[tuple[Value, str]] = set()
        self._placed_by: External | None = None  # the first tensor on a device that it met
        self._marks = True  # its graph may be differentiated

    # Tensors from outside

    def _value_from_around(self, tensor: Tensor) -> Value:
        """That of a tensor from outside, which becomes an input."""
        self.adopt(tensor)  # of a transform around too: a call inside it gets what belongs to it
        value: Value = tensor._data.value
        return value

    def adopt(self, tensor: Tensor, shape: tuple[Any, ...] | None = None) -> None:
        """Let a tensor from outside stand for its value; the graph behind it stays outside.

        The value has another shape than the tensor where sizes of it have names in the graph.
        """
        data = tensor._data
        kind = TensorType(data.shape if shape is None else shape, data.dtype)
        value = Value(kind, self.paths.get(id(tensor), ""))
        external = self.lent[id(tensor)] = External(tensor, value)
        if self.device is CPU and type(data) is not np.ndarray:
            self.device, self._placed_by = tensor.device, external
        self.externals.append(external)  # before other threads can meet the value
        tensor._data, tensor._form = Captured(self, value), None
        if isinstance(tensor._node, TapeNode | Output):
            tensor._node = make_node(_BOUNDARY, (), ())
        if is_aliased(tensor):
            self._catch_up(tensor)

    def _catch_up(self, tensor: Tensor) -> None:
        """Let a tensor from outside show what the code has changed by now through others of its tree.

        Where it is met in a region, each capture around catches up by itself: a way that is not taken hands
        on what the tensor held before the region.
        """
        chain = [self.current()]
        while chain[0].parent is not None:
            chain.insert(0, chain[0].parent)
        tree = [DataSlot(m) for m in family_of(tensor)]
        known = {id(s.tensor) for s in tree if s.tensor is not tensor and is_met(s.tensor)}
        now = {slot.key: slot.get() for slot in tree}
        for k, capture in enumerate(chain):
            self._catch_up_in(capture, tensor, tree, [c.journal for c in chain[k + 1 :]], now, known)
        for slot in tree:
            slot.put(now[slot.key])

    def _catch_up_in(
        self,
        capture: Capture,
        tensor: Tensor,
        tree: Sequence[DataSlot],
        inner: Sequence[dict[tuple[Any, ...], tuple[Slot, Any]]],
        now: dict[tuple[Any, ...], Any],
        known: set[int],
    ) -> None:
        """Catch up in one capture, in which tensors hold what they held before the regions inside it."""
        holders = {s.key: next((j for j in inner if s.key in j), None) for s in tree}
        for slot in tree:
            journal = holders[slot.key]
            slot.put(now[slot.key] if journal is None else journal[slot.key][1])
            capture.remember(slot)
        changed = [s.tensor for s in tree if s.tensor is not tensor and s.key in capture.journal]
        before, thread.capture = thread.capture, capture
        try:
            catch_up(tensor, changed, known)
        finally:
            thread.capture = before
        for slot in tree:
            journal = holders[slot.key]
            if journal is None:
                now[slot.key] = slot.get()
            else:
                journal[slot.key] = (slot, slot.get())

    def read_device(self) -> Device:
        """Where the graph is to run; calls from elsewhere are captured anew where the user's code asked."""
        if _asks_for_user(sys._getframe(1)):
            for external in self.externals if self._placed_by is None else [self._placed_by]:
                tensor = external.reference()
                if tensor is not None and (external is self._placed_by or id(tensor) in self.arguments):
                    self.guards.add(device_slot(tensor), str(self.device))
        return self.device

    def read_layout(self, tensor: Tensor) -> None:
        """Let calls whose argument lies otherwise be told from this one; also where a view was asked."""
        waiting = [tensor] if self.guards_reads else []
        while waiting:
            at = waiting.pop()
            waiting += parents_of(at)
            if id(at) in self.arguments and hasattr(at, "_link") and not is_known(at.shape):
                message = "how elements lie must be known where views hang by it, got open sizes"
                raise CaptureError("reshape", message, hint="give the argument a shape of numbers")
            if self.is_outside(at):
                self._rely_on(at, slot := layout_slot(at), slot.get())

    def read_view(self, tensor: Tensor) -> None:
        """Let calls whose argument is a view be told from those whose argument is none."""
        if self.is_outside(tensor) and self.guards_reads:
            self._rely_on(tensor, view_slot(tensor), tensor.is_view)

    def _rely_on(self, tensor: Tensor, slot: Reading, value: Any) -> None:
        """Rely on what was asked of a tensor; where calls find one that is no argument is told later."""
        if id(tensor) in self.arguments:
            self.guards.add(slot, value)
        else:
            self.asked.append((tensor, slot, value))

    def before_retaining(self, tensor: Tensor) -> None:
        """Raise where only the tensor of this call would keep its gradient, and not those of others."""
        if self.is_outside(tensor):
            message = "captured code must call it on tensors that it makes, got one from outside"
            raise CaptureError("retain_grad", message, hint="call it before the captured function")

    def read_leaf(self, tensor: Tensor) -> None:
        """Let calls whose argument is a leaf be told from those whose argument was computed."""
        slot = DataSlot(tensor)
        held = self.journal[slot.key][1] if slot.key in self.journal else tensor
        if held._node is not None and self.is_outside(tensor) and self.guards_reads:
            self._rely_on(tensor, leaf_slot(tensor), held.is_leaf)

    def before_failing(self, op: Any, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> None:
        """Told before an op goes into the graph, or into a region of it, that raises for some values."""
        before_failing(op, inputs, attrs)

    def meet_parent(self, parent: Tensor, view: Tensor) -> None:
        """Told before a change of a view reaches its parent: one from outside is found by way of the view."""
        if is_concrete(parent._data) and view._link[1] is not CHOICE:
            self.parents[id(parent)] = view

    def is_outside(self, tensor: Any) -> bool:
        """Whether a tensor was there before the capture."""
        return self.has_lent(tensor) or is_concrete(tensor._data)

    def settle(self) -> list[tuple[Any, Any]]:
        """Give tensors from outside back what was theirs; gives those that live on."""
        alive = super().settle()
        for external, tensor in alive:
            if tensor is not None and isinstance(external.node, TapeNode | Output):
                tensor._node = external.node
        return alive

    def wait(self) -> None:
        """Called by another thread that met a tensor of this capture: returns when it has its data back."""
        with lock:
            pass

    def mark(self) -> tuple[Any, ...]:
        """How the capture stands now, to go back to."""
        return super().mark(), set(self._looked), dict(self.grads), len(self.externals)

    def go_back(self, mark: tuple[Any, ...]) -> None:
        """Be as it was at a mark."""
        inner, self._looked, self.grads, count = mark
        for external in self.externals[count:]:
            tensor = external.reference()
            if tensor is not None:
                tensor._node = external.node
        super().go_back(inner)

    # Reading and changing slots of tensors

    def before_write(self, slot: Slot) -> None:
        """Told before a slot changes: remembers what it holds, and the line."""
        self._check_change(slot)
        owner = getattr(slot, "owner", None)
        if slot.key in self.journal or id(owner) in self.guards.inside:
            self.remember(slot)
        if slot.key not in self.journal and (owner is None or id(owner) not in self.guards.inside):
            super().before_write(slot)
            if slot.key in self.journal:
                self.lines[slot.key] = self.location()

    def before_grad_read(self, tensor: Tensor) -> None:
        """Told before the gradient of a tensor is read: one from outside is guarded."""
        key = ("grad", id(tensor))
        if key in self.journal or key in self.grads or not self.is_outside(tensor):
            return
        held = getattr(tensor, "_grad", None)
        self.grads[key] = (tensor, held)
        if held is not None:
            self.name_outside(held, f"{self.paths.get(id(tensor), '') or 'tensor'}.grad")

    # Random generators, and numbers that are read at each call

    def state_of(self, generator: Any) -> Any:
        """The tensor that stands for the state of a generator."""
        generator = self._same_generator(generator)
        if generator not in self.states:
            value = Value(TensorType((2,), uint64), "rng")
            self.draws.append(Draw(generator, value))
            self.states[generator] = wrap(Captured(self, value))
        return self.states[generator]

    def set_state(self, generator: Any, state: Any) -> None:
        """Let a generator go on from a state."""
        self.state_of(generator)  # a region that only sets it hands on what it was on the other way
        self._put_state(self._same_generator(generator), state)

    def begin_generator(self, generator: Any, state: Any) -> None:
        """Note a generator that captured code makes, which each call makes anew."""
        self.made_inside(generator)
        self._put_state(generator, state)

    def _put_state(self, generator: Any, state: Any) -> None:
        slot = GeneratorSlot(generator, self.states)
        self.current().before_write(slot)
        slot.put(state)

    def _same_generator(self, generator: Any) -> Any:
        """What stands for a generator: where the code names the one that is current, these two are one."""
        if generator is CURRENT or generator in self.states or id(generator) in self.guards.inside:
            return generator
        slot = current_slot(generator)
        self._read(slot, generator, slot.get())
        return CURRENT if slot.get() else generator

    def draw_key(self, generator: Any) -> Any:
        """The key of the next draw from a generator, which then is one draw further."""
        state = self.state_of(generator)
        self.set_state(generator, add(state, captured_constant(_ONE_DRAW)))
        return bitwise_or(state, captured_constant(_DRAWS))

    def number_input(self, source: Any, name: str) -> Any:
        """A tensor that stands for a Python number which a function gives at each call."""
        for known, value in self.numbers:
            if known == source:
                return wrap(Captured(self, value))
        value = Value(TensorType((), source.dtype), name)
        self.numbers.append((source, value))
        with not_capturing():  # now: captured code may come to change what it reads
            self._given_numbers[value] = source.read()
        return wrap(Captured(self, value))

    # Looking at values

    def look(self, op: str, data: Captured) -> Any:
        """The array of a value, on which the graph relies from now on: a guard goes into it."""
        if self.examples is None:
            raise self.unknown(op, data)
        array = self.known(data.value)
        asked = op if op in ("bool", "int", "index") else "value"
        if (data.value, asked) not in self._looked and data.value not in self.constants:
            self._looked.add((data.value, asked))
            expected = self.constant(expected_array(array, asked))
            self.emit(guard, [data.value, expected.value], {"asked": asked})
        return array

    def known(self, value: Value) -> Array:
        """The array of a value on the examples; what is computed on the way is kept."""
        assert self.examples is not None
        if value in self._known or value in self.constants:
            return self._known[value] if value in self._known else self.constants[value]
        have: dict[Value, Any] = {**self.constants, **self._known}
        have |= {e.value: e.array for e in self.externals}
        have |= {d.value: d.generator._state_array() for d in self.draws}
        have |= self._given_numbers
        have |= self.examples
        if value in have:
            array: Array = on_host(have[value])
            return array
        nodes = self._missing(value, have)
        read = {v for node in nodes for v in node.inputs}
        inputs = [v for v in have if v in read or any(isinstance(s, Size) for s in v.type.shape)]
        graph = Graph(self.name, inputs, nodes, ())
        wanted = [v for node in nodes for v in node.outputs]
        with said.silence():  # what a run prints, this does not
            found = interpret(graph, [on_host(have[v]) for v in inputs], wanted)
        self._known.update(zip(wanted, found, strict=True))
        return self._known[value]

    def _missing(self, value: Value, have: dict[Value, Array]) -> list[Node]:
        """The nodes that have to run to know a value."""
        found: set[Node] = set()
        waiting = [value]
        while waiting:
            at = waiting.pop()
            if at not in have and (node := self.made[at]) not in found:
                found.add(node)
                waiting += node.inputs
        return [n for n in self.nodes if n in found]

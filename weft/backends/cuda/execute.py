"""A ``CudaProgram`` on a device: memory for a call, then its steps as a list, a graph, or walked through."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.backends.backend import Executable
from weft.backends.cuda.array import DeviceArray, new_array
from weft.backends.cuda.bound import Bound, Slots, is_list
from weft.backends.cuda.card import Card
from weft.backends.cuda.copies import to_device
from weft.backends.cuda.graphs import GraphRun, can_be_graph
from weft.backends.cuda.memory import Block
from weft.backends.cuda.modules import load_module
from weft.backends.cuda.program import ALIGNMENT, CONTEXT_WORDS, Array, CudaProgram, evaluate
from weft.backends.cuda.streams import Stream
from weft.backends.cuda.walk import Walk
from weft.base.sizes import Size, bind, is_known
from weft.errors import GraphError, ShapeError, WeftError
from weft.ir.graph import Graph
from weft.ir.interpret import check_sizes
from weft.ir.naming import explain_error

_MOST_SHAPES = 256
_WARM = 2  # calls with the same shapes before a list becomes a graph: many are called once
_FEWEST = 3  # entries: a graph of fewer saves nothing


class CudaExecutable(Executable):
    """A program that can be called with arrays of its device; gives a list of those of its results.

    Attributes:
        graph: that the program was made of, for errors; None of one that was written by hand.
        program: what it runs.
        card: the device.
        donated: pairs (input, result) by number: the result may be written over the input.
    """

    def __init__(self, card: Card, program: CudaProgram, graph: Graph | None = None) -> None:
        self.graph = graph  # type: ignore[assignment]
        self.program = program
        self.card = card
        self.donated = program.donated
        self.module = load_module(card, program.ptx) if program.ptx else None
        self.constants = [to_device(np.ascontiguousarray(c), card) for c in program.constants]
        self.slots = Slots(program)
        self._listed = is_list(program)
        self._shapes: dict[Any, Plan] = {}

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        """Run on arrays of the device, or of the host, which are copied there."""
        return self._run(arrays, ())

    def donating(self, arrays: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
        """Run on arrays; those that are flagged may be overwritten, and are then the results themselves."""
        return self._run(arrays, flags)

    def explain(self, arrays: Sequence[Any] | None = None) -> object:
        """The program as text."""
        return str(self.program)

    def _run(self, arrays: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
        self.card.enter()
        stream = self.card.current()
        inputs = [self._fitted(a) for a in arrays]
        plan = self.plan_for(inputs)
        for array in inputs:
            array.block.read_on(stream)
        outputs = self._new_outputs(plan, inputs, arrays, flags, stream)
        if plan.bound is not None:
            self._run_list(plan, inputs, outputs, stream)
            return outputs
        return self._walk(plan, inputs, outputs, stream)

    def _fitted(self, array: Any) -> DeviceArray:
        """An array of this device, its elements one after another, where kernels expect the first."""
        if type(array) is not DeviceArray:
            return to_device(np.asarray(array), self.card)
        if array.gaps is not None or array.pointer % ALIGNMENT:
            return array.copy()
        return array

    # Memory

    def plan_for(self, inputs: Sequence[DeviceArray]) -> Plan:
        """What calls with arrays of these shapes have in common."""
        shapes = tuple([a.shape for a in inputs])
        plan = self._shapes.get(shapes)
        if plan is None:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            plan = self._shapes[shapes] = self._new_plan(inputs)
        return plan

    def _new_plan(self, inputs: Sequence[DeviceArray]) -> Plan:
        numbers = solve_sizes(self.program.name, self.program.inputs, inputs)
        if self.graph is not None:
            check_sizes(self.graph, numbers)
        shapes = [bind(tuple(out.shape), numbers) for out in self.program.outputs]
        bound = Bound(self.card, self.program, self.module, numbers) if self._listed else None
        return Plan(numbers, shapes, bound)

    def _new_outputs(
        self,
        plan: Plan,
        inputs: Sequence[DeviceArray],
        given: Sequence[Any],
        flags: Sequence[bool],
        stream: Stream,
    ) -> list[DeviceArray | None]:
        """Memory for the results; None for those whose size only the run tells."""
        outs: list[DeviceArray | None] = []
        for shape, kind in zip(plan.shapes, self.program.outputs, strict=True):
            outs.append(new_array(self.card, shape, kind.dtype, stream) if is_known(shape) else None)
        for source, target in self.donated if any(flags) else ():
            array = inputs[source]
            if flags[source] and given[source] is array and isinstance(array.block, Block):
                array.block.write_on(stream)
                outs[target] = array
        return outs

    # Steps

    def _run_list(
        self, plan: Plan, inputs: Sequence[DeviceArray], outputs: Sequence[Any], stream: Stream
    ) -> None:
        bound = plan.bound
        assert bound is not None
        for array in self.constants:
            array.block.read_on(stream)
        with plan.lock:
            arena = plan.arena_for(self.card, stream)
            fails = bool(self.program.failures)
            context = self.card.pool.take(8 * CONTEXT_WORDS, stream) if fails else None
            if context is not None:
                self.card.driver.cuMemsetD8Async(context.pointer, 0, 8 * CONTEXT_WORDS, stream.handle)
            table = [a.pointer for a in (*inputs, *outputs, *self.constants)]
            table += [arena.pointer, 0 if context is None else context.pointer]
            plan.run(table, stream)
        if context is not None:
            self.raise_failure(read_words(self.card, context, stream))

    def _walk(
        self, plan: Plan, inputs: Sequence[DeviceArray], outputs: list[DeviceArray | None], stream: Stream
    ) -> list[Any]:
        walk = Walk(self, plan.numbers, inputs, outputs, stream)
        walk.run(self.program.steps)
        self.raise_failure(walk.context_words())
        return walk.results()

    def raise_failure(self, words: Sequence[int]) -> None:
        """Raise the error that kernels have noted, if they have."""
        failed, *values = words
        if failed:
            error = self.program.failures[failed - 1].error(values)
            raise (
                error
                if self.graph is None or not isinstance(error, WeftError)
                else explain_error(error, self.graph)
            )


class Plan:
    """What calls with arrays of the same shapes have in common.

    Attributes:
        numbers: values of the named sizes.
        shapes: of the results.
        bound: the list of launches, if the program is one.
        graph: the same as a graph, once it was called often enough.
        lock: held by the thread that fills in pointers and launches.
    """

    __slots__ = ("_arena", "_calls", "bound", "graph", "lock", "numbers", "shapes")

    def __init__(self, numbers: Mapping[str, int], shapes: Sequence[Any], bound: Bound | None) -> None:
        self.numbers = numbers
        self.shapes = shapes
        self.bound = bound
        self.graph: GraphRun | None = None
        self.lock = threading.Lock()
        self._arena: Block | None = None
        self._calls = 0

    def arena_for(self, card: Card, stream: Stream) -> Block:
        """Memory for what lies between: a graph keeps its own, other calls take and give it back."""
        assert self.bound is not None
        if self._arena is None:
            return card.pool.take(self.bound.arena, stream)
        self._arena.write_on(stream)
        return self._arena

    def run(self, table: Sequence[int], stream: Stream) -> None:
        """Launch all, as a graph from the third call on."""
        bound = self.bound
        assert bound is not None
        if self.graph is not None:
            self.graph.run(table, stream)
            return
        self._calls += 1
        if self._calls <= _WARM or len(bound.entries) < _FEWEST or not can_be_graph(bound):
            bound.run(table, stream)
            return
        self._arena = bound.card.pool.take(bound.arena, stream)
        pointers = list(table)
        pointers[bound.slots.arena] = self._arena.pointer
        self.graph = GraphRun(bound, pointers)
        self.graph.run(pointers, stream)


def read_words(card: Card, block: Block, stream: Stream) -> list[int]:
    """The words of the context, when all before is done."""
    out = np.empty(CONTEXT_WORDS, np.int64)
    card.driver.cuMemcpyDtoHAsync(out.ctypes.data, block.pointer, out.nbytes, stream.handle)
    stream.synchronize()
    found: list[int] = out.tolist()
    return found


def solve_sizes(name: str, kinds: Sequence[Array], arrays: Sequence[DeviceArray]) -> dict[str, int]:
    """The values that arrays give the named sizes; an error if they do not fit."""
    if len(kinds) != len(arrays):
        raise GraphError(name, f"there must be {len(kinds)} inputs, got {len(arrays)}")
    numbers: dict[str, int] = {}
    for kind, array in zip(kinds, arrays, strict=True):
        if kind.dtype != array.dtype or len(kind.shape) != len(array.shape):
            raise ShapeError(name, f"inputs must be {kind.dtype.name}{list(kind.shape)}, got {array.type}")
        for size, found in zip(kind.shape, array.shape, strict=True):
            if isinstance(size, Size) and str(size) not in numbers and str(size).isidentifier():
                numbers[str(size)] = found
    for kind, array in zip(kinds, arrays, strict=True):
        if any(evaluate(s, numbers) != n for s, n in zip(kind.shape, array.shape, strict=True)):
            raise ShapeError(name, f"inputs must be {kind.dtype.name}{list(kind.shape)}, got {array.type}")
    return numbers

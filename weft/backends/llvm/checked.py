"""Programs that are checked: a call has arrays of its own, with zones around them that must stay as they are.

Results begin as rubbish, so that what nobody writes is seen. Inputs are copies that must come back unchanged,
but for those that may be overwritten. What the machine code itself looks at is in ``emit.zones``; here is
also what its failures say.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from weft.backends.backend import Array, Arrays
from weft.backends.llvm.emit.places import OUT_OF_BOUNDS
from weft.backends.llvm.emit.zones import OUT_OF_ZONE, RUBBISH, STEP, mark_of, steps_of_main
from weft.backends.llvm.entry import CONTEXT, FAILED, HOST, is_unfit
from weft.backends.llvm.plan import Frame, Plan, Recipe, donated_places
from weft.backends.llvm.run import NativeExecutable
from weft.base.aligned import ALIGNMENT
from weft.base.concrete import any_on_device, on_host
from weft.base.dtypes import DType
from weft.base.hooks import hooks
from weft.base.sizes import bind
from weft.errors import GraphError, WeftError
from weft.ir.graph import Node, Value
from weft.ir.interpret import placed
from weft.loop.ir import Buffer, Function, Launch, Program, Statement, Wave
from weft.schedule.memory import ZONE

_SIDES = {1: "before", 2: "after"}


class CheckedExecutable(NativeExecutable):
    """A program whose memory is looked at."""

    def _run(self, plan: Plan, recipe: Recipe, arrays: Arrays, flags: Sequence[bool] = ()) -> list[Array]:
        if any_on_device(arrays):  # what is checked is code for the host
            device: Any = next(a for a in arrays if any_on_device([a])).device
            found = self._run(plan, plan.recipe, [on_host(a) for a in arrays])
            return self._given_back(arrays, [hooks.copy_to(x, device) for x in found], flags)
        fitted = self._fitted(arrays)
        donors = donated_places(self._facts, flags) if flags else {}
        given = {i: Zoned(i, a.shape, a.dtype, a) for i, a in enumerate(fitted) if i not in donors.values()}
        specs = enumerate(zip(plan.shapes, plan.dtypes, strict=True))
        made = {i: Zoned(len(arrays) + i, *spec) for i, spec in specs if i not in donors}
        inputs = [given[i].array if i in given else arrays[i] for i in range(len(arrays))]
        outputs: list[Any] = [made[i].array if i in made else None for i in range(len(plan.shapes))]
        frame = Frame(plan)
        frame.take_arena()
        code = self._enter(inputs, outputs, frame.words, recipe.words)
        if is_unfit(code):
            return super()._run(plan, recipe, arrays, flags)
        results = self._results(code, inputs, outputs, frame, flags)
        for i, held in given.items():
            self._check_input(i, fitted[i], held)
        for i, held in made.items():
            self._check_zones(f"result {i}", self.graph.results[i], held)
        return [np.array(a) if i in made else a for i, a in enumerate(results)]

    def _check_input(self, number: int, given: Array, held: Zoned) -> None:
        value = self.graph.inputs[number]
        name = f"input {value.name or number}"
        self._check_zones(name, value, held)
        if held.array.tobytes() != given.tobytes():
            raise GraphError("debug", f"{name} must stay as it is, but was written: {value.type}")

    def _check_zones(self, name: str, value: Value, held: Zoned) -> None:
        for side, zone in (("before", held.before), ("after", held.after)):
            if (zone != held.mark).any():
                maker = next((n for n in self.graph.nodes if value in n.outputs), None)
                text = f"memory {side} {name} must stay as it is, but was written: {value.type}"
                raise _located(GraphError("debug", text), [] if maker is None else [maker])

    def _taken_over(self, frame: Frame, number: int) -> Array:
        """A result from the heap, which has zones of its own there."""
        plan = frame.plan
        result = np.empty(bind(plan.open_shapes[number], frame.told_sizes()), plan.dtypes[number])
        address = frame.output_address(number)
        if address:
            ctypes.memmove(result.ctypes.data, address, result.nbytes)
            free_memory(address - ZONE)
        return result

    def _error(self, frame: Frame) -> BaseException:
        failed, *values = frame.words[CONTEXT + FAILED : CONTEXT + HOST].tolist()
        if failed - 1 not in (OUT_OF_BOUNDS, OUT_OF_ZONE):
            return super()._error(frame)
        step = _step_of(self.program, int(frame.words[CONTEXT + STEP]))
        buffer = _buffer_of(self.program, step, values[0])
        if failed - 1 == OUT_OF_ZONE:
            message = f"memory {_SIDES[values[1]]} buffer {buffer!r} must stay as it is, but was written"
        else:
            message = f"an index into buffer {buffer!r} must be in 0..{values[2] - 1}, got {values[1]}"
        error = GraphError("debug", f"{message}, in {_named(step)}")
        return self._explained(_located(error, self._nodes(step, buffer)))

    def _nodes(self, step: Statement | None, buffer: Buffer | None) -> list[Node]:
        """What a step computes, or a buffer holds."""
        origins = self.program.origins
        if origins is None:
            return []
        nodes = [n for f in _functions(step) for n in origins.kernels.get(f, ())]
        if not nodes and buffer in origins.buffers:
            nodes = list(origins.buffers[buffer].nodes)
        return nodes


free_memory = ctypes.CDLL(None).free
free_memory.argtypes, free_memory.restype = (ctypes.c_void_p,), None


class Zoned:
    """An array with zones around it, of rubbish or of what another one holds.

    Attributes:
        array: in between.
        before, after: the bytes of the zones.
        mark: what these hold.
    """

    __slots__ = ("after", "array", "before", "mark")

    def __init__(self, number: int, shape: Sequence[int], dtype: DType, content: Array | None = None) -> None:
        self.mark = mark_of(number)
        size = prod(shape) * dtype.itemsize
        memory = np.full(size + 2 * ZONE + ALIGNMENT, self.mark, np.uint8)
        begin = ZONE + -(memory.ctypes.data + ZONE) % ALIGNMENT
        memory[begin : begin + size] = np.full(-(-size // 2), RUBBISH, np.uint16).view(np.uint8)[:size]
        self.before = memory[begin - ZONE : begin]
        self.after = memory[begin + size : begin + size + ZONE]
        self.array: Array = memory[begin : begin + size].view(dtype).reshape(shape)
        if content is not None:
            self.array[...] = content


# What failures say


def _step_of(program: Program, number: int) -> Statement | None:
    steps = steps_of_main(program)
    return steps[number] if number < len(steps) else None


def _functions(step: Statement | None) -> list[Function]:
    if isinstance(step, Wave):
        return [launch.function for launch in step.launches]
    return [step.function] if isinstance(step, Launch) else []


def _buffer_of(program: Program, step: Statement | None, number: int) -> Buffer | None:
    """The buffer with a number: of the main function if below 0, else of the kernel that ran."""
    main = program.main
    buffers: Sequence[Buffer] = list(
        dict.fromkeys([*main.buffers, *program.arena, *program.heap, *main.scratch])
    )
    if number >= 0:
        functions = _functions(step)
        buffers = [*functions[0].buffers, *functions[0].scratch] if len(functions) == 1 else []
    else:
        number = -1 - number
    return buffers[number] if number < len(buffers) else None


def _named(step: Statement | None) -> str:
    names = [f.name for f in _functions(step)]
    if not names:
        return "the main function" if step is None else f"a {type(step).__name__.lower()}"
    return f"kernel {' or '.join(dict.fromkeys(names))}"


def _located(error: WeftError, nodes: Sequence[Node]) -> WeftError:
    """An error with the line of the first of nodes that has one."""
    found = next((n for n in nodes if n.location is not None), None)
    return error if found is None else placed(error, found)

"""What calls of a program have in common (``Plan``), and what one call needs for itself (``Frame``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from weft.backends.backend import Array
from weft.backends.llvm import entry
from weft.backends.llvm.buffer_pool import LARGE, pooled_array
from weft.base import stopping
from weft.base.aligned import empty_aligned
from weft.base.dtypes import DType
from weft.base.records import NamedTuple
from weft.base.sizes import Size, bind, is_known

Spec = tuple[tuple[int | Size, ...], DType]

_BYTE = np.dtype(np.uint8)


class Facts(NamedTuple):
    """What calls need to know of a program.

    Attributes:
        inputs, outputs, buffers: how many of each; constants come after these among the buffers.
        sizes: names, of which the run may tell some.
        arena_size: bytes for what is in between, an int or a Size.
        donated: pairs (input, output) by number: the output may be the memory of the input.
        hosts: the table of calls back into Python.
        stops: whether there are loops that can be stopped.
    """

    inputs: int
    outputs: int
    buffers: int
    sizes: tuple[str, ...]
    arena_size: int | Size
    donated: Sequence[tuple[int, int]] = ()
    hosts: Sequence[Any] = ()
    stops: bool = False


class Plan:
    """What calls with arrays of the same shapes have in common.

    Attributes:
        program: what there is to know of the program.
        main: the address of its main function.
        constants: arrays of the program.
        records: words for what the code takes down of times.
        sizes: values of the named sizes.
        told: names of sizes that only the run tells.
        shapes, dtypes: of the results.
        arena: bytes for what is in between.
        checks: what the entry compares the inputs with.
        keeps_arena: whether frames keep their arena, or take one for each call.
        frames: that are free; there are as many as calls at the same time, at most.
        recording: likewise, of calls that take down times in records of their own.
        recipe: how to have arrays for the results.
    """

    def __init__(
        self,
        program: Facts,
        main: int,
        constants: Sequence[Array],
        records: Array,
        inputs: Sequence[Spec],
        results: Sequence[Spec],
        sizes: Mapping[str, int],
    ) -> None:
        self.program = program
        self.main = main
        self.constants = constants
        self.records = records
        self.sizes = dict(sizes)
        self.told = [name for name in program.sizes if name not in sizes]
        bound = [(bind(tuple(shape), sizes), dtype) for shape, dtype in results]
        self.checks = np.array(
            [word for shape, dtype in inputs for word in entry.check_words(bind(tuple(shape), sizes), dtype)],
            np.int64,
        )
        self.shapes = [shape if is_known(shape) else (0,) * len(shape) for shape, _ in bound]
        self.dtypes = [dtype for _, dtype in bound]
        self.open_shapes = {i: shape for i, (shape, _) in enumerate(bound) if not is_known(shape)}
        self.arena = int(bind(program.arena_size, sizes))
        self.keeps_arena = self.arena < LARGE
        self.frames: list[Frame] = []
        self.recording: list[Frame] = []
        self._recipes: dict[tuple[bool, ...], Recipe] = {}
        self.recipe = self.recipe_with((False,) * program.inputs)

    def recipe_with(self, flags: tuple[bool, ...]) -> Recipe:
        """How to have arrays for the results, where flags tell which inputs may be overwritten."""
        recipe = self._recipes.get(flags)
        if recipe is None:
            donors = donated_places(self.program, flags)
            recipe = self._recipes[flags] = Recipe(self.shapes, self.dtypes, donors)
        return recipe

    def free(self, frame: Frame) -> None:
        """Let other calls use a frame."""
        if not self.keeps_arena:
            frame.arena = None
        self.frames.append(frame)


class Recipe:
    """How to have arrays for the results of a call.

    Attributes:
        words: what the entry needs to have those that are missing.
        large: number, shape and dtype of results for which the pool has memory.
        blank: a list of as many results, none of which has an array.
    """

    __slots__ = ("blank", "large", "words")

    def __init__(
        self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[DType], donors: Mapping[int, int]
    ) -> None:
        specs = [(i, shape, dtype) for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))]
        words = [entry.recipe_words(donors.get(i, -1), shape, dtype) for i, shape, dtype in specs]
        self.words = np.array([word for row in words for word in row], np.int64)
        self.large = [
            (i, shape, dtype)
            for i, shape, dtype in specs
            if prod(shape) * dtype.itemsize >= LARGE and i not in donors
        ]
        self.blank: list[Any] = [None] * len(specs)

    def new_outputs(self) -> list[Any]:
        """A list with arrays for the large results, and None for those that the entry will have."""
        outputs = self.blank.copy()
        for i, shape, dtype in self.large:
            outputs[i] = pooled_array(shape, dtype)
        return outputs


class Frame:
    """What one call of a program needs for itself.

    Attributes:
        plan: of the call.
        words: addresses and numbers, as the entry and the machine code find them.
        sizes: values of the named sizes.
        arena: memory for what is in between.
        host: for calls back into Python; None if there are none.
        records: words for what the code takes down of times.
    """

    __slots__ = ("__weakref__", "arena", "host", "plan", "records", "sizes", "words")

    def __init__(self, plan: Plan, records: Array | None = None) -> None:
        program = plan.program
        self.plan = plan
        self.records = plan.records if records is None else records
        self.arena: Array | None = None
        self.words = np.zeros(entry.BUFFERS + program.buffers, np.int64)
        self.sizes = np.array([plan.sizes.get(name, 0) for name in program.sizes], np.int64)
        context = self.words[entry.CONTEXT : entry.CONTEXT + entry.CONTEXT_WORDS]
        self.host = _host_frame(program.hosts, context) if program.hosts else None
        if program.stops:
            context[entry.POLL] = entry.poll_address()
            with stopping.lock:
                stopping.runs.add(self)
        context[entry.PROFILE] = self.records.ctypes.data
        self.words[entry.MAIN] = plan.main
        self.words[entry.INPUTS], self.words[entry.OUTPUTS] = program.inputs, program.outputs
        self.words[entry.CHECKS], self.words[entry.SIZES] = plan.checks.ctypes.data, self.sizes.ctypes.data
        first = entry.BUFFERS + program.inputs + program.outputs
        for i, constant in enumerate(plan.constants):
            self.words[first + i] = constant.ctypes.data
        if plan.keeps_arena:
            self._place_arena(empty_aligned((plan.arena,), _BYTE))

    def take_arena(self) -> None:
        """Have memory for what is in between."""
        if self.arena is None:
            self._place_arena(pooled_array((self.plan.arena,), _BYTE))

    def _place_arena(self, memory: Array) -> None:
        self.arena = memory
        self.words[entry.ARENA] = memory.ctypes.data

    def told_sizes(self) -> dict[str, int]:
        """The values of all named sizes, after a run that told some."""
        return dict(zip(self.plan.program.sizes, self.sizes.tolist(), strict=True))

    def output_address(self, number: int) -> int:
        """Where the run has put a result."""
        return int(self.words[entry.BUFFERS + self.plan.program.inputs + number])


def _host_frame(hosts: Sequence[Any], context: Array) -> Any:
    from weft.backends.llvm.host import HostFrame, host_address

    frame = HostFrame(hosts, context)
    context[entry.HOST], context[entry.PROGRAM] = host_address(), frame.number
    return frame


def donated_places(program: Facts, flags: Sequence[bool]) -> dict[int, int]:
    """By number of a result that is written over an input, the number of that input."""
    return {result: given for given, result in program.donated if flags[given]}

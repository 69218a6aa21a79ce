"""Compiled programs as functions of arrays.

A call checks its arrays, makes arrays for the results, takes a frame with memory for what is in between, and
enters the machine code. Several threads may call at the same time: each takes a frame of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.backends.backend import Array, Arrays, Executable
from weft.backends.llvm.emit.launches import ENDED, RECORD, recorded_statements
from weft.backends.llvm.emit.places import OUT_OF_MEMORY
from weft.backends.llvm.engine import Code
from weft.backends.llvm.entry import CONTEXT, FAILED, HOST, is_unfit, make_enter
from weft.backends.llvm.host import HOST_FAILED
from weft.backends.llvm.interrupts import stop_places, stoppable
from weft.backends.llvm.plan import Facts, Frame, Plan, Recipe, donated_places
from weft.backends.llvm.target import Target, host_target
from weft.base.concrete import any_on_device, is_concrete, on_host
from weft.base.hooks import hooks
from weft.base.sizes import bind
from weft.errors import WeftError
from weft.ir.graph import Graph
from weft.ir.interpret import check_sizes, interpret, regions_fit, solve_sizes
from weft.ir.naming import explain_error
from weft.loop.ir import Program

if TYPE_CHECKING:
    from weft.schedule.explanation import ExplainedStep, Explanation

_PLANS_KEPT = 256


class NativeExecutable(Executable):
    """A program that can be called with the arrays of its inputs; gives a list of those of its results.

    Attributes:
        graph: that the program was made of.
        program: what it runs.
        donated: pairs (input, result) by number: the result may be written over the input.
        codes: the machine code, the main function first.
        target: the machine that it is for.
        records: words for what the code takes down of times, if it was made to; nobody looks at these.
        objects: its object code, if it was to be kept.
    """

    knows_limits = False

    def __init__(
        self,
        graph: Graph,
        program: Program,
        codes: Sequence[Code],
        target: Target | None = None,
        records: int = 0,
        objects: Sequence[bytes] = (),
    ) -> None:
        self.graph = graph
        self.program = program
        self.donated = program.donated
        self.codes = tuple(codes)
        self.target = target or host_target()
        self.records = np.zeros(records, np.int64)
        self.objects = tuple(objects)
        self._constants = [np.require(c, requirements=("C", "A")) for c in program.constants]
        self._facts = facts_of(program)
        self._enter = stoppable(make_enter(), places) if (places := stop_places(program)) else make_enter()
        self._recording: NativeExecutable | None = None
        self._plans: dict[Any, Plan] = {}
        self._plan = None if program.main.sizes else self._new_plan({})

    def __call__(self, arrays: Arrays) -> list[Array]:
        """Run on arrays."""
        plan = self._plan or self._find_plan(arrays)
        if plan is None:
            return self._interpreted(arrays)
        return self._run(plan, plan.recipe, arrays)

    def donating(self, arrays: Arrays, flags: Sequence[bool]) -> list[Array]:
        """Run on arrays; those that are flagged may be overwritten, and are then the results themselves."""
        plan = self._plan or self._find_plan(arrays)
        if plan is None:
            return self._given_back(arrays, self._interpreted(arrays), flags)
        flags = tuple(flags)
        return self._run(plan, plan.recipe_with(flags), arrays, flags)

    def _run(self, plan: Plan, recipe: Recipe, arrays: Arrays, flags: Sequence[bool] = ()) -> list[Array]:
        try:
            frame = plan.frames.pop()
        except IndexError:
            frame = Frame(plan)
        if not plan.keeps_arena:
            frame.take_arena()
        outputs = recipe.new_outputs() if recipe.large else recipe.blank.copy()
        code = self._enter(arrays, outputs, frame.words, recipe.words)
        if code or plan.told:
            return self._finish(code, arrays, outputs, frame, flags)
        plan.free(frame)
        return outputs

    def profile(self, arrays: Arrays, records: Array) -> list[Array]:
        """Run on arrays, and have records written of how long each part took."""
        outputs, records.reshape(-1)[:], _ = self.timed(arrays, records.size)
        return outputs

    def timed(
        self, arrays: Arrays, words: int, flags: Sequence[bool] = (), recipe: Recipe | None = None
    ) -> tuple[list[Array], Array, int]:
        """Run on arrays as ``donating`` does; the results, so many words of records, and when it ended."""
        plan = self._plan or self._find_plan(arrays)
        if plan is None:
            found = self._given_back(arrays, interpret(self.graph, self._fitted(arrays)), flags)
            return found, np.zeros(words, np.int64), 0
        recipe = recipe or plan.recipe
        try:
            frame = plan.recording.pop()
        except IndexError:
            frame = Frame(plan, np.zeros(words, np.int64))
        if not plan.keeps_arena:
            frame.take_arena()
        outputs = recipe.new_outputs() if recipe.large else recipe.blank.copy()
        code = self._enter(arrays, outputs, frame.words, recipe.words)
        if code or plan.told:
            outputs = self._results(code, arrays, outputs, frame, flags)
        records, ended = frame.records.copy(), int(frame.words[CONTEXT + ENDED])
        frame.records[:] = 0
        if not plan.keeps_arena:
            frame.arena = None
        plan.recording.append(frame)
        return outputs, records, ended

    def recording(self) -> NativeExecutable:
        """The same program as code that takes down how long its parts take; made at the first call."""
        from weft.backends.llvm.driver import compile_program

        if self._recording is None:
            codes = compile_program(self.program, profile=True)
            words = len(recorded_statements(self.program)) * len(RECORD)
            self._recording = NativeExecutable(self.graph, self.program, codes, self.target, words)
        return self._recording

    @property
    def has_recording(self) -> bool:
        """Whether the code that takes down times is there."""
        return self._recording is not None

    def recorded_steps(self, sizes: Mapping[str, int]) -> list[list[ExplainedStep]]:
        """What each row of records is of: several steps if they run side by side."""
        from weft.backends.llvm.explain import recorded_steps

        return recorded_steps(self, sizes)

    def explain(self, arrays: Arrays | None = None) -> Explanation:
        """What it does, and how long that takes on arrays."""
        from weft.backends.llvm.explain import explain_executable

        if arrays is not None and any_on_device(arrays):
            from weft.backends.cuda.calls import explain_graph

            return explain_graph(self.graph, arrays)  # type: ignore[no-any-return]

        return explain_executable(self, arrays)

    # Plans

    def known_plans(self) -> list[tuple[tuple[tuple[int, ...], ...], Plan]]:
        """What there is for calls, by the shapes of the arrays."""
        if self._plan is None:
            return list(self._plans.items())
        return [(tuple(v.type.shape for v in self.graph.inputs), self._plan)]

    @property
    def loops(self) -> Program:
        """The program of loops that it runs."""
        return self.program

    def known_sizes(self) -> dict[str, int]:
        """The values that the last new shapes gave the named sizes."""
        return next((dict(plan.sizes) for plan in reversed(self._plans.values())), {})

    def _new_plan(self, sizes: Mapping[str, int]) -> Plan:
        inputs = [(v.type.shape, v.type.dtype) for v in self.graph.inputs]
        results = [(v.type.shape, v.type.dtype) for v in self.graph.results]
        return Plan(self._facts, self.codes[0].address, self._constants, self.records, inputs, results, sizes)

    def _find_plan(self, arrays: Arrays) -> Plan | None:
        """The plan for the shapes of arrays; None where sizes do not fit a branch or a loop.

        Whether that part runs only values tell: the interpreter then decides, and raises if it does.
        """
        try:
            shapes = tuple([a.shape for a in arrays])
        except AttributeError:
            shapes = tuple([np.shape(a) for a in arrays])
        plan = self._plans.get(shapes)
        if plan is None:
            sizes = solve_sizes(self.graph, [a if is_concrete(a) else np.asarray(a) for a in arrays])
            check_sizes(self.graph, sizes)
            if not regions_fit(self.graph, sizes):
                return None
            if len(self._plans) >= _PLANS_KEPT:
                self._plans.clear()
            plan = self._plans[shapes] = self._new_plan(sizes)
        return plan

    # Arrays that do not fit as they are, and runs that fail

    def _finish(
        self, code: int, arrays: Arrays, outputs: list[Array], frame: Frame, flags: Sequence[bool] = ()
    ) -> list[Array]:
        """The results of a call that was not as simple as most are; its frame is free again."""
        outputs = self._results(code, arrays, outputs, frame, flags)
        frame.plan.free(frame)
        return outputs

    def _results(
        self, code: int, arrays: Arrays, outputs: list[Array], frame: Frame, flags: Sequence[bool] = ()
    ) -> list[Array]:
        plan = frame.plan
        again = is_unfit(code)
        if again and any_on_device(arrays):
            from weft.backends.cuda.calls import run_on_device

            return self._given_back(arrays, run_on_device(self.graph, arrays), flags)
        if again:
            outputs = plan.recipe.new_outputs()
            code = self._enter(self._fitted(arrays), outputs, frame.words, plan.recipe.words)
        if code:
            raise self._error(frame)
        for i in plan.open_shapes:
            outputs[i] = self._taken_over(frame, i)
        return self._given_back(arrays, outputs, flags) if again else outputs

    def _given_back(self, arrays: Arrays, outputs: list[Array], flags: Sequence[bool]) -> list[Array]:
        """Results that were computed elsewhere: those of arrays that were given away lie in these.

        A caller who gave away arrays of a device looks at the results for them.
        """
        for result, given in donated_places(self._facts, flags).items() if flags else ():
            if type(arrays[given]) is np.ndarray:
                outputs[result] = _overwritten(arrays[given], on_host(outputs[result]))
        return outputs

    def _taken_over(self, frame: Frame, number: int) -> Array:
        """A result whose size the run has told; it lies in memory from the heap, which is freed."""
        plan = frame.plan
        shape = bind(plan.open_shapes[number], frame.told_sizes())
        result = np.empty(shape, plan.dtypes[number])
        address = frame.output_address(number)
        ctypes.memmove(result.ctypes.data, address, result.nbytes)
        _free(address)
        return result

    def _interpreted(self, arrays: Arrays) -> list[Array]:
        """The results for sizes that no plan can be made for, on the device of the arrays."""
        found = interpret(self.graph, self._fitted([on_host(a) for a in arrays]))
        device: Any = next((a.device for a in arrays if any_on_device([a])), None)
        return found if device is None else [hooks.copy_to(np.asarray(x), device) for x in found]

    def _fitted(self, arrays: Arrays) -> list[Any]:
        """The arrays in the form that the code needs; an error if they are of other types."""
        found = [np.asarray(a) for a in arrays]
        solve_sizes(self.graph, found)
        for i, value in enumerate(self.graph.inputs):
            array, dtype = found[i], value.type.dtype
            if array.dtype is not dtype or not (array.flags.c_contiguous and array.flags.aligned):
                found[i] = np.empty(array.shape, dtype)
                found[i][...] = array
        return found

    def _error(self, frame: Frame) -> BaseException:
        """The error of a run that failed."""
        failed, *values = frame.words[CONTEXT + FAILED : CONTEXT + HOST].tolist()
        number = failed - 1
        if number == HOST_FAILED and frame.host is not None and frame.host.error is not None:
            return self._explained(frame.host.error)
        if number == OUT_OF_MEMORY:
            return MemoryError(f"{self.graph.name}: {values[0]} bytes for a list that grows")
        return self._explained(self.program.failures[number].error(values))

    def _explained(self, error: BaseException) -> BaseException:
        """An error with the names of what went into the node that raised it."""
        origins = self.program.origins
        if origins is None or not isinstance(error, WeftError):
            return error
        return explain_error(error, origins.graph)


def facts_of(program: Program) -> Facts:
    """What calls need to know of a program."""
    main = program.main
    return Facts(
        program.inputs,
        program.outputs,
        len(main.buffers),
        tuple(main.sizes),
        program.arena_size,
        program.donated,
        program.hosts,
        bool(stop_places(program)),
    )


def _overwritten(array: Array, result: Array) -> Array:
    """An array that was given away, with the values of a result that could not be computed in its memory."""
    writeable = array.flags.writeable
    array.flags.writeable = True  # nobody but the caller has it, and the caller gave it away
    array[...] = result
    array.flags.writeable = writeable
    return array


_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = (ctypes.c_void_p,), None

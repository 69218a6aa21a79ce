"""A ``CudaProgram`` on a device: memory for a call, then its steps as a list, a graph, or walked through."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from weakref import WeakSet

import numpy as np

from weft.backends.backend import Executable
from weft.backends.cuda.array import DeviceArray, new_array
from weft.backends.cuda.bound import Bound, TooLongError, can_be_graph, can_fail, is_list
from weft.backends.cuda.card import Card, here
from weft.backends.cuda.conditions import has_conditions
from weft.backends.cuda.copies import to_device
from weft.backends.cuda.graphs import CONTEXT_BYTES
from weft.backends.cuda.meeting import meetings_of
from weft.backends.cuda.memory import Block, Borrowed
from weft.backends.cuda.modules import load_module
from weft.backends.cuda.placing import constant
from weft.backends.cuda.products import Product
from weft.backends.cuda.program import (
    ALIGNMENT,
    CONTEXT_WORDS,
    Array,
    CudaProgram,
    LibraryCall,
    MatrixProduct,
    all_steps,
    evaluate,
)
from weft.backends.cuda.replay import GivenUpError, Replay, raise_failure
from weft.backends.cuda.streams import Stream
from weft.backends.cuda.walk import Walk
from weft.base.lazy import cached_property
from weft.base.sizes import Size, bind, is_known
from weft.errors import DeviceError, GraphError, ShapeError
from weft.ir.graph import Graph
from weft.ir.interpret import check_sizes, interpret, regions_fit
from weft.ir.interpret import solve_sizes as sizes_of_graph
from weft.ops.effects import copied_from

_MOST_SHAPES = 256
_MOST_REPLAYS = 8  # of a plan: states at other addresses, or others that may be overwritten
_SMALL = 64  # bytes of arrays of the host that are kept on the device by their value
_WARM = 2  # calls with the same shapes before a list becomes a graph: many are called once
_MASK = ALIGNMENT - 1
_NOTHING = Borrowed(0, 0, None, None)  # type: ignore[arg-type]  # stands for an arena of no bytes
_LIBRARIES = (MatrixProduct, LibraryCall)  # steps that libraries do
_FEWEST = 3  # entries: a graph of fewer saves nothing


class CudaExecutable(Executable):
    """A program that can be called with arrays of its device; gives a list of those of its results.

    Attributes:
        graph: that the program was made of, for errors; None of one that was written by hand.
        options: that the program was made with.
        program: what it runs.
        card: the device.
        donated: pairs (input, result) by number: the result may be written over the input.
        late: results, by number, that are written after all that may fail; see ``spare``.
        fails: whether some kernel may note a failure.
    """

    def __init__(
        self,
        card: Card,
        program: CudaProgram,
        graph: Graph | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.graph = graph  # type: ignore[assignment]
        self.options = options
        self.program = program
        self.card = card
        self.donated = program.donated
        self.late = program.late
        self._more: tuple[tuple[int, int], ...] = ()  # likewise, of arrays that calls give for results
        self._count = len(program.inputs)
        self.module = load_module(card, program.ptx) if program.ptx else None
        self.constants = [to_device(np.ascontiguousarray(c), card, fixed=True) for c in program.constants]
        self.fails = can_fail(program)
        self._calls_libraries = any(isinstance(s, _LIBRARIES) for s in all_steps(program.steps))
        self._calls_cudnn = any(isinstance(s, LibraryCall) for s in all_steps(program.steps))
        self._listed = is_list(program)
        self._replayed = (
            can_be_graph(program)
            and (self._listed or has_conditions(card))
            and "graphs" not in options.get("disable", ())
        )
        self._meetings = meetings_of(card, program, graph)
        self._even: list[None] = [None] * len(program.inputs)
        self._plans: dict[Any, Plan] = {}
        self._plan: Plan | None = None  # of the last call
        self._from_host: tuple[int, ...] = ()  # inputs that were small arrays of the host
        _alive.add(self)

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        """Run on arrays of the device, or of the host, which are copied there."""
        return self._enter(arrays, ())

    def donating(self, arrays: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
        """Run on arrays; those that are flagged may be overwritten, and are then the results themselves."""
        return self._enter(arrays, tuple(flags))

    def spare(self, results: Sequence[int]) -> None:
        """Let calls give memory for results that are late: arrays after those of the inputs, flagged."""
        self._more = tuple([(self._count + i, result) for i, result in enumerate(results)])

    def _enter(self, arrays: Sequence[Any], flags: tuple[bool, ...]) -> list[Any]:
        card = self.card
        if here.card is not card:
            card.enter()
        if self._meetings is not None:
            self._meetings.check()
        stream = here.streams.get(card.index, card.stream) if here.streams else card.stream
        if stream.capture is not None:
            return self._run(arrays, flags, stream)
        if self._from_host:
            arrays = self._with_constants(arrays)
        plan = self._plan
        try:
            own = arrays if len(arrays) == self._count else arrays[: self._count]
            known = (
                plan is not None
                and [a.shape for a in own] == plan.inputs
                and [a.gaps for a in own] == self._even
            )
        except AttributeError:  # of an array of the host
            known = False
        if not known:
            return self._run(arrays, flags, stream)
        assert plan is not None
        if card.several_streams:
            for array in arrays:
                array.block.read_on(stream)
        replay = plan.replay_for(arrays, flags) if plan.replays else None
        if replay is None:
            if plan.is_short and not flags and not any(a.pointer & _MASK for a in arrays):
                return self._launch_all(plan, arrays, stream)
            return self._run(arrays, flags, stream)
        try:
            with plan.lock:
                return replay.run(list(arrays), stream)
        except GivenUpError:
            return self._step_through(plan, arrays, plan.given(arrays, flags), stream)

    def explain(self, arrays: Sequence[Any] | None = None) -> object:
        """What it does, and how long that takes on arrays; without any, on made-up ones where these do."""
        if self.graph is None:
            return str(self.program)
        from weft.backends.cuda.explain import explain_on_device

        return explain_on_device(self, self.graph, arrays)

    @property
    def loops(self) -> Any:
        """The program of loops that its kernels were made of."""
        from weft.backends.cuda.explain import loops_for

        return None if self.graph is None else loops_for(self.graph, self)

    @cached_property
    def watched(self) -> Any:
        """It, as profiles see it."""
        from weft.backends.cuda.explain import Watched

        return Watched(self.graph, self)

    def known_sizes(self) -> dict[str, int]:
        """The values that the last new shapes gave the named sizes."""
        return next((dict(plan.numbers) for plan in reversed(self._plans.values())), {})

    def _with_constants(self, arrays: Sequence[Any]) -> list[Any]:
        """The arrays, with numbers of the host on the device."""
        out = list(arrays)
        for i in self._from_host:
            if type(out[i]) is np.ndarray:
                out[i] = constant(out[i], self.card)
        return out

    def fitted(self, array: Any) -> DeviceArray:
        """An array of this device, its elements one after another, where kernels expect the first."""
        if type(array) is not DeviceArray:
            if _is_small(array) and self.card.current().capture is None:
                return constant(array, self.card)
            return to_device(np.asarray(array), self.card)
        if array.card is not self.card:
            raise DeviceError(
                self.program.name, f"tensors must be on {self.card.device}, got one on {array.device}"
            )
        if array.gaps is not None or array.pointer % ALIGNMENT:
            return array.copy()
        return array

    # Memory

    def plan_for(self, inputs: Sequence[DeviceArray]) -> Plan:
        """What calls with arrays of these shapes have in common."""
        inputs = inputs[: self._count]
        shapes = tuple([a.shape for a in inputs])
        plan = self._plans.get(shapes)
        if plan is None:
            if len(self._plans) >= _MOST_SHAPES:
                self._plans.clear()
            plan = self._plans[shapes] = self._new_plan(inputs)
        return plan

    def _new_plan(self, inputs: Sequence[DeviceArray]) -> Plan:
        if self.graph is None:
            numbers = solve_sizes(self.program.name, self.program.inputs, inputs)
        else:
            numbers = sizes_of_graph(self.graph, inputs)  # type: ignore[arg-type]
            check_sizes(self.graph, numbers)
        shapes = [bind(tuple(out.shape), numbers) for out in self.program.outputs]
        known = (*self.donated, *self._more), numbers, [a.shape for a in inputs], shapes
        if self.graph is not None and not regions_fit(self.graph, numbers):
            return Plan(*known, None, fits=False)
        bound = self._bind(numbers) if self._listed or (self._replayed and self._calls_cudnn) else None
        if bound is None:
            self._try_products(numbers)
        return Plan(*known, bound, self._listed)

    def _bind(self, numbers: Mapping[str, int]) -> Bound | None:
        try:
            return Bound(self.card, self.program, self.module, numbers)
        except TooLongError:
            return None

    def _try_products(self, numbers: Mapping[str, int]) -> None:
        """Choose algorithms for products before a call takes memory: trials need some of their own."""
        for step in self.program.steps:
            if isinstance(step, MatrixProduct):
                sizes = [bind(x, numbers) for x in (step.m, step.n, step.k, step.batch)]
                if is_known(sizes) and 0 not in sizes:
                    Product.of(self.card, step, numbers)

    def _new_outputs(
        self, plan: Plan, inputs: Sequence[DeviceArray], given: Mapping[int, int], stream: Stream
    ) -> list[DeviceArray | None]:
        """Memory for the results; None for those whose size only the run tells."""
        outs: list[DeviceArray | None] = []
        for number, (shape, kind) in enumerate(zip(plan.shapes, self.program.outputs, strict=True)):
            if number in given:
                array = inputs[given[number]]
                array.block.write_on(stream)
                outs.append(array)
            else:
                outs.append(new_array(self.card, shape, kind.dtype, stream) if is_known(shape) else None)
        return outs

    # Steps

    def _run(self, arrays: Sequence[Any], flags: Sequence[bool], stream: Stream) -> list[Any]:
        """Run step by step; calls that come often become graphs, unless another captures them."""
        if stream.capture is not None:
            return self._run_captured(arrays, flags, stream)
        inputs = [self.fitted(a) for a in arrays]
        self._from_host = self._from_host or tuple([i for i, a in enumerate(arrays) if _is_small(a)])
        flags = tuple([flag and a is b for flag, a, b in zip(flags, arrays, inputs, strict=False)])
        plan = self._plan = self.plan_for(inputs)
        for array in inputs:
            array.block.read_on(stream)
        given = plan.given(inputs, flags)
        if self._replayed and (replay := plan.warmed(self, inputs, flags, given, stream)) is not None:
            try:
                with plan.lock:
                    return replay.run(inputs, stream)
            except GivenUpError:
                pass
        # What was copied for this call alone may be written over, too: state that comes from the host.
        own = [a is not b and not _is_small(a) for a, b in zip(arrays, inputs, strict=True)]
        fresh = tuple([f or o for f, o in zip(flags or [False] * len(own), own, strict=True)])
        return self._step_through(plan, inputs, plan.given(inputs, fresh), stream)

    def _run_captured(self, arrays: Sequence[Any], flags: Sequence[bool], stream: Stream) -> list[Any]:
        """Have a graph that is being captured note all steps: graphs of this one's own are no part of it."""
        assert stream.capture is not None
        inputs = [self.fitted(a) for a in arrays]
        flags = [flag and a is b for flag, a, b in zip(flags, arrays, inputs, strict=False)]
        plan = self.plan_for(inputs)
        for array in inputs:
            array.block.read_on(stream)
        if self._calls_libraries:
            stream.capture.calls_libraries = True
        return self._step_through(plan, inputs, plan.given(inputs, flags), stream)

    def _step_through(
        self, plan: Plan, inputs: Sequence[DeviceArray], given: Mapping[int, int], stream: Stream
    ) -> list[Any]:
        """Run without a graph."""
        if not plan.fits:
            return self._interpreted(inputs, given, stream)
        outputs = self._new_outputs(plan, inputs, given, stream)
        inputs = inputs[: self._count]
        if plan.bound is None:
            return self._walk(plan, inputs, outputs, stream)
        self._run_list(plan.bound, inputs, outputs, stream)
        return outputs

    def _interpreted(
        self, inputs: Sequence[DeviceArray], given: Mapping[int, int], stream: Stream
    ) -> list[Any]:
        """The results for sizes that a branch or a loop does not fit: only values tell whether that runs."""
        with copied_from(self.card.device):
            found = interpret(self.graph, [a.to_host() for a in inputs[: self._count]])
        results = [to_device(np.asarray(x), self.card) for x in found]
        for number, place in given.items():
            new, results[number] = results[number], inputs[place]
            inputs[place].block.write_on(stream)
            if new.size:
                target = inputs[place].pointer
                self.card.driver.cuMemcpyDtoDAsync(target, new.pointer, new.nbytes, stream.handle)
        return results

    def _launch_all(self, plan: Plan, arrays: Sequence[DeviceArray], stream: Stream) -> list[Any]:
        """Run a short list of launches on arrays that are as they must be."""
        assert plan.bound is not None
        pairs = zip(plan.shapes, self.program.outputs, strict=True)
        outputs: list[Any] = [new_array(self.card, shape, kind.dtype, stream) for shape, kind in pairs]
        self._run_list(plan.bound, arrays, outputs, stream)
        return outputs

    def _run_list(
        self, bound: Bound, inputs: Sequence[DeviceArray], outputs: Sequence[Any], stream: Stream
    ) -> None:
        for array in self.constants:
            array.block.read_on(stream)
        arena = self.card.pool.take(bound.arena, stream) if bound.arena else _NOTHING
        context = self.card.pool.take(CONTEXT_BYTES, stream) if self.fails else None
        if context is not None:
            self.card.driver.cuMemsetD8Async(context.pointer, 0, CONTEXT_BYTES, stream.handle)
        table = [a.pointer for a in (*inputs, *outputs, *self.constants)]
        bound.run([*table, arena.pointer, 0 if context is None else context.pointer], stream)
        if context is None:
            return
        if stream.capture is not None:
            stream.capture.fails(self, context)
        else:
            self.raise_failure(read_words(self.card, context, stream))

    def _walk(
        self, plan: Plan, inputs: Sequence[DeviceArray], outputs: list[DeviceArray | None], stream: Stream
    ) -> list[Any]:
        walk = Walk(self, plan.numbers, inputs, outputs, stream, plan.rooms)
        walk.run(self.program.steps)
        if stream.capture is None:
            self.raise_failure(walk.context_words())
        elif self.fails:
            stream.capture.fails(self, walk.context)
        return walk.results()

    @property
    def meets(self) -> bool:
        """Whether other ranks run it at the same time."""
        return self._meetings is not None

    def raise_failure(self, words: Sequence[int]) -> None:
        """Raise the error that kernels have noted, if they have."""
        raise_failure(self.program, self.graph, words)


def _is_small(array: Any) -> bool:
    """Whether an array is a number of the host, or a few: they are copied once for each value."""
    return type(array) is np.ndarray and array.nbytes <= _SMALL


_alive: WeakSet[CudaExecutable] = WeakSet()


def forget_plans() -> None:
    """Let every executable plan anew, when a setting that plans depend on has changed."""
    for executable in list(_alive):
        executable._plan = None
        executable._plans.clear()


class Plan:
    """What calls with arrays of the same shapes have in common; it does not know whose calls.

    Attributes:
        numbers: values of the named sizes.
        inputs, shapes: the shapes of the arrays, and of the results.
        bound: the list of launches, if the program is one.
        for_graphs: the same, also of a program that only graphs run as a list; None where nobody made it yet.
        rooms: see ``Bound``.
        fits: whether the sizes are such that every branch and loop could run.
        is_short: whether it is a list that is too short to be worth a graph.
        replays: graphs, by which inputs are given away, and the addresses of those.
        lock: held by the thread that fills in pointers and launches.
    """

    def __init__(
        self,
        donated: Sequence[tuple[int, int]],
        numbers: Mapping[str, int],
        inputs: Sequence[Any],
        shapes: Sequence[Any],
        bound: Bound | None,
        listed: bool = True,
        fits: bool = True,
    ) -> None:
        self.fits = fits
        self._donated = donated
        self.numbers = numbers
        self.inputs = inputs
        self.shapes = shapes
        self.bound = bound if listed else None
        self.for_graphs = bound
        self.rooms = {} if bound is None else bound.rooms
        self.lock = threading.Lock()
        self.replays: dict[Any, Replay] = {}
        self._calls: dict[Any, int] = {}
        self._places: dict[Any, Any] = {}  # by flags, what picks the inputs that are given away
        known = all(map(is_known, shapes))
        self.is_short = known and self.bound is not None and len(self.bound.entries) < _FEWEST
        self._replayed = known and fits and not self.is_short

    def replay_for(self, arrays: Sequence[DeviceArray], flags: Sequence[bool]) -> Replay | None:
        """The graphs for a call, if there are some."""
        return self.replays.get(self._key(arrays, flags))

    def _key(self, arrays: Sequence[DeviceArray], flags: Sequence[bool]) -> Any:
        places = self._places.get(flags)
        if places is None:
            found = [i for i, _ in self._donated if i < len(flags) and flags[i]]
            places = self._places[flags] = found
        return (flags, *[arrays[i].pointer for i in places]) if places else flags

    def given(self, arrays: Sequence[DeviceArray], flags: Sequence[bool]) -> dict[int, int]:
        """By result that is written over an input, the number of the input."""
        pairs = [(i, j) for i, j in self._donated if i < len(flags) and flags[i]]
        return {j: i for i, j in pairs if isinstance(arrays[i].block, Block)}

    def warmed(
        self,
        executable: CudaExecutable,
        arrays: Sequence[DeviceArray],
        flags: Sequence[bool],
        given: dict[int, int],
        stream: Stream,
    ) -> Replay | None:
        """Graphs for a call, made if it has come often enough."""
        if not self._replayed:
            return None
        key = self._key(arrays, flags)
        with self.lock:
            if key in self.replays:
                return self.replays[key]
            self._calls[key] = count = self._calls.get(key, 0) + 1
            if count <= _WARM:
                return None
            if len(self.replays) >= _MOST_REPLAYS:
                self.replays.clear()
                self._calls.clear()
            try:
                found = self.replays[key] = Replay(executable, self, given, arrays, stream)
            except TooLongError:
                self._replayed = False
                return None
            executable.card.keepers.add(self)
        return found

    def forget(self) -> None:
        """Give back the memory of graphs, unless one is about to run."""
        if self.lock.acquire(blocking=False):
            self.replays.clear()
            self._calls.clear()
            self.lock.release()


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

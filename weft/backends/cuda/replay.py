"""Calls as CUDA graphs that are started again and again, with the memory that they read and write.

Pointers in a graph are fixed, so that a call is one launch:

- state that is written in place stays where it is; a graph is for states at certain addresses;
- inputs that lie elsewhere from call to call are copied to memory of the graph's own first;
- results lie in memory that the graph keeps. It writes there again when nobody holds the last ones any more;
  until then another graph of a small ring has its turn;
- results that are held for longer, and large ones of which few nodes can be told, get new memory each time.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from ctypes import c_int64
from functools import cache
from math import prod
from operator import itemgetter
from time import sleep
from typing import TYPE_CHECKING, Any

from weft.backends.cuda.array import DeviceArray, new_array
from weft.backends.cuda.bound import GIVEN_UP, Bound
from weft.backends.cuda.copies import packed_copy
from weft.backends.cuda.graphs import CONTEXT_BYTES, NOTED_BYTES, GraphRun, is_captured, settable
from weft.backends.cuda.meeting import raise_elsewhere
from weft.backends.cuda.memory import Block, Pinned
from weft.backends.cuda.native import native_call
from weft.backends.cuda.program import ALIGNMENT, COMMITTED, CONTEXT_WORDS, CudaProgram
from weft.backends.cuda.streams import Stream
from weft.errors import WeftError
from weft.ir.graph import Graph
from weft.ir.naming import explain_error

if TYPE_CHECKING:
    from weft.backends.cuda.execute import CudaExecutable, Plan

_LARGE = 1 << 20  # bytes from which on memory is not kept, nor copied, where a few nodes can be told instead
_FEW = 8  # nodes
_MOST = 3  # graphs of a ring
_SMALL = 1 << 12  # bytes of a result that somebody may hold while others are written again
_MUCH = 1 << 26  # bytes of results from which on such ones are copied rather than having another graph
_LAST = CONTEXT_WORDS - 1  # the word that tells that all others are there
_LOOKS = 1500  # at that word, before others may have the processor
_PAUSE = 1e-5  # seconds between two looks


def _counts(arrays: Sequence[DeviceArray]) -> list[tuple[int, int]]:
    """How many hold each of some arrays, and its memory, as CPython tells."""
    count = sys.getrefcount
    return [(count(a), count(a.block)) for a in arrays]


def raise_failure(program: CudaProgram, graph: Graph | None, words: Sequence[int]) -> None:
    """Raise the error that kernels have noted, if they have; with names of the graph where there is one."""
    failed, *values = words
    if not failed and any(words[COMMITTED : COMMITTED + 1]):
        raise_elsewhere(program)
    if not failed:
        return
    error = program.failures[failed - 1].error(values)
    if graph is not None and isinstance(error, WeftError):
        raise explain_error(error, graph)
    raise error


class GivenUpError(Exception):
    """Of a run that came to something that only the host can do; it has changed nothing."""


class Member:
    """One graph of a ring.

    Attributes:
        graph: what is launched.
        kept: by number of the result, the arrays that it writes each time.
    """

    __slots__ = ("_free", "graph", "kept", "listed")

    def __init__(self, graph: Any, kept: dict[int, DeviceArray]) -> None:
        self.graph = graph
        self.kept = kept
        self.listed = list(kept.values())
        self._free = [_alone()] * len(kept) if graph is not None else []

    def is_held(self) -> bool:
        """Whether somebody holds one of its results."""
        return _counts(self.listed) != self._free

    def give_away(self, place: int) -> None:
        """Let a result be a copy, for those who hold it; its memory is that of another array from now on."""
        old, number = self.listed[place], list(self.kept)[place]
        home = DeviceArray(old.card, old.block, old.pointer, old.shape, old.dtype, old.gaps)
        moved = packed_copy(old)
        old.block, old.pointer, old.gaps = moved.block, moved.pointer, None
        self.listed[place] = self.kept[number] = home


@cache
def _alone() -> tuple[int, int]:
    """The counts of a result that only its graph holds."""
    probe = DeviceArray.__new__(DeviceArray)
    probe.block = Block.__new__(Block)
    probe.block.size = 0  # so that nothing is given back
    only = Member(None, {0: probe})
    del probe
    return _counts(only.listed)[0]


class Replay:
    """The graphs of calls with the same shapes, that give away memory at the same addresses.

    To be used under the lock of the plan.

    Args:
        executable: what is called.
        plan: of calls with these shapes.
        given: by result that is written over an input, the number of the input.
        arrays: of the first call.
        stream: that it goes to.
    """

    def __init__(
        self,
        executable: CudaExecutable,
        plan: Plan,
        given: dict[int, int],
        arrays: Sequence[DeviceArray],
        stream: Stream,
    ) -> None:
        self.card, self.program, self._graph = executable.card, executable.program, executable.graph
        self._constants, self._shapes, self._given = executable.constants, plan.shapes, given
        self._stream = stream
        self._bound = plan.for_graphs or Bound(self.card, self.program, executable.module, plan.numbers)
        self._settable = settable(self._bound.entries)
        self._users = Counter(slot for entry in self._bound.entries for slot in entry.slots())
        self._captured = is_captured(self._bound.entries)
        take = self.card.pool.take
        self.arena = take(self._bound.arena, stream)
        fails = executable.fails
        self.context = take(CONTEXT_BYTES, stream) if fails else None
        self._words = Pinned(self.card, CONTEXT_BYTES) if fails else None
        self._noted = (
            None if self._words is None else (c_int64 * CONTEXT_WORDS).from_address(self._words.pointer)
        )
        if self.context is not None:  # what the last word is, whenever it is copied
            last = self.context.pointer + NOTED_BYTES
            self.card.driver.cuMemsetD8Async(last, 1, CONTEXT_BYTES - NOTED_BYTES, stream.handle)
        self.expected = [a.pointer for a in arrays]  # what the graphs read; 0 of inputs that move
        self._own: dict[int, Block] = {}  # of inputs that are copied
        self._told: set[int] = set()  # of inputs whose nodes are told
        self._new = {i for i in range(len(self.program.outputs)) if self._is_new(i)}  # results in new memory
        self.ring: list[Member] = []
        self._copy = native_call(self.card.driver, "cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2")

    def _is_new(self, number: int) -> bool:
        shape, kind = self._shapes[number], self.program.outputs[number]
        nbytes = prod(shape) * kind.dtype.itemsize
        return number not in self._given and nbytes > _LARGE and self._is_told(number)

    def run(self, arrays: list[DeviceArray], stream: Stream) -> list[DeviceArray]:
        """Launch for a call; its results."""
        if stream is not self._stream:
            self._move_to(stream)
        if self._captured and self.card.library_order.writer is not stream:
            self.card.library_order.write_on(stream)
        if [a.pointer for a in arrays] != self.expected:
            self._bring(arrays, stream)
        if self.card.several_streams:
            for i in self._given.values():
                arrays[i].block.write_on(stream)
        member = self._free_member(arrays, stream)
        fresh = self._tell(member, arrays, stream) if self._told or self._new else None
        if self._noted is not None:
            self._noted[_LAST] = 0
        member.graph.run(stream)
        if self._noted is not None:
            self._check(stream)
        outputs: list[Any] = self._choose([*arrays, *member.listed])
        if fresh:
            self._finish(member, fresh, outputs, stream)
        return outputs

    # What goes in

    def _bring(self, arrays: Sequence[DeviceArray], stream: Stream) -> None:
        """Let graphs find inputs that are not where they read them."""
        for i, (array, pointer) in enumerate(zip(arrays, self.expected, strict=True)):
            if array.pointer == pointer or i in self._told:
                continue
            if i not in self._own:
                self._loosen(i, array, stream)
            if i in self._own and array.size:
                self._copy(self._own[i].pointer, array.pointer, array.nbytes, stream.handle)

    def _loosen(self, number: int, array: DeviceArray, stream: Stream) -> None:
        """Have an input copied from now on, or the nodes that read it told."""
        self.expected[number] = 0
        if array.nbytes > _LARGE and self._tellable(number):
            self._told.add(number)
        else:
            self._own[number] = self.card.pool.take(array.nbytes, stream)
            self.ring.clear()  # they read elsewhere

    # What comes out

    def _free_member(self, arrays: Sequence[DeviceArray], stream: Stream) -> Member:
        """A graph whose results nobody holds."""
        ring = self.ring
        if ring:
            member = ring[0]
            if len(ring) > 1:
                ring.append(ring.pop(0))
            if not member.is_held():
                return self._ready(member, stream)
        for member in ring[:-1]:
            if not member.is_held():
                ring.remove(member)
                ring.append(member)
                return self._ready(member, stream)
        for member in ring[:1]:
            if len(ring) > 1 and self._hand_out_small(member):
                return self._ready(member, stream)
        if len(ring) >= _MOST:
            self._loosen_results()
        ring.append(self._build(arrays, stream))
        return ring[-1]

    def _hand_out_small(self, member: Member) -> bool:
        """Let small results that somebody holds lie elsewhere, if the graph has large ones beside them.

        For a loss that somebody keeps there would else be all gradients a third time.
        """
        alone, counts = _alone(), _counts(member.listed)
        held = [i for i, count in enumerate(counts) if count != alone]
        small = all(member.listed[i].nbytes <= _SMALL and counts[i][1] == alone[1] for i in held)
        if not small or sum(a.nbytes for a in member.listed) < _MUCH:
            return False
        for i in held:
            member.give_away(i)
        return True

    def _ready(self, member: Member, stream: Stream) -> Member:
        """A graph whose results may be written: after all who read them elsewhere."""
        for array in member.listed:
            block: Any = array.block
            if block.writer is not stream or block.readers:
                block.write_on(stream)
        return member

    def _loosen_results(self) -> None:
        """Have results that are held in all graphs in new memory from now on."""
        alone = _alone()
        counts = [_counts(member.listed) for member in self.ring]
        for place, number in enumerate(self.ring[0].kept):
            if all(found[place] != alone for found in counts):
                self._new.add(number)
        self.ring.clear()

    def _build(self, arrays: Sequence[DeviceArray], stream: Stream) -> Member:
        """One more graph, with memory for results."""
        program, slots = self.program, self._bound.slots
        results: dict[
            int, DeviceArray
        ] = {}  # the driver looks at pointers, also at those that it is told later
        for number, (shape, kind) in enumerate(zip(self._shapes, program.outputs, strict=True)):
            if number not in self._given:
                results[number] = new_array(self.card, shape, kind.dtype, stream)
        kept = {n: a for n, a in results.items() if not (n in self._new and self._is_told(n))}
        inputs = [self._own[i].pointer if i in self._own else a.pointer for i, a in enumerate(arrays)]
        outputs = [
            inputs[self._given[n]] if n in self._given else results[n].pointer
            for n in range(len(program.outputs))
        ]
        count = len(program.inputs)  # there may be more arrays, which are memory for results
        table = [*inputs[:count], *outputs, *[a.pointer for a in self._constants], self.arena.pointer]
        table.append(0 if self.context is None else self.context.pointer)
        context = None if self.context is None else (self.context.pointer, self._words.pointer)  # type: ignore[union-attr]
        assert len(table) == slots.count
        alias = {count + result: given for result, given in self._given.items() if given < count}
        bound = self._bound
        graph = GraphRun(self.card, bound.entries, table, context, alias, slots.context, bound.counters)
        member = Member(graph, kept)
        places = {number: len(inputs) + i for i, number in enumerate(kept)}
        order = [self._given.get(n, places.get(n, 0)) for n in range(len(outputs))]
        self._choose = _chooser(order)
        return member

    def _is_told(self, number: int) -> bool:
        """Whether the nodes that write a result can be told where; else it is copied from where they do."""
        return self._tellable(len(self.program.inputs) + number)

    def _tellable(self, slot: int) -> bool:
        """Whether a few nodes alone use a slot, and can be told of another pointer."""
        return slot in self._settable and self._users[slot] <= _FEW

    def _tell(self, member: Member, arrays: list[DeviceArray], stream: Stream) -> dict[int, DeviceArray]:
        """Tell nodes of inputs and results that lie elsewhere each time; gives these results."""
        for i in self._told:
            if arrays[i].pointer % ALIGNMENT:
                arrays[i] = arrays[i].copy()
            member.graph.set(i, arrays[i].pointer)
        fresh = {}
        for number in self._new:
            kind = self.program.outputs[number]
            out = fresh[number] = new_array(self.card, self._shapes[number], kind.dtype, stream)
            if self._is_told(number):
                member.graph.set(len(self.program.inputs) + number, out.pointer)
        return fresh

    def _finish(
        self, member: Member, fresh: dict[int, DeviceArray], outputs: list[Any], stream: Stream
    ) -> None:
        """Put results in new memory among the others."""
        for number, out in fresh.items():
            outputs[number] = out
            if number in member.kept and out.size:
                source = member.kept[number].pointer
                self._copy(out.pointer, source, out.nbytes, stream.handle)

    def _check(self, stream: Stream) -> None:
        """Wait until no kernel can fail any more, and raise the error that some have noted, if they have.

        The rest of the graph goes on meanwhile.
        """
        noted = self._noted
        assert noted is not None
        for _ in range(_LOOKS):
            if noted[_LAST]:
                break
        else:
            while not noted[_LAST]:
                if stream.query():
                    stream.synchronize()
                    break
                sleep(_PAUSE)
        if not noted[0] and not noted[COMMITTED]:
            return
        if noted[0] == GIVEN_UP:
            raise GivenUpError
        raise_failure(self.program, self._graph, list(noted))

    def _move_to(self, stream: Stream) -> None:
        """Let a stream use the memory of the graphs: after what others do with it."""
        self._stream = stream
        blocks = [self.arena, *self._own.values()] + ([] if self.context is None else [self.context])
        for block in blocks:
            block.write_on(stream)
        for array in self._constants:
            array.block.read_on(stream)


def _chooser(order: Sequence[int]) -> Any:
    """A function from a list to that of its items at certain places."""
    if len(order) > 1:
        pick: Any = itemgetter(*order)
        return lambda items: list(pick(items))
    return lambda items: [items[i] for i in order]

"""The order of units, and which may run at the same time.

It is Kahn's algorithm, taking first what starts something that goes on beside, then what frees as much memory
as it takes; what waits for such a thing comes last. Among the others the program's own
order decides. What overwrites state comes after everything that may fail, so that a run that fails changes
nothing and state can be overwritten in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any

from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.ir.graph import Node, Value
from weft.loop.ir import Block, Buffer, Launch, Wave
from weft.loop.walk import blocks_of, own_accesses
from weft.schedule.fusion import Group
from weft.schedule.use_def import UseDef, is_view

_UNKNOWN = 64  # what a named size is taken for
_LONGEST = 64  # launches of a wave
_TURNS = {"early": -1, "late": 2}


def order_units(
    use_def: UseDef, groups: Mapping[int, Group], changing: dict[int, int] | None = None
) -> list[Group | int]:
    """Groups and the numbers of other nodes, views left out, in an order in which they can run.

    ``changing`` has, by the number of the first node of a group, the number of a node that it does the work
    of, changing a part of an array: it runs when that node can. Where that cannot be, it is taken out.
    """
    order = _Ordering(use_def, groups, {} if changing is None else changing).run()
    return [groups.get(u, u) for u in order]


class _Ordering:
    """Units are named by the number of their first node."""

    def __init__(self, use_def: UseDef, groups: Mapping[int, Group], changing: dict[int, int]) -> None:
        self.use_def = use_def
        self.changing = changing
        self.nodes: dict[int, list[int]] = {}
        self.unit_of: dict[int, int] = {}
        for i, node in enumerate(use_def.nodes):
            if not is_view(node):
                self.unit_of[i] = unit = min(groups[i].members) if i in groups else i
                self.nodes.setdefault(unit, []).append(i)
        self.needs: dict[int, set[int]] = {}
        for unit, nodes in self.nodes.items():
            self.needs[unit] = {self.unit_of[j] for i in nodes for j in use_def.needs[i]} - {unit}
        self._ranks: dict[int, int] = {}  # places in an order that is possible; empty if it is not known
        self._take_over(changing)
        self._keep_effects_in_order()
        self._put_updates_last()
        self._read_before_changing()
        self.users: dict[int, set[int]] = {u: set() for u in self.needs}
        for unit, needed in self.needs.items():
            for other in needed:
                self.users[other].add(unit)
        self._find_uses()

    def _take_over(self, changing: dict[int, int]) -> None:
        """Let groups that do the work of a node wait for what it needs: its array, the sizes of its part."""
        for unit, i in list(changing.items()):
            needed = self.needs[self.unit_of[i]] - {unit}
            if any(self._is_needed(unit, other) for other in needed):
                del changing[unit]
            else:
                for other in needed:
                    self._add_need(unit, other)

    def _keep_effects_in_order(self) -> None:
        """What may fail keeps its place among effects, so that a run fails where the program does.

        Effects of a sequence keep to the order of theirs alone, and to effects of none.
        """
        last: list[int] = []
        since: list[int] = []
        sequences: dict[str, int] = {}  # the last unit of each, since the last effect of none
        for i, unit in self.unit_of.items():
            node = self.use_def.nodes[i]
            if node.op.sequence and not node.is_pure:
                names = node.attrs[node.op.sequence].split(",")
                self._add_needs(unit, [*last, *[sequences[name] for name in names if name in sequences]])
                sequences.update(dict.fromkeys(names, unit))
            elif not node.is_pure:
                self._add_needs(unit, [*last, *since, *sequences.values()])
                last, since, sequences = [unit], [], {}
            elif _may_fail(node):
                self._add_needs(unit, last)
                since.append(unit)

    def _add_needs(self, unit: int, others: Iterable[int]) -> None:
        """Let a unit run after others, unless one of them needs it."""
        for other in others:
            if other != unit and not self._is_needed(unit, other):
                self._add_need(unit, other)

    def _put_updates_last(self) -> None:
        new = {self.use_def.root(v) for _, v in self.use_def.graph.updates}
        writers = {self.unit_of[self.use_def.producer[v]] for v in new if v in self.use_def.producer}
        fallible = [
            u for u, nodes in self.nodes.items() if any(_may_fail(self.use_def.nodes[i]) for i in nodes)
        ]
        for unit in fallible if writers else ():
            # What a fallible unit itself needs cannot wait for it: such a state is not overwritten in place.
            for writer in writers - {unit}:
                if not self._is_needed(writer, unit):
                    self._add_need(writer, unit)

    def _read_before_changing(self) -> None:
        """Let what changes some elements of an array come after the others that read it: it needs no copy."""
        readers: dict[Value, list[int]] = {}
        for i, unit in self.unit_of.items():
            for v in self.use_def.nodes[i].inputs:
                readers.setdefault(self.use_def.root(v), []).append(unit)
        for i, unit in self.unit_of.items():
            if self.use_def.nodes[i].op.in_place:
                self._add_needs(unit, readers[self.use_def.root(self.use_def.nodes[i].inputs[0])])
        for unit, i in self.changing.items():
            self._add_needs(unit, readers[self.use_def.root(self.use_def.nodes[i].inputs[0])])

    def _add_need(self, unit: int, other: int) -> None:
        self.needs[unit].add(other)
        if self._ranks and self._ranks[other] > self._ranks[unit]:
            self._ranks.clear()

    def _is_needed(self, unit: int, by: int) -> bool:
        """Whether a unit has to run before another one.

        Looked for among those between both alone, in an order in which all can run: mostly there are none.
        """
        ranks = self._ranks or self._find_ranks()
        least = ranks[unit]
        found: set[int] = set()
        stack = [by]
        while stack:
            for other in self.needs[stack.pop()]:
                if other == unit:
                    return True
                if other not in found and ranks[other] > least:
                    found.add(other)
                    stack.append(other)
        return False

    def _find_ranks(self) -> dict[int, int]:
        waits = {unit: len(needed) for unit, needed in self.needs.items()}
        users: dict[int, list[int]] = {unit: [] for unit in self.needs}
        for unit, needed in self.needs.items():
            for other in needed:
                users[other].append(unit)
        ready = [unit for unit, count in waits.items() if count == 0]  # in order, and so a heap
        while ready:
            unit = heappop(ready)
            self._ranks[unit] = len(self._ranks)
            for other in users[unit]:
                waits[other] -= 1
                if waits[other] == 0:
                    heappush(ready, other)
        return self._ranks

    # Memory

    def _find_uses(self) -> None:
        """What each unit reads and makes, and who else reads that."""
        kept = {self.use_def.root(v) for v in self.use_def.results}
        self.reads: dict[int, set[Value]] = {}
        self.taken: dict[int, float] = {}
        self.readers: dict[Value, set[int]] = {}
        for unit, nodes in self.nodes.items():
            made = {v for i in nodes for v in self.use_def.nodes[i].outputs}
            used = {self.use_def.root(v) for i in nodes for v in self.use_def.nodes[i].inputs} - made
            self.reads[unit] = {v for v in used if v in self.use_def.producer and v not in kept}
            for v in self.reads[unit]:
                self.readers.setdefault(v, set()).add(unit)
        for unit, nodes in self.nodes.items():
            made_here: Iterable[Value] = [v for i in nodes for v in self.use_def.nodes[i].outputs]
            self.taken[unit] = sum(_bytes(v) for v in made_here if v in self.readers)

    def _is_free(self, unit: int) -> bool:
        """Whether a unit frees as much memory as it takes."""
        # Only what no other unit still has to read goes away with this one.
        freed = sum(_bytes(v) for v in self.reads[unit] if self.readers[v] == {unit})
        return freed >= self.taken[unit]

    def _turn(self, unit: int) -> int:
        """What is ready runs in this order: what is early, what frees memory, others, what is late."""
        when = self.use_def.nodes[unit].op.when
        return _TURNS[when] if when else int(not self._is_free(unit))

    def run(self) -> list[int]:
        waits = {u: len(needed) for u, needed in self.needs.items()}
        ready = [(self._turn(u), u) for u, count in waits.items() if count == 0]
        heapify(ready)
        order: list[int] = []
        done: set[int] = set()
        while ready:
            _, unit = heappop(ready)
            if unit in done:
                continue  # it was pushed again when it had become free, and that entry came first
            done.add(unit)
            order.append(unit)
            for other in self.users[unit]:
                waits[other] -= 1
            for other in self._affected(unit):
                if waits[other] == 0 and other not in done:
                    heappush(ready, (self._turn(other), other))
        assert len(order) == len(self.needs), "units form a cycle"
        return order

    def _affected(self, unit: int) -> set[int]:
        """The units that may be ready now, or have become the last to read something."""
        found = set(self.users[unit])
        for v in self.reads[unit]:
            self.readers[v].discard(unit)
            if len(self.readers[v]) == 1:
                found |= self.readers[v]
        return found


def _may_fail(node: Node) -> bool:
    return node.op.fallible or node.op.effect or bool(node.regions)


def _bytes(value: Value) -> float:
    size: Any = size_of(tuple(_UNKNOWN if isinstance(s, Size) else s for s in value.type.shape))
    return float(size * value.type.dtype.itemsize)


def form_waves(block: Block) -> None:
    """Put independent neighbours of a block, and of those inside, into waves."""
    out: list[Any] = []
    wave: list[Launch] = []
    read: set[Buffer] = set()
    written: set[Buffer] = set()

    def end() -> None:
        if wave:
            out.append(wave[0] if len(wave) == 1 else Wave(tuple(wave)))
        wave.clear()
        read.clear()
        written.clear()

    for statement in block.statements:
        for inner in blocks_of(statement):
            form_waves(inner)
        if not isinstance(statement, Launch):
            end()
            out.append(statement)
            continue
        reads = {a.buffer for a in own_accesses(statement) if not a.written}
        writes = {a.buffer for a in own_accesses(statement) if a.written}
        if len(wave) >= _LONGEST or writes & (read | written) or reads & written:
            end()
        wave.append(statement)
        read |= reads
        written |= writes
    end()
    block.statements[:] = out

"""Sizes that a region tells each time it runs, in the shapes of what it gives to the graph around it.

A loop that stacks rows, whose length a loop inside of it decides, has memory for them only once its first
iteration has told that length; all later ones must tell the same. Until then, and where the region does not
run at all, such a size is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.dtypes import int64
from weft.base.sizes import named_size, size_names
from weft.ir.graph import Node, Value
from weft.ir.order import sizes_defined, sizes_of
from weft.loop.index import Index
from weft.loop.ir import Bind, Block, If, Leave
from weft.schedule.arrays import Array
from weft.schedule.region import Failure, Scope


class LateSizes:
    """The sizes in the shapes of outputs of a node that its regions tell.

    Attributes:
        names: of them; mostly there are none.
    """

    def __init__(self, scope: Scope, node: Node, outputs: Sequence[Value]) -> None:
        self._scope = scope
        self._node = node
        used = sizes_of(outputs)
        self.names = (used & _told_inside(node)) - scope.writer.bound if used else set()
        main = scope.writer.main
        for name in sorted(self.names):
            scope.writer.told.add(name)
            main.add_statement(Bind(name, Index.of(0)))
        sizes = [s for v in outputs for s in v.type.shape if not self.names.isdisjoint(size_names([s]))]
        self._first = {size: main.local(-1, int64) for size in dict.fromkeys(sizes)}

    def wanted(self, values: Sequence[Value], targets: Sequence[Array]) -> list[Array | None]:
        """Arrays that a region may write its results to at once: those that have memory before it runs."""
        return [None if self._waits(v) else target for v, target in zip(values, targets, strict=True)]

    def _waits(self, value: Value) -> bool:
        return bool(self.names) and not self.names.isdisjoint(sizes_of([value]))

    def after_branch(self, values: Sequence[Value], places: Sequence[Any]) -> None:
        """Memory for what a region has given that runs once."""
        for value, place in zip(values, places, strict=True):
            if self._waits(value):
                self._scope.writer.make_room(place)

    def after_iteration(
        self,
        values: Sequence[Value],
        stacks: Sequence[Array],
        fill: Callable[[list[Array]], None] | None = None,
    ) -> None:
        """Memory for stacks after the first iteration; an error where a later one tells other sizes."""
        if not self.names:
            return
        main, writer = self._scope.writer.main, self._scope.writer
        firsts = [main.get(local) for local in self._first.values()]
        begun = main.le(0, firsts[0])
        for (size, local), first in zip(self._first.items(), firsts, strict=True):
            now = Index.of(size)
            failure = writer.failure(Failure(self._node, "ragged"))
            main.fail(main.and_(begun, main.not_(main.eq(first, now))), failure, first, now)
            main.set(local, now)
        main.add_statement(Leave())
        begin = Block()
        waiting = [stack for value, stack in zip(values, stacks, strict=True) if self._waits(value)]
        with writer.inside(begin, loop=False):
            for stack in waiting:
                writer.allocate(stack.buffer, stack.size)
            if fill is not None:
                fill(waiting)
        main.add_statement(If(begun, Block(), begin))


def tell_size(scope: Scope, node: Node, name: str, value: Any) -> None:
    """Let a size have a value from here on; one that it has, as where a loop runs again, must be that."""
    main, writer = scope.writer.main, scope.writer
    if name not in writer.bound:
        writer.told.add(name)
        main.add_statement(Bind(name, value))
        return
    known = Index.of(named_size(name))
    main.fail(main.not_(main.eq(value, known)), writer.failure(Failure(node, "recount")), known, value)
    main.add_statement(Leave())


def _told_inside(node: Node) -> set[str]:
    """The names of sizes that the regions of a node tell."""
    return {name for region in node.regions for inner in region.walk() for name in sizes_defined(inner)}

"""The backward pass of attention: weights are computed again, block by block, from the sums of their powers.

A task has some of the keys, a block of them at a time in the lanes of vectors, and goes over the queries.
Where several tasks share the keys, what each finds for the gradient of queries is a part; parts are added at
the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.ir.graph import Node
from weft.loop.index import Index
from weft.schedule.arrays import Array
from weft.schedule.cpu.attention.tile import LANES, Axis, Direction
from weft.schedule.cpu.epilogues import add_parts, storing
from weft.schedule.cpu.machine import Machine, machine_of
from weft.schedule.cpu.matmul.lowering import broadcast_batch
from weft.schedule.cpu.matmul.plan import TASKS, known
from weft.schedule.cpu.matmul.tile import Side, Step
from weft.schedule.extents import ceil_div
from weft.schedule.target import lowers
from weft.schedule.writer import Kernel, Writer, unflattened

ROWS = 64  # queries of which scores are held at a time


@lowers("attention_gradient", target="cpu", any_layout=True)
def _attention_gradient(
    writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]
) -> None:
    batch = outputs[0].shape[:-2]
    matrices = [broadcast_batch(x, batch) for x in inputs[:6]]
    blocks, parts = ceil_div(outputs[1].shape[-2], LANES), ceil_div(TASKS, known(size_of(batch)))
    each = ceil_div(blocks, parts)
    if not isinstance(blocks, Size):
        parts = ceil_div(blocks, each)
    query, keys, values = outputs
    target = Array(query.buffer, (1, *query.shape), (0, *query.strides), query.offset)
    if parts > 1:
        target = writer.temporary((parts, *query.shape), query.dtype, "p")
    writes = [target, keys, values]
    with writer.kernel("attention_gradient", [*matrices, *inputs[6:]], writes, inline=False) as kernel:
        _Backward(kernel, node, machine_of(writer), (parts, each)).write()
    if parts > 1:
        add_parts(writer, target, storing(query), query.dtype)


class _Backward(Direction):
    def __init__(self, kernel: Kernel, node: Node, machine: Machine, cut: tuple[int, Any]) -> None:
        query, keys, values, self.g, self.sums, self.total, *others = kernel.reads
        super().__init__(kernel, machine, query, keys, values)
        self.parts, self.by_keys, self.by_values = kernel.writes
        self.chain, self.slope, self.causal = (node.attrs[n] for n in ("scores", "slope", "causal"))
        count = len(self.chain.inputs) - 1
        self.others = others[:count], others[count:]
        self.cut = cut
        self.part = Index.of(0)
        self.turned_keys = self.scratch("keys", self.features)
        self.turned_values = self.scratch("values", self.width)
        self.held_keys = self.scratch("by_keys", self.features)
        self.held_values = self.scratch("by_values", self.width)
        self.weights, self.slopes = self.scratch("weights", ROWS), self.scratch("slopes", ROWS)

    def write(self) -> None:
        """Write everything."""
        b, (parts, each) = self.b, self.cut
        blocks = ceil_div(self.count, LANES)
        tasks = (*self.g.shape[:-2], parts)
        with b.parallel(size_of(tasks)) as task:
            *self.at, self.part = unflattened(b, task, tasks)
            with b.loop(self.rows) as i, b.vector(self.features) as c:
                b.store(self.parts.buffer, self.parts.at(self.part, *self.at, i, c), 0)
            own: Any = each
            if isinstance(blocks, Size) or blocks % each:
                left = b.max(Index.of(blocks) - self.part * each, 0)
                own = b.term(b.min(left, Index.of(each)), each + 1)
            with b.loop(own) as i:
                self._block((self.part * each + i) * LANES)

    def _block(self, key: Index) -> None:
        """The gradients by some keys and values, and what these add to that by queries."""
        b = self.b
        self.turn_in(self.turned_keys, self.keys, key)
        self.turn_in(self.turned_values, self.values, key)
        self.fill(self.held_keys, 0)
        self.fill(self.held_values, 0)
        blocks, rest = self.rows // ROWS, self.rows % ROWS
        start: Any = 0
        if self.causal:
            start = b.term(b.min(b.quotient(key, ROWS), Index.of(blocks)), blocks + 1)
        with b.loop(blocks, start) as i:
            self._queries(key, i * ROWS, ROWS)
        if isinstance(rest, Size) or rest:
            self._queries(key, Index.of(blocks * ROWS), rest)
        with b.loop(self.there(key, self.count)) as lane:
            for target, held in ((self.by_keys, self.held_keys), (self.by_values, self.held_values)):
                with b.vector(target.shape[-1]) as c:
                    x = b.load(held, c * LANES + lane)
                    b.store(target.buffer, target.at(*self.at, key + lane, c), x)

    def _queries(self, key: Index, row: Index, count: Any) -> None:
        """What a block of queries adds."""
        self.score(self.query, row, count, self.turned_keys, self.weights)
        self.score(self.g, row, count, self.turned_values, self.slopes)
        self._weights(key, row, count)
        self.add_rows(self.g, row, count, self.weights, self.held_values)
        self.add_rows(self.query, row, count, self.slopes, self.held_keys)
        self._add_queries(key, row, count)

    def _weights(self, key: Index, row: Index, count: Any) -> None:
        """Scores become weights, and the gradient of weights becomes that of scores."""
        b = self.b
        with b.loop(count) as i:
            query = row + i
            sums, total = (b.load(x.buffer, x.at(*self.at, query, 0)) for x in (self.sums, self.total))
            with b.vector(LANES) as lane:
                index, place = (*self.at, query, key + lane), i * LANES + lane
                mask = self.inside(key + lane, self.count)
                x = self.element(self.chain, [b.load(self.weights, place), *self.others[0]], index, mask)
                weight = b.exp(b.sub(x, sums))
                if self.causal:
                    weight = b.select(b.le(key + lane, query), weight, self.number(0))
                b.store(self.weights, place, weight)
                slope = b.mul(weight, b.sub(b.load(self.slopes, place), total))
                b.store(self.slopes, place, self.element(self.slope, [slope, *self.others[1]], index, mask))

    def _add_queries(self, key: Index, row: Index, count: Any) -> None:
        """Add keys, weighted for each query."""
        b, (apart, along) = self.b, self.keys.strides[-2:]
        keys = self.there(key, self.count)
        axes = Axis(count, LANES), Step(keys, 1, apart), Axis(self.features, along)

        def place(i: Index, c: Index) -> Index:
            return self.parts.at(self.part, *self.at, row + i, c)

        self.multiply(
            Side(self.slopes, Index.of(0)), self.side(self.keys, key), axes,
            lambda i, c, x: b.store(self.parts.buffer, place(i, c), x),
            lambda i, c: b.load(self.parts.buffer, place(i, c)),
        )  # fmt: skip

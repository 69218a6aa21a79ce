"""The forward pass of attention: block by block of keys, with a softmax that corrects itself.

A task has a block of queries, in the lanes of vectors. It computes the scores of a block of keys, moves the
largest score of each query so far up, scales what it has summed of powers and values down accordingly, and
adds on. So no more scores than those of a block exist at a time (Milakov and Gimelshein 2018, Rabe and Staats
2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.ir.graph import Graph, Node
from weft.loop.index import Index
from weft.loop.ir import Value
from weft.schedule.arrays import Array
from weft.schedule.cpu.attention.tile import BLOCK, LANES, Direction
from weft.schedule.cpu.machine import Machine, machine_of
from weft.schedule.cpu.matmul.lowering import broadcast_batch
from weft.schedule.extents import ceil_div
from weft.schedule.target import lowers
from weft.schedule.writer import Kernel, Writer, unflattened


@lowers("attention", target="cpu", any_layout=True)
def _attention(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    batch = outputs[0].shape[:-2]
    matrices = [broadcast_batch(x, batch) for x in inputs[:3]]
    with writer.kernel("attention", [*matrices, *inputs[3:]], outputs, inline=False) as kernel:
        _Forward(kernel, node.attrs["scores"], node.attrs["causal"], machine_of(writer)).write()


class _Forward(Direction):
    def __init__(self, kernel: Kernel, chain: Graph, causal: bool, machine: Machine) -> None:
        query, keys, values, *self.others = kernel.reads
        super().__init__(kernel, machine, query, keys, values)
        self.out, self.sums = kernel.writes
        self.chain, self.causal = chain, causal
        self.turned, self.scores = self.scratch("turned", self.features), self.scratch("scores", BLOCK)
        self.held = self.scratch("held", self.width)
        self.top, self.total, self.factor = (self.scratch(n, 1) for n in ("top", "total", "factor"))

    def write(self) -> None:
        """Write everything."""
        tasks = (*self.out.shape[:-2], ceil_div(self.rows, LANES))
        with self.b.parallel(size_of(tasks)) as task:
            *self.at, block = unflattened(self.b, task, tasks)
            first = block * LANES
            self.turn_in(self.turned, self.query, first)
            self.fill(self.top, -np.inf)
            self.fill(self.total, 0)
            self.fill(self.held, 0)
            self._over_keys(first)
            self._finish(first)

    def _over_keys(self, first: Index) -> None:
        b, blocks, rest = self.b, self.count // BLOCK, self.count % BLOCK
        seen: Any = blocks
        last = first + (LANES - 1)
        if self.causal:
            seen = b.term(b.min(b.quotient(last, BLOCK) + 1, Index.of(blocks)), blocks + 1)
        with b.loop(seen) as i:
            self._block(first, i * BLOCK, BLOCK)
        if not isinstance(rest, Size) and rest == 0:
            return
        key = Index.of(blocks * BLOCK)
        if self.causal:
            with b.if_(b.le(key, last)):
                self._block(first, key, rest)
        else:
            self._block(first, key, rest)

    def _block(self, first: Index, key: Index, count: Any) -> None:
        """What a block of keys adds."""
        self.score(self.keys, key, count, self.turned, self.scores)
        self._powers(first, key, count)
        self.add_rows(self.values, key, count, self.scores, self.held, self.factor)

    def _powers(self, first: Index, key: Index, count: Any) -> None:
        """Scores become their powers; the largest, the sums and the factor for earlier ones follow."""
        b = self.b
        with b.vector(LANES) as lane:
            before = b.load(self.top, lane)
            top = b.local(before)
            with b.loop(count) as j:
                x = self._score(first + lane, key + j, b.load(self.scores, j * LANES + lane))
                b.store(self.scores, j * LANES + lane, x)
                b.set(top, b.max(b.get(top), x))
            least = self.number(-np.inf)
            now = b.get(top)
            base = b.select(b.eq(now, least), self.number(0), now)
            total = b.local(0, self.dtype)
            with b.loop(count) as j:
                power = b.exp(b.sub(b.load(self.scores, j * LANES + lane), base))
                b.store(self.scores, j * LANES + lane, power)
                b.set(total, b.add(b.get(total), power))
            factor = b.exp(b.sub(before, base))
            b.store(self.factor, lane, factor)
            b.store(self.top, lane, now)
            b.store(self.total, lane, b.add(b.mul(b.load(self.total, lane), factor), b.get(total)))

    def _score(self, query: Index, key: Index, x: Value) -> Value:
        """A score as softmax sees it."""
        mask = self.inside(query, self.rows) if self.others else None
        x = self.element(self.chain, [x, *self.others], (*self.at, query, key), mask)
        if self.causal:
            x = self.b.select(self.b.le(key, query), x, self.number(-np.inf))
        return x

    def _finish(self, first: Index) -> None:
        b = self.b
        with b.loop(self.there(first, self.rows)) as i:
            total = b.load(self.total, i)
            if isinstance(self.count, Size):  # of no keys the mean of values is 0
                total = b.select(b.eq(Index.of(self.count), 0), self.number(1), total)
            with b.vector(self.width) as c:
                x = b.div(b.load(self.held, c * LANES + i), total)
                b.store(self.out.buffer, self.out.at(*self.at, first + i, c), x)
            sums = b.add(b.load(self.top, i), b.log(total))
            b.store(self.sums.buffer, self.sums.at(*self.at, first + i, 0), sums)

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
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Value
from weft.schedule.arrays import Array
from weft.schedule.cpu.attention.tile import (
    BLOCK,
    LANES,
    Axis,
    blocks_of,
    element,
    fill,
    inside,
    matrix_side,
    multiply,
    number,
    there,
    transposed,
    turn_in,
)
from weft.schedule.cpu.machine import Machine, machine_of
from weft.schedule.cpu.matmul.lowering import broadcast_batch
from weft.schedule.cpu.matmul.tile import Side, Step
from weft.schedule.lowerings import lowers
from weft.schedule.writer import Kernel, Writer, unflattened


@lowers("attention", target="cpu", any_layout=True)
def _attention(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    batch = outputs[0].shape[:-2]
    matrices = [broadcast_batch(x, batch) for x in inputs[:3]]
    with writer.kernel("attention", [*matrices, *inputs[3:]], outputs, inline=False) as kernel:
        _Forward(kernel, node.attrs["scores"], node.attrs["causal"], machine_of(writer)).write()


class _Forward:
    """Writes the kernel."""

    def __init__(self, kernel: Kernel, chain: Graph, causal: bool, machine: Machine) -> None:
        self.b: Builder = kernel.builder
        self.query, keys, self.values, *self.others = kernel.reads
        self.keys = transposed(keys)
        self.out, self.sums = kernel.writes
        self.chain, self.causal, self.machine = chain, causal, machine
        self.rows, self.features = self.query.shape[-2:]
        self.count, self.width = self.values.shape[-2:]
        self.dtype = self.query.dtype
        self.at: Sequence[Index] = ()
        scratch = self.b.scratch
        self.turned = scratch("turned", self.dtype, self.features * LANES)
        self.scores = scratch("scores", self.dtype, BLOCK * LANES)
        self.held = scratch("held", self.dtype, self.width * LANES)
        self.top, self.total, self.factor = (
            scratch(n, self.dtype, LANES) for n in ("top", "total", "factor")
        )

    def write(self) -> None:
        """Write everything."""
        tasks = (*self.out.shape[:-2], blocks_of(self.rows, LANES))
        with self.b.parallel(size_of(tasks)) as task:
            *self.at, block = unflattened(self.b, task, tasks)
            first = block * LANES
            turn_in(self.b, self.turned, self.query, self.at, first, LANES)
            fill(self.b, self.top, -np.inf)
            fill(self.b, self.total, 0)
            fill(self.b, self.held, 0)
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
        b, (apart, along) = self.b, self.keys.strides[-2:]
        axes = Axis(count, apart), Step(self.features, along, LANES), Axis(LANES, 1)
        multiply(
            b, self.machine, matrix_side(self.keys, self.at, key), Side(self.turned, Index.of(0)), axes,
            lambda row, lane, x: b.store(self.scores, row * LANES + lane, x),
        )  # fmt: skip
        self._powers(first, key, count)
        apart, along = self.values.strides[-2:]
        axes = Axis(self.width, along), Step(count, apart, LANES), Axis(LANES, 1)
        multiply(
            b, self.machine, matrix_side(self.values, self.at, key), Side(self.scores, Index.of(0)), axes,
            lambda row, lane, x: b.store(self.held, row * LANES + lane, x),
            lambda row, lane: b.mul(b.load(self.held, row * LANES + lane), b.load(self.factor, lane)),
        )  # fmt: skip

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
            least = number(-np.inf, self.dtype)
            now = b.get(top)
            base = b.select(b.eq(now, least), number(0, self.dtype), now)
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
        mask = inside(self.b, query, self.rows, LANES) if self.others else None
        x = element(self.b, self.chain, [x, *self.others], (*self.at, query, key), mask)
        if self.causal:
            x = self.b.select(self.b.le(key, query), x, number(-np.inf, self.dtype))
        return x

    def _finish(self, first: Index) -> None:
        b = self.b
        with b.loop(there(b, first, self.rows, LANES)) as i:
            total = b.load(self.total, i)
            if isinstance(self.count, Size):  # of no keys the mean of values is 0
                total = b.select(b.eq(Index.of(self.count), 0), number(1, self.dtype), total)
            with b.vector(self.width) as c:
                x = b.div(b.load(self.held, c * LANES + i), total)
                b.store(self.out.buffer, self.out.at(*self.at, first + i, c), x)
            b.store(
                self.sums.buffer,
                self.sums.at(*self.at, first + i, 0),
                b.add(b.load(self.top, i), b.log(total)),
            )

"""Small matrices, as loops: systems, inverses and determinants by elimination with row pivots, and Cholesky.

A library does large ones best. Up to ``MOST`` rows a call of one, through Python, takes longer than the work,
so a thread copies a matrix into a buffer of its own and works there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import float32, float64, int64
from weft.base.records import NamedTuple
from weft.base.shapes import size_of
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Local, Value
from weft.schedule.arrays import Array
from weft.schedule.cpu.triangular import batch_number, matrix_at
from weft.schedule.extents import is_number
from weft.schedule.region import Failure
from weft.schedule.target import lowers
from weft.schedule.writer import Writer, unflattened

MOST = 64  # rows and columns
_FEW = 8  # columns of a right side up to which vectors go along the rows of the matrix


def is_small(node: Node) -> bool:
    """Whether the matrices of a node are small enough to be worked on here."""
    kind = node.inputs[0].type
    return kind.dtype in (float32, float64) and is_number(kind.shape[-1]) and kind.shape[-1] <= MOST


class _Task(NamedTuple):
    """One matrix of a batch: what is read, written, and a copy to work on."""

    b: Builder
    reads: list[Array]
    writes: list[Array]
    work: Array
    number: Index

    @property
    def size(self) -> int:
        return int(self.work.shape[-1])

    def get(self, array: Array, *index: Any) -> Value:
        return self.b.load(array.buffer, array.at(*index))

    def put(self, array: Array, value: Any, *index: Any) -> None:
        self.b.store(array.buffer, array.at(*index), value)

    def less(self, array: Array, factor: Value, other: Value, *index: Any) -> None:
        """``array[index] -= factor * other``."""
        self.put(array, self.b.sub(self.get(array, *index), self.b.mul(factor, other)), *index)


def _over_batch(
    writer: Writer,
    node: Node,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    run: Callable[[_Task], None],
) -> None:
    """A kernel that runs some code for each matrix of a batch; one that is shared is copied by each."""
    n = node.inputs[0].type.shape[-1]
    results = 2 if node.op.name in ("solve", "inv", "cholesky") else 0  # axes of each
    lead = outputs[0].shape[: len(outputs[0].shape) - results]
    with writer.kernel(node.op.name, inputs, outputs, inline=False) as k:
        b = k.builder
        work = Array(b.scratch("work", inputs[0].dtype, max(n * n, 1)), (n, n))
        with b.parallel(size_of(lead)) as task:
            place = unflattened(b, task, lead)
            reads = [matrix_at(x, place) for x in k.reads]
            writes = list(k.writes)
            for i in place:
                writes = [x.row(i) for x in writes]
            run(_Task(b, reads, writes, work, batch_number(k.reads[0], place)))


# Elimination


class _Pivots(NamedTuple):
    """What elimination finds: the sign of the permutation, and whether a pivot is zero."""

    sign: Local
    singular: Local


def _copy_matrix(t: _Task) -> None:
    with t.b.loop(t.size) as i, t.b.vector(t.size) as j:
        t.put(t.work, t.get(t.reads[0], i, j), i, j)


def _eliminate(t: _Task, right: Array | None = None) -> _Pivots:
    """Make the copy upper triangular, the largest element of a column its pivot; the right side likewise."""
    b, n, a = t.b, t.size, t.work
    dtype = a.dtype
    found = _Pivots(b.local(1.0, dtype), b.local(0.0, dtype))
    with b.loop(n) as k:
        pivot = _pivot_row(t, k)
        moved = b.eq(pivot, k)
        b.set(found.sign, b.select(moved, b.get(found.sign), b.neg(b.get(found.sign))))
        row = b.term(pivot, n)
        with b.vector(n, k) as j:
            _swap(t, a, k, row, j)
        if right is not None:
            _columns(b, right.shape[-1], lambda j: _swap(t, right, k, row, j))
        diagonal = t.get(a, k, k)
        is_zero = b.eq(diagonal, b.constant(0, dtype))
        b.set(found.singular, b.select(is_zero, b.constant(1, dtype), b.get(found.singular)))
        with b.loop(n, k + 1) as i:
            factor = b.select(is_zero, b.constant(0, dtype), b.div(t.get(a, i, k), diagonal))
            with b.vector(n, k + 1) as j:
                t.less(a, factor, t.get(a, k, j), i, j)
            if right is not None:
                _columns(b, right.shape[-1], lambda j: t.less(right, factor, t.get(right, k, j), i, j))
    return found


def _pivot_row(t: _Task, k: Index) -> Value:
    """The row of the largest element of column k, on the diagonal or below; the first of equal ones."""
    b, a = t.b, t.work
    best, row = b.local(b.abs(t.get(a, k, k))), b.local(b.scalar("add", (k, Index.of(0)), int64))
    with b.loop(t.size, k + 1) as i:
        size = b.abs(t.get(a, i, k))
        larger = b.lt(b.get(best), size)
        b.set(row, b.select(larger, i, b.get(row)))
        b.set(best, b.select(larger, size, b.get(best)))
    return b.get(row)


def _swap(t: _Task, array: Array, first: Index, second: Index, j: Index) -> None:
    one, other = t.get(array, first, j), t.get(array, second, j)
    t.put(array, other, first, j)
    t.put(array, one, second, j)


def _columns(b: Builder, count: Any, write: Callable[[Index], None]) -> None:
    """Code for each column of a right side: one after another if there are few, else as a vector."""
    if is_number(count) and count < _FEW:
        for number in range(count):
            write(Index.of(number))
        return
    with b.vector(count) as j:
        write(j)


def _substitute(t: _Task, right: Array) -> None:
    """Solve for the right side, from the last row to the first."""
    b, n, a = t.b, t.size, t.work
    with b.loop(n) as turn:
        i = Index.of(n - 1) - turn
        diagonal = t.get(a, i, i)

        def known(j: Index) -> Value:
            total = b.local(0, a.dtype)
            with b.loop(n, i + 1) as k:
                b.set(total, b.add(b.get(total), b.mul(t.get(a, i, k), t.get(right, k, j))))
            return b.get(total)

        def solve(j: Index) -> None:
            left = b.sub(t.get(right, i, j), known(j))
            t.put(right, b.div(left, diagonal), i, j)

        _columns(b, right.shape[-1], solve)


def _solve(t: _Task, right: Array, failure: int) -> None:
    _copy_matrix(t)
    found = _eliminate(t, right)
    b = t.b
    b.fail(b.eq(b.get(found.singular), b.constant(1, t.work.dtype)), failure, t.number)
    _substitute(t, right)


@lowers("solve", target="cpu", serves=is_small)
def _solve_systems(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    failure = writer.failure(Failure(node, "singular"))

    def run(t: _Task) -> None:
        given, (out,) = t.reads[1], t.writes
        with t.b.loop(t.size) as i:
            _columns(t.b, out.shape[-1], lambda j: t.put(out, t.get(given, i, j), i, j))
        _solve(t, out, failure)

    _over_batch(writer, node, inputs, outputs, run)


@lowers("inv", target="cpu", serves=is_small)
def _invert(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    failure = writer.failure(Failure(node, "singular"))

    def run(t: _Task) -> None:
        (out,), b = t.writes, t.b
        with b.loop(t.size) as i:
            with b.vector(t.size) as j:
                t.put(out, b.constant(0, out.dtype), i, j)
            t.put(out, b.constant(1, out.dtype), i, i)
        _solve(t, out, failure)

    _over_batch(writer, node, inputs, outputs, run)


# Determinants


def _logarithm(t: _Task, found: _Pivots) -> tuple[Value, Value]:
    """The sign of the determinant and the logarithm of its size; 0 and minus infinity if it is 0."""
    b = t.b
    sign, total = b.local(b.get(found.sign)), b.local(0.0, t.work.dtype)
    with b.loop(t.size) as i:
        d = t.get(t.work, i, i)
        b.set(sign, b.select(b.lt(d, b.constant(0, d.dtype)), b.neg(b.get(sign)), b.get(sign)))
        b.set(total, b.add(b.get(total), b.log(b.abs(d))))
    singular = b.eq(b.get(found.singular), b.constant(1, t.work.dtype))
    none, least = b.constant(0, t.work.dtype), b.constant(float("-inf"), t.work.dtype)
    return b.select(singular, none, b.get(sign)), b.select(singular, least, b.get(total))


@lowers("slogdet", target="cpu", serves=is_small)
def _slogdet(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    def run(t: _Task) -> None:
        _copy_matrix(t)
        sign, size = _logarithm(t, _eliminate(t))
        t.put(t.writes[0], sign)
        t.put(t.writes[1], size)

    _over_batch(writer, node, inputs, outputs, run)


@lowers("det", target="cpu", serves=is_small)
def _det(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    def run(t: _Task) -> None:
        b, (out,) = t.b, t.writes
        _copy_matrix(t)
        found = _eliminate(t)
        product = b.local(b.get(found.sign))
        with b.loop(t.size) as i:
            b.set(product, b.mul(b.get(product), t.get(t.work, i, i)))
        value = b.get(product)
        t.put(out, value)
        lost = b.or_(b.eq(value, b.constant(0, out.dtype)), b.not_(b.lt(b.abs(value), _infinity(b, out))))
        with b.if_(lost):  # a part of the product may be out of range where all of it is not
            sign, size = _logarithm(t, found)
            t.put(out, b.mul(sign, b.exp(size)))

    _over_batch(writer, node, inputs, outputs, run)


def _infinity(b: Builder, like: Array) -> Value:
    return b.constant(float("inf"), like.dtype)


# Cholesky


@lowers("cholesky", target="cpu", serves=is_small)
def _cholesky(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    failure = writer.failure(Failure(node, "indefinite"))

    def run(t: _Task) -> None:
        b, (x,), (out,), a = t.b, t.reads, t.writes, t.work
        zero, half = b.constant(0, a.dtype), b.constant(0.5, a.dtype)
        with b.loop(t.size) as i, b.vector(i + 1) as j:
            t.put(a, b.mul(b.add(t.get(x, i, j), t.get(x, j, i)), half), i, j)
        with b.loop(t.size) as i:
            with b.loop(i) as j:
                rest = b.sub(t.get(a, i, j), _product(t, i, j))
                t.put(a, b.div(rest, t.get(a, j, j)), i, j)
            rest = b.sub(t.get(a, i, i), _product(t, i, i))
            # What is NaN stays NaN, as the library has it.
            infinite = b.eq(rest, b.constant(-np.inf, a.dtype))
            what = b.select(infinite, b.constant(1, int64), b.constant(0, int64))
            b.fail(b.le(rest, zero), failure, t.number, i, what)
            t.put(a, b.sqrt(rest), i, i)
        with b.loop(t.size) as i:
            with b.vector(t.size) as j:
                t.put(out, zero, i, j)
            with b.vector(i + 1) as j:
                t.put(out, t.get(a, i, j), i, j)

    _over_batch(writer, node, inputs, outputs, run)


def _product(t: _Task, i: Index, j: Index) -> Value:
    """What the columns before j make of rows i and j."""
    b, a = t.b, t.work
    total = b.local(0, a.dtype)
    with b.vector(j) as k:
        b.accumulate(total, "add", b.mul(t.get(a, i, k), t.get(a, j, k)))
    return b.get(total)

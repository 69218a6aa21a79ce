"""Triangular systems, by substitution: each row of the solution from those before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.records import NamedTuple
from weft.base.shapes import size_of
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Value
from weft.schedule.arrays import Array
from weft.schedule.extents import block_of, ceil_div, is_number
from weft.schedule.pointwise.rules import broadcast_index
from weft.schedule.region import Failure
from weft.schedule.target import lowers
from weft.schedule.writer import Writer, unflattened

_COLUMNS = 64  # of the solution that one task computes
_FEW = 8  # columns up to which vectors go along the rows of the matrix


class _System(NamedTuple):
    """One system: its matrix, the right side, the solution, and which of its columns are computed."""

    a: Array
    b: Array
    x: Array
    first: Index
    count: Any
    upper: bool
    unit: bool


@lowers("solve_triangular", target="cpu")
def _solve(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    (a, right), (out,) = inputs, outputs
    width, lead = out.shape[-1], out.shape[:-2]
    chunk = min(_COLUMNS, max(width, 1)) if is_number(width) else _COLUMNS
    failure = None if node.attrs["unit"] else writer.failure(Failure(node, "singular"))
    with writer.kernel(node.op.name, [a, right], [out], inline=False) as k:
        b = k.builder
        tasks = (*lead, ceil_div(width, chunk))
        with b.parallel(size_of(tasks)) as task:
            *place, part = unflattened(b, task, tasks)
            first, count = block_of(b, part, width, chunk)
            own = [matrix_at(array, place) for array in (*k.reads, *k.writes)]
            system = _System(own[0], own[1], own[2], first, count, node.attrs["upper"], node.attrs["unit"])
            number = batch_number(k.reads[0], place)
            with b.loop(out.shape[-2]) as n:
                i = Index.of(out.shape[-2]) - 1 - n if system.upper else n
                _solve_row(b, system, i, failure, number)


def matrix_at(x: Array, place: Sequence[Index]) -> Array:
    """A matrix of a batch that broadcasts."""
    for i in broadcast_index(tuple(place), x.shape[:-2]):
        x = x.row(i)
    return x


def batch_number(a: Array, place: Sequence[Index]) -> Index:
    """The number of a matrix in the batch it is from."""
    number = Index.of(0)
    for i, size in zip(broadcast_index(tuple(place), a.shape[:-2]), a.shape[:-2], strict=True):
        number = number * size + i
    return number


def _solve_row(b: Builder, s: _System, i: Index, failure: int | None, number: Index) -> None:
    """Row i: what the rows that are known leave of the right side, by the diagonal."""
    diagonal = None
    if failure is not None:
        diagonal = b.load(s.a.buffer, s.a.at(i, i))
        b.fail(b.eq(diagonal, b.constant(0, diagonal.dtype)), failure, number)
    begin, end = (i + 1, Index.of(s.a.shape[-1])) if s.upper else (Index.of(0), i)
    if is_number(s.count) and s.count < _FEW:
        for j in range(s.count):
            _put(b, s, i, s.first + j, _dot(b, s, i, s.first + j, begin, end), diagonal)
        return
    with b.vector(s.count) as lane:
        column = s.first + lane
        total = b.local(b.constant(0, s.x.dtype))
        with b.loop(end, begin) as k:
            term = b.mul(b.load(s.a.buffer, s.a.at(i, k)), b.load(s.x.buffer, s.x.at(k, column)))
            b.set(total, b.add(b.get(total), term))
        _put(b, s, i, column, b.get(total), diagonal)


def _dot(b: Builder, s: _System, i: Index, column: Index, begin: Index, end: Index) -> Value:
    """Row i of the matrix times a column of the solution, as far as it is known."""
    total = b.local(0, s.x.dtype)
    with b.vector(end, begin) as k:
        term = b.mul(b.load(s.a.buffer, s.a.at(i, k)), b.load(s.x.buffer, s.x.at(k, column)))
        b.accumulate(total, "add", term)
    return b.get(total)


def _put(b: Builder, s: _System, i: Index, column: Index, known: Value, diagonal: Value | None) -> None:
    left = b.sub(b.load(s.b.buffer, s.b.at(i, column)), known)
    b.store(s.x.buffer, s.x.at(i, column), left if diagonal is None else b.div(left, diagonal))

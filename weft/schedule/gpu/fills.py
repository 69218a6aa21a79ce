"""Arrays of one number on a GPU: 16 bytes at a time, several times a thread."""

from __future__ import annotations

from weft.base.dtypes import kind
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Const
from weft.schedule.arrays import Array
from weft.schedule.extents import ceil_div, is_number
from weft.schedule.gpu.machine import Gpu

_OWN = 4  # vectors of a thread


def fill_in_vectors(b: Builder, out: Array, number: Const, machine: Gpu) -> bool:
    """Write a number to all of a dense array, unless it is too small for vectors or does not fill them."""
    lanes = machine.access_bytes // max(out.dtype.itemsize, 2)
    reach = machine.threads * _OWN
    if kind(out.dtype) == "c" or lanes < 2 or not is_number(out.size):
        return False
    if out.size % lanes or out.size < lanes * reach:
        return False
    vectors = out.size // lanes
    with b.parallel(ceil_div(vectors, reach)) as block, b.threads(machine.threads) as thread:
        for n in range(_OWN):
            at = block * reach + n * machine.threads + thread
            inside = None if vectors % reach == 0 else b.lt(at, vectors)
            if inside is None:
                _store(b, out, at, lanes, number)
            else:
                with b.if_(inside):
                    _store(b, out, at, lanes, number)
    return True


def _store(b: Builder, out: Array, at: Index, lanes: int, number: Const) -> None:
    with b.vector(lanes, lanes=lanes) as lane:
        b.store(out.buffer, out.flat(at * lanes + lane), number)

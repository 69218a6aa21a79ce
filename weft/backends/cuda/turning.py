"""A transposed copy on a device: tiles go through shared memory, so that both sides are reached in rows.

The kernel is written here as PTX, one for each width of an element. It copies a batch of matrices whose
columns lie side by side into rows; a row of a tile has room for one element more than it needs, so that
threads do not meet in one bank.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

SIDE = 32  # of a tile
THREADS = 256
_LEAST = 1 << 14  # elements from which on it is worth it
_MOVES = {1: ("u8", "%h0"), 2: ("b16", "%h0"), 4: ("b32", "%w9"), 8: ("b64", "%d9")}
_NAMES = ("out", "source", "batch", "rows", "columns", "apart", "stride", "down", "across")


def as_turned(axes: Sequence[tuple[int, int]], width: int) -> tuple[int, int, int, int, int] | None:
    """Sizes and strides as (batch, rows, columns, distance of matrices, of columns); None for others.

    >>> from weft.backends.cuda.turning import as_turned
    >>> as_turned([(512, 4), (256, 2048)], 4)
    (1, 512, 256, 0, 2048)
    """
    if len(axes) not in (2, 3):
        return None
    *lead, (rows, across), (columns, stride) = axes
    batch, apart = lead[0] if lead else (1, 0)
    worth = batch * rows * columns >= _LEAST and min(rows, columns) >= SIDE // 2
    fits = batch * tiles_of(rows) * tiles_of(columns) < 1 << 31 and across == width
    return (batch, rows, columns, apart, stride) if worth and fits else None


def tiles_of(size: int) -> int:
    """How many tiles there are along an axis."""
    return -(-size // SIDE)


def turn_name(width: int) -> str:
    """The kernel for elements of a width."""
    return f"weft_turn_{width}"


@cache
def turn_text(width: int) -> str:
    """A whole module with the kernel, for any GPU since 2020."""
    name, (move, register) = turn_name(width), _MOVES[width]
    parameters = [f"{name}_param_{i}" for i in range(len(_NAMES))]
    head = ",\n".join(f"  .param .u64 {p}" for p in parameters)
    given = "\n".join(f"  ld.param.u64 %{n}, [{p}];" for n, p in zip(_NAMES, parameters, strict=True))
    declared = ", ".join(f"%{n}" for n in _NAMES)
    brought = "\n".join(_brought(k, move, register, width) for k in range(0, SIDE, 8))
    taken = "\n".join(_taken(k, move, register, width) for k in range(0, SIDE, 8))
    return f"""\
.version 7.0
.target sm_70
.address_size 64

.visible .entry {name}(
{head}
)
{{
  .shared .align 16 .b8 {name}_tile[{SIDE * (SIDE + 1) * width}];
  .reg .pred %p0, %p1, %p2;
  .reg .b16 %h0;
  .reg .b32 %w0, %w1, %w2, %w3, %w9;
  .reg .b64 %d0, %d1, %d2, %d3, %d9, %x, %y, %r, %c, %tile;
  .reg .b64 {declared};
{given}
  mov.u32 %w0, %ctaid.x;
  cvt.u32.u64 %w1, %across;
  rem.u32 %w2, %w0, %w1;
  div.u32 %w0, %w0, %w1;
  mul.wide.u32 %c, %w2, {SIDE};
  cvt.u32.u64 %w1, %down;
  rem.u32 %w2, %w0, %w1;
  div.u32 %w0, %w0, %w1;
  mul.wide.u32 %r, %w2, {SIDE};
  cvt.u64.u32 %d0, %w0;
  mul.lo.s64 %d1, %d0, %apart;
  add.s64 %source, %source, %d1;
  mul.lo.s64 %d1, %rows, %columns;
  mul.lo.s64 %d1, %d1, %d0;
  mul.lo.s64 %d1, %d1, {width};
  add.s64 %out, %out, %d1;
  mov.u32 %w3, %tid.x;
  and.b32 %w1, %w3, {SIDE - 1};
  cvt.u64.u32 %x, %w1;
  shr.u32 %w1, %w3, 5;
  cvt.u64.u32 %y, %w1;
  mov.b64 %tile, {name}_tile;
{brought}
  bar.sync 0;
{taken}
  ret;
}}
"""


def _brought(k: int, move: str, register: str, width: int) -> str:
    """An element of the tile, down a column of the matrix, into shared memory."""
    return f"""\
  add.s64 %d0, %r, %x;
  setp.lt.s64 %p0, %d0, %rows;
  add.s64 %d1, %c, %y;
  add.s64 %d1, %d1, {k};
  setp.lt.s64 %p1, %d1, %columns;
  and.pred %p2, %p0, %p1;
  mul.lo.s64 %d1, %d1, %stride;
  add.s64 %d1, %d1, %source;
  mul.lo.s64 %d0, %d0, {width};
  add.s64 %d1, %d1, %d0;
  add.s64 %d2, %y, {k};
  mul.lo.s64 %d2, %d2, {(SIDE + 1) * width};
  mul.lo.s64 %d3, %x, {width};
  add.s64 %d2, %d2, %d3;
  add.s64 %d2, %d2, %tile;
  @%p2 ld.global.{move} {register}, [%d1];
  @%p2 st.shared.{move} [%d2], {register};"""


def _taken(k: int, move: str, register: str, width: int) -> str:
    """An element of the tile from shared memory, along a row of the result."""
    return f"""\
  add.s64 %d0, %r, %y;
  add.s64 %d0, %d0, {k};
  setp.lt.s64 %p0, %d0, %rows;
  add.s64 %d1, %c, %x;
  setp.lt.s64 %p1, %d1, %columns;
  and.pred %p2, %p0, %p1;
  mul.lo.s64 %d0, %d0, %columns;
  add.s64 %d0, %d0, %d1;
  mul.lo.s64 %d0, %d0, {width};
  add.s64 %d0, %d0, %out;
  mul.lo.s64 %d2, %x, {(SIDE + 1) * width};
  add.s64 %d3, %y, {k};
  mul.lo.s64 %d3, %d3, {width};
  add.s64 %d2, %d2, %d3;
  add.s64 %d2, %d2, %tile;
  @%p2 ld.shared.{move} {register}, [%d2];
  @%p2 st.global.{move} [%d0], {register};"""

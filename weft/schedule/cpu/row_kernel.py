"""The kernel of a group: rows in parallel, and for each row one sweep over its columns after another.

What it reads, what it writes and how it is cut into blocks is decided here; ``row_sweeps`` writes its body.
Reductions over rows give partial results, one for each block of rows, which a second kernel combines; the
number of blocks depends on the shape alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.ir.graph import Value
from weft.schedule.arrays import Array
from weft.schedule.cpu.long_sums import wide_dtype
from weft.schedule.cpu.row_sweeps import Sweeps, clipped
from weft.schedule.extents import fold_instruction, identity
from weft.schedule.group_code import GroupCode, key_of
from weft.schedule.region import is_same
from weft.schedule.sweeps import CHEAP, accumulator
from weft.schedule.writer import Kernel, even_block

BLOCK = 16384  # elements that one iteration of a parallel loop works on, about
FEW_BLOCKS = 8  # of small arrays whose elements take long to compute
MOST_BLOCKS = 64  # partial results of a reduction over rows


class RowKernel(GroupCode):
    """Writes the kernel of one group."""

    def lower(self, name: str) -> None:
        """Write the kernel, and those that combine partial results."""
        memory = self.memory()
        reads = [self.scope.array(v) for v in memory]
        blocks, rows_each = self._blocks()
        targets = {v: self._target(v, blocks) for v in self.outputs}
        writes = list(targets.values())
        # A part of an array that is read and written: element by element, see ``in_place``.
        reuses = [(i, k) for i, x in enumerate(reads) for k, y in enumerate(writes) if is_same(x, y)]
        key = key_of(self, dict(zip(memory, reads, strict=True)), targets)
        key = (*key, *reuses) if key is not None else None
        if not self.scope.writer.launch_again(key, [*reads, *writes]):
            with self.scope.writer.kernel(name, reads, writes, key=key, reuses=reuses) as k:
                sources = {v: self.scope.place(v) for v in self.external}
                sources |= dict(zip(memory, k.reads, strict=True))
                inner = dict(zip(targets, k.writes, strict=True))
                kept = {j for _, j in reuses}  # what lies there is read, too
                lent = [v for i, v in enumerate(targets) if i not in kept]
                Sweeps(self, k, sources, inner, blocks, rows_each, lent).write()
        for v, target in targets.items():
            if self.kinds[v] in ("column", "all"):
                self._combine(v, target, blocks)

    def _blocks(self) -> tuple[Any, Any]:
        """The number of iterations of the parallel loop, and how many rows (or columns, if flat) each has."""
        rows, columns = self.frame.rows, self.frame.columns
        if self.flat:
            total = size_of(self.frame.shape)
            if isinstance(total, Size):
                return (total + (BLOCK - 1)) // BLOCK, BLOCK
            each = BLOCK if set(self.kinds.values()) != {"full"} else even_block(total, BLOCK)
            return max(1, -(-total // each)), max(1, min(total, each))
        # Each block has partial results of its own. Their number follows from the shape alone, so that sums
        # are rounded alike with any number of threads.
        partial = any(k in ("column", "all") for k in self.kinds.values())
        if isinstance(rows, Size):
            return (MOST_BLOCKS, (rows + (MOST_BLOCKS - 1)) // MOST_BLOCKS) if partial else (rows, 1)
        if rows == 0:
            return int(partial), 1
        width = 256 if isinstance(columns, Size) else max(columns, 1)
        if partial:
            count = max(1, min(rows, MOST_BLOCKS, rows * width // (2 * BLOCK)))
        else:
            work = rows * width * 4 // BLOCK
            # How much longer an element takes than one that is only read, added and written, about.
            weight = 1 + 2 * sum(bool(node.op.cost > CHEAP) for node in self.nodes)
            dear = min(FEW_BLOCKS, rows * width * 4 * weight // BLOCK)
            count = max(1, min(rows, max(work, dear)))
        each = -(-rows // count)
        return -(-rows // each), each

    def _target(self, value: Value, blocks: Any) -> Array:
        """Where a value that is used outside is written: in its place, or partial results in theirs."""
        if self.kinds[value] in ("full", "row"):
            return self.scope.output(value)
        if not isinstance(blocks, Size) and blocks == 1 and accumulator(self.made[value]) == value.type.dtype:
            return self.scope.output(value)
        width = self.frame.columns if self.kinds[value] == "column" else 1
        return self.scope.writer.temporary((blocks, width), accumulator(self.made[value]))

    def _combine(self, value: Value, partial: Array, blocks: Any) -> None:
        if not isinstance(blocks, Size) and blocks == 1 and accumulator(self.made[value]) == value.type.dtype:
            return
        out = self.scope.output(value)
        instruction = fold_instruction(self.made[value].op.fold, partial.dtype)
        with self.scope.writer.kernel("combine", [partial], [out]) as k:
            _combine(k, instruction)


def _combine(k: Kernel, instruction: str) -> None:
    """Combine the rows of an array, from the first to the last."""
    b = k.builder
    (x,), (out,) = k.reads, k.writes
    count, width = x.shape
    lanes = 256
    tasks = 1 if isinstance(width, Size) or width <= lanes else -(-width // lanes)
    with b.parallel(tasks) as t:
        stop: Any = width if tasks == 1 else clipped(b, (t + 1) * lanes, width)
        with b.vector(stop, t * lanes if tasks > 1 else 0) as c:
            # A named size may be 0: then there is no first row.
            first = 0 if isinstance(count, Size) else 1
            wide = wide_dtype(instruction, x.dtype, count if first == 0 else count * FEW_BLOCKS) or x.dtype
            start = b.load(x.buffer, x.at(0, c)) if first else b.constant(identity(instruction, wide), wide)
            total = b.local(b.cast(start, wide))
            with b.loop(count, first) as i:
                element = b.cast(b.load(x.buffer, x.at(i, c)), wide)
                b.set(total, getattr(b, instruction)(b.get(total), element))
            b.store(out.buffer, out.flat(c), b.cast(b.get(total), out.dtype))

"""The body of a group's kernel on a GPU: tiles of rows, and for each one sweep over columns after another.

What a later sweep needs again, read or computed, stays in registers: private memory of a thread, which it
reaches at places that are known when code is made. What is read of a row that is too long for them stays in
shared memory, where a thread reaches its own elements alone. Rows are reduced by all threads of a slot,
reductions over rows are kept by each thread for its own columns until the block ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.ir.graph import Value
from weft.loop.index import Index
from weft.loop.ir import Buffer
from weft.loop.ir import Value as Scalar
from weft.schedule.arrays import Array
from weft.schedule.extents import ceil_div, fold_instruction, identity, is_number
from weft.schedule.fusion import is_reduction
from weft.schedule.gpu.tiling import Tiling
from weft.schedule.gpu.trees import Part, Tree, pairwise
from weft.schedule.sweeps import CHEAP, GroupSweeps, accumulator
from weft.schedule.writer import Kernel, unflattened

if TYPE_CHECKING:
    from weft.schedule.gpu.group_kernel import GroupKernel

Columns = tuple[Index, ...]
_AT_ONCE = 4  # vectors of a long row that a thread has under way


class GroupBody(GroupSweeps):
    """The body of a kernel, while it is written."""

    def __init__(
        self,
        group: GroupKernel,
        k: Kernel,
        sources: dict[Value, Any],
        targets: dict[Value, Array],
        tiling: Tiling,
    ) -> None:
        super().__init__(group, k, sources, targets)
        self.group = group
        self.tiling = tiling
        self.axes = self.frame.shape if group.flat else self.frame.shape[self.frame.split or 0 :]
        self.rows = 1 if group.flat else self.frame.rows
        self.columns = size_of(self.axes)
        self.thread = self.own = self.slot = Index.of(0)
        self._row_of_sums = Index.of(0)
        self.joins = group.joins_slots(tiling)
        self.valid: Scalar | None = None
        self.held: dict[Value, Buffer] = {}
        self.coming: dict[Value, Buffer] = {}  # what the next sweep holds
        self.sums: dict[Value, Buffer] = {}
        self.tree = Tree(self.b, tiling.width, tiling.threads)

    def write(self) -> None:
        """Write the grid and all in it."""
        b, tiling = self.b, self.tiling
        with b.parallel(tiling.blocks) as block, b.threads(tiling.threads) as thread:
            self.thread = thread
            self.own = b.remainder(thread, tiling.width)
            self.slot = b.quotient(thread, tiling.width)
            self._begin(block)
            if isinstance(tiling.each, int) and tiling.each == 1:
                self._tile(*self._place(block, block))
            else:
                with b.loop(tiling.each) as i:
                    self._tile(*self._place(block, block * tiling.each + i, i))
            self._end(block)

    # Tiles

    def _place(self, block: Index, number: Index, turn: Index | None = None) -> tuple[Index, Index]:
        """The tile of a number: which of those along rows, and which along columns."""
        b, tiling = self.b, self.tiling
        if isinstance(tiling.chunks, int) and tiling.chunks == 1:
            return number, Index.of(0)
        if is_number(self.rows, 1) and not tiling.stays and not tiling.exact:
            return Index.of(0), number  # what is beyond the last chunk is beyond the end of the row
        if not tiling.stays:
            return b.quotient(number, tiling.chunks), b.remainder(number, tiling.chunks)
        first = b.quotient(block, tiling.chunks) * tiling.each
        return first + (0 if turn is None else turn), b.remainder(block, tiling.chunks)

    def _tile(self, row_tile: Index, chunk: Index) -> None:
        """All sweeps over one tile."""
        b, frame = self.b, self.frame
        row = row_tile * self.tiling.slots + self.slot
        self.valid = None
        if not self.tiling.even:
            self.valid = b.lt(row, Index.of(self.rows))
            row = b.term(b.min(row, Index.of(self.rows) - 1), self.rows)
        split = 0 if self.group.flat else frame.split or 0
        index = tuple(unflattened(b, row, frame.shape[:split])) if split else ()
        kept, held = dict(self.sources), dict(self.held)
        self._load_rows(index, chunk)
        for level in range(self.last + 1):
            self._row_values(level, index)
            work = self._work(level)
            if work:
                self._sweep_tile(level, index, chunk, work)
        self.sources.clear()
        self.sources.update(kept)
        self.held = held

    @contextmanager
    def _only(self, *conditions: Scalar | None) -> Iterator[None]:
        """What is written in this block is done where all conditions hold."""
        told: Scalar | None = None
        for condition in conditions:
            if condition is not None:
                told = condition if told is None else self.b.and_(told, condition)
        if told is None:
            yield
        else:
            with self.b.if_(told):
                yield

    def _store_row(self, value: Value, at: tuple[Index, ...]) -> None:
        """Write what was computed once for the row: one thread of it does."""
        first = self.b.lt(self.own, 1) if self.tiling.width > 1 else None
        with self._only(self.valid, first):
            super()._store_row(value, at)

    # Vectors of a row

    def _over_vectors(self, chunk: Index, body: Callable[[Columns, Index], None]) -> None:
        """Write what is done for each element that is a thread's own.

        The body is given its columns, and its place among the thread's own; of a long row, in the row.
        """
        tiling = self.tiling
        if tiling.vectors is None:
            self._over_long_row(body)
            return
        for k in range(tiling.vectors):
            number = chunk * (tiling.vectors * tiling.width) + k * tiling.width + self.own
            self._vector(number, Index.of(k * tiling.lanes), body)

    def _over_long_row(self, body: Callable[[Columns, Index], None]) -> None:
        """A loop over the vectors of a row, several at a time as long as all threads have one."""
        b, width, lanes = self.b, self.tiling.width, self.tiling.lanes
        if isinstance(self.columns, Size):
            with b.loop(ceil_div(self.columns, width * lanes)) as turn:
                number = turn * width + self.own
                self._vector(number, number * lanes, body)
            return
        count = ceil_div(self.columns, lanes)
        turns = count // (width * _AT_ONCE)
        with b.loop(turns) as turn:
            for n in range(_AT_ONCE):
                number = (turn * _AT_ONCE + n) * width + self.own
                self._vector(number, number * lanes, body, sure=True)
        for first in range(turns * width * _AT_ONCE, count, width):
            number = self.own + first
            self._vector(number, number * lanes, body, sure=first + width <= count)

    def _vector(
        self, number: Index, place: Index, body: Callable[[Columns, Index], None], *, sure: bool = False
    ) -> None:
        b, lanes = self.b, self.tiling.lanes
        sure = sure or self.tiling.exact
        inside = None if sure else b.lt(number, Index.of(ceil_div(self.columns, lanes)))
        with self._only(self.valid, inside):
            columns = self._columns(number)
            if lanes == 1:
                body(columns, place)
                return
            with b.vector(lanes, lanes=lanes) as c:
                body((*columns[:-1], columns[-1] + c), place + c)

    def _columns(self, number: Index) -> Columns:
        """The columns at which a vector of the row begins; along the last axis in whole vectors."""
        if not self.axes:
            return ()
        lanes, last = self.tiling.lanes, self.axes[-1]
        if len(self.axes) == 1:
            return (number * lanes,)
        each = ceil_div(last, lanes)
        rest = unflattened(self.b, self.b.quotient(number, each), self.axes[:-1])
        return (*rest, self.b.remainder(number, each) * lanes)

    # Sweeps

    def _load_rows(self, row: tuple[Index, ...], chunk: Index) -> None:
        """Read what later sweeps need, too, into registers, all of it before anything is computed.

        What goes to shared memory is read by the first sweep, and left there.
        """
        found = self.group.held(self.tiling)
        if self.tiling.vectors is None:
            self.coming = {v: self._shared(v.type.dtype) for v in found}
            return
        for v in found:
            self.held[v] = self._private(v.type.dtype)

        def load(columns: Columns, place: Index) -> None:
            for v in found:
                at = self._index_of(v.type.shape, row, columns)
                source = self.sources[v]
                self.b.store(self.held[v], place, self.b.load(source.buffer, source.at(*at)))

        if found:
            self._over_vectors(chunk, load)

    def _shared(self, dtype: Any) -> Buffer:
        return self.b.scratch(f"row{len(self.b.scratches)}", dtype, self.columns, "shared")

    def _private(self, dtype: Any) -> Buffer:
        size = (self.tiling.vectors or 1) * self.tiling.lanes
        return self.b.scratch(f"own{len(self.b.scratches)}", dtype, size, "private")

    def _kept(self, value: Value) -> bool:
        """Whether a later sweep needs a value that is too dear to be computed again."""
        if self.last == 0 or self.tiling.vectors is None:
            return False
        if not self._is_needed_later(value, self.levels[value]):
            return False
        return self._price(value) > CHEAP or value in self.targets

    def _price(self, value: Value) -> int:
        return 0 if value in self.held else super()._price(value)

    def _sweep_tile(self, level: int, row: tuple[Index, ...], chunk: Index, work: Sequence[Value]) -> None:
        reduced = [v for v in work if self.kinds[v] == "row"]
        for v in reduced:
            dtype = accumulator(self.made[v])
            start = self.b.constant(identity(self.made[v].op.fold, dtype), dtype)
            self.totals[v] = self.b.local(start)
        kept = [v for v in work if self.kinds[v] == "full" and self._kept(v)]
        made = {v: self._private(v.type.dtype) for v in kept}

        def element(columns: Columns, place: Index) -> None:
            known = dict(self.sources)
            # All is read before anything is written, since both may be one memory.
            for v in self.group.in_place:
                if v not in self.held:
                    self.sources[v] = self.reader.read(v, self._index_of(v.type.shape, row, columns))
            for v, buffer in self.held.items():
                self.sources[v] = self.b.load(buffer, place)
            for v, buffer in self.coming.items():
                self.b.store(buffer, place, self.sources[v])
            for v in work:
                self._element(v, row, columns, place, made.get(v))
            self.sources.clear()
            self.sources.update(known)

        self._over_vectors(chunk, element)
        self._finish_rows(reduced)
        self.held |= made | self.coming
        self.coming = {}
        for v in work:
            # Where rows are not in registers, what is written is read back by the thread that wrote it.
            if self.kinds[v] == "full" and v in self.targets and v not in made:
                self.sources[v] = self.targets[v]

    def _finish_rows(self, reduced: Sequence[Value]) -> None:
        """What threads have found of their parts of a row as one."""
        if not reduced:
            return
        parts = [
            Part(self.totals[v], fold_instruction(self.made[v].op.fold, accumulator(self.made[v])))
            for v in reduced
        ]
        for v, total in zip(reduced, self.tree.combine(self.thread, parts), strict=True):
            self.sources[v] = self.b.cast(total, v.type.dtype)

    def _element(
        self, v: Value, row: tuple[Index, ...], columns: Columns, place: Index, own: Buffer | None
    ) -> None:
        """What is done with one value at one element."""
        b, node = self.b, self.made[v]
        if is_reduction(node):
            self._fold(v, row, columns, place)
            return
        at = self._index_of(v.type.shape, row, columns)
        found = self.reader.read(v, at)
        if v in self.targets:
            b.store(self.targets[v].buffer, self.targets[v].at(*at), found)
        if own is not None:
            b.store(own, place, found)

    def _fold(self, v: Value, row: tuple[Index, ...], columns: Columns, place: Index) -> None:
        b, node = self.b, self.made[v]
        (x,) = node.inputs
        dtype = accumulator(node)
        element = b.cast(self.reader.read(x, self._index_of(x.type.shape, row, columns)), dtype)
        instruction = fold_instruction(node.op.fold, dtype)
        if self.kinds[v] != "column":
            b.accumulate(self.totals[v], instruction, element)
        elif v in self.sums:
            total = getattr(b, instruction)(b.load(self.sums[v], place), element)
            b.store(self.sums[v], place, total)
        else:
            target = self.targets[v]
            at = target.at(self._row_of_sums, self._column_number(columns))
            b.store(target.buffer, at, getattr(b, instruction)(b.load(target.buffer, at), element))

    # Partial results

    def _column_number(self, columns: Columns) -> Index:
        flat = Index.of(0)
        for i, size in zip(columns, self.axes, strict=True):
            flat = flat * size + i
        return flat.folded()

    def _begin(self, block: Index) -> None:
        b, chunk = self.b, self._chunk_of(block)
        over = b.quotient(block, self.tiling.chunks) if self.tiling.stays else block
        self._row_of_sums = over if self.joins else over * self.tiling.slots + self.slot
        self.valid = None
        for v, target in self.targets.items():
            if self.kinds[v] not in ("all", "column"):
                continue
            dtype = accumulator(self.made[v])
            start = b.constant(identity(self.made[v].op.fold, dtype), dtype)
            if self.kinds[v] == "all":
                self.totals[v] = b.local(start)
            elif self.tiling.vectors is not None:
                self.sums[v] = self._private(dtype)
                for place in range(self.sums[v].size if isinstance(self.sums[v].size, int) else 0):
                    b.store(self.sums[v], place, start)
            else:
                self._over_vectors(chunk, self._store_start(target, start))

    def _store_start(self, target: Array, start: Scalar) -> Callable[[Columns, Index], None]:
        def write(columns: Columns, place: Index) -> None:
            at = target.at(self._row_of_sums, self._column_number(columns))
            self.b.store(target.buffer, at, start)

        return write

    def _chunk_of(self, block: Index) -> Index:
        return self.b.remainder(block, self.tiling.chunks) if self.tiling.stays else Index.of(0)

    def _join_slots(self) -> None:
        """Add up what the rows of a block have found of columns: the first of them has it all then."""
        b, tiling = self.b, self.tiling
        rows = {
            v: b.scratch(f"slots{i}", sums.dtype, tiling.threads * tiling.lanes, "shared")
            for i, (v, sums) in enumerate(self.sums.items())
        }

        def over_lanes(body: Callable[[Index], None]) -> None:
            if tiling.lanes == 1:
                body(Index.of(0))
                return
            with b.vector(tiling.lanes, lanes=tiling.lanes) as c:
                body(c)

        for k in range(tiling.vectors or 0):
            first = k * tiling.lanes

            def give(c: Index, first: int = first) -> None:
                for v, row in rows.items():
                    b.store(row, self.thread * tiling.lanes + c, b.load(self.sums[v], c + first))

            def take(c: Index, first: int = first) -> None:
                for v, row in rows.items():
                    instruction = fold_instruction(self.made[v].op.fold, row.dtype)
                    total: Scalar = b.load(self.sums[v], c + first)
                    for slot in range(1, tiling.slots):
                        other = b.load(row, (self.own + slot * tiling.width) * tiling.lanes + c)
                        total = getattr(b, instruction)(total, other)
                    b.store(self.sums[v], c + first, total)

            b.barrier()  # what was read of the vector before
            over_lanes(give)
            b.barrier()
            with self._only(b.lt(self.slot, 1)):
                over_lanes(take)

    def _end(self, block: Index) -> None:
        b = self.b
        self.valid = None
        if self.sums and self.tiling.ends_columns:
            self._end_columns(self._chunk_of(block))
        elif self.sums:

            def write(columns: Columns, place: Index) -> None:
                for v, sums in self.sums.items():
                    target = self.targets[v]
                    at = target.at(self._row_of_sums, self._column_number(columns))
                    b.store(target.buffer, at, b.load(sums, place))

            if self.joins:
                self._join_slots()
            with self._only(b.lt(self.slot, 1) if self.joins else None):
                self._over_vectors(self._chunk_of(block), write)
        whole = [v for v in self.targets if self.kinds[v] == "all"]
        if not whole:
            return
        threads = self.tiling.threads
        parts = [Part(self.totals[v], self._folding(v)) for v in whole]
        for v, total in zip(whole, Tree(b, threads, threads).combine(self.thread, parts), strict=True):
            target = self.targets[v]
            at = target.flat(0) if is_number(self.tiling.blocks, 1) else target.at(block, 0)
            with self._only(b.lt(self.thread, 1) if threads > 1 else None):
                b.store(target.buffer, at, b.cast(total, target.dtype))

    def _folding(self, v: Value) -> str:
        return fold_instruction(self.made[v].op.fold, accumulator(self.made[v]))

    def _end_columns(self, chunk: Index) -> None:
        """What the slots of the only block with these columns have found, as one, in the order of slots."""
        b, tiling = self.b, self.tiling
        room = tiling.width * tiling.lanes
        rows = {v: b.scratch(f"columns{len(b.scratches)}", own.dtype, room * tiling.slots, "shared")
                for v, own in self.sums.items()}  # fmt: skip
        for v, own in self.sums.items():
            for i in range(tiling.lanes):
                at = (self.slot * tiling.width + self.own) * tiling.lanes + i
                b.store(rows[v], at, b.load(own, i))
        b.barrier()
        for first in range(0, room, tiling.threads):
            mine = self.thread + first
            column = chunk * room + mine
            ends = [b.lt(mine, room)] if first + tiling.threads > room else []
            ends += [] if tiling.exact else [b.lt(column, Index.of(self.columns))]
            with self._only(*ends):
                for v, row in rows.items():
                    parts = [b.load(row, mine + i * room) for i in range(tiling.slots)]
                    total, target = pairwise(b, self._folding(v), parts), self.targets[v]
                    b.store(target.buffer, target.flat(column), b.cast(total, target.dtype))

"""The kernel of a group: rows in parallel, and for each row one sweep over its columns after another.

A value that a row was reduced to is a scalar for the sweeps that follow. A value for each column that a later
sweep needs again is computed again if that is cheap, else kept in a row on the stack. Reductions over rows
give partial results, one for each block of rows, which a second kernel combines; the number of blocks depends
on the shape alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from weft.base.dtypes import DType, bfloat16, bool_, float16, float32, kind
from weft.base.shapes import size_of
from weft.base.sizes import Size, is_known
from weft.ir.graph import Node, Value
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Const, Load, Loop, Store
from weft.schedule.arrays import Array
from weft.schedule.groups import REDUCTIONS, Frame, Group, reduction
from weft.schedule.points import Reader
from weft.schedule.region import Scope
from weft.schedule.units import Web
from weft.schedule.views import reshape_index
from weft.schedule.writer import Kernel, unflattened

BLOCK = 16384  # elements that one iteration of a parallel loop works on, about
MOST_BLOCKS = 64  # partial results of a reduction over rows
SCRATCH = 8192  # elements of a row that is kept on the stack
MOST_PIECES = 8  # of a sweep that is cut
CHEAP = 3  # instructions that are rather repeated than their result kept
_HEAVY = frozenset({"exp", "log", "tanh", "sigmoid", "erf", "normal_cdf", "sin", "cos", "pow", "div", "sqrt"})


def last_axis_breaks(node: Node) -> list[int]:
    """Where, along the last axis, a node goes on with another of its inputs, or with padding."""
    shape, attrs = node.outputs[0].type.shape, node.attrs
    if node.op.name == "concat" and attrs["axis"] == len(shape) - 1:
        sizes = [v.type.shape[-1] for v in node.inputs]
        return [sum(sizes[:i]) for i in range(1, len(sizes))] if is_known(sizes) else []
    if (
        node.op.name == "pad"
        and attrs["interior"][-1] == 0
        and is_known((attrs["low"][-1], attrs["high"][-1]))
    ):
        return [attrs["low"][-1], shape[-1] - attrs["high"][-1]]
    return []


class Band:
    """Writes the kernel of one group."""

    def __init__(self, scope: Scope, web: Web, group: Group, head: Value | None = None) -> None:
        self.scope = scope
        self.web = web
        self.frame = group.frame
        self.nodes = [web.nodes[i] for i in group.members]
        self.made = {node.outputs[0]: node for node in self.nodes}
        self.outputs = web.used_outside(group.members)
        self.kinds = {v: self._kind(node) for v, node in self.made.items()}
        self.levels = self._find_levels()
        self.inlined: dict[Value, Node] = dict(self.made)
        self.head = head
        self.external = self._find_external()
        self.flat = group.frame.split is None or self._is_one_long_row()
        self.breaks = self._find_breaks()
        start = len(self.frame.shape) - 1 if self.breaks else self._even_from() if self.flat else 0
        if self.flat and start > 0:
            self.frame, self.flat = Frame(self.frame.shape, start), False

    # What is what

    def _kind(self, node: Node) -> str:
        """What a value is: "full", "row", "column" or "all"."""
        if node.op.name in REDUCTIONS:
            return reduction(node, self.frame)
        return self.frame.kind(node.outputs[0].type.shape)

    def _is_one_long_row(self) -> bool:
        rows = self.frame.rows
        return not isinstance(rows, Size) and rows == 1 and all(k != "row" for k in self.kinds.values())

    def _find_levels(self) -> dict[Value, int]:
        """By value, in which sweep it is computed; what a row is reduced to is known in the next one."""
        levels: dict[Value, int] = {}
        for v, node in self.made.items():
            roots = [self.web.root(x) for x in node.inputs]
            level = max((levels[r] for r in roots if r in levels), default=0)
            reduces_row = node.op.name in REDUCTIONS and self.kinds[v] == "row"
            levels[v] = level + 1 if reduces_row else level
        return levels

    def _find_external(self) -> list[Value]:
        """What is read from outside; views that no strides describe are computed where they are read."""
        found: dict[Value, None] = {}

        def visit(value: Value) -> None:
            if value in self.made or value is self.head:
                return
            i = self.web.producer.get(value)
            root = self.web.root(value)
            if i is not None and (root in self.made or root is self.head):
                self.inlined[value] = self.web.nodes[i]
                visit(self.web.nodes[i].inputs[0])
            elif self.scope.find(value) is not None:
                found[value] = None
            else:
                assert i is not None
                self.inlined[value] = self.web.nodes[i]
                for x in self.web.nodes[i].inputs:
                    visit(x)

        for node in self.nodes:
            for x in node.inputs:
                visit(x)
        return list(found)

    def _find_breaks(self) -> list[int]:
        """Columns at which another part of what is joined begins: the sweep is cut there."""
        shape = self.frame.shape
        if not shape or isinstance(shape[-1], Size):
            return []
        found = {
            c for node in self.nodes for c in last_axis_breaks(node) if node.outputs[0].type.shape == shape
        }
        inside = sorted(c for c in found if 0 < c < shape[-1])
        return inside if len(inside) < MOST_PIECES else []

    def _even_from(self) -> int:
        """The first axis from which on all that is read from outside walks evenly through memory."""
        start = 0
        for node in self.nodes:
            shape = node.outputs[0].type.shape
            if node.op.name in REDUCTIONS or shape != self.frame.shape:
                continue
            for v in node.inputs:
                place = self.scope.find(v) if v in self.external else None
                if isinstance(place, Array):
                    start = max(start, _even_axes(place, shape))
        return start

    def memory(self) -> list[Value]:
        """What is read from memory, of that from outside."""
        found = [v for v in self.external if isinstance(self.scope.place(v), Array) or v.type.shape == ()]
        return [v for v in found if not isinstance(self.scope.place(v), Const)]

    # Writing

    def lower(self, name: str) -> None:
        """Write the kernel, and those that combine partial results."""
        memory = self.memory()
        reads = [self.scope.array(v) for v in memory]
        blocks, rows_each = self._blocks()
        targets = {v: self._target(v, blocks) for v in self.outputs}
        writes = list(targets.values())
        with self.scope.writer.kernel(name, reads, writes) as k:
            sources = {v: self.scope.place(v) for v in self.external}
            sources |= dict(zip(memory, k.reads, strict=True))
            inner = dict(zip(targets, k.writes, strict=True))
            _Sweeps(self, k, sources, inner, blocks, rows_each).write()
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
            return max(1, -(-total // BLOCK)), max(1, min(total, BLOCK))
        partial = any(k in ("column", "all") for k in self.kinds.values())
        if isinstance(rows, Size):
            return (MOST_BLOCKS, (rows + (MOST_BLOCKS - 1)) // MOST_BLOCKS) if partial else (rows, 1)
        if rows == 0:
            return int(partial), 1
        width = 256 if isinstance(columns, Size) else max(columns, 1)
        if partial:
            count = max(1, min(rows, MOST_BLOCKS, rows * width // (2 * BLOCK)))
        else:
            count = max(1, min(rows, rows * width * 4 // BLOCK))
        each = -(-rows // count)
        return -(-rows // each), each

    def _target(self, value: Value, blocks: Any) -> Array:
        """Where a value that is used outside is written: in its place, or partial results in theirs."""
        if self.kinds[value] in ("full", "row"):
            return self.scope.output(value)
        if not isinstance(blocks, Size) and blocks == 1 and _accumulator(value) == value.type.dtype:
            return self.scope.output(value)
        width = self.frame.columns if self.kinds[value] == "column" else 1
        return self.scope.writer.temporary((blocks, width), _accumulator(value))

    def _combine(self, value: Value, partial: Array, blocks: Any) -> None:
        if not isinstance(blocks, Size) and blocks == 1 and _accumulator(value) == value.type.dtype:
            return
        out = self.scope.output(value)
        instruction = REDUCTIONS[self.made[value].op.name]
        with self.scope.writer.kernel("combine", [partial], [out]) as k:
            combine(k, instruction)


def _even_axes(x: Array, shape: tuple[Any, ...]) -> int:
    """The first axis of a shape from which on an array that broadcasts to it is walked through evenly."""
    lead = len(shape) - x.ndim
    strides = [0] * lead + [
        s if isinstance(n, Size) or n != 1 else 0 for s, n in zip(x.strides, x.shape, strict=True)
    ]
    axis = len(shape) - 1
    while axis > 0:
        before, size = strides[axis - 1], shape[axis]
        unit = not isinstance(shape[axis - 1], Size) and shape[axis - 1] == 1
        if not unit and before != strides[axis] * size:
            return axis
        if unit:
            strides[axis - 1] = strides[axis] * size
        axis -= 1
    return 0


def combine(k: Kernel, instruction: str) -> None:
    """Combine the rows of an array, from the first to the last."""
    b = k.builder
    (x,), (out,) = k.reads, k.writes
    count, width = x.shape
    lanes = 256
    tasks = 1 if isinstance(width, Size) or width <= lanes else -(-width // lanes)
    with b.parallel(tasks) as t:
        stop: Any = width if tasks == 1 else _clipped(b, (t + 1) * lanes, width)
        with b.vector(stop, t * lanes if tasks > 1 else 0) as c:
            total = b.local(b.load(x.buffer, x.at(0, c)))
            with b.loop(count, 1) as i:
                b.set(total, getattr(b, instruction)(b.get(total), b.load(x.buffer, x.at(i, c))))
            b.store(out.buffer, out.flat(c), b.cast(b.get(total), out.dtype))


def _clipped(b: Builder, index: Index, stop: Any) -> Index:
    return b.term(b.min(index, Index.of(stop)))


def _accumulator(value: Value) -> DType:
    """What a reduction is accumulated in: half precision in float32."""
    dtype = value.type.dtype
    return float32 if dtype in (float16, bfloat16) else dtype


def identity(instruction: str, dtype: DType) -> Any:
    """What a reduction begins with."""
    if instruction in ("add", "mul"):
        return dtype.type(0 if instruction == "add" else 1)
    if dtype == bool_ or instruction in ("and_", "or_"):
        return np.bool_(instruction in ("and_", "min"))
    if kind(dtype) == "f":
        return dtype.type(-np.inf if instruction == "max" else np.inf)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if instruction == "max" else limits.max)


class _Sweeps:
    """The body of a kernel, while it is written."""

    def __init__(
        self,
        band: Band,
        k: Kernel,
        sources: dict[Value, Any],
        targets: dict[Value, Array],
        blocks: Any,
        each: Any,
    ) -> None:
        self.band = band
        self.b = k.builder
        self.sources = sources
        self.targets = targets
        self.blocks = blocks
        self.each = each
        self.reader: Reader = band.scope.reader(self.b, sources, band.inlined)
        self.totals: dict[Value, Any] = {}
        self.last = max(band.levels.values(), default=0)

    def write(self) -> None:
        with self.b.parallel(self.blocks) as block:
            self._begin(block)
            if self.band.flat:
                self._write_flat(block)
            else:
                self._write_rows(block)
            self._end(block)

    # Rows

    def _write_flat(self, block: Index) -> None:
        """One long row: a block of its columns."""
        total = size_of(self.band.frame.shape)
        if not isinstance(total, Size) and total == 0:
            return
        start = block * self.each
        fits = not isinstance(total, Size) and total % self.each == 0
        stop: Any = start + self.each if fits else _clipped(self.b, start + self.each, total)
        offset = Index.of(0)
        if fits:
            start, stop, offset = Index.of(0), self.each, start
        with self.b.vector(stop, start) as c:
            self._at_column(block, 0, (offset + c,), flat=True)

    def _write_rows(self, block: Index) -> None:
        rows = self.band.frame.rows
        if not isinstance(rows, Size) and rows == 0:
            return
        if not isinstance(self.each, Size) and self.each == 1:
            self._row(block, block)
            return
        even = not isinstance(rows, Size) and not isinstance(self.each, Size) and rows % self.each == 0
        if even:
            with self.b.loop(self.each) as i:
                self._row(block, block * self.each + i)
            return
        start = block * self.each
        with self.b.loop(_clipped(self.b, start + self.each, rows), start) as r:
            self._row(block, r)

    def _row(self, block: Index, row: Index) -> None:
        """All sweeps over one row."""
        frame = self.band.frame
        split = frame.split or 0
        index = tuple(unflattened(self.b, row, frame.shape[:split])) if split else ()
        kept = dict(self.sources)
        for level in range(self.last + 1):
            self._row_values(level, index)
            work = self._work(level)
            if work:
                self._sweep(block, level, index, work)
        self.sources.clear()
        self.sources.update(kept)

    def _row_values(self, level: int, index: tuple[Index, ...]) -> None:
        """What is computed once for the row, from what it was reduced to."""
        band = self.band
        for v, node in band.made.items():
            if band.kinds[v] != "row" or band.levels[v] != level:
                continue
            at = self._index_of(v.type.shape, index, None)
            if node.op.name not in REDUCTIONS:
                self.sources[v] = self.reader.read(v, at)
            if v in self.targets:
                target = self.targets[v]
                self.b.store(target.buffer, target.at(*at), self.sources[v])

    def _index_of(self, shape: tuple[Any, ...], row: tuple[Index, ...], columns: Any) -> tuple[Index, ...]:
        """The index into an array of a shape, at a row and a column (None: of what a row is reduced to)."""
        frame = self.band.frame
        split = frame.split or 0
        own = frame.shape[:split] if columns is None else frame.shape
        at = row if columns is None else (*row, *columns)
        return at if shape == own else reshape_index(self.reader, at, own, shape)

    # Columns

    def _work(self, level: int) -> list[Value]:
        """What a sweep must do: values to reduce and values to write; in order."""
        band = self.band
        found = []
        for v, node in band.made.items():
            if node.op.name in REDUCTIONS:
                source = band.web.root(node.inputs[0])
                if band.levels.get(source, 0) == level:
                    found.append(v)
            elif band.kinds[v] == "full" and band.levels[v] == level and (v in self.targets or self._kept(v)):
                found.append(v)
        return found

    def _kept(self, value: Value) -> bool:
        """Whether a later sweep needs a value that is too dear to be computed again."""
        band = self.band
        level = band.levels[value]
        users = [band.web.nodes[u] for u in band.web.users[band.web.producer[value]]]
        later = [n for n in users if n.outputs[0] in band.made and self._sweep_of(n) > level]
        if not later or isinstance(band.frame.columns, Size) or band.frame.columns > SCRATCH:
            return False
        return self._price(value, level) > CHEAP

    def _sweep_of(self, node: Node) -> int:
        """The sweep in which a node reads its inputs."""
        out = node.outputs[0]
        reduces_row = node.op.name in REDUCTIONS and self.band.kinds[out] == "row"
        return self.band.levels[out] - (1 if reduces_row else 0)

    def _price(self, value: Value, level: int) -> int:
        """About how many instructions it takes to compute a value from memory and what rows were reduced to."""
        node = self.band.made.get(value)
        if node is None or self.band.kinds[value] != "full" or value in self.targets:
            return 0
        own = 10 if node.op.name in _HEAVY else 1
        return own + sum(self._price(self.band.web.root(x), level) for x in node.inputs)

    def _sweep(self, block: Index, level: int, row: tuple[Index, ...], work: Sequence[Value]) -> None:
        band = self.band
        reduced = [v for v in work if band.kinds[v] == "row"]
        for v in reduced:
            instruction = REDUCTIONS[band.made[v].op.name]
            dtype = _accumulator(v)
            self.totals[v] = self.b.local(self.b.constant(identity(instruction, dtype), dtype))
        scratch = {v: self._scratch(v) for v in work if band.kinds[v] == "full" and v not in self.targets}
        self._over_columns(lambda columns: self._at(block, row, columns, work, scratch))
        for v in reduced:
            self.sources[v] = self.b.cast(self.b.get(self.totals[v]), v.type.dtype)
        self.sources.update(scratch)
        for v in work:
            if band.kinds[v] == "full" and v in self.targets and self._is_needed_later(v, level):
                self.sources[v] = self.targets[v]

    def _is_needed_later(self, value: Value, level: int) -> bool:
        band = self.band
        users = [band.web.nodes[u] for u in band.web.users[band.web.producer[value]]]
        return any(n.outputs[0] in band.made and self._sweep_of(n) > level for n in users)

    def _scratch(self, value: Value) -> Array:
        """A row on the stack for a value, addressed like the value itself."""
        frame = self.band.frame
        buffer = self.b.scratch(f"row{len(self.b.scratches)}", value.type.dtype, frame.columns)
        shape = value.type.shape
        split = next(i for i in range(len(shape) + 1) if size_of(shape[i:]) == frame.columns)
        whole = Array(buffer, shape[split:])
        return Array(buffer, shape, (*[0] * split, *whole.strides))

    def _over_columns(self, body: Callable[[tuple[Index, ...]], None]) -> None:
        """A loop over the columns: all in one where every access walks evenly, else one for each axis."""
        axes = self.band.frame.shape[self.band.frame.split or 0 :]
        if self.band.breaks:
            self._over_axes(axes, (), body)
            return
        before = len(self.b.block.statements)
        with self.b.vector(size_of(axes)) as c:
            body(tuple(unflattened(self.b, c, axes)) if len(axes) > 1 else (c,))
        if len(axes) > 1 and _is_uneven(self.b.block.statements[-1]):
            del self.b.block.statements[before:]
            self._over_axes(axes, (), body)

    def _over_axes(
        self, axes: Sequence[Any], done: tuple[Index, ...], body: Callable[[tuple[Index, ...]], None]
    ) -> None:
        if len(axes) == 1:
            cuts = [0, *self.band.breaks, axes[0]]
            for start, stop in pairwise(cuts):
                with self.b.vector(stop - start) as c:
                    body((*done, c + start))
            return
        with self.b.loop(axes[0]) as i:
            self._over_axes(axes[1:], (*done, i), body)

    def _at_column(self, block: Index, level: int, columns: tuple[Index, ...], *, flat: bool) -> None:
        """One column of one long row."""
        index = tuple(unflattened(self.b, columns[0], self.band.frame.shape))
        self._at(block, (), index, self._work(level), {})

    def _at(
        self,
        block: Index,
        row: tuple[Index, ...],
        columns: tuple[Index, ...],
        work: Sequence[Value],
        scratch: dict[Value, Array],
    ) -> None:
        """What is done for one element."""
        band = self.band
        for v in work:
            node = band.made[v]
            if node.op.name in REDUCTIONS:
                self._reduce(v, node, block, row, columns)
                continue
            at = self._index_of(v.type.shape, row, columns)
            target = scratch.get(v) or self.targets[v]
            self.b.store(target.buffer, target.at(*at), self.reader.read(v, at))

    def _reduce(
        self, value: Value, node: Node, block: Index, row: tuple[Index, ...], columns: tuple[Index, ...]
    ) -> None:
        (x,) = node.inputs
        element = self.reader.read(x, self._index_of(x.type.shape, row, columns))
        element = self.b.cast(element, _accumulator(value))
        instruction = REDUCTIONS[node.op.name]
        if self.band.kinds[value] != "column":
            self.b.accumulate(self.totals[value], instruction, element)
            return
        target = self.targets[value]
        place = self._partial(target, block, self._column_number(columns))
        total = getattr(self.b, instruction)(self.b.load(target.buffer, place), element)
        self.b.store(target.buffer, place, total)

    def _column_number(self, columns: tuple[Index, ...]) -> Index:
        flat = Index.of(0)
        for i, size in zip(columns, self.band.frame.shape[self.band.frame.split or 0 :], strict=True):
            flat = flat * size + i
        return flat.folded()

    # Partial results

    def _partial(self, target: Array, block: Index, column: Any) -> Index:
        """Where the partial result of a block lies, for a column."""
        if not isinstance(self.blocks, Size) and self.blocks == 1:
            return target.flat(column)
        return target.at(block, column)

    def _begin(self, block: Index) -> None:
        for v, target in self.targets.items():
            how, op = self.band.kinds[v], self.band.made[v].op.name
            if how == "all":
                instruction = REDUCTIONS[op]
                self.totals[v] = self.b.local(
                    self.b.constant(identity(instruction, target.dtype), target.dtype)
                )
            elif how == "column":
                start = self.b.constant(identity(REDUCTIONS[op], target.dtype), target.dtype)
                with self.b.vector(self.band.frame.columns) as c:
                    self.b.store(target.buffer, self._partial(target, block, c), start)

    def _end(self, block: Index) -> None:
        for v, target in self.targets.items():
            if self.band.kinds[v] == "all":
                self.b.store(target.buffer, self._partial(target, block, 0), self.b.get(self.totals[v]))


def _is_uneven(loop: Any) -> bool:
    """Whether an access in a vector loop does not walk evenly through memory."""
    assert isinstance(loop, Loop)
    varying = _varying(loop)
    for s in loop.body.statements:
        if isinstance(s, Load | Store):
            for v in s.index.terms:
                if v is not loop.variable and v.value is not None and id(v.value) in varying:
                    return True
    return False


def _varying(loop: Loop) -> set[int]:
    """The scalars of a loop's body that depend on its variable."""
    found: set[int] = set()

    def depends(x: Any) -> bool:
        if isinstance(x, Index):
            return any(v is loop.variable or (v.value is not None and id(v.value) in found) for v in x.terms)
        return id(x) in found

    for s in loop.body.statements:
        args = getattr(s, "args", ())
        if isinstance(s, Load):
            args = (s.index,)
        if any(depends(a) for a in args):
            found.add(id(s))
    return found

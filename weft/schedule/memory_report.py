"""The memory plan of a graph as a report: what lies where, for how long, and whose it is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.base.dtypes import short_name
from weft.base.records import dataclass, field
from weft.base.shapes import size_of
from weft.base.sizes import Size, bind, size_names
from weft.errors import ArgumentError
from weft.ir.graph import Graph, Node, Value
from weft.loop.ir import Buffer, Program
from weft.passes.pipeline import lower
from weft.schedule.memory import Life, find_lives
from weft.schedule.origins import Held, short_location, show_bytes, steps_of
from weft.schedule.program import lower_graph

_LARGE = 1024  # what a named size is taken for, to find out where most memory is needed


@dataclass(frozen=True)
class PlannedBuffer:
    """A buffer for what is in between.

    Attributes:
        name: as in the text of the program.
        shape, dtype: of the array in it.
        bytes: of it, a number or an expression in named sizes.
        offset: of its first byte in the arena.
        first, last: the steps from which to which it is needed, numbered as ``explain`` numbers them.
        op: that makes its content.
        location: file and line of the user's code that this comes from, or None.
        at_peak: whether it is there when most memory is needed.
        node: that makes its content, of the graph as the schedule rewrote it; or None.
    """

    name: str
    shape: tuple[Any, ...]
    dtype: Any
    bytes: Any
    offset: Any
    first: int
    last: int
    op: str
    location: tuple[str, int] | None
    at_peak: bool
    node: Node | None = field(default=None, repr=False)

    @property
    def type(self) -> str:
        """Dtype and shape, as in a graph."""
        return f"{short_name(self.dtype)}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class MemoryReport:
    """The memory that a run of a graph needs; a table as text.

    Bytes are numbers, or expressions in named sizes.

    Attributes:
        name: of the graph.
        inputs, outputs, constants: bytes of each.
        donated: bytes of the outputs that may lie in the memory of inputs.
        arena: bytes for what is in between.
        peak: bytes of it that are in use at the same time, at most.
        peak_step: number of the step at which that is.
        unshared: bytes that the buffers would take if none shared memory.
        heap: buffers whose size only the run tells, as text.
        buffers: those in the arena, in order of their first use.
    """

    name: str
    inputs: Any
    outputs: Any
    constants: int
    donated: Any
    arena: Any
    peak: Any
    peak_step: int
    unshared: Any
    heap: tuple[str, ...]
    buffers: tuple[PlannedBuffer, ...]

    def __str__(self) -> str:
        saved = "" if self.unshared == 0 else f", {show_bytes(self.unshared)} if nothing shared memory"
        at = f" in step {self.peak_step}" if self.buffers else ""
        rows = [
            ("inputs", show_bytes(self.inputs)),
            (
                "outputs",
                f"{show_bytes(self.outputs)}, {show_bytes(self.donated)} of it in the memory of inputs",
            ),
            ("constants", show_bytes(self.constants)),
            ("arena", f"{show_bytes(self.arena)}{saved}"),
            ("peak", f"{show_bytes(self.peak)} of the arena in use{at}"),
        ]
        rows += [("heap", text) for text in self.heap]
        head = [f"memory of {self.name}", *[f"  {name:<10}{text}" for name, text in rows]]
        return "\n".join([*head, *self._table()])

    def _table(self) -> list[str]:
        if not self.buffers:
            return []
        rows = [("steps", "bytes", "", "buffer", "from")]
        for b in self.buffers:
            where = b.op if b.location is None else f"{b.op} at {short_location(b.location)}"
            mark = "*" if b.at_peak else ""
            rows.append((f"{b.first}-{b.last}", show_bytes(b.bytes), mark, f"{b.name}: {b.type}", where))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = [
            f"  {a:>{widths[0]}}  {b:>{widths[1]}} {c:<1} {d:<{widths[3]}}  {e}" for a, b, c, d, e in rows
        ]
        return [*lines, "  * in use at the peak"]

    def __repr__(self) -> str:
        return str(self)


def memory(graph: Graph, **sizes: int) -> MemoryReport:
    """The memory plan of a graph as it stands; ``weft.compile`` optimises first.

    Args:
        graph: to report on.
        sizes: values for named sizes; without one, bytes are expressions in it.

    >>> import weft
    >>> f = lambda x, w: weft.softmax(x @ w, axis=1) @ w.mT
    >>> report = weft.make_graph(f)(weft.ones((256, 64)), weft.ones((64, 32))).memory()
    >>> report.inputs, report.outputs, report.peak <= report.unshared
    (73728, 65536, True)
    >>> {buffer.op for buffer in report.buffers} >= {"matmul"}
    True
    """
    named = size_names(s for v in graph.inputs for s in v.type.shape)
    if unknown := sorted(set(sizes) - named):
        known = ", ".join(sorted(named)) or "none, the graph has no named sizes"
        raise ArgumentError("memory", f"sizes must be among {known}, got {unknown[0]}")
    return report_memory(graph, lower_graph(lower(graph)), sizes)


def report_memory(graph: Graph, program: Program, sizes: Mapping[str, int] = {}) -> MemoryReport:
    """The memory plan of a program that was made of a graph."""
    lives = {b: life for b, life in find_lives(program.main.body).items() if b in program.arena}
    ordered = sorted(lives, key=lambda b: lives[b].first)
    peak_at = _peak(program, lives, ordered)
    steps = _Steps(program)
    rows = [_row(program, b, lives[b], sizes, steps, peak_at) for b in ordered]
    peak = sum(_distinct([b for b in ordered if _is_at(lives[b], peak_at)], program).values())
    return MemoryReport(
        graph.name,
        bind(_bytes(graph.inputs), sizes),
        bind(_bytes(graph.results), sizes),
        sum(c.nbytes for c in program.constants),
        bind(_bytes(graph.results[j] for _, j in program.donated), sizes),
        bind(program.arena_size, sizes),
        bind(peak, sizes),
        steps.begin(peak_at),
        sum(row.bytes for row in rows),
        tuple(_heap_text(program, b) for b in program.heap),
        tuple(rows),
    )


def _bytes(values: Iterable[Value]) -> Any:
    return sum(size_of(v.type.shape) * v.type.dtype.itemsize for v in values)


def _row(
    program: Program, buffer: Buffer, life: Life, sizes: Mapping[str, int], steps: _Steps, peak_at: int
) -> PlannedBuffer:
    held: Held = program.origins.buffers[buffer]
    node = held.maker
    return PlannedBuffer(
        buffer.name,
        bind(tuple(held.shape), sizes),
        buffer.dtype,
        bind(buffer.size * buffer.dtype.itemsize, sizes),
        bind(program.arena[buffer], sizes),
        steps.begin(life.first),
        steps.end(life.last),
        "" if node is None else node.op.name,
        None if node is None or node.location is None else node.location.place,
        _is_at(life, peak_at),
        node,
    )


def _is_at(life: Life, position: int) -> bool:
    return life.first <= position <= life.last


def _heap_text(program: Program, buffer: Buffer) -> str:
    held = program.origins.buffers.get(buffer)
    shape = (buffer.size,) if held is None else held.shape
    return (
        f"{buffer.name}: {short_name(buffer.dtype)}[{','.join(map(str, shape))}], which grows as the run goes"
    )


# Where most memory is in use


def _peak(program: Program, lives: Mapping[Buffer, Life], ordered: Sequence[Buffer]) -> int:
    """The position in the main function at which most memory is in use; buffers come by their first use."""
    best, most = 0, -1
    here: list[Buffer] = []
    for buffer in ordered:
        position = lives[buffer].first
        here = [*[b for b in here if lives[b].last >= position], buffer]
        total = sum(map(_number, _distinct(here, program).values()))
        if total > most:
            best, most = position, total
    return best


def _distinct(buffers: Sequence[Buffer], program: Program) -> dict[Any, Any]:
    """The bytes of buffers by where they begin: one that takes over the memory of another counts once."""
    found: dict[Any, Any] = {}
    for b in buffers:
        found[program.arena[b]] = b.size * b.dtype.itemsize
    return found


def _number(x: Any) -> int:
    return int(x.substitute(dict.fromkeys(x.names(), _LARGE))) if isinstance(x, Size) else int(x)


class _Steps:
    """From positions in the main function to the numbers of steps."""

    def __init__(self, program: Program) -> None:
        self._known = [s for s in steps_of(program) if s.number]
        self._positions = [s.position for s in self._known]

    def begin(self, position: int) -> int:
        """The first step there, or the last one before it."""
        return self._at(bisect_left(self._positions, position), position)

    def end(self, position: int) -> int:
        """The last step there or before it."""
        return self._at(bisect_right(self._positions, position) - 1, position)

    def _at(self, i: int, position: int) -> int:
        if not self._known:
            return 0
        if i == len(self._known) or self._positions[i] > position:
            i -= 1
        return self._known[max(i, 0)].number

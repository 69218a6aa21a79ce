"""``weft.memory_profile``: which lines and ops hold the memory, and when most of it is in use.

Outside of graphs the arrays that ops make are followed until they are gone. A compiled function has one arena
for all that is in between, whose use was planned; ``plans`` has that plan for each function that ran.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np

from weft.backends.capabilities import Call, Watched
from weft.base.hooks import hooks
from weft.capture.program.donation import is_lease
from weft.profiler.block import Block
from weft.profiler.log import Line, Place, here, now, threads, trackers
from weft.profiler.tables import TOP, Table, show_line, trace_of, way_of, write_trace
from weft.schedule.memory_report import MemoryReport, report_memory
from weft.schedule.origins import show_bytes

_WIDE, _HIGH = 72, 8  # characters of the picture of a timeline
_ALONE = 3  # references to an array that only a view holds: of the view, of a variable, of the question


@dataclass(eq=False, slots=True)
class Allocation:
    """Memory of an array that was made in the block, or of the arena of a call.

    Attributes:
        op: that made it, or the compiled function.
        line: file and line of the user's code, or None.
        module: path of the ``nn.Module`` that was running, or "".
        bytes: of it.
        begin: when it was made, in ns.
        end: when it was gone; None if it outlived the block.
        thread: number of the thread that made it.
    """

    op: str
    line: Line | None
    module: str
    bytes: int
    begin: int
    end: int | None = None
    thread: int = 0


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A row of a table of memory.

    Attributes:
        name: of the op, the line or the module.
        peak: bytes that it holds when most memory is in use.
        share: of all bytes then.
        bytes: that it took in all.
        count: how many arrays.
        text: of the source line.
    """

    name: str
    peak: int
    share: float
    bytes: int
    count: int
    text: str = ""


class memory_profile(Block):  # noqa: N801 - used as a function, spelled like one
    """Follow the memory of a block: what ops make, until it is gone, and what compiled functions need.

    >>> import weft
    >>> x = weft.ones((256, 256))
    >>> with weft.memory_profile() as m:
    ...     y = weft.exp(x)
    ...     z = (x + y).sum()
    >>> m.peak >= 2 * x.nbytes, [row.name for row in m.rows()][:2]
    (True, ['exp', 'add'])
    """

    _timing = False

    def __init__(self) -> None:
        super().__init__()
        self.allocations: list[Allocation] = []
        self._live: dict[int, tuple[Any, Allocation]] = {}
        self._runs: dict[tuple[object, ...], tuple[Watched, dict[str, int]]] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        self.allocations, self._live, self._runs = [], {}, {}
        trackers.append(self)
        return self

    def __exit__(self, *reason: object) -> None:
        if self in trackers:
            trackers.remove(self)
        self._live = {}
        super().__exit__(*reason)

    # What is taken down

    def add(self, arrays: Sequence[Any], op: str, place: Place | None, module: str) -> None:
        """Follow new arrays."""
        for array in arrays:
            root = _root(array)
            if root is None or id(root) in self._live:
                continue
            made = Allocation(op, place and place[:2], module, root.nbytes, now(), None, here.number)
            self.allocations.append(made)
            self._live[id(root)] = weakref.ref(root, self._end_of(id(root), made)), made

    def _end_of(self, key: int, made: Allocation) -> Any:
        live = self._live

        def gone(_: Any) -> None:
            made.end = now()
            live.pop(key, None)

        return gone

    def call(self, call: Call, outs: Sequence[Any], place: Place | None, module: str) -> None:
        """Take down a call of a compiled function, which has ended."""
        run, given = call.run, {id(a) for a in call.arrays}
        self.add([a for a in outs if id(a) not in given], run.graph.name, place, module)
        if call.arena:
            name, end = f"{run.graph.name} (arena)", now()  # it was there beside the results
            line = place and place[:2]
            self.allocations.append(Allocation(name, line, module, call.arena, end, end, here.number))
        self._runs.setdefault((id(run), *call.sizes.items()), (run, dict(call.sizes)))

    # What can be asked

    @property
    def timeline(self) -> list[tuple[float, int]]:
        """Seconds from the beginning of the block, and the bytes in use from then on."""
        return [((at - self._begin) * 1e-9, total) for at, total in self._totals()]

    @property
    def peak(self) -> int:
        """The most bytes in use at a time."""
        return max((total for _, total in self._totals()), default=0)

    @property
    def at_peak(self) -> list[Allocation]:
        """What is there when most memory is in use, the largest first."""
        when = max(self._totals(), key=lambda pair: pair[1], default=(0, 0))[0]
        made = [a for a in self.allocations if a.begin <= when]  # an arena is there for one moment
        there = [a for a in made if a.end is None or a.end > when or a.begin == when]
        return sorted(there, key=lambda a: -a.bytes)

    @property
    def plans(self) -> list[MemoryReport]:
        """The memory plan of each compiled function that ran: what lies in its arena from when to when."""
        self._taken_down()
        return [report_memory(run.graph, run.program, sizes) for run, sizes in self._runs.values()]

    def _totals(self) -> Iterator[tuple[int, int]]:
        """Times in ns, and the bytes in use from then on."""
        self._taken_down()
        changes = [(a.begin, 0, a.bytes) for a in self.allocations]
        changes += [(a.end, 1, -a.bytes) for a in self.allocations if a.end is not None]
        total = 0
        for at, _, change in sorted(changes):
            total += change
            yield at, total

    def rows(self, by: str = "op") -> list[MemoryRow]:
        """Bytes added up by "op", "line" or "module": first what holds most of the peak, then the rest."""
        ways: dict[str, Any] = {
            "op": lambda a: (a.op, ""),
            "line": lambda a: show_line(a.line),
            "module": lambda a: (a.module or TOP, ""),
        }
        way, there, whole = way_of("table", ways, by), set(map(id, self.at_peak)), self.peak or 1
        sums: dict[tuple[str, str], list[int]] = {}
        for a in self.allocations:
            row = sums.setdefault(way(a), [0, 0, 0])
            row[0] += a.bytes if id(a) in there else 0
            row[1] += a.bytes
            row[2] += 1
        rows = [MemoryRow(n, p, p / whole, b, c, text) for (n, text), (p, b, c) in sums.items()]
        return sorted(rows, key=lambda row: (-row.peak, -row.bytes))

    def table(self, by: str = "op", limit: int | None = 20) -> Table:
        """The same as a table."""
        rows = self.rows(by)
        cells = [
            (show_bytes(r.peak), f"{100 * r.share:.1f}%", show_bytes(r.bytes), str(r.count), r.name, r.text)
            for r in rows[:limit]
        ]
        more = f", {len(rows) - len(cells)} more" if len(rows) > len(cells) else ""
        title = f"{show_bytes(self.peak)} at the peak, by {by}{more}"
        return Table(
            title, ("at peak", "share", "in all", "count", by, ""), tuple(rows[:limit]), tuple(cells)
        )

    def show(self, by: str = "op", limit: int | None = 20) -> None:
        """Print a table."""
        self.table(by, limit).show()

    def picture(self) -> str:
        """The timeline, drawn with characters."""
        return draw(self.timeline, self.seconds)

    def save(self, path: Any) -> None:
        """Write the timeline as a file that trace viewers open."""
        write_trace(path, trace_of([], threads, self._begin, self._totals()))

    def __str__(self) -> str:
        return f"{self.table()}\n\n{self.picture()}"

    def _repr_html_(self) -> str | None:
        return None if self._entries is None else hooks.profile_html(self.table())

    def __repr__(self) -> str:
        if self._entries is None:
            return "<memory profile: not run yet>"
        return f"<memory profile: {show_bytes(self.peak)} at the peak, {len(self.allocations)} arrays>"


def _root(array: Any) -> Any:
    """The array that has the memory of another; None if that was there before.

    A view that an op gives may be of an array that it has just made, which then nobody else holds.
    """
    if type(array) is not np.ndarray:
        return None
    root = array
    while type(root.base) is np.ndarray:
        root = root.base
    if root.base is not None and not is_lease(root.base):
        return None
    return root if root is array or sys.getrefcount(root) <= _ALONE else None


def draw(timeline: Sequence[tuple[float, int]], seconds: float) -> str:
    """A timeline as rows of characters, the most that was in use in each column.

    >>> from weft.profiler.memory import draw
    >>> print(draw([(0.0, 8000), (0.5, 4000)], 1.0).splitlines()[0][:44])
    8.0 KB |####################################
    """
    most = max((total for _, total in timeline), default=0)
    columns = [0] * _WIDE
    points = [(0.0, 0), *timeline, (seconds, 0)]
    for (begin, total), (end, _) in pairwise(points):
        first = min(int(begin / seconds * _WIDE), _WIDE - 1) if seconds else 0
        last = min(int(end / seconds * _WIDE), _WIDE - 1) if seconds else 0
        for i in range(first, max(last, first + 1)):
            columns[i] = max(columns[i], total)
    label = show_bytes(most)
    lines = []
    for level in range(_HIGH, 0, -1):
        row = "".join("#" if c and c * _HIGH > most * (level - 1) else " " for c in columns)
        lines.append(f"{label if level == _HIGH else '':>{len(label)}} |{row}".rstrip())
    return "\n".join([*lines, f"{'0':>{len(label)}} +{'-' * _WIDE}"])

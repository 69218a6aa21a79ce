"""What a backend may do besides building: keep programs on disk, tell of what it runs, tune itself.

These are the interfaces between a backend and those who ask it: ``weft.io.program_cache``, ``weft.profiler``
and ``weft.cli``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from weft.backends.backend import Array, Arrays, Executable
from weft.base.records import NamedTuple
from weft.ir.graph import Graph
from weft.loop.ir import Program
from weft.schedule.cpu.tuning import Tuning
from weft.schedule.explanation import ExplainedStep

Shapes = tuple[tuple[int, ...], ...]
Key = tuple[str, ...]
Note = dict[str, Any]  # of JSON

# Programs on disk


class StoredProgram(Protocol):
    """A program from disk."""

    @property
    def note(self) -> Note:
        """What was stored with it."""

    @property
    def plans(self) -> Mapping[Shapes, Any]:
        """What there is for calls, by the shapes of the arrays."""

    def run(self, arrays: Arrays, plan: Any) -> list[Array] | None:
        """The results; None if the arrays do not fit as they are, or the run fails."""


class ProgramStore(Protocol):
    """Compiled programs on disk, for later processes."""

    @property
    def directory(self) -> str | None:
        """Where they are; None where none are kept."""

    @property
    def distrust(self) -> str | None:
        """Why those that are there are not used; None where they are."""

    def key(self, parts: Sequence[str]) -> Key | None:
        """Parts of a key with all that a program depends on besides; None where none are kept."""

    def digest(self, data: memoryview) -> str:
        """What stands for data in a key."""

    def find(self, key: Key) -> StoredProgram | None:
        """The program that was kept under a key, ready to run."""

    def shapes(self, run: Executable) -> list[Shapes]:
        """The shapes that a program has run on; none of one that cannot be kept."""

    def keep(self, key: Key, run: Executable, note: Note, before: StoredProgram | None) -> bool:
        """Keep a program that has been run, with what was kept for other shapes; whether it could be."""


# Profiles


class Watched(Protocol):
    """A compiled graph that can take down how long its parts take."""

    graph: Graph
    program: Program
    knows_limits: bool  # whether the times of recorded steps are what the machine needs at best, as measured

    @property
    def has_recording(self) -> bool:
        """Whether the code that takes down times is there."""

    def recording(self) -> Watched:
        """The same program as such code; it is made at the first call."""

    def recorded_steps(self, sizes: Mapping[str, int]) -> list[list[ExplainedStep]]:
        """What each row of records is of: several steps if they run side by side.

        Their times are made up, and tell only how they relate, unless limits are known.
        """


class Timed(NamedTuple):
    """What a call gave, and how long its parts took.

    Attributes:
        outputs: the results.
        records: a row for each part: how often it ran, how long that took in all, when it began first and
            when it ended last, in ns.
        ended: when its machine code ended, in ns.
    """

    outputs: list[Array]
    records: Array
    ended: int


class Call(NamedTuple):
    """A call of a compiled graph that is about to happen.

    Attributes:
        run: what is called.
        arrays: what it is called with.
        sizes: the values of the named sizes.
        arena: bytes that it needs for what is in between.
        plain: runs it as it would have run.
        timed: runs it by the code that takes down times.
    """

    run: Watched
    arrays: Arrays
    sizes: Mapping[str, int]
    arena: int
    plain: Callable[[], list[Array]]
    timed: Callable[[], Timed]


class Watcher(Protocol):
    """What a backend tells, while somebody watches."""

    def call(self, call: Call) -> list[Array]:
        """Do a call, and give its results."""

    def build(self, graph: Graph, build: Callable[[], Executable]) -> Executable:
        """Build a graph."""


watching: list[Watcher] = []  # of the profile that is running


# What pays on a machine


class Measurement(NamedTuple):
    """What came of trying some figures.

    Attributes:
        name: of the figure, or of the first one.
        changes: name, value before and value now of those that were changed.
        gain: how many times as fast what depends on them has become.
    """

    name: str
    changes: tuple[tuple[str, int, int], ...]
    gain: float


class Told(NamedTuple):
    """A tuning, and where it comes from."""

    tuning: Tuning
    source: str


class Tuner(Protocol):
    """The figures in force for this machine, and the search for better ones."""

    @property
    def processor(self) -> str:
        """The name under which they are kept."""

    @property
    def told(self) -> Told:
        """The tuning in force, and where it comes from."""

    @property
    def units(self) -> tuple[str, ...]:
        """What the processor has units for, in words; see docs/halves.md."""

    def writable(self) -> str:
        """The file in which measured ones are kept, or an error where none can be."""

    def write(self, tuning: Tuning | None) -> str:
        """Keep a tuning for this processor, or forget the one that was kept; gives the file."""

    def search(self, seconds: float, tell: Callable[[Measurement], None]) -> Tuning:
        """The best tuning that was found in about so many seconds; tells of each figure when it is known."""

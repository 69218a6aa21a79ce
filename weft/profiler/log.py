"""The log that all open blocks share, and the switch that is thrown by the first and the last of them."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, NamedTuple

from weft.base.frames import user_frame

now = perf_counter_ns
Place = tuple[str, int, str]  # file, line, function


class Entry(NamedTuple):
    """What is taken down of something that ran; made of plain tuples, see ``take_down``.

    Attributes:
        kind: op, call, build, stage, wait, region or module.
        name: of what ran.
        begin, end: in ns.
        thread: the number of the thread.
        place: the user's line.
        module: the path of the module that was running, or "".
        detail: depends on the kind.
    """

    kind: str
    name: str
    begin: int
    end: int
    thread: int
    place: Place | None
    module: str
    detail: Any


class _Here(threading.local):
    """What a thread is at."""

    module = ""

    def __init__(self) -> None:
        self.number = next(_numbers)
        threads[self.number] = threading.current_thread().name
        self.stages: list[Any] = []  # stages of pipelines that run, the innermost last
        self.regions: list[tuple[str, int, Place | None]] = []  # that are open


_numbers = itertools.count()
threads: dict[int, str] = {}  # names by number
here = _Here()
entries: list[Any] = []
trackers: list[Any] = []  # memory profiles that are open


def take_down(kind: str, name: str, begin: int, end: int, place: Place | None, detail: Any = None) -> None:
    """Enter something that this thread ran."""
    entries.append((kind, name, begin, end, here.number, place, here.module, detail))


def user_place(depth: int) -> Place | None:
    """The user's line that is running."""
    return user_frame(depth + 1)


class _Switch:
    """Opens and closes blocks.

    Attributes:
        timing: how many of those that are open want times of kernels.
    """

    def __init__(self) -> None:
        self.timing = 0
        self._open = 0
        self._lock = threading.Lock()
        self._undo: list[tuple[Any, str, Any]] = []
        self._ends: list[Callable[[], None]] = []

    @property
    def is_open(self) -> bool:
        """Whether a block is open."""
        return self._open > 0

    def open(self, *, timing: bool) -> int:
        """Begin to watch, unless others do already; gives where in the log the block begins."""
        from weft.profiler import compiled, eager, loader  # which import this module

        with self._lock:
            if not self._open:
                for part in (eager, compiled, loader):
                    part.install(self)
            self._open += 1
            self.timing += timing
            return len(entries)

    def close(self, first: int, *, timing: bool) -> list[Entry]:
        """End a block: what was taken down since it began."""
        with self._lock:
            found = [Entry._make(e) for e in entries[first:]]
            self._open -= 1
            self.timing -= timing
            if not self._open:
                self._put_back()
        return found

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Put something in the place of an attribute of a class or a module, until the last block closes."""
        getattr(owner, name)  # a hook is there from its first use on
        self._undo.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    def at_end(self, function: Callable[[], None]) -> None:
        """Have a function called when the last block closes."""
        self._ends.append(function)

    def _put_back(self) -> None:
        while self._undo:
            setattr(*self._undo.pop())
        while self._ends:
            self._ends.pop()()
        entries.clear()

    def forget(self) -> None:
        """In a process that was forked nobody reads the log."""
        self._lock = threading.Lock()
        if self._open:
            self._open = self.timing = 0
            trackers.clear()
            self._put_back()


switch = _Switch()
os.register_at_fork(after_in_child=switch.forget)


# What a profile consists of

Line = tuple[str, int]  # file and line
KINDS = ("op", "kernel", "call", "build", "stage", "wait", "module", "region")


class Part(NamedTuple):
    """A line and a module that an event comes from, and its share of the event's time."""

    line: Line | None
    module: str
    phase: str
    share: float


@dataclass(frozen=True, slots=True)
class Event:
    """Something that ran.

    Attributes:
        kind: what it is: "op" (outside of graphs), "kernel" (a part of a compiled function), "call" (of a
            compiled function), "build" (compiling one), "stage" (of a data pipeline), "wait" (for a batch),
            "module", "region".
        name: of the op, the ops that were fused into the kernel, the function, the stage, ...
        begin: ns, of the clock of ``time.perf_counter_ns``.
        duration: ns.
        thread: number of the thread.
        line: file and line of the user's code, or None.
        module: path of the ``nn.Module`` that was running, or "".
        shapes: types of the inputs, such as ``f32[2,3]``; of a kernel those of its result.
        bytes: that it read and wrote, each array counted once.
        flops: floating-point operations, of kernels.
        count: how often it ran: a kernel in a loop is one event for each call of the function.
        parts: the lines and modules that a kernel was fused from.
        at_best: ns that the machine needs for it at best, as ``explain`` estimates; 0 where nobody knows.
        beside: how many other kernels ran side by side with it; the time of all was shared out by their work.
        own: ns, without the events inside of it.
    """

    kind: str
    name: str
    begin: int
    duration: int
    thread: int
    line: Line | None = None
    module: str = ""
    shapes: tuple[str, ...] = ()
    bytes: int = 0
    flops: int = 0
    count: int = 1
    parts: tuple[Part, ...] = ()
    beside: int = 0
    own: int = 0
    at_best: int = 0

    @property
    def end(self) -> int:
        """When it ended, in ns."""
        return self.begin + self.duration

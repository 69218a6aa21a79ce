"""Simulated worlds: every rank is a thread of this process, and collectives are NumPy on what they bring.

Threads meet at a table: each lays down what it has, and when the last one of a group has come all take what
they need. Since everything is in one process it is known where each rank waits, so a deadlock is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from weft.base.device import CPU, default_device, get_default_device
from weft.base.frames import format_location, user_location
from weft.base.ranks import Array, Group, Meeting, World, enter_world
from weft.base.records import NamedTuple
from weft.capture.record.root import lock
from weft.errors import DivergenceError, DomainError, ParallelError
from weft.tensor.generator import fork_rng, get_rng_state

Members = tuple[int, ...]


class _Left(BaseException):
    """Ends a rank that waits for one that failed; the error of that one is raised."""


class Letter(NamedTuple):
    """What one rank sends to another is known by."""

    source: int
    target: int
    number: int


class _Wait(NamedTuple):
    members: Members
    meeting: Meeting
    place: str
    letter: Letter | None = None

    def __str__(self) -> str:
        return f"{self.meeting}{self.place}"


class _Table:
    """Where the ranks of one simulation meet."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.change = threading.Condition()
        self.laid: dict[Members, dict[int, tuple[Meeting, Any]]] = {}
        self.taken: dict[Members, tuple[dict[int, Any], set[int]]] = {}
        self.letters: dict[Letter, list[Any]] = {}
        self.waits: dict[int, _Wait] = {}
        self.ended: set[int] = set()
        self.failure: tuple[int, BaseException] | None = None

    def meet(self, rank: int, members: Members, meeting: Meeting, item: Any) -> dict[int, Any]:
        """What all members brought, by rank; the last one to come lets the others go on."""
        with self.change:
            self._await(lambda: members not in self.taken)  # until all left the meeting before
            if self.failure is not None:  # others may have left, who laid something down
                raise _Left
            self.laid.setdefault(members, {})[rank] = (meeting, item)
            self.waits[rank] = _Wait(members, meeting, _line())
            if len(self.laid[members]) == len(members):
                self._open(members)
            else:
                self._check_progress()
                self._await(lambda: members in self.taken)
            items, left = self.taken[members]
            left.discard(rank)
            if not left:
                del self.taken[members]
                self.change.notify_all()
            return items

    def put(self, key: Letter, item: Any) -> None:
        """Lay down what one rank sends to another."""
        with self.change:
            if self.failure is not None:
                raise _Left
            self.letters.setdefault(key, []).append(item)
            wait = self.waits.get(key.target)
            if wait is not None and wait.letter == key:  # it will go on
                del self.waits[key.target]
            self.change.notify_all()

    def take(self, key: Letter, members: Members, meeting: Meeting) -> Any:
        """Wait for what another rank sends."""
        with self.change:
            if not self.letters.get(key):
                self.waits[key.target] = _Wait(members, meeting, _line(), key)
                self._check_progress()
                self._await(lambda: bool(self.letters.get(key)))
            found = self.letters[key].pop(0)
            if not self.letters[key]:
                del self.letters[key]
            return found

    def _open(self, members: Members) -> None:
        laid = self.laid.pop(members)
        if len({meeting for meeting, _ in laid.values()}) > 1:
            self.fail(members[0], _divergence([(r, self.waits[r]) for r in members]))
            raise _Left
        for member in members:
            del self.waits[member]
        self.taken[members] = ({r: item for r, (_, item) in laid.items()}, set(members))
        self.change.notify_all()

    def _await(self, holds: Callable[[], bool]) -> None:
        self.change.wait_for(lambda: self.failure is not None or holds())
        if not holds():  # else all members go on, though somebody failed since: all or none
            raise _Left

    def fail(self, rank: int, error: BaseException) -> None:
        """Note the first error; all who wait leave."""
        with self.change:
            self.failure = self.failure or (rank, error)
            self.change.notify_all()

    def end(self, rank: int) -> None:
        """Note that a rank is done."""
        with self.change:
            self.ended.add(rank)
            self._check_progress()

    def _check_progress(self) -> None:
        """Fail if every rank that has not ended waits: nobody is left who could come."""
        if self.failure is not None or len(self.waits) + len(self.ended) < self.size or not self.waits:
            return
        error = _divergence(sorted(self.waits.items()), sorted(self.ended))
        self.fail(min(self.waits), error)


def _line() -> str:
    place = user_location(3)
    return "" if place is None else f" at {format_location(place)}"


def _divergence(waits: list[tuple[int, _Wait]], ended: list[int] | None = None) -> DivergenceError:
    lines = [f"  rank {rank}: {wait}" for rank, wait in waits]
    lines += [f"  rank {rank}: has ended" for rank in ended or ()]
    return DivergenceError(
        waits[0][1].meeting.op, "\n".join(["ranks must meet in the same collective, got", *lines])
    )


@contextmanager
def _yielded(held: Any) -> Iterator[None]:
    """Let other ranks have a lock of the process: of programs that change state one runs at a time."""
    depth = 0
    while held._is_owned():
        held.release()
        depth += 1
    try:
        yield
    finally:
        for _ in range(depth):
            held.acquire()


class _ThreadGroup(Group):
    def __init__(self, table: _Table, rank: int, members: Members) -> None:
        self._table, self._world_rank, self._members = table, rank, members
        self.rank, self.size = members.index(rank), len(members)

    def _meet(self, meeting: Meeting, item: Any) -> list[Any]:
        with _yielded(lock):
            found = self._table.meet(self._world_rank, self._members, meeting, item)
        return [found[r] for r in self._members]

    def gather(self, meeting: Meeting, x: Array) -> Array:
        """The arrays of all ranks, along a new first axis."""
        return np.stack(self._meet(meeting, np.array(x)))

    def exchange(self, meeting: Meeting, x: Array) -> Array:
        """Row j of the result is row ``rank`` of what rank j gave."""
        return np.stack([rows[self.rank] for rows in self._meet(meeting, np.array(x))])

    def pass_on(self, meeting: Meeting, x: Array, target: int | None, source: int | None) -> Array | None:
        """Send an array to one rank and get that of another."""
        found = self._meet(meeting, np.array(x))
        return None if source is None else np.array(found[source])

    def send(self, number: int, x: Array, target: int) -> None:
        """Lay an array down for one rank."""
        self._table.put(Letter(self._world_rank, self._members[target], number), np.array(x))

    def receive(self, meeting: Meeting, number: int, out: Array, source: int) -> None:
        """Wait for what a rank sends under a number."""
        key = Letter(self._members[source], self._world_rank, number)
        with _yielded(lock):
            out[...] = self._table.take(key, self._members, meeting)


class ThreadWorld(World):
    """One rank of a simulated world."""

    in_threads = True

    def __init__(self, table: _Table, rank: int) -> None:
        self.table, self.rank, self.size, self.mesh = table, rank, table.size, ""

    def fail(self, error: BaseException) -> None:
        """End the other ranks; the error is raised in the end."""
        self.table.fail(self.rank, error)

    def group(self, members: Members) -> Group:
        """The group of some ranks."""
        return _ThreadGroup(self.table, self.rank, members)


def simulate(function: Callable[..., Any], n: int, *args: Any) -> list[Any]:
    """What each of n ranks gives that runs a function, all in this process, each in a thread of its own.

    Collectives between the ranks are NumPy, in the order that real ones have, so results have the same bits.
    What the function changes outside of itself is shared by all of them: let it make its own models. Each
    draws random numbers from a copy of its own of the global generator, and makes tensors where those of the
    caller go by default. An error of one rank is raised; ranks that wait for each other in different places
    are a ``DivergenceError``.

    Args:
        function: called by every rank with the arguments.
        n: number of ranks.
        args: for the function.

    >>> import weft
    >>> from weft import parallel as par
    >>> def program():
    ...     par.mesh(data=-1)
    ...     return par.all_reduce(weft.tensor([1.0 + par.rank()]), "data")
    >>> par.simulate(program, 4)[0]
    tensor([10.])
    """
    if not isinstance(n, int) or n < 1:
        raise DomainError("simulate", f"n must be a positive int, got {n!r}")
    table, state, device = _Table(n), get_rng_state(), get_default_device()
    results: list[Any] = [None] * n

    def run(rank: int) -> None:
        enter_world(ThreadWorld(table, rank))
        try:
            with fork_rng(state), nullcontext() if device is CPU else default_device(device):
                results[rank] = function(*args)
        except _Left:
            pass
        except BaseException as error:
            table.fail(rank, error)
        finally:
            table.end(rank)

    threads = [threading.Thread(target=run, args=(rank,), name=f"weft rank {rank}") for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if table.failure is not None:
        raise _named(*table.failure)
    return results


def _named(rank: int, error: BaseException) -> BaseException:
    if not isinstance(error, ParallelError):
        error.add_note(f"  on rank {rank}")
    return error

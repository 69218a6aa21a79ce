"""Worlds of processes, on MPI by mpi4py: how arrays get from rank to rank, and what a rank does meanwhile.

A rank never blocks inside MPI: it asks whether what it waits for is done, and listens meanwhile. Another rank
may say that it failed, that it has ended, or where it waits itself; so what would be a hang is an error.
Collectives outside of programs that all ranks agreed on compare what they do first, by a word of 8 bytes.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import numpy as np

from weft.base.ranks import Group, World
from weft.base.records import NamedTuple
from weft.base.threads import get_num_threads
from weft.errors import ParallelError, RankError
from weft.parallel.mpi_group import MpiGroup
from weft.parallel.progress import Progress
from weft.parallel.waits import Members, Wait, circle, divergence, user_line

_PATIENCE = 0.5  # seconds until a rank tells others where it waits
_SURE = 0.3  # seconds after which ranks that seem to wait for each other do
_LISTEN = 0.002  # seconds between looks at what others say
_SPINS, _SPINS_CROWDED = 1000, 20  # looks before others get the processor; fewer where ranks share one
_TOLD = "_weft_told"  # what errors have that the others know of
_GRACE = 0.3  # seconds for others to hear of a failure before the run is ended
_SAID = 7  # the tag of what ranks say while others wait


class _Said(NamedTuple):
    """What a rank tells others: that it waits, failed or has ended."""

    kind: str
    rank: int
    epoch: int
    wait: Any = None
    text: str = ""


class MpiWorld(World):
    """The processes that MPI started.

    Attributes:
        epoch: how many failures there were; what was under way before one is given up.
        neighbours: how many ranks this machine has.
        spins: how often a rank looks for something before others get its processor.
    """

    goes_on = True

    def __init__(self, mpi: Any) -> None:
        self.mpi = mpi  # the module, which is optional
        self.comm, self.control = mpi.COMM_WORLD.Dup(), mpi.COMM_WORLD.Dup()
        self.rank, self.size, self.mesh = self.comm.Get_rank(), self.comm.Get_size(), ""
        self.epoch = 0
        self._groups: dict[tuple[int, Members], MpiGroup] = {}
        self._sent: list[Any] = []
        self.waiting: dict[int, Wait] = {}
        self._stuck: tuple[Any, ...] = ()  # who seems to be waited for in vain, and since when
        self._since = 0.0
        self.ended: set[int] = set()
        self.lost: list[Any] = []  # what MPI may still use, of meetings that were given up
        self.neighbours = self.comm.Split_type(mpi.COMM_TYPE_SHARED).Get_size()
        self.progress = Progress(self._has_thread)
        self.spins = _SPINS if self.neighbours <= (os.cpu_count() or 1) else _SPINS_CROWDED

    def _has_thread(self) -> bool:
        """Whether a thread carries on collectives: other machines are waited for, or a processor is free."""
        if self.mpi.Query_thread() < self.mpi.THREAD_MULTIPLE:
            return False
        return self.neighbours < self.size or is_free(self.neighbours, get_num_threads())

    def group(self, members: Members) -> Group:
        """The group of some ranks; all of them ask for it at the same time the first time."""
        key = (self.epoch, members)
        if key not in self._groups:
            self._gather_round(members, _tag(*key))
            ranks = self.comm.Get_group().Incl(members)
            self._groups[key] = MpiGroup(self, members, self.comm.Create_group(ranks, _tag(*key)))
        return self._groups[key]

    def _gather_round(self, members: Members, tag: int) -> None:
        """Wait, listening, until all members are about to make a group: MPI blocks while it does."""
        others = [r for r in members if r != self.rank]
        word, own = np.zeros(1, np.uint8), Wait(members, 0, f"the first collective of {len(members)} ranks")
        requests = [self.comm.Irecv(np.empty(1, np.uint8), r, tag) for r in others]
        for request in [*requests, *[self.comm.Isend(word, r, tag) for r in others]]:
            self.wait(request, lambda: own)

    def say(self, said: _Said, to: Members) -> None:
        """Tell other ranks something, without waiting for them."""
        self._sent = [request for request in self._sent if not request.Test()]
        self._sent += [self.control.isend(tuple(said), r, _SAID) for r in to if r != self.rank]

    def fail(self, error: BaseException) -> None:
        """Tell all others that this rank failed; what they wait for will not come."""
        if isinstance(error, RankError) or any(hasattr(e, _TOLD) for e in _chain(error)):
            return
        with suppress(AttributeError):
            setattr(error, _TOLD, True)
        text = f"{type(error).__name__}: {error}"
        self.say(_Said("failed", self.rank, self.epoch, None, text), tuple(range(self.size)))
        self._give_up()

    def _give_up(self) -> None:
        """Begin anew: groups are made again, since what is under way in the old ones never ends."""
        self.epoch += 1
        self.waiting.clear()
        self.under_way.clear()
        self.ready.clear()
        self.progress.drop()

    def listen(self, own: Wait) -> None:
        """Hear what others said; raise if what this rank waits for will not come."""
        anybody = self.mpi.ANY_SOURCE
        while self.control.Iprobe(anybody, _SAID):
            said = _Said(*self.control.recv(source=anybody, tag=_SAID))
            if said.kind == "ended":
                self.ended.add(said.rank)
            elif said.kind == "failed" and said.epoch == self.epoch:
                self._give_up()
                raise _heard(said)
            elif said.kind == "waits" and said.epoch == self.epoch:
                self.waiting[said.rank] = Wait(*said.wait)
            elif said.kind == "goes on":
                self.waiting.pop(said.rank, None)
        self._check(own)

    def _check(self, own: Wait) -> None:
        """Raise if a rank that this one waits for has ended, or ranks wait for each other in a circle."""
        waits = {**self.waiting, self.rank: own}
        stuck = circle(waits, self.rank), tuple(sorted(self.ended.intersection(own.members))), own
        if stuck != self._stuck:
            self._stuck, self._since = stuck, time.monotonic()
        ring, gone, _ = stuck
        # A rank may have come here before it went on, and its word be on the way.
        if (ring or gone) and time.monotonic() - self._since > _SURE:
            lines = [f"  rank {r}: {waits[r]}" for r in ring or (self.rank,)]
            error = divergence(own.meeting, [*lines, *[f"  rank {r}: has ended" for r in gone]])
            self.fail(error)
            raise error

    def wait(self, request: Any, own: Callable[[], Wait]) -> None:
        """Wait for what MPI does, and listen meanwhile."""
        test = request.Test
        for _ in range(self.spins):
            if test():
                return
        self._wait_long(test, own())

    def _wait_long(self, test: Callable[[], bool], own: Wait) -> None:
        start = heard = time.monotonic()
        told, everybody = False, tuple(range(self.size))
        while not test():
            os.sched_yield()
            now = time.monotonic()
            if now - heard > _LISTEN:
                heard = now
                self.listen(own)
            if not told and now - start > _PATIENCE:
                told, own = True, own._replace(line=user_line())
                self.say(_Said("waits", self.rank, self.epoch, tuple(own)), everybody)
        if told:
            self.say(_Said("goes on", self.rank, self.epoch), everybody)


def is_free(ranks: int, threads: int) -> bool:
    """Whether ranks of this machine, with so many threads each, leave a processor free for this one."""
    all_here = os.cpu_count() or 1
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else all_here
    kept_apart = mine * ranks <= all_here
    return mine > threads if kept_apart else mine > ranks * threads


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that it came of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _heard(said: _Said) -> RankError:
    return RankError("parallel", f"all ranks must succeed, rank {said.rank} failed with {said.text}")


def _tag(epoch: int, members: Members) -> int:
    """A number that tells groups apart which are made at the same time."""
    return int.from_bytes(blake2b(repr((epoch, members)).encode(), digest_size=2).digest(), "big") >> 1


def mpi_world(count: int) -> MpiWorld:
    """The world of this process, which a launcher started with others."""
    from mpi4py import MPI  # optional

    world = MpiWorld(MPI)
    if world.size == 1:  # some launchers tell only how many there are on this machine
        message = f"the launcher started {count} processes, and MPI knows of this one alone"
        hint = "mpi4py was built for another MPI than the launcher belongs to"
        raise ParallelError("parallel", message, hint=hint)
    sys.excepthook = _failing(world, sys.excepthook)
    atexit.register(_end, world)
    return world


def _failing(world: MpiWorld, usual: Any) -> Any:
    """What ends the whole run after an error that nobody caught."""

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if isinstance(error, RankError):
            sys.stderr.write(f"{error}\n")
        else:
            world.fail(error)
            usual(kind, error, trace)
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(_GRACE)
        world.mpi.COMM_WORLD.Abort(1)

    return hook


def _end(world: MpiWorld) -> None:
    """Tell others that this rank is done, so that nobody waits for it."""
    if not world.mpi.Is_finalized():
        world.say(_Said("ended", world.rank, world.epoch), tuple(range(world.size)))

"""Groups of processes: how arrays get from rank to rank by MPI.

What ranks do together is written as steps, a generator that gives what it waits for; who runs it listens to
the other ranks meanwhile. Groups of few ranks send a word before each meeting that tells what it is, and what
is small goes along with it. Large sums are cut into a slice for each rank, which folds it, and the slices
into pieces, so that one piece travels while another is folded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from functools import lru_cache
from hashlib import blake2b
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.ranks import SMALL, Array, Group, Meeting, Pending, tree_fold_into
from weft.parallel.waits import Members, Wait, divergence, user_line

if TYPE_CHECKING:
    from weft.parallel.mpi import MpiWorld

_WORD = 8  # bytes that tell what a meeting is
_FEW = 8  # ranks up to which each sends to each; MPI's own collectives take fewer messages for more
_PIECE = 4 << 20  # bytes of a slice that travel while others are folded
_LEAST = 1 << 16  # bytes below which a piece is not worth a message of its own
_TAGS = 1 << 13  # meetings whose messages are told apart at a time; MPI promises tags up to 32767
_LATE = 0.2  # seconds for a message that is under way when a meeting is given up
Steps = Generator[Any, None, None]


@lru_cache(1 << 12)
def _word_of(meeting: Meeting) -> int:
    return int.from_bytes(blake2b(str(meeting).encode(), digest_size=_WORD).digest(), "little")


class MpiGroup(Group):
    """Some of the processes that MPI started."""

    def __init__(self, world: MpiWorld, members: Members, comm: Any) -> None:
        self._world, self._members, self._comm = world, members, comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._others = [r for r in range(self.size) if r != self.rank]
        self._number = 0
        self._scratch: list[Array] = []
        self._mailed: list[tuple[Any, Array]] = []
        self._post: Any = None
        self._few = self.size <= _FEW
        if self._few:
            self._mail = np.zeros((self.size, _WORD + SMALL), np.uint8)
            words: Any = self._mail[:, :_WORD].view(np.uint64)[:, 0]
            self._words = memoryview(words)  # gives Python's numbers
            self._inbox = [comm.Recv_init(self._mail[r], r, 0) for r in self._others]
            self._letters: dict[Any, _Letter] = {}

    # What ranks do together

    def gather(self, meeting: Meeting, x: Array) -> Array:
        """The arrays of all ranks, along a new first axis."""
        rows = self._meet(meeting, x)
        if rows is not None:
            return np.stack(rows)
        out = np.empty((self.size, *x.shape), x.dtype)
        self._wait(self._comm.Iallgather(_bytes(x), _bytes(out)), meeting, (x, out))
        return out

    def exchange(self, meeting: Meeting, x: Array) -> Array:
        """Row j of the result is row ``rank`` of what rank j gave."""
        self._meet(meeting)
        out = np.empty_like(x)
        self._wait(self._comm.Ialltoall(_bytes(x), _bytes(out)), meeting, (x, out))
        return out

    def pass_on(self, meeting: Meeting, x: Array, target: int | None, source: int | None) -> Array | None:
        """Send an array to one rank and get that of another."""
        self._meet(meeting)
        out, tag = np.empty(x.shape, x.dtype), self._tag(1)
        requests = [] if source is None else [self._comm.Irecv(_bytes(out), source, tag)]
        requests += [] if target is None else [self._comm.Isend(_bytes(x), target, tag)]
        for request in requests:
            self._wait(request, meeting, (x, out))
        return None if source is None else out

    def open(self) -> None:
        """Be ready for messages from one rank to another, which go apart from those of meetings."""
        if self._post is None:
            self._post = self._comm.Dup()

    def send(self, number: int, x: Array, target: int) -> None:
        """Begin to send an array to one rank."""
        given = _bytes(x)
        self._mailed.append((self._post.Isend(given, target, number), given))

    def receive(self, meeting: Meeting, number: int, out: Array, source: int) -> None:
        """Wait for what a rank sends under a number."""
        self.expect(meeting, number, out, source).finish()

    def expect(self, meeting: Meeting, number: int, out: Array, source: int) -> Pending:
        """Begin to receive what a rank sends under a number."""
        into = out.reshape(-1).view(np.uint8)
        first, second = sorted((self._members[source], self._world.rank))

        def steps() -> Steps:
            request, done = self._post.Irecv(into, source, number), False
            try:
                yield request
                done = True
            finally:
                if not done:
                    _forget([request])
                    self._world.lost.append((request, into))  # MPI may still write there

        def wait(request: Any) -> None:
            self._world.wait(request, lambda: Wait((first, second), number, str(meeting)))

        return self._world.progress.begin(steps(), wait)

    def sent(self) -> None:
        """Wait until all that was sent has gone."""
        mailed, self._mailed = self._mailed, []
        meeting = Meeting("send", "", f"{len(mailed)} messages")
        try:
            for request, _ in mailed:
                self._world.wait(request, self._waiting(meeting))
        except BaseException:
            self._world.lost.append(mailed)
            raise

    def fold(self, meeting: Meeting, x: Array, fold: np.ufunc, out: Array) -> None:
        """Write all arrays folded into one, by one tree over the ranks."""
        rows = self._meet(meeting, x)
        if rows is not None:
            tree_fold_into(rows, fold, out)
        elif x.nbytes <= SMALL:
            found = np.empty((self.size, *x.shape), x.dtype)
            self._wait(self._comm.Iallgather(_bytes(x), _bytes(found)), meeting, (x, found))
            tree_fold_into(list(found), fold, out)
        else:
            self._run(self._fold_steps(np.ascontiguousarray(x), fold, out), meeting)

    def reduce(self, meeting: Meeting, x: Array, fold: np.ufunc, out: Array) -> None:
        """Likewise; sums of many ranks by MPI, where it knows the dtype."""
        if self.size == 2 or fold is not np.add or x.dtype.kind not in "iufc" or x.dtype.itemsize < 4:
            self.fold(meeting, x, fold, out)
            return
        self._meet(meeting)
        given, total = np.ascontiguousarray(x), np.empty(x.shape, x.dtype)
        self._wait(self._comm.Iallreduce(given, total, self._world.mpi.SUM), meeting, (given, total))
        out[...] = total

    def folding(
        self, meeting: Meeting, fold: np.ufunc, ordered: bool, like: Array
    ) -> Callable[[Array], Array]:
        """Likewise; of small arrays all that does not change is looked up once."""
        usual = super().folding(meeting, fold, ordered, like)
        by_letter = self._few and like.nbytes <= SMALL and (ordered or self.size == 2)
        if not by_letter or not like.ndim:  # sums of numbers are no arrays
            return usual
        word, letter = _word_of(meeting), self._letter((like.shape, like.dtype))
        world, own, rows = self._world, letter.rows[self.rank], letter.rows

        def run(x: Array) -> Array:
            if world.trusted:
                return usual(x)
            self._number += 1
            own[...] = x
            self._exchange(letter, word, meeting)
            if len(rows) == 2:
                return fold(*rows)  # type: ignore[no-any-return]
            out = np.empty_like(x)
            tree_fold_into(rows, fold, out)
            return out

        return run

    def start(self, meeting: Meeting, x: Array, fold: np.ufunc, out: Array, ordered: bool) -> Pending:
        """Begin to fold all arrays into one; where nothing goes on beside, do it."""
        if not self._world.progress.has_thread:
            (self.fold if ordered else self.reduce)(meeting, x, fold, out)
            return Pending(_nothing)
        self._meet(meeting)
        steps = self._fold_steps(np.ascontiguousarray(x), fold, out)
        return self._world.progress.begin(steps, lambda request: self._wait(request, meeting))

    def start_rows(self, meeting: Meeting, x: Array, out: Array, *, exchanged: bool) -> Pending:
        """Begin to get a row of every rank; where nothing goes on beside, do it."""
        self._meet(meeting)
        given, into = _bytes(x), out.reshape(-1).view(np.uint8)

        def steps() -> Steps:
            request, done = (self._comm.Ialltoall if exchanged else self._comm.Iallgather)(given, into), False
            try:
                yield request
                done = True
            finally:
                if not done:
                    self._world.lost.append((request, given, into))  # MPI may still read and write them

        if not self._world.progress.has_thread:
            self._run(steps(), meeting)
            return Pending(_nothing)
        return self._world.progress.begin(steps(), lambda request: self._wait(request, meeting))

    # How

    def _meet(self, meeting: Meeting, x: Array | None = None) -> list[Array] | None:
        """Raise on all ranks unless all do the same; gives small arrays of all where they came along.

        The rows are memory of this group, until the next meeting.
        """
        self._number += 1
        trusted, small = self._world.trusted, x is not None and self._few and x.nbytes <= SMALL
        if trusted and not small:
            return None
        word = self._number if trusted else _word_of(meeting)
        if not self._few:
            self._compare(meeting, word)
            return None
        letter = self._letter((x.shape, x.dtype) if x is not None and small else None)
        if x is not None and small:
            letter.rows[self.rank][...] = x
        self._exchange(letter, word, meeting)
        return letter.rows if small else None

    def _exchange(self, letter: _Letter, word: int, meeting: Meeting) -> None:
        """Send a letter with a word, and get those of all others, which must have the same."""
        words = self._words
        words[self.rank] = word
        if self.size == 2:
            letter.pair[0]()
            letter.pair[1]()
            self._finish_pair(letter, meeting)
            if words[1 - self.rank] != word:
                self._diverge(meeting)
            return
        requests, test_all = letter.requests, letter.test_all
        letter.start(requests)
        for _ in range(self._world.spins):
            if test_all(requests):
                break
        else:
            self._wait(letter, meeting)
        if words.tolist().count(word) < self.size:
            self._diverge(meeting)

    def _finish_pair(self, letter: _Letter, meeting: Meeting) -> None:
        """Wait for the message of the other rank, and until one's own has gone."""
        _, _, came, gone = letter.pair
        for _ in range(self._world.spins):
            if came():
                break
        else:
            self._wait(letter, meeting)
        if not gone():
            self._wait(letter, meeting)

    def _letter(self, key: Any) -> _Letter:
        """What is sent and what comes, for arrays of a shape and dtype."""
        found = self._letters.get(key)
        if found is not None:
            return found
        shape, dtype = key or ((0,), np.dtype(np.uint8))
        size = _WORD + prod(shape) * dtype.itemsize
        rows = [row[_WORD:size].view(dtype).reshape(shape) for row in self._mail]
        sends = [self._comm.Send_init(self._mail[self.rank][:size], r, 0) for r in self._others]
        letter = _Letter([*self._inbox, *sends], rows, self._world.mpi)
        self._letters[key] = letter
        return letter

    def _compare(self, meeting: Meeting, word: int) -> None:
        words = np.empty(self.size, np.uint64)
        self._wait(self._comm.Iallgather(np.array([word], np.uint64), words), meeting)
        if len(set(words.tolist())) > 1:
            self._diverge(meeting)

    def _diverge(self, meeting: Meeting) -> None:
        told = self._comm.allgather(f"  rank {self._world.rank}: {meeting}{user_line()}")
        error = divergence(meeting.op, told)
        self._world.fail(error)
        raise error

    def _tag(self, phase: int) -> int:
        return self._number % _TAGS * 4 + phase

    def _fold_steps(self, x: Array, fold: np.ufunc, out: Array) -> Steps:
        """Fold by slices: every rank gets the pieces of its slice, folds them, and sends what comes of it."""
        flat, total, comm = x.reshape(-1), out.reshape(-1), self._comm
        there, back = self._tag(1), self._tag(2)
        slices = _Slices(flat.size, self.size, max(_LEAST, _PIECE // (self.size - 1)) // x.itemsize)
        longest = slices.longest
        received: list[Any] = []
        sent: list[Any] = []
        memory = self._take_scratch(2 * self.size * longest * x.itemsize)
        room = memory[: 2 * self.size * longest * x.itemsize].view(x.dtype).reshape(2, self.size, longest)

        def ask(k: int) -> list[tuple[Any, int]]:
            """Let piece k of this rank's slice come, and send those of the others."""
            size = len(flat[slices.piece(self.rank, k)])
            waits = [(comm.Irecv(room[k & 1, r, :size], r, there), r) for r in self._others if size]
            received.extend(request for request, _ in waits)
            for r in self._others:
                given = flat[slices.piece(r, k)]
                if given.size:
                    sent.append(comm.Isend(given, r, there))
            return waits

        done = False
        try:
            coming = ask(0)
            for k in range(slices.pieces):
                now, coming = coming, ask(k + 1) if k + 1 < slices.pieces else []
                for r in self._others:
                    target = total[slices.piece(r, k)]
                    if target.size:
                        received.append(comm.Irecv(target, r, back))
                for request, _ in now:
                    yield request
                mine = slices.piece(self.rank, k)
                if now:
                    rows = [room[k & 1, r, : len(flat[mine])] for r in range(self.size)]
                    rows[self.rank] = flat[mine]
                    tree_fold_into(rows, fold, total[mine])
                    sent += [comm.Isend(total[mine], r, back) for r in self._others]
            for request in received:
                yield request
            for request in sent:
                yield request
            done = True
        finally:
            if done:
                self._scratch.append(memory)
            else:
                _forget(received)

    def _take_scratch(self, size: int) -> Array:
        """Memory of so many bytes or more; who is done with it puts it back."""
        for i, memory in enumerate(self._scratch):
            if memory.size >= size:
                return self._scratch.pop(i)
        self._scratch.clear()
        return np.empty(size, np.uint8)

    # Waiting

    def _run(self, steps: Steps, meeting: Meeting) -> None:
        try:
            for request in steps:
                self._wait(request, meeting)
        finally:
            steps.close()

    def _wait(self, request: Any, meeting: Meeting, arrays: Iterable[Array] = ()) -> None:
        try:
            self._world.wait(request, self._waiting(meeting))
        except BaseException:
            self._world.lost.append((request, *arrays))  # MPI may still read and write them
            raise

    def _waiting(self, meeting: Meeting) -> Callable[[], Wait]:
        number = self._number
        return lambda: Wait(self._members, number, str(meeting))


class _Letter:
    """A message to all others, and those that come from them."""

    __slots__ = ("pair", "requests", "rows", "start", "test_all")

    def __init__(self, requests: list[Any], rows: list[Array], mpi: Any) -> None:
        self.requests, self.rows = requests, rows
        self.start, self.test_all = mpi.Prequest.Startall, mpi.Request.Testall
        self.pair = (*[r.Start for r in requests], *[r.Test for r in requests])  # of two ranks: in, out

    def Test(self) -> bool:  # noqa: N802 - as requests have it
        """Whether all of it has arrived."""
        return bool(self.test_all(self.requests))


class _Slices:
    """Elements cut into a slice for each rank, and these into pieces; both are as equal as can be.

    Attributes:
        pieces: of the longest slice; shorter ones have empty ones at their end.
        longest: elements of the longest piece.
    """

    def __init__(self, elements: int, ranks: int, most: int) -> None:
        self._elements, self._width = elements, -(-elements // ranks)
        self.pieces = max(1, -(-self._width // most))
        self.longest = -(-self._width // self.pieces)

    def piece(self, rank: int, k: int) -> slice:
        """Piece k of the slice of a rank."""
        start, end = (min(self._elements, r * self._width) for r in (rank, rank + 1))
        return slice(min(end, start + k * self.longest), min(end, start + (k + 1) * self.longest))


def _nothing() -> None:
    """What is left to do of what is done."""


def _forget(requests: list[Any]) -> None:
    """Let nothing that may still come be written to memory that is used for something else."""
    late = [request for request in requests if not request.Test()]
    for request in late:
        request.Cancel()
    end = time.monotonic() + _LATE
    while late and time.monotonic() < end:
        late = [request for request in late if not request.Test()]


def _bytes(x: Array) -> Array:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)

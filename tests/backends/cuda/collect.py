# ruff: noqa: N802 - the names are those of the library
"""A stand-in for NCCL between threads that are ranks, each with an emulated card of its own.

It takes arguments as C does and refuses what the library refuses. Work is done when its stream comes to it,
or when a graph that captured it is played: it waits there for the other ranks, as kernels of the library do.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.backends.cuda.emulated import EmulatedDriver
from tests.backends.cuda.standin import StandIn, standing_in
from weft.backends.cuda import nccl
from weft.backends.cuda.card import here
from weft.backends.cuda.compiling import compile_for_device
from weft.backends.cuda.eager import set_build
from weft.base.dtypes import bfloat16
from weft.capture.record.root import lock
from weft.parallel.threads import _yielded

INVALID_ARGUMENT, INVALID_USAGE, REMOTE = 4, 5, 6
_TYPES: tuple[Any, ...] = (
    np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32, np.float64, bfloat16,
)  # fmt: skip
_PATIENCE = 60.0


class _Shared:
    """What the ranks of one communicator have in common."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.change = threading.Condition()
        self.cards: dict[int, int] = {}
        self.laid: dict[int, dict[int, Any]] = defaultdict(dict)  # by number of a meeting and rank
        self.letters: dict[tuple[int, int, int], Any] = {}  # by source, target and number

    def wait_for(self, holds: Callable[[], bool]) -> None:
        with _yielded(lock), self.change:
            self.change.notify_all()
            assert self.change.wait_for(holds, _PATIENCE), "a rank did not come"


class _Comm:
    def __init__(self, shared: _Shared, rank: int) -> None:
        self.shared, self.rank = shared, rank
        self.meetings = 0
        self.sent: Counter[int] = Counter()
        self.received: Counter[int] = Counter()

    def meet(self, item: Any) -> list[Any]:
        number, shared = self.meetings, self.shared
        self.meetings += 1
        laid = shared.laid[number]
        laid[self.rank] = item
        shared.wait_for(lambda: len(laid) == shared.size)
        return [laid[r] for r in range(shared.size)]


class StandInNccl:
    """The functions of the library.

    Attributes:
        calls: names of the functions that were called, in all ranks together.
        fail: by function, the code that it gives.
        trouble: what has gone wrong since, as ``ncclCommGetAsyncError`` tells.
    """

    serves_threads = True

    def __init__(self, api: StandIn) -> None:
        self.api = api
        self.calls: list[str] = []
        self.fail: dict[str, int] = {}
        self.trouble = 0
        self._lock = threading.Lock()
        self._ids: dict[bytes, _Shared] = {}
        self._comms: dict[int, _Comm] = {}
        self._group = threading.local()

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if not name.startswith("nccl") or name == "ncclGetErrorString":
            return found

        def recorded(*args: Any) -> int:
            self.calls.append(name)
            return self.fail[name] if name in self.fail else found(*args)

        return recorded

    def ncclGetErrorString(self, code: Any) -> bytes:
        return b"what the library says"

    def ncclGetVersion(self, number: Any) -> int:
        number._obj.value = 22705
        return 0

    def ncclGetUniqueId(self, given: Any) -> int:
        number = self.api.number()
        given._obj.internal[:8] = number.to_bytes(8, "little")
        return 0

    def ncclCommInitRank(self, handle: Any, size: Any, given: Any, rank: Any) -> int:
        key = bytes(given.internal)
        if not any(key):
            return INVALID_ARGUMENT
        with self._lock:
            shared = self._ids.setdefault(key, _Shared(size.value))
        assert here.card is not None
        shared.cards[rank.value] = here.card.index
        shared.wait_for(lambda: len(shared.cards) == size.value)
        if len(set(shared.cards.values())) < size.value:
            return INVALID_USAGE
        handle._obj.value = number = self.api.number()
        self._comms[number] = _Comm(shared, rank.value)
        return 0

    def ncclCommDestroy(self, handle: Any) -> int:
        del self._comms[handle.value]
        return 0

    def ncclCommAbort(self, handle: Any) -> int:
        return 0

    def ncclCommGetAsyncError(self, handle: Any, code: Any) -> int:
        assert handle.value in self._comms
        code._obj.value = self.trouble
        return 0

    # Collectives

    def _read(self, pointer: int, nbytes: int, stream: int) -> Any:
        return self.api.bytes_at(pointer, nbytes, stream, writes=False).copy()

    def _write(self, pointer: int, data: Any, stream: int) -> None:
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self.api.bytes_at(pointer, flat.size, stream, writes=True)[:] = flat

    def _give(self, name: str, given: Any, nbytes: int, out: Any, comm: Any, stream: Any, make: Any) -> int:
        """Have ranks lay down bytes, and each make its result of those of all."""
        found, source, target = self._comms[comm.value], given.value, out.value

        def work(on: int) -> None:
            rows = found.meet((name, nbytes, self._read(source, nbytes, on)))
            assert len({row[:2] for row in rows}) == 1, rows
            self._write(target, make([row[2] for row in rows], found.rank), on)

        self.api.give(stream.value, work)
        return 0

    def ncclAllGather(self, given: Any, out: Any, count: Any, kind: Any, comm: Any, stream: Any) -> int:
        nbytes = count.value * np.dtype(_TYPES[kind.value]).itemsize
        return self._give("gather", given, nbytes, out, comm, stream, lambda rows, rank: np.stack(rows))

    def ncclBroadcast(
        self, given: Any, out: Any, count: Any, kind: Any, root: Any, comm: Any, stream: Any
    ) -> int:
        nbytes, first = count.value * np.dtype(_TYPES[kind.value]).itemsize, root.value
        return self._give("broadcast", given, nbytes, out, comm, stream, lambda rows, rank: rows[first])

    def ncclAllReduce(
        self, given: Any, out: Any, count: Any, kind: Any, op: Any, comm: Any, stream: Any
    ) -> int:
        assert op.value in (0, 2)
        dtype, largest = np.dtype(_TYPES[kind.value]), op.value == 2

        def make(rows: list[Any], rank: int) -> Any:
            if largest:
                return np.max([row.view(dtype) for row in rows], axis=0)
            return sum(row.view(dtype) for row in reversed(rows))  # an order of its own

        return self._give("reduce", given, count.value * dtype.itemsize, out, comm, stream, make)

    def ncclReduceScatter(
        self, given: Any, out: Any, count: Any, kind: Any, op: Any, comm: Any, stream: Any
    ) -> int:
        assert op.value == 0
        dtype, width, size = np.dtype(_TYPES[kind.value]), count.value, self._comms[comm.value].shared.size

        def make(rows: list[Any], rank: int) -> Any:
            part = slice(rank * width, (rank + 1) * width)
            return sum(row.view(dtype)[part] for row in reversed(rows))

        return self._give("scatter", given, size * width * dtype.itemsize, out, comm, stream, make)

    # From one to another: all of a group at a time

    def ncclGroupStart(self) -> int:
        self._group.sends, self._group.receives = [], []
        return 0

    def ncclSend(self, given: Any, count: Any, kind: Any, peer: Any, comm: Any, stream: Any) -> int:
        self._group.sends.append((given.value, count.value, peer.value, comm.value, stream.value))
        return 0

    def ncclRecv(self, out: Any, count: Any, kind: Any, peer: Any, comm: Any, stream: Any) -> int:
        self._group.receives.append((out.value, count.value, peer.value, comm.value, stream.value))
        return 0

    def ncclGroupEnd(self) -> int:
        sends, receives = self._group.sends, self._group.receives
        del self._group.sends, self._group.receives
        streams = {x[4] for x in (*sends, *receives)}
        assert len(streams) <= 1
        for stream in streams:
            self.api.give(stream, lambda on: self._pass(sends, receives, on))
        return 0

    def _pass(self, sends: list[Any], receives: list[Any], on: int) -> None:
        for pointer, nbytes, peer, comm, _ in sends:
            own = self._comms[comm]
            own.shared.letters[own.rank, peer, own.sent[peer]] = self._read(pointer, nbytes, on)
            own.sent[peer] += 1
        for pointer, nbytes, peer, comm, _ in receives:
            own = self._comms[comm]
            letters, key = own.shared.letters, (peer, own.rank, own.received[peer])
            own.received[peer] += 1
            own.shared.wait_for(lambda k=key, found=letters: k in found)  # type: ignore[misc]
            data = letters.pop(key)
            assert data.size == nbytes
            self._write(pointer, data, on)
        for *_, comm, _ in sends:
            self._comms[comm].shared.wait_for(lambda: True)  # tells the others


class RanksDriver(EmulatedDriver):
    """Emulated cards, used by threads: one kernel runs at a time."""

    def __init__(self, devices: int) -> None:
        super().__init__()
        self.devices = devices
        self._kernels = threading.RLock()

    def launch(self, *args: Any) -> None:
        with self._kernels:
            super().launch(*args)

    def cuGraphLaunch(self, ready: int, stream: int) -> int:
        self._play(int(ready), int(stream))
        return 0


class _ByMpi:
    """What the ranks of a communicator of all processes have in common; MPI carries it."""

    def __init__(self, comm: Any) -> None:
        self.comm, self.size, self.rank = comm, comm.Get_size(), comm.Get_rank()

    def meet(self, item: Any) -> list[Any]:
        found: list[Any] = self.comm.allgather(item)
        return found

    @property
    def shared(self) -> _ByMpi:
        return self


class StandInBetweenProcesses(StandInNccl):
    """The same between processes of MPI, for communicators of all of them."""

    def ncclCommInitRank(self, handle: Any, size: Any, given: Any, rank: Any) -> int:
        from mpi4py import MPI  # optional

        comm = MPI.COMM_WORLD.Dup()
        keys = comm.allgather((bytes(given.internal), size.value))
        assert keys == [(bytes(given.internal), comm.Get_size())] * comm.Get_size()
        assert rank.value == comm.Get_rank()
        handle._obj.value = number = self.api.number()
        self._comms[number] = _ByMpi(comm)  # type: ignore[assignment]
        return 0

    def _pass(self, sends: list[Any], receives: list[Any], on: int) -> None:
        comm: Any = self._comms[(sends or receives)[0][3]]
        requests = [comm.comm.isend(self._read(p, n, on), dest=peer) for p, n, peer, _, _ in sends]
        for pointer, nbytes, peer, _, _ in receives:
            data = comm.comm.recv(source=peer)
            assert data.size == nbytes
            self._write(pointer, data, on)
        for request in requests:
            request.wait()


@contextmanager
def emulated_ranks(devices: int, kind: type[StandInNccl] = StandInNccl) -> Iterator[StandInNccl]:
    """Let weft take so many cards in NumPy, and a stand-in for NCCL, for real ones inside a block."""
    with standing_in(RanksDriver(devices)) as api:
        set_build(compile_for_device)
        found, usual = kind(api), nccl.load_functions
        nccl.load_functions = lambda: found
        nccl.forget()
        try:
            yield found
        finally:
            nccl.forget()
            nccl.load_functions = usual

"""NCCL by its C functions: collectives between devices, one to a rank, on streams.

A communicator is made once for each group of ranks that uses devices; its id goes by way of the group itself.
Who may use it is agreed on first: NCCL must be there, and every rank must have a device of its own. All else
goes through the host, as without NCCL.
"""

from __future__ import annotations

import ctypes
import warnings
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_ubyte, c_void_p
from functools import cache
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from weft.backends.cuda.card import Card
from weft.backends.cuda.cublaslt import find_library
from weft.backends.cuda.program import LibraryCall, evaluate
from weft.backends.cuda.streams import Stream
from weft.base.dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
    uint32,
    uint64,
)
from weft.base.ranks import Group, Meeting, World, group_of, members, world
from weft.base.records import NamedTuple
from weft.config import settings
from weft.errors import ParallelError
from weft.ops.collective import NOBODY
from weft.ops.library_collective import LIBRARY_COLLECTIVES

INSTALL = "pip install 'weft[nccl]'"
NAMES = frozenset(op.name for op in LIBRARY_COLLECTIVES)  # of calls that are this library's
COMMIT = "library_commit"  # takes and gives words of the context
_SUM, _MAX = 0, 2  # of ncclRedOp_t
_TYPES: dict[DType, int] = {  # of ncclDataType_t
    int8: 0, uint8: 1, int32: 2, uint32: 3, int64: 4, uint64: 5, float16: 6, float32: 7, float64: 8,
    bfloat16: 9,
}  # fmt: skip
_BYTES = _TYPES[uint8]
_SYSTEM, _USAGE, _REMOTE, _IN_PROGRESS = 2, 5, 6, 7  # of ncclResult_t
_HINTS = {
    _SYSTEM: "a connection failed: NCCL_DEBUG=WARN says more, NCCL_SOCKET_IFNAME names the network",
    _USAGE: 'each rank needs a device of its own: f"cuda:{par.rank() % weft.cuda.device_count()}"',
    _REMOTE: "another rank has ended or failed: see its error",
}


class UniqueId(ctypes.Structure):
    """What the ranks of a communicator know each other by."""

    _fields_ = (("internal", c_ubyte * 128),)


def load_functions() -> Any:
    """The functions of the library, None where there is none."""
    path = find_library("nccl", (2,))
    if path is None:
        return None
    try:
        functions = ctypes.CDLL(path)
        functions.ncclGetErrorString.restype = c_char_p
    except (OSError, AttributeError):  # one that does not fit the rest of the system
        return None
    return functions


@cache
def the_library() -> Library | None:
    """The library, if there is one."""
    functions = load_functions()
    return None if functions is None else Library(functions)


class Library:
    """The functions, with their return codes looked at.

    Attributes:
        serves_threads: whether ranks may be threads. Those of NCCL itself may not: who waits on a device for
            another rank holds locks of this process that the other one needs.
    """

    def __init__(self, functions: Any) -> None:
        self._functions = functions
        self.serves_threads = bool(getattr(functions, "serves_threads", False))

    def call(self, op: str, rank: int, name: str, *args: Any) -> None:
        """Call a function for an op of a rank."""
        if code := int(getattr(self._functions, name)(*args)):
            raise self.failure(op, rank, name, code)

    def failure(self, op: str, rank: int, name: str, code: int) -> ParallelError:
        """The error that a return code means."""
        text = self._functions.ncclGetErrorString(c_int(code))
        told = text.decode() if isinstance(text, bytes) else "unknown"
        message = f"{name} must succeed on rank {rank}, got error {code}: {told}"
        return ParallelError(op, message, hint=_HINTS.get(code, "NCCL_DEBUG=WARN says more"))

    @property
    def version(self) -> str:
        """Such as 2.27.5."""
        number = c_int()
        self.call("nccl", 0, "ncclGetVersion", byref(number))
        return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"


class Communicator:
    """A group of ranks on their devices.

    Attributes:
        rank: of this one in the group.
        size: how many there are.
    """

    def __init__(self, library: Library, card: Card, group: Group, axis: str) -> None:
        self._library, self._card = library, card
        self.rank, self.size = group.rank, group.size
        given = UniqueId()
        if self.rank == 0:
            self._call("ncclGetUniqueId", byref(given))
        meeting = Meeting("nccl", axis, f"the id of {group.size} ranks")
        found = group.gather(meeting, np.frombuffer(bytes(given), np.uint8))[0]
        first, self._handle = UniqueId.from_buffer_copy(found.tobytes()), c_void_p()
        card.enter()
        self._call("ncclCommInitRank", byref(self._handle), c_int(self.size), first, c_int(self.rank))

    def _call(self, name: str, *args: Any, op: str = "nccl") -> None:
        self._library.call(op, self.rank, name, *args)

    def check(self, op: str) -> None:
        """Raise what has gone wrong since the last call; the communicator is of no use then."""
        code = c_int()
        self._call("ncclCommGetAsyncError", self._handle, byref(code), op=op)
        if code.value not in (0, _IN_PROGRESS):
            self._call("ncclCommAbort", self._handle, op=op)
            raise self._library.failure(op, self.rank, "the last collective", code.value)

    def destroy(self) -> None:
        """Give it back."""
        self._call("ncclCommDestroy", self._handle)

    def run(self, call: Call, given: int, out: int, stream: Stream) -> None:
        """Have a collective done on a stream, from one address to another."""
        self._card.enter()
        _RUNS[call.name](self, call, given, out, stream)

    def _collect(self, name: str, call: Call, given: int, out: int, *rest: Any, stream: Stream) -> None:
        handles = self._handle, c_void_p(stream.handle)
        self._call(name, c_void_p(given), c_void_p(out), *rest, *handles, op=call.name)

    def _gather(self, call: Call, given: int, out: int, stream: Stream) -> None:
        count = c_size_t(call.operands[0].nbytes())
        self._collect("ncclAllGather", call, given, out, count, c_int(_BYTES), stream=stream)

    def _broadcast(self, call: Call, given: int, out: int, stream: Stream) -> None:
        count, root = c_size_t(call.operands[0].nbytes()), c_int(call.attrs["root"])
        self._collect("ncclBroadcast", call, given, out, count, c_int(_BYTES), root, stream=stream)

    def _sum(self, call: Call, given: int, out: int, stream: Stream) -> None:
        result = call.operands[1]
        how = c_size_t(prod(result.shape)), c_int(_TYPES[result.dtype]), c_int(_SUM)
        name = "ncclAllReduce" if call.name == "library_sum" else "ncclReduceScatter"
        self._collect(name, call, given, out, *how, stream=stream)

    def _commit(self, call: Call, given: int, out: int, stream: Stream) -> None:
        how = c_size_t(1), c_int(_TYPES[int64]), c_int(_MAX)
        self._collect("ncclAllReduce", call, given, out, *how, stream=stream)

    def _exchange(self, call: Call, given: int, out: int, stream: Stream) -> None:
        row, ranks = call.operands[0].nbytes() // self.size, range(self.size)
        sent, received = [(given + r * row, r) for r in ranks], [(out + r * row, r) for r in ranks]
        self._send(call, row, sent, received, stream)

    def _permute(self, call: Call, given: int, out: int, stream: Stream) -> None:
        to, nbytes = call.attrs["to"], call.operands[0].nbytes()
        sent = [] if to[self.rank] == NOBODY else [(given, to[self.rank])]
        received = [(out, to.index(self.rank))] if self.rank in to else []
        if not received:
            self._card.driver.cuMemsetD8Async(out, 0, nbytes, stream.handle)
        self._send(call, nbytes, sent, received, stream)

    def _send(
        self,
        call: Call,
        nbytes: int,
        sent: Sequence[tuple[int, int]],
        received: Sequence[tuple[int, int]],
        stream: Stream,
    ) -> None:
        """Bytes from addresses to ranks, and from ranks to addresses, all at a time."""
        how, end = (c_size_t(nbytes), c_int(_BYTES)), (self._handle, c_void_p(stream.handle))
        self._call("ncclGroupStart", op=call.name)
        try:
            for name, pairs in (("ncclSend", sent), ("ncclRecv", received)):
                for address, rank in pairs:
                    self._call(name, c_void_p(address), *how, c_int(rank), *end, op=call.name)
        finally:
            self._call("ncclGroupEnd", op=call.name)


_RUNS: dict[str, Callable[[Communicator, Call, int, int, Stream], None]] = {
    "library_gather": Communicator._gather,
    "library_exchange": Communicator._exchange,
    "library_sum": Communicator._sum,
    "library_sum_parts": Communicator._sum,
    "library_permute": Communicator._permute,
    "library_broadcast": Communicator._broadcast,
    COMMIT: Communicator._commit,
}


class Operand(NamedTuple):
    """An array that is given or comes."""

    dtype: DType
    shape: tuple[int, ...]

    def nbytes(self) -> int:
        """From its first element to its last."""
        return prod(self.shape) * self.dtype.itemsize


class Call:
    """A collective of a program, for sizes that are known.

    Attributes:
        name: of the op.
        operands: what is given and what comes.
        attrs: of the op.
        workspace: bytes that it works in, none.
    """

    workspace = 0

    def __init__(self, card: Card, step: LibraryCall, sizes: Mapping[str, int]) -> None:
        self._card = card
        self.name, self.attrs = step.name, literal_eval(step.attrs)
        shapes = [tuple([evaluate(s, sizes) for s in kind.shape]) for kind in step.arrays]
        self.operands = tuple([Operand(k.dtype, s) for k, s in zip(step.arrays, shapes, strict=True)])
        communicator(card, self.name, self.attrs["mesh"], self.attrs["axis"])  # before a graph captures it

    def run(self, pointers: Sequence[int], workspace: int, stream: Stream) -> None:
        """Have it done on a stream; pointers are those of the input and the output."""
        if not self.operands or self.operands[0].nbytes():
            found = communicator(self._card, self.name, self.attrs["mesh"], self.attrs["axis"])
            found.run(self, pointers[0], pointers[1], stream)


# Who uses it


class _Known:
    """What a rank knows of its groups, by their members and its device."""

    def __init__(self) -> None:
        self.reasons: dict[Any, str] = {}
        self.communicators: dict[Any, Communicator] = {}


_known: WeakKeyDictionary[World, _Known] = WeakKeyDictionary()
_said: set[str] = set()


def communicator(card: Card, op: str, mesh: str, axis: str) -> Communicator:
    """The communicator of the group of this rank along an axis; all of the group ask for it together."""
    library, here = the_library(), world()
    if library is None:
        raise ParallelError(op, "NCCL must be there, got none", hint=INSTALL)
    known = _known.setdefault(here, _Known()).communicators
    key = members(op, mesh, axis, here.rank), card.index
    if key not in known:
        known[key] = Communicator(library, card, group_of(op, mesh, axis), axis)
    return known[key]


def serves(card: Card, mesh: str, axis: str, *, ask: bool = True) -> bool:
    """Whether NCCL serves the group of this rank along an axis; all of the group ask it together.

    A rank without others needs no library. Where it does not serve, that is said once. Without ``ask``, who
    did not ask before does not know: what needs no other rank must not wait for one.
    """
    here = world()
    ranks = members("nccl", mesh, axis, here.rank)
    if len(ranks) == 1:
        return True
    library = the_library()
    if not settings.nccl or (library is not None and here.in_threads and not library.serves_threads):
        return False
    reasons = _known.setdefault(here, _Known()).reasons
    key = ranks, card.index
    if key not in reasons:
        if not ask:
            return False
        reasons[key] = _why_not(card, mesh, axis, ranks)
        _say(reasons[key])
    return not reasons[key]


def _why_not(card: Card, mesh: str, axis: str, ranks: Sequence[int]) -> str:
    """Why NCCL does not serve a group; "" if it does."""
    if the_library() is None:
        return f"NCCL is not there ({INSTALL})"
    own = np.frombuffer(card.uuid, np.uint8)
    meeting = Meeting("nccl", axis, "which device each rank has (WEFT_NCCL=0 for ranks without NCCL)")
    found = [row.tobytes() for row in group_of("nccl", mesh, axis).gather(meeting, own)]
    for i, uuid in enumerate(found):
        if uuid in found[:i]:
            first = ranks[found.index(uuid)]
            return f"ranks {first} and {ranks[i]} have the same device, and NCCL needs one for each"
    return ""


def _say(reason: str) -> None:
    if reason and reason not in _said:
        _said.add(reason)
        text = f"collectives of tensors on devices go through the host and MPI: {reason}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def forget() -> None:
    """Drop the library and all communicators, for tests that put others in place."""
    the_library.cache_clear()
    for known in _known.values():
        for made in known.communicators.values():
            made.destroy()
    _known.clear()
    _said.clear()


def describe_nccl() -> str:
    """The library in words, for ``weft doctor``."""
    library = the_library()
    if library is None:
        return f"not found, collectives go through the host: {INSTALL}"
    return library.version if settings.nccl else f"{library.version}, switched off by WEFT_NCCL"

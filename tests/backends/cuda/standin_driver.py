# ruff: noqa: N802 - the names are those of the driver
"""A stand-in for ``cuda.bindings.driver``: device memory is memory of the host, and every call is recorded.

Copies really copy, kernels that are given as Python functions really run. It is stricter than a card: each
access must lie inside an allocation that is alive, and must be ordered after the last write of what it reads
by the same stream or by events; what a card would let pass by luck is an error here.
"""

from __future__ import annotations

import ctypes
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.backends.cuda.ptx_text import parameter_words

OUT_OF_MEMORY, INVALID_VALUE, NOT_FOUND, ILLEGAL_ADDRESS, CAPTURE_UNSUPPORTED = 2, 1, 500, 700, 900
GRAIN = 512


class Handle:
    """What the bindings give: an object with a number, and nothing else."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __int__(self) -> int:
        return self.number


class Allocation:
    def __init__(self, size: int, start: int | None = None) -> None:
        self.memory = ctypes.create_string_buffer(size + 2 * GRAIN if start is None else 1)
        self.start = -(-ctypes.addressof(self.memory) // GRAIN) * GRAIN if start is None else start
        self.size = size
        self.device = 0
        self.written: tuple[int, int] | None = None  # the stream that wrote last, and when
        self.read: dict[int, int] = {}  # by stream, when it read last
        ctypes.memset(self.start, 0xCB, size)  # so that nobody counts on zeros


class RaceError(AssertionError):
    """An access that nothing orders after an earlier one."""


_LAUNCH = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)
Kernel = Callable[[Any, list[int], tuple[int, ...], tuple[int, ...]], None]


class DriverStandIn:
    """The functions, by the names and with the results that the bindings have."""

    def __init__(self, devices: int = 1, memory: int = 1 << 28, by_pointer: bool = True) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.devices = devices
        self.memory = memory
        self.live: dict[int, Allocation] = {}
        self.pinned: dict[int, Any] = {}
        self.used = 0
        self.fail: dict[str, int] = {}  # by function, the code that it gives
        self.kernels: dict[str, Kernel] = {}
        self.ticks: Counter[int] = Counter()
        self.seen: dict[int, Counter[int]] = {}  # by stream, up to where it comes after each other one
        self.events: dict[int, Counter[int]] = {}
        self.functions: dict[int, str] = {}
        self.images: dict[int, bytes] = {}  # by function, the module that it is in
        self.modules: dict[int, bytes] = {}
        self.linked: dict[int, list[bytes]] = {}
        self.graphs: dict[int, list[tuple[str, Any]]] = {}
        self.nodes: dict[int, tuple[int, int]] = {}
        self.edges: dict[int, list[list[int]]] = {}  # by graph, the nodes that each one waits for
        self.allowed: dict[int, int] = {}  # by function, bytes of shared memory that a launch may ask for
        self.asked = 0  # bytes of shared memory, by the launch that runs
        self.conditions: dict[int, int] = {}  # by handle, what a kernel has set it to
        self.turns: Counter[str] = Counter()  # of bodies of conditional nodes, by their kind
        self.notes: dict[int, list[Callable[[int], None]]] = {}  # by stream that captures, what it was given
        self.errors: list[BaseException] = []  # of kernels that machine code has launched
        self.version = 13000
        self.random = random.Random(0)
        self.device = 0  # whose context was set last
        self._next = 1000
        self._callback = _LAUNCH(self._launch_by_pointer)
        address = ctypes.cast(self._callback, ctypes.c_void_p).value
        self.addresses = {"cuLaunchKernel": address} if by_pointer else {}

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if not name.startswith("cu") or not callable(found) or name.startswith("cuGetError"):
            return found

        def recorded(*args: Any) -> Any:
            self.calls.append((name, *args))
            if name in self.fail:
                return (self.fail[name],)
            if self.notes and (code := self._note(name, args)) is not None:
                return (code,)
            result = found(*args)
            return result if isinstance(result, tuple) else (result,)

        return recorded

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def number(self) -> int:
        self._next += 1
        return self._next

    # devices

    def cuInit(self, flags: int) -> int:
        return 0

    def cuGetErrorName(self, code: int) -> Any:
        return 0, f"CUDA_ERROR_{int(code)}".encode()

    def cuGetErrorString(self, code: int) -> Any:
        return 0, b"what the driver says"

    def cuDriverGetVersion(self) -> Any:
        return 0, self.version

    def cuDeviceGetCount(self) -> Any:
        return 0, self.devices

    def cuDeviceGet(self, index: int) -> Any:
        return 0, Handle(index)

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return 0, Handle(77 + int(device))

    def cuCtxSetCurrent(self, context: int) -> int:
        self.device = int(context) - 77
        return 0

    def cuCtxSynchronize(self) -> int:
        return 0

    def cuDeviceGetAttribute(self, attribute: int, device: int) -> Any:
        return 0, {75: 9, 76: 0, 16: 132, 115: 1, 97: 232448}.get(int(attribute), 0)

    def cuDeviceGetUuid(self, device: int) -> Any:
        return 0, SimpleNamespace(bytes=bytes([int(device) + 1] * 16))

    def cuDeviceGetName(self, length: int, device: int) -> Any:
        return 0, b"Stand-in\0\0"

    # memory

    def cuDeviceGetDefaultMemPool(self, device: int) -> Any:
        return 0, Handle(9)

    def cuMemPoolSetAttribute(self, pool: Any, attribute: int, value: int) -> int:
        return 0

    def cuMemPoolGetAttribute(self, pool: Any, attribute: int) -> Any:
        return 0, self.used

    def cuMemPoolTrimTo(self, pool: Any, keep: int) -> int:
        return 0

    def cuMemGetInfo(self) -> Any:
        return 0, self.memory - self.used, self.memory

    def cuMemAllocAsync(self, size: int, stream: int) -> Any:
        if self.used + size > self.memory:
            return OUT_OF_MEMORY, Handle(0)
        allocation = self.new_allocation(size)
        self.live[allocation.start] = allocation
        allocation.device = self.device
        self.used += size
        self.touch(allocation, int(stream), writes=True)
        return 0, Handle(allocation.start)

    def new_allocation(self, size: int) -> Allocation:
        """Memory from the host."""
        return Allocation(size)

    def cuPointerGetAttribute(self, attribute: int, pointer: int) -> Any:
        assert attribute == 9
        return 0, self.allocation(int(pointer), 1).device

    def cuMemFreeAsync(self, pointer: int, stream: int) -> int:
        allocation = self.live.pop(int(pointer))
        self.touch(allocation, int(stream), writes=True)
        self.used -= allocation.size
        ctypes.memset(allocation.start, 0xDD, allocation.size)
        return 0

    def cuMemHostAlloc(self, size: int, flags: int) -> Any:
        buffer = ctypes.create_string_buffer(size)
        self.pinned[ctypes.addressof(buffer)] = buffer
        return 0, ctypes.addressof(buffer)

    def cuMemFreeHost(self, pointer: int) -> int:
        del self.pinned[int(pointer)]
        return 0

    def allocation(self, pointer: int, size: int) -> Allocation:
        for allocation in [*self.live.values()]:
            if allocation.start <= pointer and pointer + size <= allocation.start + allocation.size:
                return allocation
        raise AssertionError(f"{size} bytes at {pointer:#x} are not in memory that is alive")

    def touch(self, allocation: Allocation, stream: int, *, writes: bool) -> None:
        """Note an access, which must come after those that it conflicts with."""
        known = self.seen.setdefault(stream, Counter())
        earlier = [] if allocation.written is None else [allocation.written]
        earlier += list(allocation.read.items()) if writes else []
        for other, when in earlier:
            if other != stream and known[other] < when:
                raise RaceError(f"stream {stream} does not wait for stream {other}")
        self.ticks[stream] += 1
        if writes:
            allocation.written, allocation.read = (stream, self.ticks[stream]), {}
        else:
            allocation.read[stream] = self.ticks[stream]

    def bytes_at(self, pointer: int, size: int, stream: int, *, writes: bool) -> Any:
        """Device memory as an array of bytes, for a kernel of the stand-in."""
        self.touch(self.allocation(pointer, size), stream, writes=writes)
        return np.ndarray((size,), np.uint8, (ctypes.c_char * size).from_address(pointer))

    def cuMemcpyHtoDAsync(self, target: int, source: int, size: int, stream: int) -> int:
        self.touch(self.allocation(int(target), size), int(stream), writes=True)
        ctypes.memmove(int(target), int(source), size)
        return 0

    def cuMemcpyDtoHAsync(self, target: int, source: int, size: int, stream: int) -> int:
        self.touch(self.allocation(int(source), size), int(stream), writes=False)
        ctypes.memmove(int(target), int(source), size)
        return 0

    def cuMemcpyDtoDAsync(self, target: int, source: int, size: int, stream: int) -> int:
        self.touch(self.allocation(int(source), size), int(stream), writes=False)
        self.touch(self.allocation(int(target), size), int(stream), writes=True)
        ctypes.memmove(int(target), int(source), size)
        return 0

    def cuMemcpyPeerAsync(self, target: int, to: int, source: int, of: int, size: int, stream: int) -> int:
        return self.cuMemcpyDtoDAsync(target, source, size, stream)[0]  # type: ignore[index]

    def cuMemsetD8Async(self, target: int, value: int, count: int, stream: int) -> int:
        self.bytes_at(int(target), count, int(stream), writes=True)[:] = value
        return 0

    def cuMemsetD16Async(self, target: int, value: int, count: int, stream: int) -> int:
        self.bytes_at(int(target), 2 * count, int(stream), writes=True).view(np.uint16)[:] = value
        return 0

    def cuMemsetD32Async(self, target: int, value: int, count: int, stream: int) -> int:
        self.bytes_at(int(target), 4 * count, int(stream), writes=True).view(np.uint32)[:] = value
        return 0

    # streams and events

    def cuStreamCreate(self, flags: int) -> Any:
        return 0, Handle(self.number())

    def cuStreamDestroy(self, stream: int) -> int:
        return 0

    def cuStreamSynchronize(self, stream: int) -> int:
        return 0

    def cuStreamQuery(self, stream: int) -> int:
        return 0

    def cuEventCreate(self, flags: int) -> Any:
        return 0, Handle(self.number())

    def cuEventDestroy(self, event: int) -> int:
        return 0

    def cuEventRecord(self, event: int, stream: int) -> int:
        own = self.seen.setdefault(int(stream), Counter())
        own[int(stream)] = self.ticks[int(stream)]
        self.events[int(event)] = own.copy()
        return 0

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> int:
        known = self.seen.setdefault(int(stream), Counter())
        known |= self.events.get(int(event), Counter())
        self.seen[int(stream)] = known
        return 0

    def cuEventSynchronize(self, event: int) -> int:
        return 0

    def cuEventQuery(self, event: int) -> int:
        return 0

    def cuEventElapsedTime(self, start: int, end: int) -> Any:
        return 0, 0.25

    # code

    def cuLinkCreate(self, count: int, options: Sequence[Any], values: Sequence[Any]) -> Any:
        assert [type(value) for value in values] == [bytes, int]  # what the bindings take for these options
        assert count == len(options) == 2
        state = self.number()
        self.linked[state] = []
        return 0, Handle(state)

    def cuLinkAddData(
        self, state: Any, kind: int, data: bytes, size: int, name: bytes, n: int, o: Any, v: Any
    ) -> int:
        assert len(data) == size
        assert data.endswith(b"\0")
        if b".entry" not in data:
            return INVALID_VALUE
        self.linked[int(state)].append(data[:-1])
        return 0

    def cuLinkComplete(self, state: Any) -> Any:
        image = ctypes.create_string_buffer(b"cubin\n" + b"\n".join(self.linked[int(state)]))
        self.linked[int(state)].append(image)  # type: ignore[arg-type]
        return 0, Handle(ctypes.addressof(image)), len(image.value)

    def cuLinkDestroy(self, state: Any) -> int:
        del self.linked[int(state)]
        return 0

    def cuModuleLoadData(self, image: bytes) -> Any:
        assert image.startswith(b"cubin\n") or b".extern .func cudaGraphSetConditional" in image
        module = self.number()
        self.modules[module] = image
        return 0, Handle(module)

    def cuModuleGetFunction(self, module: int, name: bytes) -> Any:
        if not re.search(rb"\.entry\s+" + name + rb"\b", self.modules[int(module)]):
            return NOT_FOUND, Handle(0)
        function = self.number()
        self.functions[function] = name.decode()
        self.images[function] = self.modules[int(module)]
        return 0, Handle(function)

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> int:
        if int(attribute) == 8:
            self.allowed[int(function)] = value
        return 0

    def cuLaunchKernel(self, function: int, *rest: Any) -> int:
        *shape, shared, stream, address, _ = rest
        words = self.words(function, address)
        self.launch(int(function), tuple(shape[:3]), tuple(shape[3:]), int(stream), words, int(shared))
        return 0

    def _launch_by_pointer(self, *args: Any) -> int:
        """What machine code calls; an error must not pass through it."""
        try:
            code: int = self.cuLaunchKernel(*args[:10], 0)[0]  # type: ignore[index]
            return code
        except BaseException as error:
            self.errors.append(error)
            return ILLEGAL_ADDRESS

    def words(self, function: int, address: int) -> list[int]:
        """The arguments of a launch, as many as the PTX has parameters."""
        name = self.functions[int(function)]
        text = self.images[int(function)]
        head = re.search(rb"\.entry\s+" + name.encode() + rb"\s*\(([^)]*)\)", text)
        places, count = parameter_words("" if head is None else head.group(1).decode())
        if not places:  # names of its own
            count = 0 if head is None else head.group(1).count(b".param")
            places = {str(i): i for i in range(count)}
        pointers = (ctypes.c_uint64 * len(places)).from_address(address)
        ends = [*places.values(), count][1:]
        sizes = [end - first for first, end in zip(places.values(), ends, strict=True)]
        rows = [(ctypes.c_uint64 * n).from_address(p) for n, p in zip(sizes, pointers, strict=True)]
        return [word for row in rows for word in row]

    def launch(
        self, function: int, grid: tuple[int, ...], block: tuple[int, ...], stream: int, words: list[int],
        shared: int = 0,
    ) -> None:  # fmt: skip
        assert all(n >= 1 for n in (*grid, *block)), "a launch of nothing is an error"
        assert shared <= self.allowed.get(function, 48 << 10), "so much shared memory must be allowed first"
        self.asked = shared
        name = self.functions[function]
        self.stream = stream
        if name == "weft_set_condition":
            self.conditions[words[0]] = self._condition(*words[1:])
        elif name.startswith("weft_gather_"):
            _gather(self, int(name.rpartition("_")[2]), words, grid, block)
        elif name.startswith("weft_turn_"):
            _turn(self, int(name.rpartition("_")[2]), words, grid)
        else:
            self.run_kernel(function, words, grid, block)

    def give(self, stream: int, work: Callable[[int], None]) -> None:
        """Have a library's work done on a stream, or noted."""
        if stream in self.notes:
            self.notes[stream].append(work)
        else:
            work(stream)

    # captures

    def _note(self, name: str, args: tuple[Any, ...]) -> int | None:
        """Note work for a stream that captures; what such a stream must not be given breaks the capture."""
        if name == "cuCtxSynchronize":
            return CAPTURE_UNSUPPORTED
        place = _STREAM_OF.get(name)
        stream = None if place is None else int(args[place])
        if stream is None or stream not in self.notes:
            return None
        if name not in ("cuLaunchKernel", "cuMemcpyDtoDAsync") and not name.startswith("cuMemset"):
            return None if name == "cuStreamEndCapture" else CAPTURE_UNSUPPORTED
        if name == "cuLaunchKernel":
            function, *shape, shared = (int(n) for n in args[:8])
            words = self.words(function, args[9])
            self.notes[stream].append(
                lambda s: self.launch(function, tuple(shape[:3]), tuple(shape[3:]), s, words, shared)
            )
        else:
            run = object.__getattribute__(self, name)
            self.notes[stream].append(lambda s: run(*args[:-1], s))
        return 0

    def cuStreamBeginCapture(self, stream: int, mode: int) -> int:
        assert int(stream) not in self.notes
        self.notes[int(stream)] = []
        return 0

    def _condition(self, flag: int, context: int) -> int:
        """What the PTX of ``weft.backends.cuda.conditions`` sets a handle to."""
        holds = not flag or bool(self.bytes_at(flag, 1, self.stream, writes=False)[0])
        return int(holds and (not context or not self.bytes_at(context, 8, self.stream, writes=False).any()))

    def run_kernel(
        self, function: int, words: list[int], grid: tuple[int, ...], block: tuple[int, ...]
    ) -> None:
        """Run a kernel that a test gave as a function of Python."""
        self.kernels[self.functions[function]](self, words, grid, block)


_STREAM_OF = {  # which argument of a function is the stream
    "cuLaunchKernel": 8, "cuMemcpyDtoDAsync": 3, "cuMemsetD8Async": 3, "cuMemsetD16Async": 3,
    "cuMemsetD32Async": 3, "cuMemAllocAsync": 1, "cuMemFreeAsync": 1, "cuMemcpyHtoDAsync": 3,
    "cuMemcpyDtoHAsync": 3, "cuStreamSynchronize": 0, "cuStreamQuery": 0, "cuEventRecord": 1,
    "cuStreamWaitEvent": 0, "cuStreamEndCapture": 0, "cuGraphLaunch": 1,
}  # fmt: skip


def _gather(
    on: DriverStandIn, width: int, words: list[int], grid: tuple[int, ...], block: tuple[int, ...]
) -> None:
    """What the PTX of ``weft.backends.cuda.copies`` says, in NumPy, for elements of so many bytes."""
    rank = (len(words) - 3) // 2
    out, source, count = words[:3]
    sizes = words[3 : 3 + rank]
    strides = [w - (1 << 64) if w >> 63 else w for w in words[3 + rank :]]
    assert grid[0] * block[0] >= count > (grid[0] - 1) * block[0]
    low = sum(min(0, (n - 1) * s) for n, s in zip(sizes, strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(sizes, strides, strict=True)) + width
    memory = on.bytes_at(source + low, high - low, on.stream, writes=False)
    seen = np.ndarray((*sizes, width), np.uint8, memory, -low, (*strides, 1))
    on.bytes_at(out, count * width, on.stream, writes=True)[:] = seen.reshape(-1)


def _turn(on: DriverStandIn, width: int, words: list[int], grid: tuple[int, ...]) -> None:
    """What the PTX of ``weft.backends.cuda.turning`` says, in NumPy."""
    out, source, batch, rows, columns, apart, stride, down, across = words
    assert grid[0] == batch * down * across
    assert (down, across) == (-(-rows // 32), -(-columns // 32))
    room = (batch - 1) * apart + (columns - 1) * stride + rows * width
    memory = on.bytes_at(source, room, on.stream, writes=False)
    shape = (batch, rows, columns, width)
    seen = np.ndarray(shape, np.uint8, memory, 0, (apart, width, stride, 1))
    on.bytes_at(out, batch * rows * columns * width, on.stream, writes=True)[:] = seen.reshape(-1)

"""CUDA programs run by the driver through ctypes alone: plain and slow to call, an oracle for the runtime."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.backends.cuda import program as cuda
from weft.backends.cuda.program import CONTEXT_WORDS, CudaProgram, Place, evaluate


class CardError(RuntimeError):
    """A function of the driver failed."""


class Card:
    """The first card of this machine."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self._packed: dict[Any, Any] = {}  # arguments as the driver takes them
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *args: Any) -> None:
        """Call a function of the driver."""
        code = getattr(self.lib, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorString(code, ctypes.byref(text))
            raise CardError(f"{name}: {text.value.decode() if text.value else code}")

    def load(self, ptx: str) -> ctypes.c_void_p:
        """A module of PTX."""
        module, log = ctypes.c_void_p(), ctypes.create_string_buffer(8192)
        options = (ctypes.c_int * 2)(5, 6)  # the log of errors, and its size
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), ctypes.c_void_p(8192))
        try:
            self.call("cuModuleLoadDataEx", ctypes.byref(module), ptx.encode() + b"\0", 2, options, values)
        except CardError as error:
            raise CardError(f"{error}: {log.value.decode()}") from error
        return module

    def function(self, module: Any, name: str) -> ctypes.c_void_p:
        """An entry of a module."""
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def unload(self, module: Any) -> None:
        """A module is not needed any more."""
        self.call("cuModuleUnload", module)

    def launch(self, function: Any, grid: int, threads: int, shared: int, arguments: Sequence[int]) -> None:
        """Run a kernel; arguments are of 8 bytes each."""
        key = (id(arguments), tuple(arguments))
        if key not in self._packed:
            values = (ctypes.c_uint64 * max(len(arguments), 1))(*arguments)
            base = ctypes.addressof(values)
            pointers = (ctypes.c_void_p * max(len(arguments), 1))(
                *[base + 8 * i for i in range(len(arguments))]
            )
            self._packed[key] = pointers, values, arguments
        pointers = self._packed[key][0]
        if shared > 48 << 10:  # dynamic shared memory of a block, which must be allowed
            self.call("cuFuncSetAttribute", function, 8, shared)
        self.call("cuLaunchKernel", function, grid, 1, 1, threads, 1, 1, shared, None, pointers, None)

    def copy(self, target: int, source: int, count: int) -> None:
        """Bytes from one place to another."""
        places = (ctypes.c_uint64(target), ctypes.c_uint64(source))
        self.call("cuMemcpyDtoDAsync_v2", *places, ctypes.c_size_t(count), None)

    def allocate(self, size: int) -> int:
        """Memory of the card."""
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(size, 16)))
        return pointer.value

    def free(self, pointer: int) -> None:
        """Give memory back."""
        self.call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def put(self, pointer: int, array: Any) -> None:
        """Copy an array to the card."""
        array = np.ascontiguousarray(array)
        if array.nbytes:
            source = ctypes.c_void_p(array.ctypes.data)
            self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), source, ctypes.c_size_t(array.nbytes))

    def get(self, pointer: int, array: Any) -> None:
        """Copy from the card into an array."""
        if array.nbytes:
            target = ctypes.c_void_p(array.ctypes.data)
            self.call("cuMemcpyDtoH_v2", target, ctypes.c_uint64(pointer), ctypes.c_size_t(array.nbytes))

    def wait(self) -> None:
        """Until all is done."""
        self.call("cuCtxSynchronize")


class Loaded:
    """A program on a card, with memory for its arena, its constants and its results."""

    def __init__(self, card: Any, program: CudaProgram, sizes: dict[str, int] | None = None) -> None:
        self.card, self.program, self.numbers = card, program, dict(sizes or {})
        self.module = card.load(program.ptx) if program.ptx else None
        self.functions = {name: card.function(self.module, name) for name in program.kernels}
        self.bases: dict[tuple[str, int], int] = {("context", 0): card.allocate(8 * CONTEXT_WORDS)}
        card.put(self.bases["context", 0], np.zeros(CONTEXT_WORDS, np.int64))
        self.bases["arena", 0] = card.allocate(self._number(program.arena))
        for i, constant in enumerate(program.constants):
            self.bases["constant", i] = card.allocate(constant.nbytes)
            card.put(self.bases["constant", i], constant)
        for i, array in enumerate(program.outputs):
            if i not in {out for _, out in program.handed_over}:
                self.bases["output", i] = card.allocate(self._number(array.size) * array.dtype.itemsize)
        self._rooms: dict[int, int] = {}
        self._calls: dict[int, Any] = {}

    def _number(self, extent: Any) -> int:
        return evaluate(extent, self.numbers)

    def address(self, place: Place) -> int:
        """Where a place is."""
        return self.bases[place.memory, place.number] + self._number(place.offset)

    def give(self, inputs: Sequence[int]) -> None:
        """Set the addresses of the inputs."""
        self.bases |= {("input", i): pointer for i, pointer in enumerate(inputs)}

    def run(self) -> None:
        """Do all steps; the host waits only where a step says so."""
        self._steps(self.program.steps)

    def failure(self) -> tuple[int, list[int]] | None:
        """The number of the failure that was noted and its values, if there was one."""
        words = np.zeros(CONTEXT_WORDS, np.int64)
        self.card.get(self.bases["context", 0], words)
        return (int(words[0]) - 1, words[1:5].tolist()) if words[0] else None

    def _steps(self, steps: Sequence[Any]) -> None:
        for step in steps:
            name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(step).__name__).lower()
            getattr(self, f"_{name}")(step)

    def _launch(self, step: cuda.Launch) -> None:
        # Arguments that do not change are kept, so that times are not those of Python alone.
        prepared = self._calls.get(id(step))
        if prepared is None:
            values = tuple(self._argument(a) for a in step.arguments)
            prepared = (self._number(step.grid), self.program.kernels[step.kernel], values)
            if not self.numbers:
                self._calls[id(step)] = prepared
        grid, kernel, values = prepared
        if grid:
            self.card.launch(self.functions[step.kernel], grid, kernel.threads, kernel.shared, values)

    def _argument(self, argument: Any) -> int:
        if isinstance(argument, Place):
            return self.address(argument)
        return self._number(argument) % 2**64

    def _copy_bytes(self, step: cuda.CopyBytes) -> None:
        count = self._number(step.count)
        if count:
            self.card.copy(self.address(step.target), self.address(step.source), count)

    def _host_call(self, step: cuda.HostCall) -> None:
        entry = self.program.hosts[step.number]
        names = dict(zip(map(str, entry.sizes), [self._number(s) for s in step.sizes], strict=True))
        inputs = [self._fetched(p, t, names) for p, t in zip(step.inputs, entry.inputs, strict=True)]
        outs = entry.op.eval(*inputs, **entry.attrs)
        outs = outs if isinstance(outs, tuple | list) else (outs,)
        for place, type_, out in zip(step.outputs, entry.outputs, outs, strict=True):
            self.card.put(self.address(place), np.asarray(out, type_.dtype))

    def _fetched(self, place: Place, type_: Any, names: dict[str, int]) -> Any:
        shape = tuple(evaluate(s, {**self.numbers, **names}) for s in type_.shape)
        array = np.empty(shape, type_.dtype)
        self.card.get(self.address(place), array)
        return array

    def _fetch(self, step: cuda.Fetch) -> None:
        array = np.empty(1, step.dtype)
        self.card.get(self.address(step.source), array)
        self.numbers[step.name] = int(array[0])

    def _set_number(self, step: cuda.SetNumber) -> None:
        self.numbers[step.name] = self._number(step.value)

    def _allocate(self, step: cuda.Allocate) -> None:
        count, held = self._number(step.count), self._rooms.get(step.number, 0)
        if count <= held and ("heap", step.number) in self.bases:
            return
        new = self.card.allocate(max(count, 2 * held))
        if held:
            self.card.copy(new, self.bases["heap", step.number], held)
        self.bases["heap", step.number], self._rooms[step.number] = new, max(count, 2 * held)

    def _free(self, step: cuda.Free) -> None:
        self._rooms.pop(step.number, None)

    def _check(self, step: cuda.Check) -> None:
        pass

    def _holds(self, place: Place) -> bool:
        array = np.empty(1, np.bool_)
        self.card.get(self.address(place), array)
        return bool(array[0])

    def _repeat(self, step: cuda.Repeat) -> None:
        for i in range(self._number(step.start), self._number(step.stop)):
            self.numbers[step.variable] = i
            self._steps(step.body)

    def _choose(self, step: cuda.Choose) -> None:
        self._steps(step.then if self._holds(step.condition) else step.otherwise)

    def _again(self, step: cuda.Again) -> None:
        self._steps(step.test)
        while self._holds(step.condition):
            self._steps(step.body)
            self._steps(step.test)


def run_on_card(card: Any, program: CudaProgram, arrays: Sequence[Any]) -> list[Any]:
    """The results of a program on arrays."""
    loaded, pointers = Loaded(card, program), []
    for array in arrays:
        pointers.append(card.allocate(array.nbytes))
        card.put(pointers[-1], array)
    loaded.give(pointers)
    loaded.run()
    card.wait()
    failure = loaded.failure()
    assert failure is None, f"failure {failure}"
    results = []
    for i, out in enumerate(program.outputs):
        shape = tuple(evaluate(s, loaded.numbers) for s in out.shape)
        results.append(np.empty(shape, out.dtype))
        heap = {o: h for h, o in program.handed_over}
        base = loaded.bases["heap", heap[i]] if i in heap else loaded.bases["output", i]
        card.get(base, results[-1])
    for pointer in (*pointers, *set(loaded.bases.values()) - set(pointers)):
        card.free(pointer)
    if loaded.module is not None:
        card.unload(loaded.module)
    return results

"""Programs with control flow, walked through by the host, which waits where it must look at values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.backends.cuda import program as steps
from weft.backends.cuda.array import DeviceArray, Host
from weft.backends.cuda.launches import Launch
from weft.backends.cuda.libraries import call_of, commit_of
from weft.backends.cuda.memory import Block
from weft.backends.cuda.nccl import COMMIT
from weft.backends.cuda.products import Product
from weft.backends.cuda.program import COMMITTED, CONTEXT_WORDS, Place, evaluate
from weft.backends.cuda.streams import Stream
from weft.backends.cuda.users import kernel_of, prepare_users
from weft.base.dtypes import DType, bool_
from weft.base.shapes import size_of
from weft.base.sizes import bind
from weft.errors import WeftError
from weft.ir.interpret import placed
from weft.ops.effects import copied_from

if TYPE_CHECKING:
    from weft.backends.cuda.execute import CudaExecutable


class Walk:
    """One call of a program.

    Attributes:
        numbers: values of named sizes and variables, as far as they are known.
        heap: pieces of memory whose size the run tells.
        rooms: by id of a step, where in the arena a library works; others get memory of their own.
    """

    def __init__(
        self,
        executable: CudaExecutable,
        numbers: Mapping[str, int],
        inputs: Sequence[DeviceArray],
        outputs: list[DeviceArray | None],
        stream: Stream,
        rooms: Mapping[int, int] = {},
    ) -> None:
        self.rooms = rooms
        self.executable, self.program, self.card = executable, executable.program, executable.card
        self._commits = commit_of(self.program.steps) is not None  # until it has
        self.numbers = dict(numbers)
        self.inputs, self.outputs, self.stream = inputs, outputs, stream
        self.heap: dict[int, Block] = {}
        self.arena = self.card.pool.take(evaluate(self.program.arena, numbers), stream)
        self.context = self.card.pool.take(8 * CONTEXT_WORDS, stream)
        self.card.driver.cuMemsetD8Async(self.context.pointer, 0, 8 * CONTEXT_WORDS, stream.handle)
        for array in executable.constants:
            array.block.read_on(stream)

    def run(self, listed: Sequence[Any]) -> None:
        """Do steps in their order."""
        for step in listed:
            _STEPS[type(step)](self, step)

    def results(self) -> list[DeviceArray]:
        """The results, also those whose size the run has told."""
        for piece, number in self.program.handed_over:
            kind = self.program.outputs[number]
            shape = tuple(bind(tuple(kind.shape), self.numbers))
            block = self.heap.get(piece)
            if block is None and size_of(shape) == 0:  # no turn of a loop asked for memory
                block = self.card.pool.take(1, self.stream)
            assert block is not None, "a result that has elements has memory"
            self.outputs[number] = DeviceArray(self.card, block, block.pointer, shape, kind.dtype)
        return [out for out in self.outputs if out is not None]

    def context_words(self) -> list[int]:
        """What kernels have noted of failures, when all before is done."""
        if not self.executable.fails:
            return [0]
        words: list[int] = self._read(self.context.pointer, np.dtype(np.int64), (CONTEXT_WORDS,)).tolist()
        return words

    # Places and numbers

    def number(self, extent: Any) -> int:
        """The value of an expression."""
        return evaluate(extent, self.numbers)

    def address(self, place: Place) -> int:
        """Where a place is."""
        memory: Any = {
            "input": self.inputs,
            "output": self.outputs,
            "constant": self.executable.constants,
            "heap": self.heap,
            "arena": (self.arena,),
            "context": (self.context,),
        }[place.memory]
        return int(memory[place.number].pointer) + self.number(place.offset)

    def _read(self, address: int, dtype: DType, shape: tuple[int, ...]) -> Host:
        if self.stream.capture is not None:
            self.stream.capture.refuse("a look at values by control flow", "capture what has none")
        out: Host = np.empty(shape, dtype)
        if out.size:
            self.card.driver.cuMemcpyDtoHAsync(out.ctypes.data, address, out.nbytes, self.stream.handle)
        self.stream.synchronize()
        return out

    def _write(self, address: int, array: Host) -> None:
        if array.size:
            whole = np.ascontiguousarray(array)
            self.card.driver.cuMemcpyHtoDAsync(address, whole.ctypes.data, whole.nbytes, self.stream.handle)
            self.stream.synchronize()

    # Steps

    def _launch(self, step: steps.Launch) -> None:
        grid = self.number(step.grid)
        if not grid:
            return
        kernel = self.program.kernels[step.kernel]
        assert self.executable.module is not None
        launch = Launch(self.executable.module.function(kernel.name), len(step.arguments))
        launch.set(*[self.address(a) if isinstance(a, Place) else self.number(a) for a in step.arguments])
        launch.run((grid, 1, 1), (kernel.threads, 1, 1), kernel.shared, self.stream)

    def _copy(self, step: steps.CopyBytes) -> None:
        if count := self.number(step.count):
            target, source = self.address(step.target), self.address(step.source)
            self.card.driver.cuMemcpyDtoDAsync(target, source, count, self.stream.handle)

    def _fill(self, step: steps.FillBytes) -> None:
        if count := self.number(step.count):
            self.card.driver.cuMemsetD8Async(self.address(step.target), step.value, count, self.stream.handle)

    def _multiply(self, step: steps.MatrixProduct) -> None:
        m, n, k, batch = map(self.number, (step.m, step.n, step.k, step.batch))
        if 0 in (m, n, batch):
            return
        if k:
            c, a, b = map(self.address, (step.c, step.a, step.b))
            bias = 0 if step.bias is None else self.address(step.bias)
            product = Product.of(self.card, step, self.numbers)
            workspace = self.card.pool.take(product.workspace, self.stream)
            product.run(c, a, b, workspace.pointer, self.stream, bias)
        elif not step.add:
            self._fill(steps.FillBytes(step.c, 0, m * n * batch * step.result_bytes))

    def _call_host(self, step: steps.HostCall) -> None:
        if kernel_of(self.program, step) is not None:
            self._launch_users(step)
            return
        entry = self.program.hosts[step.number]
        sizes = {str(n): self.number(s) for n, s in zip(entry.sizes, step.sizes, strict=True)}
        arrays = [
            self._read(self.address(place), kind.dtype, bind(tuple(kind.shape), sizes))
            for place, kind in zip(step.inputs, entry.inputs, strict=True)
        ]
        attrs = {name: bind(value, sizes) for name, value in entry.attrs.items()}
        try:
            with np.errstate(all="ignore"), copied_from(self.card.device):
                result = entry.op.eval(*arrays, **attrs)
        except WeftError as error:
            raise placed(error, entry.node) from None
        results = (result,) if entry.op.outputs == 1 else result
        for place, kind, array in zip(step.outputs, entry.outputs, results, strict=True):
            self._write(self.address(place), np.asarray(array, kind.dtype))

    def _call_library(self, step: steps.LibraryCall) -> None:
        call = call_of(self.card, step, self.numbers)
        if step.name == COMMIT:
            self._commits = False
            words = [self.context.pointer, self.context.pointer + 8 * COMMITTED]
            call.run(words, 0, self.stream)
            return
        room = self.rooms.get(id(step))
        block = self.card.pool.take(call.workspace, self.stream) if room is None else self.arena
        pointers = [self.address(p) for p in (*step.inputs, *step.outputs)]
        call.run(pointers, block.pointer + (room or 0), self.stream)

    def _launch_users(self, step: steps.HostCall) -> None:
        prepared = prepare_users(self.card, self.program, step, self.number)
        if prepared is None:
            return
        places = (*step.inputs, *step.outputs)
        for word, number in prepared.pointers:
            prepared.launch.words[word] = self.address(places[number])
        prepared.launch.run(prepared.grid, prepared.block, prepared.shared, self.stream)

    def _fetch(self, step: steps.Fetch) -> None:
        self.numbers[step.name] = int(self._read(self.address(step.source), step.dtype, ())[()])

    def _set(self, step: steps.SetNumber) -> None:
        self.numbers[step.name] = self.number(step.value)

    def _allocate(self, step: steps.Allocate) -> None:
        """Have memory for a piece of the heap, with what it held before."""
        count, old = max(self.number(step.count), 1), self.heap.get(step.number)
        if old is not None and old.size >= count:
            return
        self.heap[step.number] = new = self.card.pool.take(count, self.stream)
        if old is not None:
            self.card.driver.cuMemcpyDtoDAsync(new.pointer, old.pointer, old.size, self.stream.handle)

    def _free(self, step: steps.Free) -> None:
        self.heap.pop(step.number, None)

    def _check(self, step: steps.Check) -> None:
        # Where other ranks wait for this one, a failure is told after what they wait for.
        if step.must and not self._commits and (step.stop is None or not self.executable.meets):
            self.executable.raise_failure(self.context_words())

    def _repeat(self, step: steps.Repeat) -> None:
        for value in range(self.number(step.start), self.number(step.stop)):
            self.numbers[step.variable] = value
            self.run(step.body)

    def _holds(self, condition: Place) -> bool:
        return bool(self._read(self.address(condition), bool_, ())[()])

    def _choose(self, step: steps.Choose) -> None:
        self.run(step.then if self._holds(step.condition) else step.otherwise)

    def _again(self, step: steps.Again) -> None:
        self.run(step.test)
        while self._holds(step.condition):
            self.run(step.body)
            self.run(step.test)


_STEPS: dict[type, Callable[[Walk, Any], None]] = {
    steps.Launch: Walk._launch,
    steps.CopyBytes: Walk._copy,
    steps.FillBytes: Walk._fill,
    steps.MatrixProduct: Walk._multiply,
    steps.HostCall: Walk._call_host,
    steps.LibraryCall: Walk._call_library,
    steps.Fetch: Walk._fetch,
    steps.SetNumber: Walk._set,
    steps.Allocate: Walk._allocate,
    steps.Free: Walk._free,
    steps.Check: Walk._check,
    steps.Repeat: Walk._repeat,
    steps.Choose: Walk._choose,
    steps.Again: Walk._again,
}

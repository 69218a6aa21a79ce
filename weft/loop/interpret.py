"""The reference interpreter of Loop IR: slow and obvious, one scalar at a time, every access checked.

The blocks of a launch run in any order, and so do the threads of a block from one barrier to the next: two of
them that reach one element in no order, one of them writing, are an error. Vector loops run in order.
float16 and bfloat16 are computed in float32; they are rounded when stored, and as operand or result of cast
and bitcast. Memory that nothing was written to holds rubbish, and buffers of the arena lie in one piece of
memory as the program says, so a wrong plan gives wrong results.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import DType, bfloat16, float16, float32, int64, uint8
from weft.base.sizes import bind
from weft.errors import ArgumentError, BoundsError, GraphError, WeftError
from weft.ir.types import TensorType
from weft.loop import ir
from weft.loop.dots import DOTS, add_products
from weft.loop.grid import Access, Races, Threads
from weft.loop.index import Index, Variable
from weft.loop.ir import Block, Buffer, Function, Place, Program, Statement, Value
from weft.loop.text import statement_lines
from weft.ops.scalar import NUMPY

Array = np.ndarray[Any, Any]
_RUBBISH = 0xA5


class FailureError(RuntimeError):
    """A run noted a failure.

    Attributes:
        number: into the program's table of failures.
        values: ints, for the text of the error.

    >>> from weft.loop.interpret import FailureError
    >>> FailureError(2, (7,)).number
    2
    """

    def __init__(self, number: int, values: tuple[int, ...]) -> None:
        super().__init__(f"failure {number} with values {values}")
        self.number = number
        self.values = values


def run_function(
    function: Function, arrays: Sequence[Array], sizes: Mapping[str, int] | None = None, *, seed: int = 0
) -> None:
    """Run a function on flat arrays, one for each parameter; they are written in place.

    The seed decides about the order of blocks and threads.

    >>> import weft, numpy as np
    >>> from weft.loop.builder import Builder
    >>> from weft.loop.interpret import run_function
    >>> b = Builder()
    >>> x, y = b.buffer("x", np.dtype("f4"), 3), b.buffer("y", np.dtype("f4"), 3)
    >>> with b.vector(3) as i:
    ...     b.store(y, i, b.mul(b.load(x, i), 2.0))
    >>> out = np.zeros(3, "f4")
    >>> run_function(b.function("f", written=[y]), [np.arange(3, dtype="f4"), out])
    >>> out
    array([0., 2., 4.], dtype=float32)
    """
    sizes = dict(sizes or {})
    if len(arrays) != len(function.buffers):
        raise ArgumentError("interpret", f"arrays must be {len(function.buffers)}, got {len(arrays)}")
    memory = dict(zip(function.buffers, arrays, strict=True))
    for buffer, array in memory.items():
        _check_array(buffer, array, sizes)
    run = Run((), seed)
    with np.errstate(all="ignore"):
        Frame(function, memory, sizes, run).run()
    run.raise_failure()


def run_program(
    program: Program, inputs: Sequence[Array], *, sizes: Mapping[str, int] | None = None, seed: int = 0
) -> list[Array]:
    """Run a program on arrays; gives the outputs, flat.

    An output that a donated input may become shares its memory; the arrays given are not changed. The seed
    decides about the order of blocks and threads.

    >>> import numpy as np
    >>> from weft.loop.ir import Block, Buffer, Copy, Function, Index, Program
    >>> from weft.loop.interpret import run_program
    >>> x, y = Buffer("x", np.dtype("f4"), 2), Buffer("y", np.dtype("f4"), 2)
    >>> copy = Copy(y, Index.of(0), x, Index.of(0), Index.of(2))
    >>> main = Function("main", (x, y), (), Block([copy]), frozenset({y}))
    >>> run_program(Program(main, 1, 1, (), {}, 0, (), (), ()), [np.ones(2, "f4")])
    [array([1., 1.], dtype=float32)]
    """
    sizes = dict(sizes or {})
    if len(inputs) != program.inputs:
        raise ArgumentError("interpret", f"inputs must be {program.inputs}, got {len(inputs)}")
    memory = _memory(program, inputs, sizes)
    run = Run(program.hosts, seed)
    with np.errstate(all="ignore"):
        Frame(program.main, memory, sizes, run).run()
    run.raise_failure()
    return [memory[b] for b in program.main.buffers[program.inputs : program.inputs + program.outputs]]


def _memory(program: Program, inputs: Sequence[Array], sizes: Mapping[str, int]) -> dict[Buffer, Array]:
    """The buffers of a program; those of the heap come later."""
    buffers, split = program.main.buffers, program.inputs + program.outputs
    memory = {b: np.array(x).ravel() for b, x in zip(buffers, inputs, strict=False)}
    memory |= {b: np.array(x).ravel() for b, x in zip(buffers[split:], program.constants, strict=True)}
    for buffer, array in memory.items():
        _check_array(buffer, array, sizes)
    for source, target in program.donated:
        memory[buffers[program.inputs + target]] = memory[buffers[source]]
    for b in buffers[program.inputs : split]:
        if b not in memory and b not in program.heap:
            memory[b] = _rubbish(bind(b.size, sizes), b.dtype)
    arena = _rubbish(bind(program.arena_size, sizes), uint8)
    for b, at in program.arena.items():
        begin, length = bind(at, sizes), bind(b.size, sizes) * b.dtype.itemsize
        if begin < 0 or begin + length > arena.size:
            message = f"{b!r} must be inside the arena of {arena.size} bytes, got {begin}"
            raise BoundsError("interpret", message)
        memory[b] = arena[begin : begin + length].view(b.dtype)
    return memory


def _check_array(buffer: Buffer, array: Array, sizes: Mapping[str, int]) -> None:
    size = bind(buffer.size, sizes)
    if array.dtype != buffer.dtype or array.shape != (size,):
        got = TensorType(array.shape, array.dtype)
        raise ArgumentError("interpret", f"{buffer!r} must be given {size} elements of its dtype, got {got}")


def _rubbish(size: int, dtype: DType) -> Array:
    return np.full(size * dtype.itemsize, _RUBBISH, uint8).view(dtype)


def _register(dtype: DType) -> DType:
    """The dtype that a scalar is computed in."""
    return float32 if dtype in (float16, bfloat16) else dtype


class Run:
    """What all functions of a run share: the table of host calls, the first failure, and chance."""

    def __init__(self, hosts: Sequence[Any], seed: int) -> None:
        self.hosts = hosts
        self.random = np.random.default_rng(seed)
        self.failure: FailureError | None = None

    def raise_failure(self) -> None:
        """Raise the failure that was noted, if any."""
        if self.failure is not None:
            raise self.failure


class Frame:
    """One call of a function, or one block or thread of it.

    Attributes:
        values: of scalars and locals, in registers, and of variables, as ints.
        races: who reached what, in a launch.
        block_number, thread, barriers: which block and thread it is, and how many barriers it has passed.
    """

    def __init__(
        self, function: Function, memory: dict[Buffer, Array], sizes: dict[str, int], run: Run
    ) -> None:
        self.function = function
        self.memory = memory
        self.sizes = sizes
        self.program_run = run
        self.values: dict[Any, Any] = {}
        self.statement: Statement | None = None
        self.races: Races | None = Races() if _is_launched(function) else None
        self.block_number, self.thread, self.barriers = -1, 0, 0
        self._lay_out_scratch("global", "private")

    def _lay_out_scratch(self, *spaces: str) -> None:
        for b in self.function.scratch:
            if b.space in spaces:
                assert isinstance(b.size, int)
                self.memory[b] = _rubbish(b.size, b.dtype)

    def child(self, variable: Variable, value: int, *, block: int, thread: int = 0) -> Frame:
        """A block or a thread, where a variable has a value; it goes on with a copy of what is private."""
        made = copy.copy(self)
        made.block_number, made.thread = block, thread
        made.values, made.memory = {**self.values, variable: value}, dict(self.memory)
        for b in self.function.scratch:
            if b.space == "private":
                made.memory[b] = self.memory[b].copy()
        return made

    def run(self) -> None:
        """Do what the function does."""
        self.block(self.function.body)

    def block(self, block: Block) -> None:
        """Statements in order."""
        self.statements(block.statements)

    def statements(self, statements: Iterable[Statement]) -> None:
        """Statements in order."""
        for s in statements:
            self.statement = s
            _RUN[type(s)](self, s)

    # Operands

    def value(self, x: Value) -> Any:
        """An operand, as an array without axes."""
        if isinstance(x, Index):
            return np.asarray((self.index(x) + 2**63) % 2**64 - 2**63, int64)
        if isinstance(x, ir.Const):
            return np.asarray(x.value, x.dtype).astype(_register(x.dtype))
        return self.values[x]

    def index(self, index: Index) -> int:
        """The number that an index is."""
        total = bind(index.offset, self.sizes)
        for v, stride in index.terms.items():
            value = self.values[v] if v.value is None else int(self.value(v.value))
            total += value * bind(stride, self.sizes)
        return int(total)

    def part(self, buffer: Buffer, start: int, count: int, *, write: bool | None = None) -> Array:
        """Elements of a buffer, which must be there; they are read or written, unless that is left open."""
        array = self.memory.get(buffer)
        if array is None:
            raise self.error(f"{buffer!r} must have memory, got none")
        if count and (start < 0 or start + count > array.size):
            told = f"{buffer.name} has {array.size} elements"
            raise self.error(f"indices must be inside, {told}, got {start} to {start + count - 1}")
        if write is not None:
            self.note(buffer, range(start, start + count), write)
        return array[start : start + count]

    def note(self, buffer: Buffer, places: Iterable[int], write: bool) -> None:
        """Note accesses to elements; another thread's to the same one, in no order with it, is an error."""
        if self.races is None or buffer.space == "private":
            return
        assert self.statement is not None
        access = Access(self.block_number, self.thread, self.barriers, self.statement)
        array = self.memory[buffer]
        owner = self.block_number if buffer.space == "shared" else -1  # another block's may have the address
        base, step = array.ctypes.data, array.strides[0]  # and two buffers may be one memory
        for place in places:
            other = self.races.add((owner, base + place * step), access, write=write)
            if other is not None:
                raise self.race(f"{buffer.name}[{place}]", other)

    def race(self, element: str, other: Access) -> WeftError:
        """An error that names two statements."""
        line = statement_lines(self.function)[other.statement]
        told = f"{element} must not be reached by two threads without a barrier between them"
        where = f"block {self.block_number} thread {self.thread}"
        whose = f"block {other.block} thread {other.thread}" if other.block >= 0 else "all threads"
        return self.error(f"{told}, got {where} here and {whose} in `{line}`", GraphError)

    def error(self, message: str, kind: type[WeftError] = BoundsError) -> WeftError:
        """An error that names the statement."""
        assert self.statement is not None
        line = statement_lines(self.function)[self.statement]
        return kind("interpret", f"{self.function.name}: `{line}`: {message}")

    def holds(self, mask: Value | None) -> bool:
        """Whether a condition, if there is one, holds."""
        return mask is None or bool(self.value(mask))

    # Scalars and memory

    def _scalar(self, s: ir.Scalar) -> None:
        args = [self.value(x) for x in s.args]
        if s.instruction in DOTS:
            out = add_products(s.instruction, *args)
        elif s.instruction in ("cast", "bitcast"):
            out = getattr(NUMPY, s.instruction)(args[0].astype(s.args[0].dtype), s.dtype)
        else:
            out = getattr(NUMPY, s.instruction)(*args)
        self.values[s] = np.asarray(out, _register(s.dtype))

    def _load(self, s: ir.Load) -> None:
        register = _register(s.dtype)
        if self.holds(s.mask):
            self.values[s] = self.part(s.buffer, self.index(s.index), 1, write=False)[0].astype(register)
        else:
            self.values[s] = np.zeros((), register)

    def _store(self, s: ir.Store) -> None:
        if self.holds(s.mask):
            element = self.part(s.buffer, self.index(s.index), 1, write=True)
            element[0] = self.value(s.value).astype(s.buffer.dtype)

    def _measure(self, s: ir.Measure) -> None:
        self.values[s] = np.asarray(bind(s.size, self.sizes), int64)

    def _copy(self, s: ir.Copy) -> None:
        count = max(self.index(s.count), 0)
        source = self.part(s.source, self.index(s.source_index), count, write=False)
        target = self.part(s.target, self.index(s.target_index), count, write=True)
        if np.shares_memory(source, target):
            raise self.error("the places must not overlap")
        target[:] = source

    def _matmul(self, s: ir.Matmul) -> None:
        if s.batch is None:
            self.product(s, (s.a, s.b, s.c))
            return
        for i in range(self.index(s.batch)):
            matrices = zip((s.a, s.b, s.c), s.strides, strict=True)
            a, b, c = ((buffer, at + stride * i) for (buffer, at), stride in matrices)
            self.product(s, (a, b, c))

    def product(self, s: ir.Matmul, at: tuple[Place, Place, Place]) -> None:
        """One product of matrices that begin at places; half precision is summed in single."""
        m, n, k = (self.index(x) for x in (s.m, s.n, s.k))
        rows = [self.index(x) for x in s.rows]
        a, a_places = self.matrix(at[0], m, k, rows[0], s.transposed[0])
        b, b_places = self.matrix(at[1], k, n, rows[1], s.transposed[1])
        c, places = self.matrix(at[2], m, n, rows[2], False, write=True)
        summed = np.promote_types(c.dtype, np.float32) if c.dtype.itemsize == 2 else c.dtype
        product = a[a_places].astype(summed) @ b[b_places].astype(summed)
        product = c[places] + product if s.add else product
        if s.bias is not None:
            product = product + self.part(s.bias[0], self.index(s.bias[1]), n).astype(summed)
        c[places] = product if s.epilogue is None else self.epilogue(s.epilogue, product)

    def epilogue(self, epilogue: ir.Epilogue, product: Array) -> Array:
        """What an epilogue makes of each element of a product."""
        out = np.empty_like(product)
        for row, column in np.ndindex(*product.shape):
            self.values |= {epilogue.row: row, epilogue.column: column}
            self.values[epilogue.element] = product[row, column]
            self.block(epilogue.body)
            out[row, column] = self.values[epilogue.element]
        return out

    def matrix(
        self, place: Place, m: int, n: int, rows: int, transposed: bool, *, write: bool = False
    ) -> tuple[Array, Array]:
        """The array that a matrix lies in, and the places of its elements there."""
        i, j = np.arange(m)[:, None], np.arange(n)[None, :]
        places = self.index(place[1]) + (rows * j + i if transposed else rows * i + j)
        if places.size:
            self.part(place[0], int(places.min()), 1)
            self.part(place[0], int(places.max()), 1)
            self.note(place[0], places.ravel().tolist(), write)
        return self.memory[place[0]], places

    # Locals

    def _declare(self, s: ir.Declare | ir.Set) -> None:
        self.values[s.local] = self.value(s.value)

    _set = _declare

    def _get(self, s: ir.Get) -> None:
        self.values[s] = self.values[s.local]

    def _accumulate(self, s: ir.Accumulate) -> None:
        out = getattr(NUMPY, s.instruction)(self.values[s.local], self.value(s.value))
        self.values[s.local] = np.asarray(out, _register(s.local.dtype))

    # Structure

    def _loop(self, s: ir.Loop) -> None:
        iterations = range(self.index(s.start), self.index(s.stop))
        if s.kind == "parallel":
            self._grid(s, iterations)
        elif s.kind == "threads":
            Threads(self, s.variable, iterations).run(s.body)
        else:
            for i in iterations:
                self.values[s.variable] = i
                self.block(s.body)

    def _grid(self, s: ir.Loop, iterations: range) -> None:
        for i in self.program_run.random.permutation(iterations).tolist():
            block = self.child(s.variable, i, block=i)
            block._lay_out_scratch("shared")
            block.block(s.body)

    def _if(self, s: ir.If) -> None:
        self.block(s.then if self.holds(s.condition) else s.otherwise)

    def _while(self, s: ir.While) -> None:
        self.block(s.test)
        while self.holds(s.condition):
            self.block(s.body)
            self.block(s.test)

    # Failures, launches, hosts, sizes

    def _fail(self, s: ir.Fail) -> None:
        if self.program_run.failure is None and self.holds(s.condition):
            values = tuple(int(self.value(x)) for x in s.values)
            self.program_run.failure = FailureError(s.number, values)

    def _leave(self, s: ir.Leave) -> None:
        self.program_run.raise_failure()

    def _launch(self, s: ir.Launch) -> None:
        f = s.function
        sizes = {name: self.sizes[name] for name in f.sizes if name in self.sizes} | dict(s.numbers)
        memory = {
            parameter: self.part(buffer, self.index(at), bind(parameter.size, sizes))
            for parameter, (buffer, at) in zip(f.buffers, s.buffers, strict=True)
        }
        Frame(f, memory, sizes, self.program_run).run()

    def _wave(self, s: ir.Wave) -> None:
        for i in self.program_run.random.permutation(len(s.launches)).tolist():
            self._launch(s.launches[i])

    def _host(self, s: ir.Host) -> None:
        entry = self.program_run.hosts[s.number]
        named = zip(map(str, entry.sizes), s.sizes, strict=True)
        sizes = {name: int(self.value(x)) for name, x in named}
        places = zip(s.inputs, entry.inputs, s.strides or [None] * len(s.inputs), strict=True)
        inputs = [self.strided(place, type, sizes, strides) for place, type, strides in places]
        results = entry.op.eval(*inputs, **{name: bind(x, sizes) for name, x in entry.attrs.items()})
        results = (results,) if entry.op.outputs == 1 else results
        for result, place, type in zip(results, s.outputs, entry.outputs, strict=True):
            self.shaped(place, type, sizes)[...] = result

    def shaped(self, place: Place, type: TensorType, sizes: Mapping[str, int]) -> Array:
        """The array of a type that begins somewhere in a buffer."""
        shape = bind(tuple(type.shape), sizes)
        count = int(np.prod(shape, dtype=object))
        return self.part(place[0], self.index(place[1]), count).reshape(shape)

    def strided(
        self, place: Place, type: TensorType, sizes: Mapping[str, int], strides: Sequence[Index] | None
    ) -> Array:
        """A copy of the array of a type whose elements are so far apart; None for one after another."""
        if strides is None:
            return self.shaped(place, type, sizes).copy()
        shape = bind(tuple(type.shape), sizes)
        apart = [self.index(x) for x in strides]
        places = np.full(shape, self.index(place[1]), np.int64)
        for axis, (size, stride) in enumerate(zip(shape, apart, strict=True)):
            places += np.arange(size).reshape([-1 if a == axis else 1 for a in range(len(shape))]) * stride
        if places.size:
            self.part(place[0], int(places.min()), 1)
            self.part(place[0], int(places.max()), 1)
        return self.memory[place[0]][places]

    def _allocate(self, s: ir.Allocate) -> None:
        new = _rubbish(self.index(s.count), s.buffer.dtype)
        old = self.memory.get(s.buffer, new[:0])
        kept = min(old.size, new.size)
        new[:kept] = old[:kept]
        self.memory[s.buffer] = new

    def _free(self, s: ir.Free) -> None:
        self.part(s.buffer, 0, 0)
        del self.memory[s.buffer]

    def _bind(self, s: ir.Bind) -> None:
        self.sizes[s.name] = int(self.value(s.value))


def _is_launched(function: Function) -> bool:
    """Whether a function ends in a parallel loop."""
    last = function.body.statements[-1] if function.body.statements else None
    return isinstance(last, ir.Loop) and last.kind == "parallel"


# Each class of statements has the method of its name; barriers are met by ``Threads``.
_RUN: dict[type, Callable[[Frame, Any], None]] = {
    kind: getattr(Frame, f"_{kind.__name__.lower()}") for kind in ir.STATEMENTS if kind is not ir.Barrier
}

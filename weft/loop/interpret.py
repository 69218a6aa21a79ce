"""The reference interpreter of Loop IR: slow and obvious, one scalar at a time, every access checked.

Vector and parallel loops run in order. float16 and bfloat16 are computed in float32; they are rounded when
stored, and as operand or result of cast and bitcast. Memory that nothing was written to holds rubbish, and
buffers of the arena lie in one piece of memory as the program says, so a wrong plan gives wrong results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import DType, bfloat16, float16, float32, int64, uint8
from weft.base.sizes import bind
from weft.errors import ArgumentError, BoundsError
from weft.ir.types import TensorType
from weft.loop import ir
from weft.loop.index import Index
from weft.loop.ir import Block, Buffer, Function, Program, Statement, Value
from weft.loop.text import statement_lines
from weft.ops.scalar import NUMPY

Array = np.ndarray[Any, Any]
Place = tuple[Buffer, Index]
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


def run_function(function: Function, arrays: Sequence[Array], sizes: Mapping[str, int] | None = None) -> None:
    """Run a function on flat arrays, one for each parameter; they are written in place.

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
    run = _Run(())
    with np.errstate(all="ignore"):
        _Frame(function, memory, sizes, run).run()
    run.raise_failure()


def run_program(
    program: Program, inputs: Sequence[Array], *, sizes: Mapping[str, int] | None = None
) -> list[Array]:
    """Run a program on arrays; gives the outputs, flat.

    An output that a donated input may become shares its memory; the arrays given are not changed.

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
    run = _Run(program.hosts)
    with np.errstate(all="ignore"):
        _Frame(program.main, memory, sizes, run).run()
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
            raise BoundsError(
                "interpret", f"{b!r} must be inside the arena of {arena.size} bytes, got {begin}"
            )
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


class _Run:
    """What all functions of a run share: the table of host calls, and the first failure."""

    def __init__(self, hosts: Sequence[Any]) -> None:
        self.hosts = hosts
        self.failure: FailureError | None = None

    def raise_failure(self) -> None:
        """Raise the failure that was noted, if any."""
        if self.failure is not None:
            raise self.failure


class _Frame:
    """One call of a function."""

    def __init__(
        self, function: Function, memory: dict[Buffer, Array], sizes: dict[str, int], run: _Run
    ) -> None:
        self.function = function
        self.memory = memory
        self.sizes = sizes
        self.shared = run
        self.values: dict[Any, Any] = {}  # of scalars and locals, in registers, and of variables, as ints
        self.statement: Statement | None = None
        for b in function.scratch:
            memory[b] = _rubbish(b.size, b.dtype)

    def run(self) -> None:
        """Do what the function does."""
        self.block(self.function.body)

    def block(self, block: Block) -> None:
        """Statements in order."""
        for s in block.statements:
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

    def part(self, buffer: Buffer, start: int, count: int) -> Array:
        """Elements of a buffer, which must be there."""
        array = self.memory.get(buffer)
        if array is None:
            raise self.error(f"{buffer!r} must have memory, got none")
        if count and (start < 0 or start + count > array.size):
            told = f"{buffer.name} has {array.size} elements"
            raise self.error(f"indices must be inside, {told}, got {start} to {start + count - 1}")
        return array[start : start + count]

    def error(self, message: str) -> BoundsError:
        """An error that names the statement."""
        assert self.statement is not None
        line = statement_lines(self.function)[self.statement]
        return BoundsError("interpret", f"{self.function.name}: `{line}`: {message}")

    def holds(self, mask: Value | None) -> bool:
        """Whether a condition, if there is one, holds."""
        return mask is None or bool(self.value(mask))

    # Scalars and memory

    def _scalar(self, s: ir.Scalar) -> None:
        args = [self.value(x) for x in s.args]
        code = getattr(NUMPY, s.instruction)
        if s.instruction in ("cast", "bitcast"):
            out = code(args[0].astype(s.args[0].dtype), s.dtype)
        else:
            out = code(*args)
        self.values[s] = np.asarray(out, _register(s.dtype))

    def _load(self, s: ir.Load) -> None:
        register = _register(s.dtype)
        if self.holds(s.mask):
            self.values[s] = self.part(s.buffer, self.index(s.index), 1)[0].astype(register)
        else:
            self.values[s] = np.zeros((), register)

    def _store(self, s: ir.Store) -> None:
        if self.holds(s.mask):
            self.part(s.buffer, self.index(s.index), 1)[0] = self.value(s.value).astype(s.buffer.dtype)

    def _measure(self, s: ir.Measure) -> None:
        self.values[s] = np.asarray(bind(s.size, self.sizes), int64)

    def _copy(self, s: ir.Copy) -> None:
        count = max(self.index(s.count), 0)
        source = self.part(s.source, self.index(s.source_index), count)
        target = self.part(s.target, self.index(s.target_index), count)
        if np.shares_memory(source, target):
            raise self.error("the places must not overlap")
        target[:] = source

    def _matmul(self, s: ir.Matmul) -> None:
        m, n, k = (self.index(x) for x in (s.m, s.n, s.k))
        rows = [self.index(x) for x in s.rows]
        a = self.matrix(s.a, m, k, rows[0], s.transposed[0])
        b = self.matrix(s.b, k, n, rows[1], s.transposed[1])
        c = self.matrix(s.c, m, n, rows[2], False)
        product = a.array[a.places] @ b.array[b.places]
        c.array[c.places] = c.array[c.places] + product if s.add else product

    def matrix(self, place: Place, m: int, n: int, rows: int, transposed: bool) -> _Matrix:
        """A matrix in a buffer."""
        i, j = np.arange(m)[:, None], np.arange(n)[None, :]
        places = self.index(place[1]) + (rows * j + i if transposed else rows * i + j)
        if places.size:
            self.part(place[0], int(places.min()), 1)
            self.part(place[0], int(places.max()), 1)
        return _Matrix(self.memory[place[0]], places)

    # Locals

    def _declare(self, s: ir.Declare | ir.Set) -> None:
        self.values[s.local] = self.value(s.value)

    def _get(self, s: ir.Get) -> None:
        self.values[s] = self.values[s.local]

    def _accumulate(self, s: ir.Accumulate) -> None:
        out = getattr(NUMPY, s.instruction)(self.values[s.local], self.value(s.value))
        self.values[s.local] = np.asarray(out, _register(s.local.dtype))

    # Structure

    def _loop(self, s: ir.Loop) -> None:
        for i in range(self.index(s.start), self.index(s.stop)):
            self.values[s.variable] = i
            self.block(s.body)

    def _if(self, s: ir.If) -> None:
        self.block(s.then if self.holds(s.condition) else s.otherwise)

    def _while(self, s: ir.While) -> None:
        self.block(s.test)
        while self.holds(s.condition):
            self.block(s.body)
            self.block(s.test)

    # Failures, launches, hosts, sizes

    def _fail(self, s: ir.Fail) -> None:
        if self.shared.failure is None and self.holds(s.condition):
            values = tuple(int(self.value(x)) for x in s.values)
            self.shared.failure = FailureError(s.number, values)

    def _leave(self, s: ir.Leave) -> None:
        self.shared.raise_failure()

    def _launch(self, s: ir.Launch) -> None:
        f = s.function
        sizes = {name: self.sizes[name] for name in f.sizes}
        memory = {
            parameter: self.part(buffer, self.index(at), bind(parameter.size, sizes))
            for parameter, (buffer, at) in zip(f.buffers, s.buffers, strict=True)
        }
        _Frame(f, memory, sizes, self.shared).run()

    def _wave(self, s: ir.Wave) -> None:
        for launch in s.launches:
            self._launch(launch)

    def _host(self, s: ir.Host) -> None:
        entry = self.shared.hosts[s.number]
        named = zip(map(str, entry.sizes), s.sizes, strict=True)
        sizes = {name: int(self.value(x)) for name, x in named}
        inputs = [self.shaped(*pair, sizes).copy() for pair in zip(s.inputs, entry.inputs, strict=True)]
        results = entry.op.eval(*inputs, **{name: bind(x, sizes) for name, x in entry.attrs.items()})
        results = (results,) if entry.op.outputs == 1 else results
        for result, place, type in zip(results, s.outputs, entry.outputs, strict=True):
            self.shaped(place, type, sizes)[...] = result

    def shaped(self, place: Place, type: TensorType, sizes: Mapping[str, int]) -> Array:
        """The array of a type that begins somewhere in a buffer."""
        shape = bind(tuple(type.shape), sizes)
        count = int(np.prod(shape, dtype=object))
        return self.part(place[0], self.index(place[1]), count).reshape(shape)

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


class _Matrix:
    """A matrix in an array: the places of its elements."""

    __slots__ = ("array", "places")

    def __init__(self, array: Array, places: Array) -> None:
        self.array = array
        self.places = places


_RUN: dict[type, Callable[[_Frame, Any], None]] = {
    ir.Scalar: _Frame._scalar,
    ir.Load: _Frame._load,
    ir.Get: _Frame._get,
    ir.Measure: _Frame._measure,
    ir.Declare: _Frame._declare,
    ir.Set: _Frame._declare,
    ir.Accumulate: _Frame._accumulate,
    ir.Store: _Frame._store,
    ir.Loop: _Frame._loop,
    ir.If: _Frame._if,
    ir.While: _Frame._while,
    ir.Copy: _Frame._copy,
    ir.Matmul: _Frame._matmul,
    ir.Fail: _Frame._fail,
    ir.Leave: _Frame._leave,
    ir.Launch: _Frame._launch,
    ir.Wave: _Frame._wave,
    ir.Host: _Frame._host,
    ir.Allocate: _Frame._allocate,
    ir.Free: _Frame._free,
    ir.Bind: _Frame._bind,
}

"""The main function of a program of loops as steps of a ``CudaProgram``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from math import gcd
from typing import Any

from weft.backends.cuda import program as cuda
from weft.backends.cuda.emit.kernel import can_fail, grid_of
from weft.backends.cuda.program import ALIGNMENT, ARENA_ALIGNMENT, Memory, Place, Step
from weft.base.shapes import size_of
from weft.base.size_bounds import positive
from weft.base.sizes import Size, bind, named_size
from weft.errors import GraphError
from weft.loop import ir
from weft.loop.index import Extent, Index, Variable
from weft.loop.ir import Block, Buffer, Function, Program
from weft.loop.walk import statements

CONTEXT = Place("context", 0)


class Memories:
    """Where the buffers of a program are."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._parameters: dict[Buffer, tuple[Memory, int]] = {}
        inputs, outputs = program.inputs, program.outputs
        for i, buffer in enumerate(program.main.buffers):
            if i < inputs:
                self._parameters[buffer] = "input", i
            elif i < inputs + outputs:
                self._parameters[buffer] = "output", i - inputs
            else:
                self._parameters[buffer] = "constant", i - inputs - outputs
        self.heap = {buffer: i for i, buffer in enumerate(program.heap)}

    def place(self, buffer: Buffer, offset: Extent) -> Place:
        """Where an element is, so many of them into a buffer."""
        at = offset * buffer.dtype.itemsize
        if buffer in self.heap:
            return Place("heap", self.heap[buffer], at)
        if buffer in self._parameters:
            return Place(*self._parameters[buffer], at)
        return Place("arena", 0, self._program.arena[buffer] + at)

    def alignment(self, buffer: Buffer, index: Index) -> int:
        """What the address of an element is surely a multiple of, in bytes."""
        total = ALIGNMENT
        if buffer in self._program.arena:
            total = gcd(ARENA_ALIGNMENT, _divisor(self._program.arena[buffer]))
        for stride in (*index.terms.values(), index.offset):
            total = gcd(total, _divisor(stride) * buffer.dtype.itemsize)
        return min(total & -total, ALIGNMENT)


def _divisor(x: Extent) -> int:
    """A number that divides an extent whatever its sizes are; 0 for 0."""
    if not isinstance(x, Size):
        return int(x)
    return gcd(*x._terms.values())


def find_alignments(program: Program) -> dict[Function, dict[Buffer, int]]:
    """For each function that is launched, what the addresses of its parameters are multiples of.

    Functions that share their code are launched in common, so they share this, too.
    """
    memories, found = Memories(program), {}
    by_body: dict[int, list[int]] = {}
    launches = list(_launches(program.main.body))
    for launch in launches:
        own = [memories.alignment(buffer, index) for buffer, index in launch.buffers]
        known = by_body.setdefault(id(launch.function.body), own)
        known[:] = [gcd(a, b) for a, b in zip(known, own, strict=True)]
    for launch in launches:
        function = launch.function
        found[function] = dict(zip(function.buffers, by_body[id(function.body)], strict=True))
    return found


def _launches(block: Block) -> Iterator[ir.Launch]:
    for s in statements(block):
        if isinstance(s, ir.Launch):
            yield s
        elif isinstance(s, ir.Wave):
            yield from s.launches


def waves_of(block: Block) -> Iterator[ir.Wave]:
    """The waves of a main function; all launches of one have the same body."""
    return (s for s in statements(block) if isinstance(s, ir.Wave))


def blocks_of_launch(launch: ir.Launch) -> Extent:
    """How many blocks a launch has."""
    grid = grid_of(launch.function)
    blocks: Extent = bind((grid.stop - grid.start).offset, dict(launch.numbers))
    return blocks


def _effects(launch: ir.Launch) -> list[tuple[bool, Extent]]:
    """Of each buffer of a launch, whether it is written, and how many bytes may be touched."""
    f, told = launch.function, dict(launch.numbers)
    return [(b in f.written, bind(b.size, told) * b.dtype.itemsize) for b in f.buffers]


def steps_of(
    program: Program, symbols: Mapping[Function, str], waves: Mapping[tuple[int, int], str]
) -> tuple[Step, ...]:
    """The steps of the main function of a program.

    Which numbers the host needs shows only where they are used. By then another array may lie where they
    were, so they are fetched where they are loaded, in a second round.
    """
    first = Steps(program, symbols, waves)
    found = first.block(program.main.body)
    if first.fetched:
        found = Steps(program, symbols, waves, first.fetched).block(program.main.body)
    return found


class Steps:
    """Makes steps of statements.

    Attributes:
        symbols: by function, the name of its kernel.
        waves: by number of launches and id of their body, the name of the kernel that has them all.
        fetched: what the host needs to know of memory; it is fetched where it is loaded.
    """

    def __init__(
        self,
        program: Program,
        symbols: Mapping[Function, str],
        waves: Mapping[tuple[int, int], str],
        fetched: Collection[ir.Load] = (),
    ) -> None:
        self.memories = Memories(program)
        self._hosts = program.hosts
        self.symbols = symbols
        self.waves = waves
        self._turns: dict[Variable, Extent] = {}
        self._numbers: dict[Any, Extent] = {}
        self._loads: dict[ir.Load, Place] = {}
        self.fetched = set(fetched)
        self._count = 0
        self._ways: dict[type, Callable[[Any, list[Step]], None]] = {
            ir.Launch: self._launch,
            ir.Wave: self._wave,
            ir.Copy: self._copy,
            ir.Host: self._host,
            ir.Leave: lambda s, out: out.append(cuda.Check(s.loop)),
            ir.Allocate: self._allocate,
            ir.Free: lambda s, out: out.append(cuda.Free(self.memories.heap[s.buffer])),
            ir.Bind: lambda s, out: out.append(cuda.SetNumber(s.name, self._extent(s.value, out))),
            ir.Measure: self._measure,
            ir.Scalar: self._scalar,
            ir.Load: self._load,
            ir.Loop: self._loop,
            ir.If: self._if,
            ir.While: self._while,
            ir.Matmul: self._matmul,
        }

    def block(self, block: Block) -> tuple[Step, ...]:
        """The steps of a block."""
        out: list[Step] = []
        for s in block.statements:
            way = self._ways.get(type(s))
            if way is None:
                raise GraphError("cuda", f"the host must have a step for {type(s).__name__}, got none")
            way(s, out)
        return tuple(out)

    # Numbers of the host

    def _extent(self, x: Any, out: list[Step]) -> Extent:
        """A number as an expression; one that is in memory is fetched first."""
        if isinstance(x, Index):
            total: Any = x.offset
            for v, stride in x.terms.items():
                total = total + (self._turns[v] if v.value is None else self._extent(v.value, out)) * stride
            return total  # type: ignore[no-any-return]
        if isinstance(x, ir.Const):
            return int(x.value)
        if isinstance(x, ir.Load) and x not in self._numbers:
            self._fetch(x, out)
        return self._numbers[x]

    def _fetch(self, x: ir.Load, out: list[Step]) -> None:
        self._count += 1
        name = f"fetched{self._count}"
        out.append(cuda.Fetch(name, x.dtype, self._loads[x]))
        self._numbers[x] = named_size(name)
        self.fetched.add(x)

    def _measure(self, s: ir.Measure, out: list[Step]) -> None:
        self._numbers[s] = s.size

    def _scalar(self, s: ir.Scalar, out: list[Step]) -> None:
        x, y = (self._extent(a, out) for a in s.args)
        self._numbers[s] = _COMPUTED[s.instruction](x, y)

    def _load(self, s: ir.Load, out: list[Step]) -> None:
        self._loads[s] = self._place(s.buffer, s.index, out)
        if s in self.fetched:
            self._fetch(s, out)

    def _place(self, buffer: Buffer, index: Index, out: list[Step]) -> Place:
        return self.memories.place(buffer, self._extent(index, out))

    # Steps

    def _launch(self, s: ir.Launch, out: list[Step]) -> None:
        arguments: list[Any] = [CONTEXT] if can_fail(s.function) else []
        arguments += [self._place(*place, out) for place in s.buffers]
        arguments += self._numbers_of(s)
        kernel, blocks = self.symbols[s.function], blocks_of_launch(s)
        out.append(cuda.Launch(kernel, blocks, tuple(arguments), tuple(_effects(s))))

    def _numbers_of(self, s: ir.Launch) -> list[Extent]:
        told = dict(s.numbers)
        return [told.get(name, named_size(name)) for name in s.function.sizes]

    def _wave(self, s: ir.Wave, out: list[Step]) -> None:
        """One launch of all: each has the number of its first block, its buffers, and its numbers."""
        arguments: list[Any] = []
        effects: list[tuple[bool, Extent]] = []
        first: Extent = 0
        for launch in s.launches:
            effects += _effects(launch)
            arguments += [first, *[self._place(*place, out) for place in launch.buffers]]
            arguments += self._numbers_of(launch)
            first = first + blocks_of_launch(launch)
        symbol = self.waves[len(s.launches), id(s.launches[0].function.body)]
        out.append(cuda.Launch(symbol, first, tuple(arguments), tuple(effects), len(s.launches)))

    def _copy(self, s: ir.Copy, out: list[Step]) -> None:
        count = self._extent(s.count, out) * s.target.dtype.itemsize
        target = self._place(s.target, s.target_index, out)
        out.append(cuda.CopyBytes(target, self._place(s.source, s.source_index, out), count))

    def _host(self, s: ir.Host, out: list[Step]) -> None:
        sizes = tuple(self._extent(x, out) for x in s.sizes)
        places = [tuple(self._place(*p, out) for p in group) for group in (s.inputs, s.outputs)]
        entry = self._hosts[s.number]
        if entry.library:
            apart = tuple(tuple(self._extent(x, out) for x in strides) for strides in s.strides)
            types = (*entry.inputs, *entry.outputs)
            arrays = tuple([cuda.Array(t.dtype, size_of(t.shape), t.shape) for t in types])
            attrs = repr(dict(entry.attrs))
            out.append(cuda.LibraryCall(entry.op.name, places[0], places[1], apart, arrays, attrs))
            return
        out.append(cuda.HostCall(s.number, places[0], places[1], sizes))

    def _allocate(self, s: ir.Allocate, out: list[Step]) -> None:
        count = self._extent(s.count, out) * s.buffer.dtype.itemsize
        out.append(cuda.Allocate(self.memories.heap[s.buffer], count))

    def _matmul(self, s: ir.Matmul, out: list[Step]) -> None:
        a, b, c = (self._place(*place, out) for place in (s.a, s.b, s.c))
        m, n, k = (self._extent(x, out) for x in (s.m, s.n, s.k))
        ra, rb, rc = (self._extent(x, out) for x in s.rows)
        dtype, result = s.a[0].dtype, s.c[0].dtype
        batch = 1 if s.batch is None else self._extent(s.batch, out)
        strides = tuple([self._extent(x, out) for x in s.strides]) or (0, 0, 0)
        rows = (ra, rb, rc)
        bias = None if s.bias is None else self._place(*s.bias, out)
        wide = None if result == dtype else result
        out.append(
            cuda.MatrixProduct(c, a, b, dtype, m, n, k, rows, s.transposed, s.add, batch, strides, bias, wide)
        )

    # Loops and branches

    def _loop(self, s: ir.Loop, out: list[Step]) -> None:
        start, stop = self._extent(s.start, out), self._extent(s.stop, out)
        self._count += 1
        name = f"turn{self._count}"
        self._turns[s.variable] = named_size(name)
        out.append(cuda.Repeat(name, start, stop, self.block(s.body)))

    def _if(self, s: ir.If, out: list[Step]) -> None:
        condition = self._condition(s.condition)
        out.append(cuda.Choose(condition, self.block(s.then), self.block(s.otherwise)))

    def _while(self, s: ir.While, out: list[Step]) -> None:
        test = self.block(s.test)
        out.append(cuda.Again(test, self._condition(s.condition), self.block(s.body)))

    def _condition(self, x: Any) -> Place:
        if not isinstance(x, ir.Load):
            raise GraphError("cuda", f"a condition must be in memory, got {type(x).__name__}")
        return self._loads[x]


def _smaller(x: Any, y: Any) -> Any:
    return x - positive(x - y)


def _quotient(x: Any, y: Any) -> Any:
    """Rounded towards zero, of numbers that are not negative; of indices no others are divided."""
    return x // y if not isinstance(y, int) or y else 0


_COMPUTED: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": _quotient,
    "rem": lambda x, y: x - _quotient(x, y) * y,
    "min": _smaller,
    "max": lambda x, y: x + y - _smaller(x, y),
}

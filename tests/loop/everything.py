"""A function and a program with every statement, and copies of Loop IR with other names or one change."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from weft.base.dtypes import DTYPES, bool_, complex64, float32, int64
from weft.base.sizes import Size, named_size
from weft.ir.types import TensorType
from weft.loop import ir
from weft.loop.builder import Builder
from weft.loop.index import Index, Variable
from weft.loop.ir import Block, Buffer, Function, Local, Program
from weft.ops.table import find_op


class HostCall(NamedTuple):
    """An entry of a table of host calls."""

    op: Any
    attrs: dict[str, Any]
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    sizes: tuple[Size, ...] = ()


def kernel() -> Function:
    """A launched function with every statement that one can have."""
    b = Builder()
    n = named_size("n")
    x, y = b.buffer("x", float32, n * 8), b.buffer("y", float32, n * 8)
    flags, at = b.buffer("flags", bool_, 8), b.buffer("at", int64, 8)
    work = b.scratch("work", float32, 8)
    width = b.add_statement(ir.Measure(n * 2))
    with b.parallel(n) as i:
        total = b.local(0.0, float32)
        with b.vector(8, 1, lanes=4) as j:
            value = b.load(x, i * 8 + j, b.load(flags, j))
            b.accumulate(total, "add", value)
            b.store(work, j, b.mul(value, 2.5), b.lt(j, 7))
        with b.if_(b.lt(b.get(total), 0.0)) as otherwise:
            b.store(y, i * 8, 0.0)
        with b.inside(otherwise):
            b.copy(y, i * 8, work, 0, 8)
        counter = b.local(0, int64)
        with b.while_(lambda: b.lt(b.get(counter), 3)):
            place = b.term(b.load(at, b.term(b.get(counter), 3)), 8)
            b.fail(b.lt(width, place), 1, place, i)
            b.store(y, i * 8 + place, b.cast(b.get(counter), float32))
            b.set(counter, b.add(b.get(counter), 1))
    return b.function("kernel", written=[y], sizes=["n"], reuses=[(0, 1)])


def program() -> Program:
    """A program with every statement that only a main function can have."""
    n, m = named_size("n"), named_size("m")
    b = Builder()
    x, y = b.buffer("x", float32, n * 8), b.buffer("y", float32, n * 8)
    z = b.buffer("z", complex64, 4)
    flags, at, w = b.buffer("flags", bool_, 8), b.buffer("at", int64, 8), b.buffer("w", complex64, 4)
    t, heap = Buffer("t", float32, n * 8), Buffer("heap", float32, m)
    main = b.add_statement
    f, zero = kernel(), Index.of(0)
    launch = ir.Launch(f, ((x, zero), (t, zero), (flags, zero), (at, zero)), 2.5)
    main(launch)
    main(ir.Wave((ir.Launch(f, ((x, zero), (y, zero), (flags, zero), (at, zero))),)))
    main(ir.Leave())
    main(ir.Host(0, ((t, zero),), ((y, zero),), (Index.of(n),)))
    main(ir.Host(0, ((t, zero),), ((y, zero),), (Index.of(n),), ((Index.of(1),),)))
    main(ir.Bind("m", Index.of(n * 2)))
    main(ir.Allocate(heap, Index.of(m)))
    b.copy(heap, 1, t, 0, 3)
    b.store(y, 0, b.load(heap, 2))
    main(ir.Free(heap))
    rows = tuple(Index.of(2) for _ in range(3))
    two = Index.of(2)
    main(ir.Matmul((w, zero), (w, zero), (z, zero), two, two, two, rows, (False, True), True))
    batch = Index.of(1), tuple(Index.of(4) for _ in range(3))
    main(ir.Matmul((w, zero), (w, zero), (z, zero), two, two, two, rows, (True, False), False, None, *batch))
    function = b.function("main", written=[y, z], sizes=["n"])
    entry = HostCall(
        find_op("sort"), {"axis": 0, "descending": True}, *[(TensorType((n * 8,), float32),)] * 2, (n,)
    )
    constants = (np.arange(8) % 2 == 0, np.arange(8) % 7, np.ones(4, complex64))
    return Program(function, 1, 2, constants, {t: 64}, n * 32 + 64, (heap,), ("a", "b"), (entry,), ((0, 0),))


class Copier:
    """Copies Loop IR, with new objects and names throughout; the atom with a number is changed."""

    def __init__(self, change: int = -1) -> None:
        self.memo: dict[int, Any] = {}
        self.change = change
        self.atoms = 0
        self.changed: Any = None

    def copy(self, x: Any) -> Any:
        if id(x) not in self.memo:
            self.memo[id(x)] = self._copy(x)
        return self.memo[id(x)]

    def _name(self) -> str:
        return f"other{len(self.memo)}"

    def _copy(self, x: Any) -> Any:
        if isinstance(x, Buffer):
            return Buffer(self._name(), self.atom(x.dtype), self.atom(x.size), self.atom(x.space))
        if isinstance(x, Local):
            return Local(self.atom(x.dtype), self._name())
        if isinstance(x, Variable):
            return Variable(self._name(), self.atom(x.stop), self.copy(x.value))
        if isinstance(x, Index):
            terms = {self.copy(v): self.atom(s) for v, s in reversed(x.terms.items())}
            return Index(terms, self.atom(x.offset))
        if isinstance(x, Function):
            written = frozenset(self.copy(b) for b in x.buffers if b in x.written)
            own = self.copy(x.buffers), x.sizes, self.copy(x.body), written, self.copy(x.scratch)
            return Function(self._name(), *own, self.numbers(x.reuses))
        if isinstance(x, Program):
            return self._program(x)
        if isinstance(x, tuple):
            return tuple(self.field(item) for item in x)
        assert dataclasses.is_dataclass(x) or x is None, x
        if isinstance(x, Block):
            return Block([self.copy(s) for s in x.statements])
        return x and type(x)(*[self.field(getattr(x, f.name)) for f in dataclasses.fields(x)])  # type: ignore[misc]

    def _program(self, x: Program) -> Program:
        main, heap = self.copy(x.main), self.copy(x.heap)
        arena = {self.copy(b): self.atom(at) for b, at in x.arena.items()}
        counts = self.atom(x.inputs), self.atom(x.outputs), x.constants
        tables = x.failures, x.hosts, self.numbers(x.donated)
        return Program(main, *counts, arena, self.atom(x.arena_size), heap, *tables)

    def numbers(self, x: Any) -> Any:
        return tuple(self.numbers(i) for i in x) if isinstance(x, tuple) else self.atom(x)

    def field(self, x: Any) -> Any:
        """A field of a statement: an object to copy, or an atom."""
        nested = dataclasses.is_dataclass(x) or isinstance(x, Buffer | Local | Variable | Index | tuple)
        return self.copy(x) if nested or x is None else self.atom(x)

    def atom(self, x: Any) -> Any:
        self.atoms += 1
        if self.atoms - 1 != self.change:
            return x
        self.changed = x
        return _another(x)


def _another(x: Any) -> Any:
    if isinstance(x, np.dtype):
        return DTYPES[(DTYPES.index(x) + 1) % len(DTYPES)]
    if isinstance(x, bool | np.bool_):
        return not x
    if isinstance(x, np.floating):
        return np.nextafter(x, x.dtype.type(0 if x == 100 else 100))
    if isinstance(x, str):
        return f"{x}x"
    if x is None:
        return 7
    with np.errstate(over="ignore"):  # the largest integer has the smallest one behind it
        return x + 1 if x + 1 != x else -x  # halves of some size have no 1 more


def changed_copies(x: Any) -> Iterator[tuple[Any, Any]]:
    """For each atom of something a copy where that alone is changed, and what the atom was."""
    count = Copier()
    count.copy(x)
    for i in range(count.atoms):
        copier = Copier(i)
        yield copier.copy(x), copier.changed

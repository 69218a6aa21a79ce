"""The writer of a program: its main function, the kernels it launches, and what both refer to.

A lowering opens a kernel on the arrays it reads and writes, and writes loops into it. Work that is too small
for a function of its own is written into the main function instead, by the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft.base.dtypes import DType
from weft.base.records import NamedTuple, replace
from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index, Variable
from weft.loop.ir import Allocate, Block, Buffer, Const, Function, Host, Launch, Space, While
from weft.schedule.arrays import Array, Progression, Shape
from weft.schedule.bodies import drop_unused, find_reuses, names_in_block
from weft.schedule.origins import Held, Origins
from weft.schedule.target import Target, default_target
from weft.schedule.work import iteration_cost

Numbers = tuple[tuple[str, int], ...]  # named sizes of a kernel, as one launch of it tells them
SMALL = 64  # elements: inside a loop, work on so few is written into the main function


class Kernel(NamedTuple):
    """A kernel that is being written: its builder, and its arrays as they are seen inside."""

    builder: Builder
    reads: list[Array]
    writes: list[Array]


class MainBuilder(Builder):
    """Writes the main function, in which nothing is parallel but what it launches."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(single=writer.target.prefers_single)
        self._writer = writer

    def scratch(self, name: str, dtype: DType, size: int, space: Space = "global") -> Buffer:
        """Memory of the arena, whatever the space: one thread runs all of a main function."""
        return self._writer.temporary((size,), dtype, name).buffer

    def parallel(self, stop: Any) -> Any:
        """A serial loop: it is too small to be shared out."""
        return self.loop(stop)


class Writer:
    """Writes one program.

    Attributes:
        main: builder of the main function.
        temporaries: buffers for what is in between.
        heap: buffers whose size only the run tells.
        failures, hosts: tables of the program.
        depth: number of loops around the place that is being written.
        sized: whether there are named sizes.
        target: that it writes for.
        origins: of kernels and buffers.
        written: is told of each kernel.
        disabled: names of choices that are switched off, see ``weft.schedule.choices``.
        loops: the nodes of loops of the main function, by their variable, or by the statement of a ``while``.
    """

    def __init__(
        self,
        *,
        sized: bool = False,
        debug: bool = False,
        check_nan: bool | str = False,
        target: Target | None = None,
    ) -> None:
        self.target = target or default_target()
        self.main = MainBuilder(self)
        self.temporaries: list[Buffer] = []
        self.heap: list[Buffer] = []
        self.failures: list[Any] = []
        self.hosts: list[Any] = []
        self.depth = 0
        self.sized = sized
        self.debug = debug
        self.check_nan = check_nan
        self.constants: list[Any] = []
        self.constant_buffers: list[Buffer] = []
        self.told: set[str] = set()  # sizes that only the run tells
        self.bound: set[str] = set()  # sizes whose value is known at the place that is being written
        self.origins = Origins()
        self.written: Callable[[Function], object] | None = None
        self.disabled: frozenset[str] = frozenset()
        self.loops: dict[Variable | While, Node] = {}
        self._nodes: tuple[Node, ...] = ()
        self._count = 0
        self._launched: dict[Any, Launch] = {}

    @contextmanager
    def lowering(self, nodes: Sequence[Node]) -> Iterator[None]:
        """What is written in this block computes nodes of the graph."""
        outer, self._nodes = self._nodes, tuple(nodes)
        yield
        self._nodes = outer

    def temporary(self, shape: Shape, dtype: DType, name: str = "t") -> Array:
        """Memory for an array in between; the plan decides where."""
        self._count += 1
        size = size_of(shape)
        buffer = Buffer(f"{name}{self._count}", dtype, size)
        self.origins.buffers[buffer] = Held(shape, self._nodes)
        if isinstance(size, Size) and not self.told.isdisjoint(size.names()):
            self.allocate(buffer, size)
        else:
            self.temporaries.append(buffer)
        return Array(buffer, shape)

    def make_room(self, array: Array) -> None:
        """Memory from the heap for a result whose size only the run tells; others have theirs."""
        if isinstance(array.size, Size) and not self.told.isdisjoint(array.size.names()):
            self.allocate(array.buffer, array.size)

    def allocate(self, buffer: Buffer, count: Any) -> None:
        """Memory from the heap, for a size that only the run tells."""
        if buffer not in self.heap:
            self.heap.append(buffer)
        self.main.add_statement(Allocate(buffer, Index.of(count)))

    def constant(self, array: Any) -> Array:
        """A constant of the program, in memory."""
        self.constants.append(array)
        buffer = Buffer(f"c{len(self.constants) - 1}", array.dtype, array.size)
        self.constant_buffers.append(buffer)
        return Array(buffer, array.shape)

    def filled(self, number: Const, shape: Shape) -> Array:
        """An array of one number, in memory."""
        out = self.temporary(shape, number.dtype, "f")
        with self.kernel("fill", [], [out]) as k:
            if k.builder is self.main or not self.target.fill_array(k.builder, k.writes[0], number):
                _fill(k.builder, k.writes[0], number)
        return out

    def counted(self, numbers: Progression) -> Array:
        """A progression in memory."""
        out = self.temporary(numbers.shape, numbers.dtype, "n")
        with self.kernel("count", [], [out]) as k, k.builder.vector(numbers.shape[0]) as i:
            (target,) = k.writes
            k.builder.store(target.buffer, target.at(i), numbers.element(k.builder, i))
        return out

    def copied(self, array: Array) -> Array:
        """A dense copy of an array."""
        out = self.temporary(array.shape, array.dtype)
        self.copy(array, out)
        return out

    def copy(self, source: Array, target: Array) -> None:
        """Copy an array into another of its shape."""
        if source.is_dense and target.is_dense:
            self.main.copy(target.buffer, target.offset, source.buffer, source.offset, source.size)
            return
        if self.target.copy_array(self, source, target):
            return
        with self.kernel("copy", [source], [target]) as k:
            over(k.builder, source.shape, lambda *i: k.builder.store(
                k.writes[0].buffer, k.writes[0].at(*i), k.builder.load(k.reads[0].buffer, k.reads[0].at(*i))
            ))  # fmt: skip

    def failure(self, entry: Any) -> int:
        """The number of an entry of the table of failures."""
        self.failures.append(entry)
        return len(self.failures) - 1

    @contextmanager
    def kernel(
        self,
        name: str,
        reads: Sequence[Array],
        writes: Sequence[Array],
        *,
        reuses: Sequence[tuple[int, int]] = (),
        inline: bool | None = None,
        key: Any = None,
        numbers: Numbers = (),
    ) -> Iterator[Kernel]:
        """Write a kernel on arrays; at the end of the block it is launched.

        ``reuses`` are pairs of places (in reads, in writes) that may be one memory, because each element is
        read before it is written; those that the code shows are found. With a key that tells all about the
        code, ``launch_again`` launches it on other arrays, unless it can fail: each has failures of its own.
        ``numbers`` are named sizes of this launch alone.
        """
        if self._is_small((*reads, *writes)) if inline is None else inline:
            with self.main.inside(self.main.block):  # scalars of it are its own, its statements are not
                yield Kernel(self.main, list(reads), list(writes))
            return
        builder = Builder(single=self.target.prefers_single)
        inner = [_parameter(builder, i, array) for i, array in enumerate((*reads, *writes))]
        kernel = Kernel(builder, inner[: len(reads)], inner[len(reads) :])
        failures = len(self.failures)
        yield kernel
        drop_unused(builder.block)
        shared = [(i, len(reads) + k) for i, k in reuses] or find_reuses(builder, len(reads))
        self.target.shape_kernel(builder)
        launch = self.launch(kernel, name, [(a.buffer, a.offset) for a in (*reads, *writes)], shared, numbers)
        if key is not None and len(self.failures) == failures:
            self._launched[key] = launch

    def launch_again(self, key: Any, arrays: Sequence[Array], numbers: Numbers = ()) -> bool:
        """Launch the kernel that was written with a key on other arrays; whether there is one."""
        known = self._launched.get(key)
        if known is None:
            return False
        function = replace(known.function)
        self.origins.kernels[function] = self._nodes
        places = tuple((a.buffer, a.offset) for a in arrays)
        self.main.add_statement(Launch(function, places, known.cost, numbers))
        return True

    def launch(
        self,
        kernel: Kernel,
        name: str,
        places: Sequence[tuple[Buffer, Index]],
        reuses: Sequence[tuple[int, int]],
        numbers: Numbers = (),
    ) -> Launch:
        """Append the launch of a kernel that has been written."""
        builder = kernel.builder
        sizes = sorted(names_in_block(builder.block, builder.buffers)) if self.sized or numbers else ()
        written = [a.buffer for a in kernel.writes]
        function = builder.function(name, written=written, sizes=sizes, reuses=reuses)
        self.origins.kernels[function] = self._nodes
        if self.written is not None:
            self.written(function)
        launch = Launch(function, tuple(places), iteration_cost(function), numbers)
        self.main.add_statement(launch)
        return launch

    def _is_small(self, arrays: Sequence[Array]) -> bool:
        sizes = [a.size for a in arrays]
        if any(isinstance(s, Size) for s in sizes):
            return False
        return bool(max(sizes, default=0) <= (SMALL if self.depth else 1))

    def host(self, entry: Any, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Call back into Python; the arrays must be dense, but for inputs of a library."""
        self.hosts.append(entry)
        sizes = tuple(Index.of(size) for size in entry.sizes)
        places = [tuple((a.buffer, a.offset) for a in group) for group in (inputs, outputs)]
        apart = tuple(tuple(map(Index.of, a.strides)) for a in inputs) if entry.library else ()
        self.main.add_statement(Host(len(self.hosts) - 1, places[0], places[1], sizes, apart))

    @contextmanager
    def inside(self, block: Block, *, loop: bool) -> Iterator[None]:
        """Write the main function's next statements into a block of a loop or of a branch."""
        self.depth += loop
        with self.main.inside(block):
            yield
        self.depth -= loop


def over(b: Builder, shape: Shape, write: Callable[..., None]) -> None:
    """Loops over all indices of a shape: leading axes in parallel, the last one in vectors."""
    if not shape:
        write()
        return
    lead = size_of(shape[:-1])
    with b.parallel(lead) as r, b.vector(shape[-1]) as c:
        write(*unflattened(b, r, shape[:-1]), c)


def unflattened(b: Builder, flat: Index, shape: Shape) -> list[Index]:
    """The index into a shape of the element with a number."""
    out: list[Index] = []
    for size in reversed(shape[1:]):
        out.append(b.remainder(flat, size))
        flat = b.quotient(flat, size)
    return [flat, *reversed(out)] if shape else []


_BLOCK = 16384  # elements of a dense array that one task fills
_EVEN = ((2048, 1 << 16, 1 << 62), (512, 512, 1 << 18), (32, 32, 1 << 11))  # blocks, for lengths from, up to


def even_block(total: int, most: int) -> int:
    """How many of all elements one iteration of a parallel loop takes: so that all take as many.

    These are few numbers for many lengths, since arrays of different length then have the same code.
    """
    for size, least, limit in _EVEN:
        if total % size == 0 and least <= total < limit:
            return size
    return most


def _fill(b: Builder, out: Array, number: Const) -> None:
    size: Any = out.size
    known = not isinstance(size, Size) and size > 0
    each = even_block(size, size if size % _BLOCK else _BLOCK) if known else size
    with b.parallel(size // each if known else 1) as k, b.vector(each) as i:
        b.store(out.buffer, out.flat(k * each + i), number)


def _parameter(builder: Builder, number: int, array: Array) -> Array:
    size = array.span if not isinstance(array.size, int) or array.size else 0
    return array.on(builder.buffer(f"b{number}", array.dtype, size))

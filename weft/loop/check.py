"""The checks of each statement of Loop IR, with what is known at its place.

What must hold: a scalar is computed once, before its uses, in a block around them; dtypes agree; buffers,
locals, variables and sizes are known where they are used; only buffers that are said to be written are. In a
vector loop lanes do not part ways: what decides about control flow is the same for all of them, and they
meet in ``Accumulate`` alone. A parallel loop ends its function, and what stands before it only computes
scalars, since every thread does it. What threads of a block must keep to is in ``weft.loop.verify``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

from weft.base.dtypes import (
    DTYPES,
    DType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int64,
    kind,
)
from weft.base.records import NamedTuple
from weft.base.sizes import Size, bind, size_names
from weft.errors import GraphError
from weft.loop import ir
from weft.loop.index import Extent, Index
from weft.loop.ir import Block, Buffer, Function, Local, Program, Statement, Value
from weft.loop.signatures import ACCUMULATES, SIGNATURES, dtype_names, signature_problem
from weft.loop.text import statement_lines
from weft.loop.walk import own_accesses, statements

BLAS_DTYPES = (float16, bfloat16, float32, float64, complex64, complex128)
MAIN_ONLY = (ir.Launch, ir.Wave, ir.Host, ir.Allocate, ir.Free, ir.Bind, ir.Leave)
_NOT_IN_VECTORS = (*MAIN_ONLY, ir.Copy, ir.Matmul, ir.Barrier)
_NOT_IN_EPILOGUES = (*_NOT_IN_VECTORS, ir.Loop, ir.While)
_DTYPES = frozenset(DTYPES)
LOOP_KINDS = get_args(ir.LoopKind)


def exceeds(at: Extent, count: Extent, limit: Extent, itemsize: int = 1) -> bool:
    """Whether elements from a place on surely go beyond a limit."""
    known = not any(isinstance(x, Size) for x in (at, count, limit))
    return known and at + count * itemsize > limit


def is_parallel(s: Statement) -> bool:
    """Whether a statement is a parallel loop."""
    return isinstance(s, ir.Loop) and s.kind == "parallel"


class Checker:
    """One look at a function, statement by statement, with what is known at each place."""

    def __init__(
        self,
        function: Function,
        *,
        memory: Iterable[Buffer] = (),
        program: Program | None = None,
        failures: int | None = None,
    ) -> None:
        self.function = function
        self.program = program  # of which it is the main function
        self.failures = failures  # how many are in the table of the program
        self.buffers = {*memory, *function.buffers, *function.scratch}
        told = {s.name for s in statements(function.body) if isinstance(s, ir.Bind)}
        if program is not None:  # a size of an input may be told again
            told -= size_names(buffer.size for buffer in function.buffers[: program.inputs])
        self.sizes = {*function.sizes} - told
        self.heap_without_memory = set() if program is None else {*program.heap}
        self.known: set[Any] = set()  # scalars, variables and locals
        self.varying: set[Any] = set()  # those of them that differ from lane to lane
        self.vector: _Vector | None = None
        self.fixed_locals: frozenset[Any] = frozenset()  # declared outside the parallel loop
        self.statement: Statement | None = None

    def run(self) -> None:
        """Raise the error of the first problem."""
        function = self.function
        for what, items in (("buffers", function.buffers), ("sizes", function.sizes)):
            self.require(len({*items}) == len(items), f"{what} must be distinct, got one twice")
        for buffer in function.written - {*function.buffers}:
            raise self.error(f"what is written must be a parameter, got {buffer.name}")
        for buffer in (b for b in self.buffers if b not in function.scratch):
            told = f"memory of others must be global, got {buffer.space} {buffer!r}"
            self.require(buffer.space == "global", told)
        for buffer in function.scratch:
            fixed = isinstance(buffer.size, int) and buffer not in function.buffers
            self.require(fixed, f"scratch must be the function's own, of a fixed size, got {buffer!r}")
        for pair in function.reuses:
            self.require(_can_reuse(function, *pair), f"no two parameters can be one memory as {pair} says")
        heap = () if self.program is None else self.program.heap
        for buffer in (b for b in function.buffers if b not in heap):
            self.extent(buffer.size)
        self.block(function.body, top=True)

    def require(self, holds: bool, message: str) -> None:
        """Raise an error that names the statement, unless something holds."""
        if not holds:
            raise self.error(message)

    def error(self, message: str) -> GraphError:
        """An error that names the statement."""
        where = self.function.name
        if self.statement is not None:
            where += f": `{statement_lines(self.function)[self.statement]}`"
        return GraphError("verify", f"{where}: {message}")

    def refuse(self, block: Block, kinds: tuple[type, ...], message: str) -> None:
        """Raise an error for statements of some kinds, inner ones too."""
        for s in statements(block):
            self.statement = s
            self.require(not isinstance(s, kinds), f"{type(s).__name__} {message}")

    # Blocks

    def block(self, block: Block, top: bool = False) -> None:
        """Statements in order; what they compute is known until the block ends."""
        with self.inside():
            self.statements(block, top)
        if top and block.statements and is_parallel(block.statements[-1]):
            self.prologue(Block(block.statements[:-1]))

    def statements(self, block: Block, top: bool = False) -> None:
        """Statements in order; what they compute stays known."""
        for s in block.statements:
            self.placed(s, last=top and s is block.statements[-1])
            _CHECKS[type(s)](self, s)

    def prologue(self, block: Block) -> None:
        """What stands before a parallel loop, which every thread does: only its own scratch is written."""
        for s in statements(block):
            self.statement = s
            own = all(a.buffer in self.function.scratch for a in own_accesses(s) if a.written)
            self.require(own, "what stands before a parallel loop must not write to memory")

    def placed(self, s: Statement, last: bool) -> None:
        """Whether a statement may stand where it does."""
        self.statement = s
        if type(s) not in _CHECKS:
            raise self.error(f"a statement must be one of weft.loop.ir, got {type(s).__name__}")
        if is_parallel(s) and not last:
            raise self.error("a parallel loop must be the last statement of its function")
        if self.vector is not None and isinstance(s, _NOT_IN_VECTORS):
            raise self.error(f"{type(s).__name__} must not stand in a vector loop")

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Forget at the end what became known."""
        known, statement = self.known.copy(), self.statement
        yield
        self.known, self.statement = known, statement

    # Operands

    def use(self, x: Any, dtype: DType | None = None, what: str = "an operand") -> bool:
        """Whether an operand that must be known differs from lane to lane."""
        if type(x) is Index:
            varies = self.index(x)
        elif type(x) is ir.Const:
            varies = False
        elif x in self.known:
            varies = x in self.varying
        elif isinstance(x, ir.Scalar | ir.Load | ir.Get | ir.Measure):
            raise self.error(f"{what} must be computed before, in a block around, got {type(x).__name__}")
        else:
            raise self.error(f"{what} must be a scalar, got {type(x).__name__}")
        if x.dtype not in _DTYPES:
            raise self.error(f"{what} must be of a dtype of weft, got {x.dtype!r}")
        if dtype is not None and x.dtype != dtype:
            raise self.error(f"{what} must be {dtype_names(dtype)}, got {dtype_names(x.dtype)}")
        return varies

    def index(self, index: Any) -> bool:
        """Whether an index, of which all must be known, differs from lane to lane."""
        if type(index) is not Index:
            raise self.error(f"an index must be an Index, got {type(index).__name__}")
        varies = False
        for v, stride in index.terms.items():
            self.extent(stride)
            if v.value is not None:
                varies |= self.use(v.value, int64, "a term of an index")
            elif v not in self.known:
                raise self.error(f"a variable must be of a loop around, got {v.name}")
            else:
                varies |= v in self.varying
        self.extent(index.offset)
        return varies

    def extent(self, size: Extent) -> None:
        """A number with sizes that must be known."""
        if isinstance(size, Size):
            missing = sorted(size.names() - self.sizes)
            self.require(not missing, f"a size must be given or bound before, got {''.join(missing[:1])}")

    def buffer(self, buffer: Buffer, *, written: bool = False) -> None:
        """A buffer that must be known, and be one that may be written."""
        if buffer not in self.buffers:
            raise self.error(f"a buffer must belong to the function, got {buffer.name}")
        if buffer in self.heap_without_memory:
            raise self.error(f"a buffer of the heap must have memory before it is used, got {buffer.name}")
        if written and buffer in self.function.buffers and buffer not in self.function.written:
            raise self.error(f"a buffer must be in written, got {buffer.name}")

    def mask(self, mask: Value | None) -> bool:
        """A condition of a load or store."""
        return mask is not None and self.use(mask, bool_, "a mask")

    def compute(self, x: Any, varies: bool) -> None:
        """A scalar is known from here on."""
        self.require(x not in self.known, "a scalar must be computed once, got it again")
        self.known.add(x)
        if varies:
            self.varying.add(x)

    def uniform(self, varies: bool, what: str) -> None:
        """What must be the same in all lanes."""
        self.require(not varies, f"{what} must be the same for all lanes of a vector loop")

    # Scalars and memory

    def _scalar(self, s: ir.Scalar) -> None:
        varies = False
        for x in s.args:
            varies |= self.use(x)
        problem = signature_problem(s)
        if problem is not None:
            raise self.error(problem)
        self.compute(s, varies)

    def _load(self, s: ir.Load) -> None:
        self.buffer(s.buffer)
        if s.dtype != s.buffer.dtype:
            raise self.error(f"a load must have the dtype of its buffer, got {s.buffer!r}")
        varies = False if s.mask is None else self.mask(s.mask)
        self.compute(s, self.index(s.index) or varies)

    def _measure(self, s: ir.Measure) -> None:
        self.extent(s.size)
        self.require(s.dtype == int64, f"a size must be i64, got {dtype_names(s.dtype)}")
        self.compute(s, False)

    def _store(self, s: ir.Store) -> None:
        self.buffer(s.buffer, written=True)
        self.index(s.index)
        self.use(s.value, s.buffer.dtype, "what is stored")
        self.mask(s.mask)

    def _copy(self, s: ir.Copy) -> None:
        self.buffer(s.target, written=True)
        self.buffer(s.source)
        same = s.target.dtype == s.source.dtype
        self.require(same, f"a copy must keep the dtype, got {s.source!r} and {s.target!r}")
        for index in (s.target_index, s.source_index, s.count):
            self.index(index)

    def _matmul(self, s: ir.Matmul) -> None:
        for (buffer, _), written in zip((s.a, s.b, s.c), (False, False, True), strict=True):
            self.buffer(buffer, written=written)
        bias = () if s.bias is None else (s.bias,)
        for buffer, _ in bias:
            self.buffer(buffer)
        sides, results = ([buffer.dtype for buffer, _ in x] for x in ((s.a, s.b), (s.c, *bias)))
        dtypes = [*sides, *results]
        wide = sides[0].itemsize == 2 and {*results} == {float32}  # sums as they are before they are rounded
        fits = len({*(sides if wide else dtypes)}) == 1 and dtypes[0] in BLAS_DTYPES
        told = f"matrices must be of one dtype of {dtype_names(*BLAS_DTYPES)}, got {dtype_names(*dtypes)}"
        self.require(fits, told)
        told = f"a batch must have three strides, got {len(s.strides)}"
        self.require(len(s.strides) == (0 if s.batch is None else 3), told)
        for index in s.indices():
            self.index(index)
        if s.epilogue is not None:
            self._epilogue(s.epilogue, results[0])

    def _epilogue(self, epilogue: ir.Epilogue, dtype: DType) -> None:
        right = epilogue.element.dtype == dtype
        self.require(right, f"an epilogue must be of {dtype_names(dtype)}, got {epilogue.element.name}")
        self.refuse(epilogue.body, _NOT_IN_EPILOGUES, "must not stand in an epilogue")
        with self.inside():
            self.known |= {epilogue.element, epilogue.row, epilogue.column}
            self.block(epilogue.body)

    # Locals

    def declared(self, local: Local) -> None:
        """A local that must be known."""
        self.require(local in self.known, f"a local must be declared before, got {local.name}")

    def _declare(self, s: ir.Declare) -> None:
        self.use(s.value, s.local.dtype, "the value of a local")
        self.require(s.local not in self.known, f"a local must be declared once, got {s.local.name} again")
        self.known.add(s.local)
        if self.vector is not None:
            self.varying.add(s.local)

    def _get(self, s: ir.Get) -> None:
        self.declared(s.local)
        right = s.dtype == s.local.dtype
        self.require(right, f"the value must be {dtype_names(s.local.dtype)}, got {dtype_names(s.dtype)}")
        if self.vector is not None:
            told = f"a local that a vector loop accumulates must not be read in it, got {s.local.name}"
            self.require(s.local not in self.vector.accumulated, told)
        self.compute(s, s.local in self.varying)

    def _set(self, s: ir.Set) -> None:
        self.declared(s.local)
        self.use(s.value, s.local.dtype, "the value of a local")
        own = self.vector is None or s.local not in self.vector.outside
        self.require(own, f"a vector loop must set locals of its own alone, got {s.local.name}")
        self.changes(s.local)

    def changes(self, local: Local) -> None:
        """A local whose value changes here."""
        own = local not in self.fixed_locals
        self.require(own, f"a parallel loop must change locals of its own alone, got {local.name}")

    def _accumulate(self, s: ir.Accumulate) -> None:
        self.declared(s.local)
        self.use(s.value, s.local.dtype, "what is accumulated")
        known = ", ".join(ACCUMULATES)
        told = f"an instruction that accumulates must be one of {known}, got {s.instruction!r}"
        self.require(s.instruction in ACCUMULATES, told)
        fits = kind(s.local.dtype) in SIGNATURES[s.instruction][1]
        self.require(fits, f"{s.instruction} must not be of {dtype_names(s.local.dtype)}")
        self.changes(s.local)
        if self.vector is not None and s.local in self.vector.outside:
            first = self.vector.accumulated.get(s.local)
            told = f"{s.local.name} must be accumulated by one instruction, got {first} and {s.instruction}"
            self.require(first == s.instruction, told)

    # Structure

    def _loop(self, s: ir.Loop) -> None:
        told = f"the kind of a loop must be one of {', '.join(LOOP_KINDS)}, got {s.kind!r}"
        self.require(s.kind in LOOP_KINDS, told)
        self.require(
            s.lanes >= 0 and (s.kind == "vector" or not s.lanes), f"no loop of its kind has {s.lanes} lanes"
        )
        self.require(
            s.variable not in self.known, f"a variable must be of one loop, got {s.variable.name} again"
        )
        self.require(
            s.variable.value is None, f"the variable of a loop must have no value, got {s.variable.name}"
        )
        varies = self.index(s.start) | self.index(s.stop)
        self.uniform(varies, "bounds of a loop")
        if s.kind == "vector":
            self._vector_loop(s)
        else:
            outside = self.fixed_locals
            if s.kind != "serial":
                self.fixed_locals = frozenset(x for x in self.known if isinstance(x, Local))
            self._loop_body(s)
            self.fixed_locals = outside

    def _loop_body(self, s: ir.Loop) -> None:
        with self.inside():
            self.known.add(s.variable)
            self.block(s.body)

    def _vector_loop(self, s: ir.Loop) -> None:
        self.require(self.vector is None, "a vector loop must not stand in another one")
        outside = frozenset(x for x in self.known if isinstance(x, Local))
        self.vector = _Vector(outside, _accumulated(s.body, outside))
        self.varying = {s.variable}
        self._loop_body(s)
        self.vector, self.varying = None, set()

    def _if(self, s: ir.If) -> None:
        self.uniform(self.use(s.condition, bool_, "a condition"), "a condition")
        self.block(s.then)
        self.block(s.otherwise)

    def _while(self, s: ir.While) -> None:
        with self.inside():
            self.statements(s.test)
            self.statement = s
            self.uniform(self.use(s.condition, bool_, "a condition"), "a condition")
        self.block(s.body)

    # Failures, launches, hosts, sizes

    def _fail(self, s: ir.Fail) -> None:
        self.use(s.condition, bool_, "a condition")
        self.require(len(s.values) <= 4, f"a failure must have up to 4 values, got {len(s.values)}")
        for x in s.values:
            self.use(x, int64, "a value of a failure")
        known = s.number >= 0 and (self.failures is None or s.number < self.failures)
        self.require(known, f"the number of a failure must be in the table, got {s.number}")

    def _leave(self, s: ir.Leave) -> None:
        known = s.loop is None or (s.loop >= 0 and (self.failures is None or s.loop < self.failures))
        self.require(known, f"the number of a failure must be in the table, got {s.loop}")

    def _barrier(self, s: ir.Barrier) -> None:
        pass

    def _launch(self, s: ir.Launch) -> None:
        f, own = s.function, dict(s.numbers)
        told = f"{f.name} must be given {len(f.buffers)} buffers, got {len(s.buffers)}"
        self.require(len(s.buffers) == len(f.buffers), told)
        for (buffer, at), parameter in zip(s.buffers, f.buffers, strict=True):
            self.buffer(buffer, written=parameter in f.written)
            self.index(at)
            fits = buffer.dtype == parameter.dtype
            self.require(fits, f"{parameter!r} must be given a buffer of its dtype, got {buffer!r}")
            beyond = at.is_fixed and exceeds(at.offset, bind(parameter.size, own), buffer.size)
            self.require(not beyond, f"{parameter!r} must be inside what it is given, got {buffer!r} at {at}")
        missing = [name for name in f.sizes if name not in self.sizes and name not in own]
        self.require(not missing, f"sizes of {f.name} must be known, got {', '.join(missing)}")

    def _wave(self, s: ir.Wave) -> None:
        for launch in s.launches:
            self._launch(launch)

    def _host(self, s: ir.Host) -> None:
        for places, written in ((s.inputs, False), (s.outputs, True)):
            for buffer, at in places:
                self.buffer(buffer, written=written)
                self.index(at)
        for x in s.sizes:
            self.use(x, int64, "a size of a host call")
        for index in [x for strides in s.strides for x in strides]:
            self.index(index)
        self.require(len(s.strides) in (0, len(s.inputs)), "each input of a host call must have strides")
        if self.program is None:
            return
        known = 0 <= s.number < len(self.program.hosts)
        self.require(known, f"the number of a host call must be in the table, got {s.number}")
        entry = self.program.hosts[s.number]
        for places, types in ((s.inputs, entry.inputs), (s.outputs, entry.outputs)):
            got = [buffer.dtype for buffer, _ in places]
            told = [t.dtype for t in types]
            self.require(
                got == told, f"a host call must be given {dtype_names(*told)}, got {dtype_names(*got)}"
            )

    def heap(self, buffer: Buffer) -> None:
        """A buffer whose memory comes and goes."""
        inside = self.program is None or buffer in self.program.heap
        self.require(inside, f"a buffer must be in the heap of the program, got {buffer.name}")

    def _allocate(self, s: ir.Allocate) -> None:
        self.heap(s.buffer)
        self.index(s.count)
        self.heap_without_memory.discard(s.buffer)

    def _free(self, s: ir.Free) -> None:
        self.heap(s.buffer)

    def _bind(self, s: ir.Bind) -> None:
        self.use(s.value, int64, "the value of a size")
        self.sizes.add(s.name)


def _can_reuse(function: Function, read: int, written: int) -> bool:
    if not (0 <= read < len(function.buffers) and 0 <= written < len(function.buffers)):
        return False
    source, target = function.buffers[read], function.buffers[written]
    same_size = source.dtype.itemsize == target.dtype.itemsize
    return source is not target and target in function.written and same_size


class _Vector(NamedTuple):
    """The vector loop around a statement.

    Attributes:
        outside: locals declared around it.
        accumulated: of these the ones that it accumulates, each with the first instruction that does.
    """

    outside: frozenset[Local]
    accumulated: dict[Local, str]


def _accumulated(block: Block, outside: frozenset[Local]) -> dict[Local, str]:
    out: dict[Local, str] = {}
    for s in statements(block):
        if isinstance(s, ir.Accumulate) and s.local in outside:
            out.setdefault(s.local, s.instruction)
    return out


# Each class of statements has the method of its name.
_CHECKS: dict[type, Callable[[Checker, Any], None]] = {
    kind: getattr(Checker, f"_{kind.__name__.lower()}") for kind in ir.STATEMENTS
}

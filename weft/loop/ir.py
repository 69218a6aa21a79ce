"""The Loop IR: functions made of loops over buffers, in scalar instructions.

It is the second and last IR. Tensors are gone: a ``Buffer`` is a flat row of elements, an ``Index`` a sum of
loop variables times strides. A ``Block`` lists statements; a scalar that a statement computes is an object of
its own, which later statements name (so nothing is computed twice by accident). ``Builder`` writes it,
``weft.loop.text`` prints it, ``weft.loop.verify`` checks it, ``weft.loop.interpret`` runs it slowly, and
backends make code of it. This is all of it, as printed, with the class of each statement beside it:

    program   = "program of" INT "inputs," INT "outputs," INT "constants {" memory* "}" function*
    memory    = "arena of" index "bytes" | "at" index ":" buffer | "heap:" buffer
              | "input" INT "may be output" INT | "host" INT ":" REST
    function  = "function" NAME "(" [parameter ("," parameter)*] [";" NAME ("," NAME)*] ") {" own* block
    own       = "scratch" ["shared"] buffer | NAME "may be" NAME
    parameter = ["written"] buffer
    buffer    = NAME ":" DTYPE "[" index "]"
    block     = statement* "}"
    statement = VALUE ":" DTYPE "=" computed
              | "store" element "=" operand [mask]                                        Store
              | "local" NAME ":" DTYPE "=" operand                                        Declare
              | "set" NAME "=" operand                                                    Set
              | "accumulate" NAME "=" INSTRUCTION "(" operands ")"                        Accumulate
              | "for" [kind] NAME "in" index ".." index "{" block                         Loop
              | "if" operand "{" block ["else {" block]                                   If
              | "while {" statement* "test" operand "} do {" block                        While
              | "barrier"                                                                 Barrier
              | "copy" element "=" element "for" index                                    Copy
              | "matmul" element ("=" | "+=") product "," shape [epilogue]                Matmul
              | "fail" INT "if" operand ["with" operands]                                 Fail
              | "leave" ["loop" INT]                                                      Leave
              | "launch" NAME "(" [operands] ")" ["with" numbers] ["cost" NUMBER]         Launch
              | "wave {" block                                                            Wave
              | "host" INT "(" [operands] ") -> (" [operands] ")" given                   Host
              | "allocate" element                                                        Allocate
              | "free" NAME                                                               Free
              | "bind" NAME "=" operand                                                   Bind
    computed  = "load" element [mask]                                                     Load
              | "get" NAME                                                                Get
              | "measure" index                                                           Measure
              | INSTRUCTION "(" operands ")"                                              Scalar
    kind      = "parallel" | "threads" | "vector" ["(" INT ")"]
    mask      = "if" operand
    product   = matrix "@" matrix ["+" element]
    matrix    = element [".T"]
    shape     = "m=" index ", n=" index ", k=" index ", rows=(" operands ")" [batch]
    batch     = ", batch=" index ", strides=(" operands ")"
    epilogue  = "epilogue" NAME "at" NAME "," NAME "{" block
    given     = ["sizes" operands] ["strides" ("(" operands ")")*]
    element   = NAME "[" index "]"
    numbers   = NAME "=" INT ("," NAME "=" INT)*
    operands  = operand ("," operand)*
    operand   = DTYPE "(" NUMBER ")" | index
    index     = factor (("+" | "-" | "*" | "//") factor)*
    factor    = "-" factor | INT | "max(" index ",0)" | NAME | VALUE | "(" index ")"

An INSTRUCTION is one of ``weft.ops.scalar`` or ``weft.loop.dots``; a VALUE is ``%`` and a number. A launch
has two levels: each iteration of a parallel loop is a block of its grid, and a threads loop in it runs the
threads of that block, which meet at barriers and in shared memory. Without a threads loop a block is one
thread. A CPU has no use for threads of a block; ``weft.loop.capabilities`` refuses what a backend does not
have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from weft.base.dtypes import DType, int64
from weft.base.records import dataclass, field
from weft.loop.index import Extent, Index, Variable

Space = Literal["global", "shared", "private"]
LoopKind = Literal["serial", "vector", "parallel", "threads"]
Place = tuple["Buffer", Index]  # where in a buffer an array begins


class Buffer:
    """A row of elements in memory.

    Attributes:
        name: as printed.
        dtype: of an element.
        size: number of elements, an int or a Size.
        space: whose memory it is. "global" is everybody's: parameters, the arena, the heap. "shared" is of
            one block of a launch. "private" is of one thread: in registers, or on its stack.
    """

    __slots__ = ("dtype", "name", "size", "space")

    def __init__(self, name: str, dtype: DType, size: Extent, space: Space = "global") -> None:
        self.name = name
        self.dtype = dtype
        self.size = size
        self.space = space

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype.name}[{self.size}]"


class Local:
    """A scalar variable that can be set again; it lives in a register.

    Inside a vector loop, one that was declared there has a value for each lane.
    """

    __slots__ = ("dtype", "name")

    def __init__(self, dtype: DType, name: str = "") -> None:
        self.dtype = dtype
        self.name = name


# Scalars: operands of statements. An Index (weft.loop.index) is one too, of dtype int64.


@dataclass(frozen=True, eq=False, slots=True)
class Const:
    """A number, known when code is made."""

    value: Any
    dtype: DType


@dataclass(frozen=True, eq=False, slots=True)
class Scalar:
    """One instruction of ``weft.ops.scalar`` or ``weft.loop.dots``; a statement too, where it is computed."""

    instruction: str
    args: tuple[Value, ...]
    dtype: DType


@dataclass(frozen=True, eq=False, slots=True)
class Load:
    """The element of a buffer at an index. Where a mask is there and false, nothing is read: it is 0."""

    buffer: Buffer
    index: Index
    dtype: DType
    mask: Value | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Get:
    """What a local holds at this place."""

    local: Local
    dtype: DType


@dataclass(frozen=True, eq=False, slots=True)
class Measure:
    """The number of elements that an extent with named sizes stands for, at this place."""

    size: Extent
    dtype: DType = int64


Value = Const | Scalar | Load | Get | Measure | Index

Computed = Scalar | Load | Get | Measure  # scalars that are statements, too
Named = Buffer | Local | Variable | Value  # what has a name in the text

# Statements


@dataclass(frozen=True, eq=False, slots=True)
class Declare:
    """A local begins, with a value."""

    local: Local
    value: Value


@dataclass(frozen=True, eq=False, slots=True)
class Set:
    """A local gets another value."""

    local: Local
    value: Value


@dataclass(frozen=True, eq=False, slots=True)
class Accumulate:
    """``local = instruction(local, value)``; in a vector loop around it, in an order that is fixed.

    The instruction is one of add, mul, min, max, and_, or_.
    """

    local: Local
    instruction: str
    value: Value


@dataclass(frozen=True, eq=False, slots=True)
class Store:
    """The element of a buffer at an index becomes a value, unless a mask is there and false."""

    buffer: Buffer
    index: Index
    value: Value
    mask: Value | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Loop:
    """A loop of a variable from start to stop, by one.

    In a vector loop, conditions and bounds of loops are the same for all lanes (a local declared inside is
    not), memory is reached by loads and stores alone, and a local declared outside is either read, or
    accumulated by one instruction. What stands before a parallel or threads loop is done by every thread, so
    it writes to private scratch alone.

    Attributes:
        kind: "serial"; "vector", whose iterations are independent but for ``Accumulate`` and run several at a
            time; "parallel", whose iterations are independent and are shared out among threads; or "threads",
            whose iterations, a fixed number, run at once and meet at each ``Barrier``. A parallel loop is the
            last statement of its function, a threads loop the last one of a parallel loop.
        lanes: for a vector loop, how many iterations at a time; 0 leaves it to the backend.
    """

    variable: Variable
    start: Index
    stop: Index
    body: Block
    kind: LoopKind = "serial"
    lanes: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class If:
    """One of two blocks, by a bool."""

    condition: Value
    then: Block
    otherwise: Block


@dataclass(frozen=True, eq=False, slots=True)
class While:
    """The body again and again, while a bool holds that the test block computes."""

    test: Block
    condition: Value
    body: Block


@dataclass(frozen=True, eq=False, slots=True)
class Barrier:
    """No thread of a block goes on before all are here; what they wrote before, all see after it.

    All threads of the block come to it or none does: conditions and bounds around it are the same for all.
    """


@dataclass(frozen=True, eq=False, slots=True)
class Copy:
    """Elements from one place to another; the places do not overlap."""

    target: Buffer
    target_index: Index
    source: Buffer
    source_index: Index
    count: Index


@dataclass(frozen=True, eq=False, slots=True)
class Epilogue:
    """What a library does with each element of its result before it stores it.

    Attributes:
        element: holds what was computed; what the body leaves in it is stored.
        row, column: of the element.
        body: scalars, loads and stores.
    """

    element: Local
    row: Variable
    column: Variable
    body: Block


@dataclass(frozen=True, eq=False, slots=True)
class Matmul:
    """``c = a @ b`` on matrices in buffers (or ``c += a @ b``), by the BLAS library, in one thread.

    Each matrix begins at an index. Its element [i, j] is ``rows * i + j`` further, or ``rows * j + i`` where
    it is transposed.

    Attributes:
        m, n, k: c is m x n, a is m x k, b is k x n.
        rows: distance between rows, for a, b and c.
        transposed: whether a is stored as k x m, and b as n x k.
        add: whether the product is added to what c holds.
        epilogue: what is done with each element of the product (of the sum), if anything.
        batch: how many products, of matrices that are ``strides`` apart, for a, b and c; None for one.
        bias: where n numbers begin that are added to each row of the product before it is rounded, if any.

    All matrices are of one dtype, or a and b of half precision and c, and a bias, of float32.
    """

    a: Place
    b: Place
    c: Place
    m: Index
    n: Index
    k: Index
    rows: tuple[Index, Index, Index]
    transposed: tuple[bool, bool]
    add: bool = False
    epilogue: Epilogue | None = None
    batch: Index | None = None
    strides: tuple[Index, ...] = ()
    bias: Place | None = None

    def indices(self) -> tuple[Index, ...]:
        """All numbers that it is told."""
        own = () if self.batch is None else (self.batch, *self.strides)
        own += () if self.bias is None else (self.bias[1],)
        return (self.a[1], self.b[1], self.c[1], self.m, self.n, self.k, *self.rows, *own)


@dataclass(frozen=True, eq=False, slots=True)
class Fail:
    """Where a bool holds, the run has failed: the first failure's number and values are kept.

    The run goes on until the next ``Leave``, so what follows must be safe all the same.

    Attributes:
        number: into the table of failures of the program, which tells the node and how to word the error.
        values: up to four, int64, for the error's text.
    """

    condition: Value
    number: int
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Leave:
    """If a failure was noted, end the program here.

    Attributes:
        loop: at the end of an iteration, the number of the failure that it is if somebody has asked the run
            to end: the program then ends here, too.
    """

    loop: int | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Launch:
    """Run a function on buffers; its parallel loop is shared out among the threads.

    Attributes:
        function: to run.
        buffers: for its parameters, each with the index where it begins.
        cost: estimate of one iteration of its parallel loop, in nanoseconds, to decide about threads.
        numbers: named sizes of the function that are this launch's own, and what they are; so arrays of
            different lengths have one function.
    """

    function: Function
    buffers: tuple[Place, ...]
    cost: float = 0.0
    numbers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Wave:
    """Launches that do not depend on each other and may run at the same time."""

    launches: tuple[Launch, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Host:
    """Call back into Python: the kernel of an op, with a number in the program's table of host calls.

    Attributes:
        number: into the table, whose entries have ``op``, ``attrs``, ``inputs`` and ``outputs`` (types), and
            ``sizes``, the named sizes that are in them.
        inputs, outputs: buffers, each with the index where its array begins.
        sizes: values of the named sizes in the types, in the order of the table.
        strides: of the inputs, in elements, for who takes them as they lie; without, they are dense.
    """

    number: int
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    sizes: tuple[Value, ...] = ()
    strides: tuple[tuple[Index, ...], ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Allocate:
    """A buffer whose size only the run tells gets memory, of so many elements; what it held is kept.

    Memory comes from the heap. Allocated again it grows. At the end of the program it is freed.
    """

    buffer: Buffer
    count: Index


@dataclass(frozen=True, eq=False, slots=True)
class Free:
    """A buffer that was allocated gives its memory back."""

    buffer: Buffer


@dataclass(frozen=True, eq=False, slots=True)
class Bind:
    """A named size that only the run tells has this value from here on."""

    name: str
    value: Value


Statement = (
    Scalar | Load | Get | Measure | Declare | Set | Accumulate | Store | Loop | If | While | Barrier
    | Copy | Matmul | Fail | Leave | Launch | Wave | Host | Allocate | Free | Bind
)  # fmt: skip
STATEMENTS: tuple[type, ...] = get_args(Statement)


@dataclass(eq=False, slots=True)
class Block:
    """Statements in order."""

    statements: list[Statement] = field(default_factory=list)


@dataclass(frozen=True, eq=False, slots=True)
class Function:
    """A function on buffers.

    Attributes:
        name: as printed, for people (equal functions are recognised by their text, not by their name).
        buffers: its parameters; two of them may be one memory only if ``Program`` or ``Launch`` says so.
        sizes: named sizes that it is given.
        body: what it does.
        written: those parameters that it writes.
        scratch: small buffers of its own, private or shared; sizes are numbers. Those of a main function are
            global, for it may hand them to launches.
        reuses: pairs of parameters (read, written) by number that may be one memory: an element is read
            before it is written.
    """

    name: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[str, ...]
    body: Block
    written: frozenset[Buffer] = frozenset()
    scratch: tuple[Buffer, ...] = ()
    reuses: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """A whole graph: a function on inputs, outputs and constants, with an arena for what is in between.

    Attributes:
        main: its buffers are the inputs, then the outputs, then the constants.
        inputs, outputs: how many of them.
        constants: their arrays.
        arena: for buffers in between, the byte at which each begins, an int or a Size.
        arena_size: in bytes, an int or a Size.
        heap: buffers that ``Allocate`` gives memory.
        failures, hosts: tables that ``Fail`` and ``Host`` refer to.
        donated: pairs (input, output) by number: the output may be the memory of the input.
        origins: where kernels and buffers come from, for reports (``weft.schedule.origins``).
        flushes: whether numbers below the normal ones may be taken for zero, where that is faster.
        spans: of a program that is checked, by buffer of the arena, the statements between which the zones
            around it must stay as they are (``weft.loop.spans``).
        late: outputs, by number, that no input becomes and that are written after all that may fail.
    """

    main: Function
    inputs: int
    outputs: int
    constants: tuple[Any, ...]
    arena: dict[Buffer, Extent]
    arena_size: Extent
    heap: tuple[Buffer, ...]
    failures: Sequence[Any]
    hosts: Sequence[Any]
    donated: tuple[tuple[int, int], ...] = ()
    origins: Any = None
    flushes: bool = False
    spans: Mapping[Buffer, tuple[Statement, Statement]] = field(default_factory=dict)
    late: tuple[int, ...] = ()

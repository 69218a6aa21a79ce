"""A compiled graph for a GPU as data: the PTX of its kernels, and what a host does with them, step by step.

The main function of a program of loops becomes a list of *steps*. Nothing in it is code: grids, offsets and
numbers of bytes are ints or ``Size``, expressions in named numbers, which ``evaluate`` makes ints of. The
names are those of ``sizes``, variables of loops around a step, and what a ``Fetch`` has read. It prints:

    program  = "cuda program" NAME "for" NAME "{" memory* step* "}"
    memory   = ("input" | "output" | "constant") INT ":" DTYPE "[" size "]" | "arena of" size "bytes"
             | "heap" INT ":" DTYPE "[" size "]" | "input" INT "may be output" INT
             | "late output" INT ("," INT)*
             | "kernel" NAME "(" parameters ")" ["x" INT] "threads" INT "shared" INT
    step     = "launch" NAME "(" arguments ") grid" size                              Launch
             | "launch" NAME "grid" size "{" ("(" arguments ")")* "}"                 Launch, of several
             | "copy" place "=" place "for" size "bytes"                              CopyBytes
             | "fill" place "with" INT "for" size "bytes"                             FillBytes
             | "matmul" place ("=" | "+=") matrix "@" matrix ["+" place] "," shape    MatrixProduct
             | "host" INT "(" places ") -> (" places ") sizes" sizes                  HostCall
             | "call" NAME "(" operands ") -> (" places ")"                           LibraryCall
             | "fetch" NAME "=" DTYPE place                                           Fetch
             | "set" NAME "=" size                                                    SetNumber
             | "allocate" INT "for" size "bytes" | "free" INT                         Allocate, Free
             | "check" | "check stop" INT                                             Check
             | "for" NAME "in" size ".." size "{" step* "}"                           Repeat
             | "if" place "{" step* "} else {" step* "}"                              Choose
             | "while {" step* "test" place "} do {" step* "}"                        Again
    place    = MEMORY [INT] "+" size
    size     = what ``weft.base.sizes`` prints

Whoever runs it gives every input, output and constant an address that is a multiple of ``ALIGNMENT``, and the
arena one of ``ARENA_ALIGNMENT``. All steps go to one stream in order; what a host must wait for says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from weft.base.dtypes import DType
from weft.base.records import dataclass
from weft.base.sizes import bind
from weft.loop.index import Extent

ALIGNMENT = 16  # bytes: of inputs, outputs and constants, and of pieces of the heap
ARENA_ALIGNMENT = 256
CONTEXT_WORDS = 8  # int64: 0 or the number of the first failure + 1, its values, then words of the runtime
COMMITTED = 6  # of these words, the one that tells whether any rank has failed, of a program that commits
Memory = Literal["input", "output", "constant", "arena", "heap", "context"]


def evaluate(extent: Extent, numbers: Mapping[str, int]) -> int:
    """The number that an expression stands for.

    >>> from weft.backends.cuda.program import evaluate
    >>> from weft.base.sizes import named_size
    >>> evaluate((named_size("n") + 255) // 256, {"n": 1000})
    4
    """
    return int(bind(extent, numbers))


@dataclass(frozen=True, slots=True)
class Place:
    """Where an array begins: so many bytes into a piece of memory.

    >>> from weft.backends.cuda.program import Place
    >>> print(Place("input", 0, 0), Place("arena", 0, 512))
    input0 arena+512

    Attributes:
        memory: which kind; "context" is where kernels note failures.
        number: of the input, output, constant or piece of the heap; 0 for the arena and the context.
        offset: in bytes.
    """

    memory: Memory
    number: int
    offset: Extent = 0

    def __str__(self) -> str:
        name = self.memory if self.memory in ("arena", "context") else f"{self.memory}{self.number}"
        return name if isinstance(self.offset, int) and self.offset == 0 else f"{name}+{self.offset}"


@dataclass(frozen=True, slots=True)
class Array:
    """What a program is given or gives: elements in a row.

    Attributes:
        dtype: of an element.
        size: number of elements.
        shape: of the tensor, where there is one.
    """

    dtype: DType
    size: Extent
    shape: tuple[Extent, ...] = ()


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of the PTX.

    Attributes:
        name: of its entry.
        parameters: in order, "pointer" or "number" (int64), a word each.
        threads: of a block.
        shared: bytes of shared memory that a launch asks for beyond what the PTX declares.
        many: how many launches one of it stands for, see ``Launch``.
    """

    name: str
    parameters: tuple[Literal["pointer", "number"], ...]
    threads: int
    shared: int = 0
    many: int = 1


# Steps


@dataclass(frozen=True, slots=True)
class Launch:
    """Run a kernel. A grid of 0 blocks is not launched.

    Attributes:
        kernel: its name.
        grid: number of blocks.
        arguments: one for each parameter: a place for a pointer, a size for a number.
        effects: of each place but the context, whether it is written, and how many bytes from there on
            may be touched; none where that is not known.
        many: how many launches it stands for. Of more than one, each has as many of the arguments, in turn:
            its first block, places and numbers. The kernel has them as one parameter, a row of words.
    """

    kernel: str
    grid: Extent
    arguments: tuple[Place | Extent, ...]
    effects: tuple[tuple[bool, Extent], ...] = ()
    many: int = 1


@dataclass(frozen=True, slots=True)
class CopyBytes:
    """Bytes from one place to another; they do not overlap."""

    target: Place
    source: Place
    count: Extent


@dataclass(frozen=True, slots=True)
class FillBytes:
    """Every byte becomes a value."""

    target: Place
    value: int
    count: Extent


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """``c = a @ b`` by a library (cuBLASLt), or ``c += a @ b``; in row-major order.

    Element [i, j] of a matrix is ``rows * i + j`` elements further; transposed, it is ``rows * j + i``.

    Attributes:
        dtype: of a, b and c; half types are summed in float32.
        result: dtype of c, and of a bias, if it is another one: float32 of halves.
        m, n, k: c is m x n, a is m x k, b is k x n.
        rows: distance between rows of a, b and c.
        transposed: whether a and b are.
        batch, strides: how many products, and how far each is from the next, in elements, for a, b and c.
        bias: n numbers that are added to each row before it is rounded, if any.
    """

    c: Place
    a: Place
    b: Place
    dtype: DType
    m: Extent
    n: Extent
    k: Extent
    rows: tuple[Extent, Extent, Extent]
    transposed: tuple[bool, bool]
    add: bool = False
    batch: Extent = 1
    strides: tuple[Extent, ...] = (0, 0, 0)
    bias: Place | None = None
    result: DType | None = None

    @property
    def result_bytes(self) -> int:
        """Of an element of c."""
        return (self.result or self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class HostCall:
    """Wait, copy arrays to the host, run the op of an entry of ``hosts`` by its kernel, and copy back.

    Attributes:
        number: into ``hosts``, whose entries have ``op``, ``attrs``, ``inputs`` and ``outputs`` (types).
        inputs, outputs: where the arrays are, dense.
        sizes: values of the named sizes in the types, in the order of ``entry.sizes``.
    """

    number: int
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    sizes: tuple[Extent, ...] = ()


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """Have a library (cuDNN) compute an op, on the stream.

    Attributes:
        name: of the op.
        inputs, outputs: where the arrays begin; outputs are dense.
        strides: of each input, in elements.
        arrays: what inputs and outputs are, in this order.
        attrs: the attributes of the op, as Python writes a dict of them.
    """

    name: str
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    strides: tuple[tuple[Extent, ...], ...]
    arrays: tuple[Array, ...]
    attrs: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Wait, and read one element of an integer dtype, or a bool; it has a name from here on."""

    name: str
    dtype: DType
    source: Place


@dataclass(frozen=True, slots=True)
class SetNumber:
    """A name stands for a number from here on."""

    name: str
    value: Extent


@dataclass(frozen=True, slots=True)
class Allocate:
    """A piece of the heap has at least so many bytes from here on; what it held is kept."""

    number: int
    count: Extent


@dataclass(frozen=True, slots=True)
class Free:
    """A piece of the heap gives its memory back."""

    number: int


@dataclass(frozen=True, slots=True)
class Check:
    """Where a run may end early: wait and look into the context, if the runtime wants to know in time.

    What follows is safe to run after a failure all the same, but must not be seen: ``must`` says that what
    follows changes something that cannot be taken back, such as an input that is donated.

    Attributes:
        stop: at the end of a turn of a loop, the number of the failure that it is if the run is stopped.
        must: whether nothing that follows may run after a failure.
    """

    stop: int | None = None
    must: bool = True


@dataclass(frozen=True, slots=True)
class Repeat:
    """Steps for each number from start to before stop, which has a name in them."""

    variable: str
    start: Extent
    stop: Extent
    body: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Choose:
    """One of two lists of steps, by a bool on the device."""

    condition: Place
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Again:
    """Run the test; while a bool on the device holds, the body and the test again."""

    test: tuple[Step, ...]
    condition: Place
    body: tuple[Step, ...]


Step = (
    Launch | CopyBytes | FillBytes | MatrixProduct | HostCall | LibraryCall | Fetch | SetNumber | Allocate
    | Free | Check | Repeat | Choose | Again
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CudaProgram:
    """A whole graph for a GPU.

    Attributes:
        name: of the graph.
        target: the architecture, such as "sm_90".
        ptx: the text of all kernels.
        kernels: by name.
        inputs, outputs: in the order of the graph; outputs are its results, updates included.
        constants: their arrays, to be copied to the device once.
        heap: pieces of memory that ``Allocate`` sizes; (piece, output) pairs of ``handed_over`` are outputs.
        sizes: names of sizes; those of inputs are told by their shapes, others by the steps.
        arena: bytes, in terms of sizes that are told by inputs.
        steps: what to do.
        donated: pairs (input, output): the output may be the memory of the input.
        failures, hosts: tables that failures and host calls refer to.
        late: outputs that no input becomes, and that are written after all that may fail.
    """

    name: str
    target: str
    ptx: str
    kernels: Mapping[str, Kernel]
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    constants: tuple[Any, ...]
    heap: tuple[Array, ...]
    sizes: tuple[str, ...]
    arena: Extent
    steps: tuple[Step, ...]
    donated: tuple[tuple[int, int], ...] = ()
    failures: Sequence[Any] = ()
    hosts: Sequence[Any] = ()
    handed_over: tuple[tuple[int, int], ...] = ()
    late: tuple[int, ...] = ()

    def __str__(self) -> str:
        return format_cuda_program(self)


def all_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Steps and those inside them, each before what is in it."""
    for step in steps:
        yield step
        for inner in inner_steps(step):
            yield from all_steps(inner)


def inner_steps(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The lists of steps inside a step."""
    if isinstance(step, Repeat):
        return (step.body,)
    if isinstance(step, Choose):
        return step.then, step.otherwise
    return (step.test, step.body) if isinstance(step, Again) else ()


# Text


def format_cuda_program(program: CudaProgram) -> str:
    """The text of a program, without its PTX.

    >>> from weft.backends.cuda.program import Array, CudaProgram, Place, CopyBytes
    >>> from weft.base.dtypes import float32
    >>> x = Array(float32, 4)
    >>> copy = CopyBytes(Place("output", 0), Place("input", 0), 16)
    >>> print(CudaProgram("f", "sm_90", "", {}, (x,), (x,), (), (), (), 0, (copy,)))
    cuda program f for sm_90 {
      input 0: float32[4]
      output 0: float32[4]
      arena of 0 bytes
      copy output0 = input0 for 16 bytes
    }
    """
    lines = [f"cuda program {program.name} for {program.target} {{", *map("  ".__add__, _memory(program))]
    return "\n".join([*lines, *_step_lines(program.steps, "  "), "}"])


def _memory(program: CudaProgram) -> Iterator[str]:
    for kind, arrays in (("input", program.inputs), ("output", program.outputs), ("heap", program.heap)):
        for i, array in enumerate(arrays):
            yield f"{kind} {i}: {array.dtype.name}[{array.size}]"
    for i, constant in enumerate(program.constants):
        yield f"constant {i}: {constant.dtype.name}[{constant.size}]"
    yield f"arena of {program.arena} bytes"
    for source, target in program.donated:
        yield f"input {source} may be output {target}"
    if program.late:
        yield f"late output {_listed(program.late)}"
    for kernel in program.kernels.values():
        each = len(kernel.parameters) // kernel.many
        parameters = f"({_listed(kernel.parameters[:each])}){f' x {kernel.many}' * (kernel.many > 1)}"
        yield f"kernel {kernel.name}{parameters} threads {kernel.threads} shared {kernel.shared}"


def _step_lines(steps: Sequence[Step], indent: str) -> Iterator[str]:
    for step in steps:
        if isinstance(step, Repeat | Choose | Again):
            yield from _nested_lines(step, indent)
        elif isinstance(step, Launch) and step.many > 1:
            each = len(step.arguments) // step.many
            yield f"{indent}launch {step.kernel} grid {step.grid} {{"
            starts = range(0, len(step.arguments), each)
            yield from [f"{indent}  ({_listed(step.arguments[i : i + each])})" for i in starts]
            yield f"{indent}}}"
        else:
            yield indent + _step_line(step)


def _nested_lines(step: Repeat | Choose | Again, indent: str) -> Iterator[str]:
    deeper = indent + "  "
    if isinstance(step, Repeat):
        yield f"{indent}for {step.variable} in {step.start}..{step.stop} {{"
        yield from _step_lines(step.body, deeper)
    elif isinstance(step, Choose):
        yield f"{indent}if {step.condition} {{"
        yield from _step_lines(step.then, deeper)
        yield f"{indent}}} else {{"
        yield from _step_lines(step.otherwise, deeper)
    else:
        yield f"{indent}while {{"
        yield from _step_lines(step.test, deeper)
        yield f"{deeper}test {step.condition}"
        yield f"{indent}}} do {{"
        yield from _step_lines(step.body, deeper)
    yield f"{indent}}}"


def _step_line(step: Any) -> str:
    match step:
        case Launch(kernel, grid, arguments):
            return f"launch {kernel}({_listed(arguments)}) grid {grid}"
        case CopyBytes(target, source, count):
            return f"copy {target} = {source} for {count} bytes"
        case FillBytes(target, value, count):
            return f"fill {target} with {value} for {count} bytes"
        case MatrixProduct():
            return _product_line(step)
        case HostCall(number, inputs, outputs, sizes):
            return f"host {number}({_listed(inputs)}) -> ({_listed(outputs)}) sizes {_listed(sizes)}".rstrip()
        case LibraryCall(name, inputs, outputs, strides):
            given = [f"{x} by ({_listed(apart)})" for x, apart in zip(inputs, strides, strict=True)]
            return f"call {name}({_listed(given)}) -> ({_listed(outputs)})"
        case Fetch(name, dtype, source):
            return f"fetch {name} = {dtype.name} {source}"
        case SetNumber(name, value):
            return f"set {name} = {value}"
        case Allocate(number, count):
            return f"allocate {number} for {count} bytes"
        case Free(number):
            return f"free {number}"
        case Check(stop):
            return "check" if stop is None else f"check stop {stop}"
    raise AssertionError(step)


def _product_line(step: MatrixProduct) -> str:
    a, b = (f"{m}{'.T' if t else ''}" for m, t in zip((step.a, step.b), step.transposed, strict=True))
    shape = f"m={step.m}, n={step.n}, k={step.k}, rows=({_listed(step.rows)})"
    many = f", batch={step.batch}, strides=({_listed(step.strides)})" if step.batch != 1 else ""
    bias = "" if step.bias is None else f" + {step.bias}"
    shape += "" if step.result is None else f", in {step.result.name}"
    return f"matmul {step.c} {'+=' if step.add else '='} {a} @ {b}{bias}, {shape}{many}"


def _listed(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))

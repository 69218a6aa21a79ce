"""The functions of a library as LLVM text: the driver, and the life of a handle from its creation to its end.

``running`` has what a run does, ``access`` what can be asked and set. All that Python does for a compiled
function when it is called is done here: memory, checks of arguments, threads, texts of errors.
"""

from __future__ import annotations

from llvmlite import ir

from weft.backends import library
from weft.backends.library import ALIGNMENT, Model, Storage
from weft.backends.llvm.entry import HOST, PROGRAM
from weft.backends.llvm.export import layout as words
from weft.backends.llvm.export.code import DOUBLE, I8, I32, I64, NULL, PTR, VOID, Code, Unit, half, word
from weft.backends.llvm.export.layout import CONTEXT, MESSAGE_BYTES, MUTEX, Layout
from weft.backends.llvm.export.messages import Message
from weft.backends.llvm.export.processor import write_question
from weft.backends.llvm.export.sizes import Allowed
from weft.backends.llvm.target import Target
from weft.base.dtypes import DType, float32, kind
from weft.base.records import dataclass
from weft.loop.ir import Program

_PATH_BYTES = 4096
_READ_ONLY, _TO_END = 0, 2  # of open and lseek
_PROT_READ, _MAP_PRIVATE = 1, 2
_SLASH = 47


def write_mapping(unit: Unit, storage: Storage, name: str) -> ir.Value:
    """A function of a handle and a path, NULL for that beside the library; it gives whether all is well."""
    c = unit.function("map_weights", I64, PTR, PTR)
    handle, given = c.args
    path = c.room(1)
    c.put(path, 0, given)
    with c.when(c.is_null(given)):
        c.put(path, 0, _path_beside(c, f"{name}.weft"))
    file = c.call("open", I32, c.pointer(path, 0), half(_READ_ONLY), more=[half(0)])
    with c.unlikely(c.compare("<", file, 0)):
        c.give(word(0))
    size = c.call("lseek", I64, file, word(0), half(_TO_END))
    with c.unlikely(c.compare("!=", size, storage.size)):
        c.call("close", I32, file)
        c.give(word(0))
    found = c.call("mmap", PTR, NULL, size, half(_PROT_READ), half(_MAP_PRIVATE), file, word(0))
    c.call("close", I32, file)
    with c.unlikely(c.compare("==", c.b.ptrtoint(found, I64), -1)):
        c.give(word(0))
    c.put(handle, words.BASE, found)
    c.put(handle, words.MAPPED, size)
    _compare_header(c, handle, found, storage.header or b"")
    c.give(word(1))
    return c.function


def _path_beside(c: Code, name: str) -> ir.Value:
    """The path of a file in the folder of this library."""
    info = c.room(4)
    path = c.room(_PATH_BYTES // 8)
    known = c.call("dladdr", I32, c.function, info)
    with c.unlikely(c.compare("==", known, 0)):
        c.give(word(0))
    own = c.pointer(info, 0)  # the path of the library, as the loader has it
    slash = c.call("strrchr", PTR, own, half(_SLASH))
    begin = c.b.ptrtoint(own, I64)
    length = c.b.add(c.b.sub(c.b.ptrtoint(slash, I64), begin), word(1))
    length = c.b.select(c.is_null(slash), word(0), length)
    with c.unlikely(c.compare(">", length, _PATH_BYTES - len(name.encode()) - 1)):
        c.give(word(0))
    c.copy(path, own, length)
    c.copy(c.byte(path, length), c.unit.text(name), word(len(name.encode()) + 1))
    return path


def _compare_header(c: Code, handle: ir.Value, found: ir.Value, header: bytes) -> None:
    data = ir.Constant(ir.ArrayType(I8, len(header)), bytearray(header))
    differs = c.call("memcmp", I32, found, c.unit.constant(data), word(len(header)))
    with c.unlikely(c.compare("!=", differs, 0)):
        write_unmap(c, handle)
        c.give(word(0))


def write_unmap(c: Code, handle: ir.Value) -> None:
    """Give the mapping of a handle back."""
    c.call("munmap", I32, c.pointer(handle, words.BASE), c.word(handle, words.MAPPED))


def write_operand(c: Code, address: ir.Value, dtype: DType) -> ir.Value:
    """The number at an address: 64 bits of an int, a double, or the name of a bool."""
    letter = kind(dtype)
    if letter == "f":
        found = c.b.load(address, typ=ir.FloatType() if dtype == float32 else DOUBLE)
        return c.b.fpext(found, DOUBLE) if dtype == float32 else found
    found = c.b.load(address, typ=ir.IntType(8 * dtype.itemsize))
    if letter == "b":
        return c.b.select(c.compare("!=", found, 0), c.unit.text("True"), c.unit.text("False"))
    return c.b.sext(found, I64) if letter == "i" else c.b.zext(found, I64)


_SPIN = 40_000  # nanoseconds that an idle worker spins before it sleeps
_MOST_THREADS = 256
_MASK_WORDS = 128  # of the set of processors that a process may use


@dataclass(frozen=True)
class Parts:
    """All that the functions of a library are written from.

    Attributes:
        model: what it is to a C program.
        program: what it runs.
        layout: of its handles.
        storage: of its data.
        allowed: the values that named sizes may have.
        messages: what it says when a run fails.
        uses_blas: whether it calls BLAS.
        target: the machine that it is for.
    """

    model: Model
    program: Program
    layout: Layout
    storage: Storage
    allowed: list[Allowed]
    messages: list[Message]
    uses_blas: bool
    target: Target


class Runtime:
    """Writes the functions of a library.

    Attributes:
        unit: the module.
        parts: what they are written from.
        host: the function that the program calls back.
    """

    def __init__(self, parts: Parts) -> None:
        self.unit = Unit()
        self.parts = parts
        self.name = parts.model.name
        self._process = self.unit.variable()
        self._pool()
        self._default_memory()
        self.host = self._host()
        self._create()
        self._free()

    def api(self, name: str, result: ir.Type, *parameters: ir.Type) -> Code:
        """A function that a C program calls."""
        return self.unit.function(f"{self.name}_{name}", result, *parameters, exported=True)

    # Threads

    def _pool(self) -> None:
        """``set_threads``; and what has the pool ready, in this process and in one forked off it."""
        c = self.unit.function("ready", VOID)
        own = c.b.sext(c.call("getpid", I32), I64)
        with c.unlikely(c.compare("!=", c.word(self._process, 0), own)):
            before = c.b.atomic_rmw("xchg", self._process, own, "acq_rel")
            with c.when(c.compare("==", before, 0)):
                self._use(c, self._processors(c))
            forked = c.b.and_(c.compare("!=", before, 0), c.compare("!=", before, own))
            with c.when(forked):  # the threads of the pool are not there any more
                c.call("weft_pool_reset", VOID)
        c.give()
        self.ready = c.function
        c = self.api("set_threads", VOID, I32)
        asked = c.b.sext(c.args[0], I64)
        low = c.b.select(c.compare("<", asked, 1), word(1), asked)
        c.do(self.ready)
        self._use(c, c.b.select(c.compare(">", low, _MOST_THREADS), word(_MOST_THREADS), low))
        c.give()

    def _use(self, c: Code, threads: ir.Value) -> None:
        # A thread that spins where there are too few processors keeps one from those that work.
        crowded = c.compare(">", threads, self._processors(c))
        c.call("weft_pool_set", VOID, threads, c.b.select(crowded, word(0), word(_SPIN)))
        if self.parts.uses_blas:  # it runs in the thread that calls it: work is shared out by the pool
            c.call("scipy_openblas_set_num_threads", VOID, ir.Constant(I32, 1))

    def _processors(self, c: Code) -> ir.Value:
        """How many processors this process may use."""
        mask = c.room(_MASK_WORDS)
        c.call("memset", PTR, mask, ir.Constant(I32, 0), word(8 * _MASK_WORDS))
        c.call("sched_getaffinity", I32, ir.Constant(I32, 0), word(8 * _MASK_WORDS), mask)
        total = c.room(1)
        c.put(total, 0, 0)
        with c.each(_MASK_WORDS) as i:
            count = c.call("llvm.ctpop.i64", I64, c.word(mask, i))
            c.put(total, 0, c.b.add(c.word(total, 0), count))
        found = c.word(total, 0)
        return c.b.select(c.compare("<", found, 1), word(1), found)

    # Memory

    def _default_memory(self) -> None:
        c = self.unit.function("allocate_by_default", PTR, I64, I64, PTR)
        whole = c.b.and_(c.b.add(c.args[0], word(ALIGNMENT - 1)), word(-ALIGNMENT))
        c.give(c.call("aligned_alloc", PTR, c.args[1], whole))
        self.allocate = c.function
        c = self.unit.function("release_by_default", VOID, PTR, PTR)
        c.call("free", VOID, c.args[0])
        c.give()
        self.release = c.function

    def take(self, c: Code, handle: ir.Value, size: ir.Value) -> ir.Value:
        """Memory from the allocator of a handle."""
        kind = ir.FunctionType(PTR, (I64, I64, PTR))
        return c.call_at(
            c.pointer(handle, words.ALLOCATE), kind, size, word(ALIGNMENT), c.pointer(handle, words.USER)
        )

    def let_go(self, c: Code, handle: ir.Value, memory: ir.Value) -> None:
        """Give memory back to the allocator of a handle."""
        with c.when(c.b.not_(c.is_null(memory))):
            kind = ir.FunctionType(VOID, (PTR, PTR))
            c.call_at(c.pointer(handle, words.RELEASE), kind, memory, c.pointer(handle, words.USER))

    # Failures

    def _host(self) -> ir.Value:
        """What the program calls where Python would raise: it notes the failure, unless there was one."""
        c = self.unit.function("host", VOID, I64, I64, PTR, PTR, PTR)
        context = c.b.inttoptr(c.args[0], PTR)
        with c.when(c.compare("!=", c.word(context, 0), 0)):
            c.give()
        first = len(self.parts.program.failures)
        c.put(context, 0, c.b.add(c.args[1], word(first + 1)))
        for number, message in enumerate(self.parts.messages[first:]):
            if message.operands:
                with c.when(c.compare("==", c.args[1], number)):
                    self._tell_operands(c, context, c.args[2], message)
        c.give()
        return c.function

    def _tell_operands(self, c: Code, context: ir.Value, inputs: ir.Value, message: Message) -> None:
        """Write a message with what the operands of the call back hold."""
        values = [write_operand(c, c.pointer(inputs, o.number), o.dtype) for o in message.operands]
        place = c.place(context, self.parts.layout.message - CONTEXT)
        c.call("snprintf", I32, place, word(MESSAGE_BYTES), c.unit.text(message.text), more=values)

    # The life of a handle

    def _create(self) -> None:
        c = self.api("create", I32, PTR, PTR)
        given, out = c.args
        with c.unlikely(c.is_null(out)):
            c.give(library.BAD_ARGUMENT)
        c.put(out, 0, NULL)
        question = write_question(self.unit, self.parts.target)
        with c.unlikely(c.compare("==", c.do(question), 0)):
            c.give(library.BAD_PROCESSOR)
        options = self._options(c, given)
        allocate, release = c.pointer(options, words.OWN_ALLOCATE), c.pointer(options, words.OWN_RELEASE)
        with c.unlikely(c.b.xor(c.is_null(allocate), c.is_null(release))):
            c.give(library.BAD_ARGUMENT)
        own = c.is_null(allocate)
        allocate = c.b.select(own, self.allocate, allocate)
        release = c.b.select(own, self.release, release)
        user, size = c.pointer(options, words.OWN_USER), word(self.parts.layout.size)
        handle = c.call_at(allocate, ir.FunctionType(PTR, (I64, I64, PTR)), size, word(ALIGNMENT), user)
        with c.unlikely(c.is_null(handle)):
            c.give(library.OUT_OF_MEMORY)
        c.call("memset", PTR, handle, ir.Constant(I32, 0), word(self.parts.layout.state))
        c.put(handle, words.ALLOCATE, allocate)
        c.put(handle, words.RELEASE, release)
        c.put(handle, words.USER, user)
        c.call("pthread_mutex_init", I32, c.place(handle, MUTEX), NULL)
        self._find_data(c, handle, c.pointer(options, words.WEIGHTS_PATH))
        self._fill(c, handle, c.word(options, words.SEED))
        c.do(self.ready)
        c.put(out, 0, handle)
        c.give(library.OK)

    def _options(self, c: Code, given: ir.Value) -> ir.Value:
        """The options that were given, and zeros for those that were not."""
        options = c.room(words.OPTION_WORDS)
        c.call("memset", PTR, options, ir.Constant(I32, 0), word(8 * words.OPTION_WORDS))
        with c.when(c.b.not_(c.is_null(given))):
            size = c.word(given, words.OPTION_SIZE)
            known = c.b.icmp_unsigned("<", size, word(8 * words.OPTION_WORDS))
            c.copy(options, given, c.b.select(known, size, word(8 * words.OPTION_WORDS)))
        return options

    def _find_data(self, c: Code, handle: ir.Value, path: ir.Value) -> None:
        """Note where the data of the library is."""
        storage = self.parts.storage
        if storage.symbol is not None:
            c.put(handle, words.BASE, self.unit.outside(storage.symbol))
            return
        if storage.header is None:
            return
        found = write_mapping(self.unit, storage, self.name)
        with c.unlikely(c.compare("==", c.do(found, handle, path), 0)):
            self.let_go(c, handle, handle)
            c.give(library.NO_WEIGHTS)

    def _fill(self, c: Code, handle: ir.Value, seed: ir.Value) -> None:
        """Place all buffers that are not given to a run, with what they hold at first."""
        layout = self.parts.layout
        table = self.unit.rows([I64] * 4, layout.starts)
        base = c.pointer(handle, words.BASE)
        with c.each(len(layout.starts)) as i:
            row = c.place(table, c.b.mul(i, word(4)))
            slot, source, size, state = (c.word(row, k) for k in range(4))
            found, own = c.byte(base, source), c.byte(handle, state)
            changes = c.compare(">=", state, 0)
            c.put(handle, c.b.add(slot, word(layout.buffers)), c.b.select(changes, own, found))
            with c.when(c.b.and_(changes, c.compare(">=", source, 0))):
                c.copy(own, found, size)
        for generator, at in zip(self.parts.model.generators, layout.generators, strict=True):
            first, count = (seed, 0) if generator.state is None else generator.state
            c.put(c.byte(handle, at), 0, first)
            c.put(c.byte(handle, at), 1, count)
        c.put(handle, CONTEXT + HOST, self.host)
        c.put(handle, CONTEXT + PROGRAM, c.b.ptrtoint(c.place(handle, CONTEXT), I64))

    def _free(self) -> None:
        c = self.api("free", VOID, PTR)
        handle = c.args[0]
        with c.when(c.is_null(handle)):
            c.give()
        layout = self.parts.layout
        with c.each(len(self.parts.model.weights)) as i:
            self.let_go(c, handle, c.pointer(handle, c.b.add(i, word(layout.owned))))
        self.let_go(c, handle, c.pointer(handle, words.ARENA))
        if self.parts.storage.header is not None:
            write_unmap(c, handle)
        c.call("pthread_mutex_destroy", I32, c.place(handle, MUTEX))
        self.let_go(c, handle, handle)
        c.give()

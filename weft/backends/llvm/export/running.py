"""What a library does when it is run: checks, memory, the program itself, and what is told afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from llvmlite import ir

from weft.backends.library import ALIGNMENT, BAD_ARGUMENT, FAILED, OK, OUT_OF_MEMORY, Tensor
from weft.backends.llvm.code import MAIN
from weft.backends.llvm.emit.memory import alignment
from weft.backends.llvm.emit.places import OUT_OF_MEMORY as HEAP_REFUSED
from weft.backends.llvm.entry import FAILED as FAILED_WORD
from weft.backends.llvm.entry import VALUES
from weft.backends.llvm.export.code import DOUBLE, I8, I32, I64, PTR, Code, word
from weft.backends.llvm.export.layout import ARENA, ARENA_BYTES, CONTEXT, MESSAGE_BYTES, MUTEX, SIZES
from weft.backends.llvm.export.messages import MOST_NUMBERS, numbers_row
from weft.backends.llvm.export.runtime import Runtime
from weft.backends.llvm.export.sizes import write_estimate, write_size

_MOST_ARENA = 2.0**46  # bytes, which no machine has


def write_run(runtime: Runtime) -> None:
    """``run``: one run at a time of each handle."""
    inner = _write_inner(runtime)
    c = runtime.api("run", I32, PTR, PTR, PTR, PTR)
    with c.unlikely(c.is_null(c.args[0])):
        c.give(BAD_ARGUMENT)
    c.call("pthread_mutex_lock", I32, c.place(c.args[0], MUTEX))
    c.do(runtime.ready)
    status = c.do(inner, *c.args)
    c.call("pthread_mutex_unlock", I32, c.place(c.args[0], MUTEX))
    c.give(status)


def _write_inner(runtime: Runtime) -> ir.Value:
    parts = runtime.parts
    c = runtime.unit.function("run", I32, PTR, PTR, PTR, PTR)
    handle, sizes, inputs, outputs = c.args
    c.b.store(I8(0), c.place(handle, parts.layout.message))
    values = _check_sizes(runtime, c, handle, sizes)
    first = parts.layout.buffers
    _take_tensors(runtime, c, handle, inputs, parts.model.inputs, first, "inputs")
    _take_tensors(runtime, c, handle, outputs, parts.model.outputs, first + parts.program.inputs, "outputs")
    _have_arena(runtime, c, handle, values)
    context = c.place(handle, CONTEXT)
    c.put(context, FAILED_WORD, 0)
    buffers, arena = c.place(handle, first), c.pointer(handle, ARENA)
    failed = c.call(MAIN, I64, context, buffers, arena, c.place(handle, SIZES))
    with c.unlikely(c.compare("!=", failed, 0)):
        _tell_failure(runtime, c, handle, context)
    for one, other in parts.layout.swapped:
        read, written = (c.pointer(handle, first + slot) for slot in (one, other))
        c.put(handle, first + one, written)
        c.put(handle, first + other, read)
    c.give(OK)
    return c.function


def refuse(runtime: Runtime, c: Code, handle: ir.Value, status: int, text: str, *values: ir.Value) -> None:
    """End a function with a message, in which each ``%lld`` is a value."""
    message = c.place(handle, runtime.parts.layout.message)
    c.call("snprintf", I32, message, word(MESSAGE_BYTES), c.unit.text(text), more=values or [word(0)])
    c.give(status)


# Arguments


def _check_sizes(runtime: Runtime, c: Code, handle: ir.Value, sizes: ir.Value) -> dict[str, ir.Value]:
    """The values of the named sizes; those that fit are where the program finds them."""

    def wrong(text: str, *numbers: ir.Value) -> None:
        refuse(runtime, c, handle, BAD_ARGUMENT, f"{runtime.name}: {text}", *numbers)

    values = named_sizes(runtime, c, sizes, wrong)
    for i, name in enumerate(runtime.parts.program.main.sizes):
        c.put(handle, SIZES + i, values.get(name, 0))
    return values


def named_sizes(
    runtime: Runtime, c: Code, sizes: ir.Value, wrong: Callable[..., None]
) -> dict[str, ir.Value]:
    """The values of sizes that were given; where they do not fit, ``wrong(text, ...)`` ends the function."""
    if runtime.parts.allowed:
        with c.unlikely(c.is_null(sizes)):
            wrong("sizes must be given, got NULL")
    values: dict[str, ir.Value] = {}
    for i, allowed in enumerate(runtime.parts.allowed):
        value = values[allowed.name] = c.word(sizes, i)
        outside = c.b.or_(c.compare("<", value, allowed.least), c.compare(">", value, allowed.most))
        with c.unlikely(outside):
            wrong(f"{str(allowed).replace('%', '%%')}, got %lld", value)
    return values


def _take_tensors(
    runtime: Runtime,
    c: Code,
    handle: ir.Value,
    given: ir.Value,
    tensors: Sequence[Tensor],
    first: int,
    what: str,
) -> None:
    """Put the addresses that were given into the table of buffers."""
    if not tensors:
        return
    with c.unlikely(c.is_null(given)):
        refuse(runtime, c, handle, BAD_ARGUMENT, f"{runtime.name}: {what} must be given, got NULL")
    rows = [
        (first + t.slot, alignment(t.type.dtype) - 1, c.unit.text(_wanted(runtime.name, t))) for t in tensors
    ]
    table = c.unit.rows([I64, I64, PTR], rows)
    message = c.place(handle, runtime.parts.layout.message)
    with c.each(len(tensors)) as i:
        row = c.place(table, c.b.mul(i, word(3)))
        address = c.word(given, i)
        wrong = c.compare("!=", c.b.and_(address, c.word(row, 1)), 0)
        with c.unlikely(c.b.or_(wrong, c.compare("==", address, 0))):
            text = c.pointer(row, 2)
            c.call("snprintf", I32, message, word(MESSAGE_BYTES), text, more=[address])
            c.give(BAD_ARGUMENT)
        c.put(handle, c.word(row, 0), address)


def _wanted(name: str, tensor: Tensor) -> str:
    multiple = alignment(tensor.type.dtype)
    what = f"{name}: {tensor.name} must be the address of {tensor.type}".replace("%", "%%")
    return f"{what}{f', a multiple of {multiple}' if multiple > 1 else ''}, got %#llx"


# Memory for what is in between


def _have_arena(runtime: Runtime, c: Code, handle: ir.Value, values: Mapping[str, ir.Value]) -> None:
    needed = runtime.parts.program.arena_size
    size, about = write_size(c, needed, values), write_estimate(c, needed, values)
    with c.unlikely(c.b.fcmp_ordered(">", about, DOUBLE(_MOST_ARENA))):
        text = f"{runtime.name}: %.3g bytes of memory must be there for what is in between"
        refuse(runtime, c, handle, OUT_OF_MEMORY, text, about)
    with c.when(c.compare(">", size, c.word(handle, ARENA_BYTES))):
        text = f"{runtime.name}: %lld bytes of memory must be there for what is in between"
        runtime.let_go(c, handle, c.pointer(handle, ARENA))
        c.put(handle, ARENA_BYTES, 0)
        found = runtime.take(c, handle, c.b.add(size, word(ALIGNMENT)))
        c.put(handle, ARENA, found)
        with c.unlikely(c.is_null(found)):
            refuse(runtime, c, handle, OUT_OF_MEMORY, text, size)
        c.put(handle, ARENA_BYTES, size)


# Failures


def _tell_failure(runtime: Runtime, c: Code, handle: ir.Value, context: ir.Value) -> None:
    """End with the message of the failure that the context tells of."""
    number = c.b.sub(c.word(context, FAILED_WORD), word(1))
    with c.when(c.compare("==", number, HEAP_REFUSED)):
        text = f"{runtime.name}: %lld bytes of memory must be there for a list that grows"
        refuse(runtime, c, handle, OUT_OF_MEMORY, text, c.word(context, VALUES))
    messages = runtime.parts.messages
    columns = 2 * MOST_NUMBERS + 1
    rows = [(c.unit.text("" if m.operands else m.text), *numbers_row(m)) for m in messages]
    table = c.unit.rows([PTR, *[I64] * (columns - 1)], rows)
    row = c.place(table, c.b.mul(number, word(columns)))
    with c.when(c.compare("==", c.b.load(c.pointer(row, 0), typ=I8), 0)):
        c.give(FAILED)  # what failed has told it already
    values = []
    for i in range(MOST_NUMBERS):
        noted = c.word(context, c.b.add(c.word(row, 1 + i), word(VALUES)))
        values.append(c.b.add(noted, c.word(row, 1 + MOST_NUMBERS + i)))
    message = c.place(handle, runtime.parts.layout.message)
    c.call("snprintf", I32, message, word(MESSAGE_BYTES), c.pointer(row, 0), more=values)
    c.give(FAILED)

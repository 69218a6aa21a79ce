"""What can be asked of a library, and set in it: tensors, shapes, messages, weights, the seed."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from weft.backends.library import BAD_ARGUMENT, OK, OUT_OF_MEMORY, STATUS, Tensor, dtype_number
from weft.backends.llvm.export.code import I32, I64, NULL, PTR, VOID, Code, word
from weft.backends.llvm.export.layout import MUTEX
from weft.backends.llvm.export.running import named_sizes, refuse
from weft.backends.llvm.export.runtime import Runtime
from weft.backends.llvm.export.sizes import write_count, write_size
from weft.base.sizes import Size

_TENSOR_WORDS = 4  # of what the header calls a tensor: name, type, shape, and rank and dtype in one


def write_access(runtime: Runtime) -> None:
    """All of these functions."""
    model = runtime.parts.model
    for what, tensors in (("input", model.inputs), ("output", model.outputs), ("weight", model.weights)):
        _describe(runtime, what, tensors)
    for what, tensors in (("input", model.inputs), ("output", model.outputs)):
        _shape(runtime, what, tensors)
    _bytes(runtime)
    _error(runtime)
    _status(runtime)
    _weight(runtime, "get_weight")
    _weight(runtime, "set_weight")
    _seed(runtime)


def _describe(runtime: Runtime, what: str, tensors: Sequence[Tensor]) -> None:
    """``input``, ``output``, ``weight``: what a tensor is, by its number; NULL if there is none."""
    c = runtime.api(what, PTR, I32)
    table = c.unit.rows([PTR, PTR, PTR, I32, I32], [_row(c, t) for t in tensors])
    number = c.b.sext(c.args[0], I64)
    there = c.b.icmp_unsigned("<", number, word(len(tensors)))
    found = c.place(table, c.b.mul(number, word(_TENSOR_WORDS)))
    c.give(c.b.select(there, found, NULL))


def _row(c: Code, tensor: Tensor) -> tuple[ir.Value, ...]:
    shape = [(-1 if isinstance(s, Size) else s,) for s in tensor.type.shape]
    sizes = c.unit.rows([I64], shape or [(0,)])
    texts = c.unit.text(tensor.name), c.unit.text(str(tensor.type))
    return (*texts, sizes, tensor.type.ndim, dtype_number(tensor.type.dtype))


def _named(runtime: Runtime, c: Code, sizes: ir.Value) -> dict[str, ir.Value]:
    wrong = word(-1) if c.function.ftype.return_type == I64 else BAD_ARGUMENT
    return named_sizes(runtime, c, sizes, lambda *_: c.give(wrong))


def _shape(runtime: Runtime, what: str, tensors: Sequence[Tensor]) -> None:
    """``input_shape``, ``output_shape``: all sizes of a tensor, as the named ones make them."""
    c = runtime.api(f"{what}_shape", I32, PTR, I32, PTR)
    sizes, number, out = c.args
    values = _named(runtime, c, sizes)
    for i, tensor in enumerate(tensors):
        with c.when(c.compare("==", number, i)):
            for axis, size in enumerate(tensor.type.shape):
                c.put(out, axis, write_size(c, size, values))
            c.give(OK)
    c.give(BAD_ARGUMENT)


def _bytes(runtime: Runtime) -> None:
    """``input_bytes``, ``output_bytes``: how much memory a tensor takes; -1 if there is none."""
    model = runtime.parts.model
    for what, tensors in (("input", model.inputs), ("output", model.outputs)):
        c = runtime.api(f"{what}_bytes", I64, PTR, I32)
        values = _named(runtime, c, c.args[0])
        for i, tensor in enumerate(tensors):
            with c.when(c.compare("==", c.args[1], i)):
                count = write_count(c, tensor.type.shape, values)
                c.give(c.b.mul(count, word(tensor.type.dtype.itemsize)))
        c.give(word(-1))


def _error(runtime: Runtime) -> None:
    """``error``: the message of the last call that failed."""
    c = runtime.api("error", PTR, PTR)
    with c.when(c.is_null(c.args[0])):
        c.give(c.unit.text("there is no handle"))
    c.give(c.place(c.args[0], runtime.parts.layout.message))


def _status(runtime: Runtime) -> None:
    """``status``: what a status says."""
    c = runtime.api("status", PTR, I32)
    for number, (_, text) in STATUS.items():
        with c.when(c.compare("==", c.args[0], number)):
            c.give(c.unit.text(text))
    c.give(c.unit.text("there is no such status"))


# Weights


def _weight(runtime: Runtime, name: str) -> None:
    """``get_weight``, ``set_weight``: the data of a weight, copied out of a handle or into it."""
    inner = _write_inner(runtime, name)
    c = runtime.api(name, I32, PTR, PTR, PTR, I64)
    handle = c.args[0]
    missing = c.b.or_(c.is_null(handle), c.b.or_(c.is_null(c.args[1]), c.is_null(c.args[2])))
    with c.unlikely(missing):
        c.give(BAD_ARGUMENT)
    c.call("pthread_mutex_lock", I32, c.place(handle, MUTEX))
    status = c.do(inner, *c.args)
    c.call("pthread_mutex_unlock", I32, c.place(handle, MUTEX))
    c.give(status)


def _write_inner(runtime: Runtime, name: str) -> ir.Value:
    layout, weights = runtime.parts.layout, runtime.parts.model.weights
    c = runtime.unit.function(name, I32, PTR, PTR, PTR, I64)
    handle, wanted, data, size = c.args
    held = {start.slot for start in layout.starts if start.state >= 0}
    rows = [(c.unit.text(w.name), layout.buffers + w.slot, w.array.nbytes, w.slot in held) for w in weights]
    table = c.unit.rows([PTR, I64, I64, I64], rows)
    with c.each(len(weights)) as i:
        row = c.place(table, c.b.mul(i, word(4)))
        differs = c.call("strcmp", I32, wanted, c.pointer(row, 0))
        with c.when(c.compare("==", differs, 0)):
            with c.unlikely(c.compare("!=", size, c.word(row, 2))):
                text = f"{runtime.name}: {name} takes %lld bytes for this weight, got %lld"
                refuse(runtime, c, handle, BAD_ARGUMENT, text, c.word(row, 2), size)
            if name == "get_weight":
                c.copy(data, c.pointer(handle, c.word(row, 1)), size)
            else:
                _set(runtime, c, handle, i, row)
            c.give(OK)
    refuse(runtime, c, handle, BAD_ARGUMENT, f"{runtime.name}: there is no weight %s", wanted)
    return c.function


def _set(runtime: Runtime, c: Code, handle: ir.Value, number: ir.Value, row: ir.Value) -> None:
    """Copy data into a weight; one that all handles share is given memory of its own first."""
    _, _, data, size = c.args
    slot, owned = c.word(row, 1), c.b.add(number, word(runtime.parts.layout.owned))
    is_shared = c.b.and_(c.compare("==", c.word(row, 3), 0), c.is_null(c.pointer(handle, owned)))
    with c.when(is_shared):
        found = runtime.take(c, handle, size)
        with c.unlikely(c.is_null(found)):
            text = f"{runtime.name}: %lld bytes of memory must be there for a weight"
            refuse(runtime, c, handle, OUT_OF_MEMORY, text, size)
        c.put(handle, owned, found)
        c.put(handle, slot, found)
    c.copy(c.pointer(handle, slot), data, size)


def _seed(runtime: Runtime) -> None:
    """``seed``: random numbers start again."""
    model, layout = runtime.parts.model, runtime.parts.layout
    c = runtime.api("seed", VOID, PTR, I64)
    handle, seed = c.args
    with c.unlikely(c.is_null(handle)):
        c.give()
    c.call("pthread_mutex_lock", I32, c.place(handle, MUTEX))
    for generator in model.generators:
        state = c.pointer(handle, layout.buffers + generator.slot)
        c.put(state, 0, seed)
        c.put(state, 1, 0)
    c.call("pthread_mutex_unlock", I32, c.place(handle, MUTEX))
    c.give()

"""The builder of Loop IR: the scalar instructions as methods, and loops as ``with`` blocks.

It implements ``ScalarEmitter``, so an op's scalar code runs on it. A scalar that was computed before in the
same block or around it is not computed again; sums of indices, and of numbers, are computed at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import numpy as np

from weft.base.dtypes import DType, bool_, complex64, complex128, float32, float64, int64, kind, uint32
from weft.base.sizes import Size
from weft.loop import ir
from weft.loop.index import Extent, Index, Variable, divided
from weft.loop.ir import Block, Buffer, Const, Function, Local, Space, Statement, Value
from weft.loop.known import NUMBERS, Operand, compared, index_of, ordered, sign_of, with_known
from weft.ops.scalar import Number, ScalarEmitter

S = TypeVar("S", bound=Statement)
_BOOLS = frozenset({"eq", "lt", "le"})
_PARTS: dict[DType, DType] = {complex64: float32, complex128: float64}
_WHOLES: dict[DType, DType] = {float32: complex64, float64: complex128}
_EXACT = frozenset({float32, float64, int64})  # whose arithmetic is NumPy's
_FOLDED: dict[str, Any] = {"neg": np.negative, "add": np.add, "sub": np.subtract, "mul": np.multiply}


At = Index | Extent  # a place in a buffer, or a number of elements


def _one(name: str) -> Callable[[Builder, Operand], Value]:
    return lambda self, x: self.instruction(name, x)


def _two(name: str) -> Callable[[Builder, Operand, Operand], Value]:
    return lambda self, x, y: self.instruction(name, x, y)


def _known(name: str, find: Callable[[Operand, Operand], Value | None]) -> Callable[..., Value]:
    return lambda self, x, y: find(x, y) or self.instruction(name, x, y)


def _extreme(name: str, place: int) -> Callable[..., Value]:
    return lambda self, x, y: found[place] if (found := ordered(x, y)) else self.instruction(name, x, y)


class Builder:
    """Writes statements into the block that is open.

    >>> import weft, numpy as np
    >>> from weft.loop.builder import Builder
    >>> b = Builder()
    >>> x, y = b.buffer("x", np.dtype("f4"), 8), b.buffer("y", np.dtype("f4"), 8)
    >>> with b.vector(8) as i:
    ...     b.store(y, i, b.tanh(b.mul(b.load(x, i), 2.0)))
    >>> function = b.function("f", written=[y])

    Attributes:
        single: whether float64 is dear, so that code which has a form without it takes that.
    """

    def __init__(self, *, single: bool = False) -> None:
        self.single = single
        self.block = Block()
        self.buffers: list[Buffer] = []
        self.scratches: list[Buffer] = []
        self._known: list[dict[Hashable, Any]] = [{}]
        self._count = 0

    # Parameters and the end

    def buffer(self, name: str, dtype: DType, size: Extent) -> Buffer:
        """A parameter."""
        self.buffers.append(Buffer(name, dtype, size))
        return self.buffers[-1]

    def scratch(self, name: str, dtype: DType, size: int, space: Space = "private") -> Buffer:
        """A small buffer of each thread that runs the function, or of each block."""
        self.scratches.append(Buffer(name, dtype, size, space))
        return self.scratches[-1]

    def function(
        self,
        name: str,
        *,
        written: Sequence[Buffer],
        sizes: Sequence[str] = (),
        reuses: Sequence[tuple[int, int]] = (),
    ) -> Function:
        """What was written, as a function."""
        buffers, scratch = tuple(self.buffers), tuple(self.scratches)
        return Function(name, buffers, tuple(sizes), self.block, frozenset(written), scratch, tuple(reuses))

    def add_statement(self, statement: S) -> S:
        """Append to the open block."""
        self.block.statements.append(statement)
        return statement

    # Scalars

    def dtype(self, x: Value) -> DType:
        """The dtype of a scalar."""
        return x.dtype

    def constant(self, value: Number, dtype: DType) -> Value:
        """A number."""
        return Const(np.asarray(value).astype(dtype)[()] if dtype != bool_ else np.bool_(value), dtype)

    def scalar(self, instruction: str, args: Sequence[Value], dtype: DType) -> Value:
        """An instruction on scalars of which one at least has a dtype; equal ones are computed once."""
        if instruction in _FOLDED and dtype in _EXACT:
            numbers = [a.value for a in args if isinstance(a, Const)]
            if len(numbers) == len(args):
                with np.errstate(all="ignore"):
                    return Const(_FOLDED[instruction](*numbers), dtype)
        key = (instruction, dtype, *map(_identity, args))
        found: Value | None = self.recall(key)
        if found is None:
            found = self.add_statement(ir.Scalar(instruction, tuple(args), dtype))
            self.remember(key, found)
        return found

    def recall(self, key: Hashable) -> Any | None:
        """What was remembered under a key in the open block or around it."""
        for known in reversed(self._known):
            if key in known:
                return known[key]
        return None

    def remember(self, key: Hashable, value: object) -> None:
        """Keep something until the open block ends."""
        self._known[-1][key] = value

    # Instructions; what is known of some at once, of indices by their bounds, is not computed

    sqrt, floor, trunc, round = _one("sqrt"), _one("floor"), _one("trunc"), _one("round")
    exp, log, tanh, sigmoid = _one("exp"), _one("log"), _one("tanh"), _one("sigmoid")
    sin, cos, tan = _one("sin"), _one("cos"), _one("tan")
    neg, abs, not_, real, imag = _one("neg"), _one("abs"), _one("not_"), _one("real"), _one("imag")
    mul, div, rem, pow, atan2 = _two("mul"), _two("div"), _two("rem"), _two("pow"), _two("atan2")
    eq, xor, shl, shr = _two("eq"), _two("xor"), _two("shl"), _two("shr")
    add = _known("add", lambda x, y: index_of(operator.add, x, y))
    sub = _known("sub", lambda x, y: index_of(operator.sub, x, y))
    lt = _known("lt", lambda x, y: compared(x, y, strict=True))
    le = _known("le", lambda x, y: compared(x, y, strict=False))
    and_ = _known("and_", lambda x, y: with_known(x, y, False))
    or_ = _known("or_", lambda x, y: with_known(x, y, True))
    max, min = _extreme("max", 1), _extreme("min", 0)

    def select(self, condition: Operand, x: Operand, y: Operand) -> Value:
        """x where the condition holds, else y."""
        x, y = self._alike(x, y)
        if isinstance(condition, Const):
            return x if condition.value else y
        return self.scalar("select", (self._operand(condition, bool_), x, y), x.dtype)

    def cast(self, x: Operand, dtype: DType) -> Value:
        """x converted to dtype."""
        value = self._operand(x, dtype)
        return value if value.dtype == dtype else self.scalar("cast", (value,), dtype)

    def bitcast(self, x: Operand, dtype: DType) -> Value:
        """The bits of x as another dtype."""
        value = self._operand(x, dtype)
        return value if value.dtype == dtype else self.scalar("bitcast", (value,), dtype)

    def dot(self, name: str, total: Value, x: Operand, y: Operand) -> Value:
        """An instruction of ``weft.loop.dots``, by its name."""
        return self.scalar(name, (total, self._operand(x, uint32), self._operand(y, uint32)), total.dtype)

    def complex(self, re: Operand, im: Operand) -> Value:
        """A complex number of its parts."""
        parts = [self.cast(x, float32) if x.dtype.itemsize < 4 else x for x in self._alike(re, im)]
        return self.scalar("complex", parts, _WHOLES[parts[0].dtype])

    def instruction(self, name: str, *args: Operand) -> Value:
        """An instruction by its name; the dtype of its result follows from its operands'."""
        values = self._alike(*args)
        return self.scalar(name, values, _result(name, values[0].dtype))

    def _alike(self, *args: Operand) -> tuple[Value, ...]:
        """Operands of which those that are numbers get the dtype of the others."""
        dtype = next(a.dtype for a in args if not isinstance(a, NUMBERS))
        return tuple([self._operand(a, dtype) for a in args])

    def _operand(self, x: Operand, dtype: DType) -> Value:
        return self.constant(x, dtype) if isinstance(x, NUMBERS) else x

    # Indices

    def term(self, value: Value, stop: Extent | None = None) -> Index:
        """An int64 scalar as an index, with a bound that it is known to stay below (and at least 0)."""
        if isinstance(value, Index):
            return value
        if isinstance(value, Const):
            return Index.of(int(value.value))
        key = ("term", _identity(value))
        found: Index | None = self.recall(key)
        if found is None:
            found = Index.of(Variable(self._name("t"), stop, value))
            self.remember(key, found)
        return found

    def quotient(self, index: At, by: Extent) -> Index:
        """``index // by`` of an index that is not negative."""
        return self._divided(Index.of(index), by, 0)

    def remainder(self, index: At, by: Extent) -> Index:
        """``index % by`` of an index that is not negative."""
        return self._divided(Index.of(index), by, 1)

    def _divided(self, index: Index, by: Extent, part: int) -> Index:
        if isinstance(by, int) and by == 0:  # in code that never runs: there is no element
            return Index.of(0)
        parts = divided(index, by)
        if parts is not None:
            return parts[part]
        key = ("divided", _identity(index), by)
        found: tuple[Index, Index] | None = self.recall(key)
        if found is None:
            found = self._quotient_and_remainder(index, by)
            self.remember(key, found)
        return found[part]

    def _quotient_and_remainder(self, index: Index, by: Extent) -> tuple[Index, Index]:
        divisor = Index.of(by)
        below = index.below()
        known = isinstance(below, int) and isinstance(by, int)
        stop = -(-below // by) if known else None  # type: ignore[operator]
        quotient = self.term(self.scalar("div", (index, divisor), int64), stop)
        rest = self.scalar("rem", (index, divisor), int64)
        remainder = Index.of(Variable(self._name("t"), by, rest, (index, by, quotient)))
        return quotient, remainder

    # Memory

    def load(self, buffer: Buffer, index: At, mask: Value | None = None) -> Value:
        """The element at an index."""
        return self.add_statement(ir.Load(buffer, Index.of(index), buffer.dtype, mask))

    def store(self, buffer: Buffer, index: At, value: Operand, mask: Value | None = None) -> None:
        """The element at an index becomes a value; a number is converted."""
        self.add_statement(ir.Store(buffer, Index.of(index), self._operand(value, buffer.dtype), mask))

    def copy(self, target: Buffer, at: At, source: Buffer, start: At, count: At) -> None:
        """Elements from one place to another."""
        self.add_statement(ir.Copy(target, Index.of(at), source, Index.of(start), Index.of(count)))

    # Locals

    def local(self, value: Operand, dtype: DType | None = None) -> Local:
        """A variable that begins with a value; the dtype is that of a number."""
        if isinstance(value, NUMBERS):
            assert dtype is not None
            value = self.constant(value, dtype)
        local = Local(value.dtype, self._name("v"))
        self.add_statement(ir.Declare(local, value))
        return local

    def get(self, local: Local) -> Value:
        """What a local holds now."""
        return self.add_statement(ir.Get(local, local.dtype))

    def set(self, local: Local, value: Operand) -> None:
        """Give a local another value."""
        self.add_statement(ir.Set(local, self._operand(value, local.dtype)))

    def accumulate(self, local: Local, instruction: str, value: Value) -> None:
        """``local = instruction(local, value)``, in a fixed order."""
        self.add_statement(ir.Accumulate(local, instruction, value))

    # Structure

    def _name(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    @contextmanager
    def inside(self, block: Block) -> Iterator[Block]:
        """Write into another block for a while."""
        outer, self.block = self.block, block
        self._known.append({})
        try:
            yield block
        finally:
            self._known.pop()
            self.block = outer

    @contextmanager
    def _loop(self, start: At, stop: At, kind: ir.LoopKind, lanes: int = 0) -> Iterator[Index]:
        bound = stop if isinstance(stop, int | Size) else None
        if isinstance(stop, Index):
            bound = stop.offset if stop.is_fixed else (stop.bounds() or (None, None))[1]
        if not isinstance(start, int) or start < 0:
            bound = bound if Index.of(start).below() is not None else None
        variable = Variable(self._name("i"), bound)
        body = Block()
        with self.inside(body):
            yield Index.of(variable)
        self.add_statement(ir.Loop(variable, Index.of(start), Index.of(stop), body, kind, lanes))

    def loop(self, stop: At, start: At = 0) -> AbstractContextManager[Index]:
        """A serial loop: ``with b.loop(n) as i``."""
        return self._loop(start, stop, "serial")

    def vector(self, stop: At, start: At = 0, lanes: int = 0) -> AbstractContextManager[Index]:
        """A loop whose iterations may run several at a time."""
        return self._loop(start, stop, "vector", lanes)

    def parallel(self, stop: At) -> AbstractContextManager[Index]:
        """A loop whose iterations are shared out among threads; the last statement of a function."""
        return self._loop(0, stop, "parallel")

    def threads(self, stop: int) -> AbstractContextManager[Index]:
        """The threads of a block, a fixed number; the last statement of a parallel loop."""
        return self._loop(0, stop, "threads")

    def barrier(self) -> None:
        """Here the threads of a block wait for each other."""
        self.add_statement(ir.Barrier())

    @contextmanager
    def if_(self, condition: Value) -> Iterator[Block]:
        """Statements that run where a condition holds; yields the block of those that run where not.

        Write into that one with ``inside`` after this block has ended, since it knows nothing of it.
        """
        then, otherwise = Block(), Block()
        with self.inside(then):
            yield otherwise
        self.add_statement(ir.If(condition, then, otherwise))

    @contextmanager
    def while_(self, test: Callable[[], Value]) -> Iterator[None]:
        """Statements that run again while ``test()``, a function that writes code, gives a bool."""
        before, body = Block(), Block()
        with self.inside(before):
            condition = test()
        with self.inside(body):
            yield
        self.add_statement(ir.While(before, condition, body))

    def sign(self, x: Value) -> int:
        """See ``weft.ops.elementary.known_sign``."""
        return sign_of(x)

    # The rest of the statements

    def fail(self, condition: Value, number: int, *values: Value) -> None:
        """Note a failure where a condition holds."""
        if isinstance(condition, Const) and not condition.value:
            return
        self.add_statement(ir.Fail(condition, number, values))

    def matmul(
        self,
        a: tuple[Buffer, At],
        b: tuple[Buffer, At],
        c: tuple[Buffer, At],
        m: At,
        n: At,
        k: At,
        rows: tuple[At, At, At],
        *,
        transposed: tuple[bool, bool],
        add: bool = False,
        epilogue: Callable[[Value, Index, Index], Value] | None = None,
        batch: At | None = None,
        strides: Sequence[At] = (),
        bias: tuple[Buffer, At] | None = None,
    ) -> None:
        """A matrix product by the BLAS library; see ``Matmul``.

        The epilogue is given an element with its row and column, and writes code that gives what is stored.
        """
        of = Index.of
        places = ((a[0], of(a[1])), (b[0], of(b[1])), (c[0], of(c[1])))
        distances = (of(rows[0]), of(rows[1]), of(rows[2]))
        then = None if epilogue is None else self._epilogue(epilogue, c[0].dtype)
        many, apart = (None, ()) if batch is None else (of(batch), tuple(map(of, strides)))
        row = None if bias is None else (bias[0], of(bias[1]))
        sizes = of(m), of(n), of(k)
        self.add_statement(ir.Matmul(*places, *sizes, distances, transposed, add, then, many, apart, row))

    def _epilogue(self, code: Callable[[Value, Index, Index], Value], dtype: DType) -> ir.Epilogue:
        element, body = Local(dtype, self._name("v")), Block()
        row, column = Variable(self._name("i")), Variable(self._name("i"))
        with self.inside(body):
            self.set(element, code(self.get(element), Index.of(row), Index.of(column)))
        return ir.Epilogue(element, row, column, body)


def _result(name: str, dtype: DType) -> DType:
    if name in _BOOLS:
        return bool_
    if name in ("abs", "real", "imag") and kind(dtype) == "c":
        return _PARTS[dtype]
    return dtype


def _identity(x: Value) -> Hashable:
    """What makes two operands the same."""
    if isinstance(x, Const):
        return (x.dtype, np.asarray(x.value).tobytes())
    if isinstance(x, Index):
        return (frozenset(x.terms.items()), x.offset)
    return id(x)


_EMITTER: Callable[[], ScalarEmitter[Value]] = Builder  # it has every instruction, or this does not check

"""The builder of Loop IR: the scalar instructions as methods, and loops as ``with`` blocks.

It implements ``ScalarEmitter``, so an op's scalar code runs on it. A scalar that was computed before in the
same block or around it is not computed again; sums of indices, and of numbers, are computed at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.dtypes import DType, bool_, complex64, complex128, float32, float64, int64, kind
from weft.base.sizes import Size
from weft.loop.index import Extent, Index, Variable, divided
from weft.loop.ir import (
    Accumulate,
    Allocate,
    Barrier,
    Bind,
    Block,
    Buffer,
    Const,
    Copy,
    Declare,
    Epilogue,
    Fail,
    Free,
    Function,
    Get,
    Host,
    If,
    Launch,
    Leave,
    Load,
    Local,
    Loop,
    LoopKind,
    Matmul,
    Measure,
    Scalar,
    Set,
    Space,
    Statement,
    Store,
    Value,
    Wave,
    While,
)
from weft.loop.signs import sign_of
from weft.ops.scalar import INSTRUCTIONS

_BOOLS = frozenset({"eq", "lt", "le"})
_PARTS: dict[DType, DType] = {complex64: float32, complex128: float64}
_WHOLES: dict[DType, DType] = {float32: complex64, float64: complex128}
_EXACT = frozenset({float32, float64, int64})  # whose arithmetic is NumPy's
_FOLDED: dict[str, Any] = {"neg": np.negative, "add": np.add, "sub": np.subtract, "mul": np.multiply}


At = Index | Extent  # a place in a buffer, or a number of elements


class Builder:
    """Writes statements into the block that is open.

    >>> import weft, numpy as np
    >>> from weft.loop.builder import Builder
    >>> b = Builder()
    >>> x, y = b.buffer("x", np.dtype("f4"), 8), b.buffer("y", np.dtype("f4"), 8)
    >>> with b.vector(8) as i:
    ...     b.store(y, i, b.tanh(b.mul(b.load(x, i), 2.0)))
    >>> function = b.function("f", written=[y])
    """

    def __init__(self) -> None:
        self.block = Block()
        self.buffers: list[Buffer] = []
        self.scratches: list[Buffer] = []
        self._known: list[dict[Any, Any]] = [{}]
        self._count = 0

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The instructions that are not written out below."""

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

    def add_statement(self, statement: Statement) -> Any:
        """Append to the open block."""
        self.block.statements.append(statement)
        return statement

    # Scalars

    def dtype(self, x: Any) -> DType:
        """The dtype of a scalar."""
        dtype: DType = x.dtype
        return dtype

    def constant(self, value: Any, dtype: DType) -> Value:
        """A number."""
        return Const(np.asarray(value).astype(dtype)[()] if dtype != bool_ else np.bool_(value), dtype)

    def scalar(self, instruction: str, args: Sequence[Value], dtype: DType) -> Value:
        """An instruction on scalars of which one at least has a dtype; equal ones are computed once."""
        if instruction in _FOLDED and dtype in _EXACT and all(isinstance(a, Const) for a in args):
            with np.errstate(all="ignore"):
                return Const(_FOLDED[instruction](*[a.value for a in args]), dtype)  # type: ignore[union-attr]
        key = (instruction, dtype, *map(_identity, args))
        found = self.recall(key)
        if found is None:
            found = self.add_statement(Scalar(instruction, tuple(args), dtype))
            self.remember(key, found)
        return found  # type: ignore[no-any-return]

    def recall(self, key: Any) -> Any | None:
        """What was remembered under a key in the open block or around it."""
        for known in reversed(self._known):
            if key in known:
                return known[key]
        return None

    def remember(self, key: Any, value: Any) -> None:
        """Keep something until the open block ends."""
        self._known[-1][key] = value

    def select(self, condition: Any, x: Any, y: Any) -> Value:
        """x where the condition holds, else y."""
        if isinstance(condition, Const):
            chosen: Value = self._operand(x if condition.value else y, x if hasattr(x, "dtype") else y)
            return chosen
        x, y = self._alike(x, y)
        return self.scalar("select", (condition, x, y), x.dtype)

    def add(self, x: Any, y: Any) -> Value:
        """x + y."""
        return self._index_of(operator.add, x, y) or self._instruction("add", x, y)

    def sub(self, x: Any, y: Any) -> Value:
        """x - y."""
        return self._index_of(operator.sub, x, y) or self._instruction("sub", x, y)

    def _index_of(self, operation: Callable[..., Index], x: Any, y: Any) -> Index | None:
        """A sum or a difference as an index, if it is one of indices and whole numbers."""
        if not (isinstance(x, Index) or isinstance(y, Index)):
            return None
        parts = [int(v.value) if isinstance(v, Const) else v for v in (x, y)]
        return operation(*parts) if all(isinstance(v, Index | int) for v in parts) else None

    def max(self, x: Any, y: Any) -> Value:
        """The larger one; known at once for indices whose bounds tell it."""
        found = self._ordered(x, y)
        return found[1] if found else self._instruction("max", x, y)

    def min(self, x: Any, y: Any) -> Value:
        """The smaller one; known at once for indices whose bounds tell it."""
        found = self._ordered(x, y)
        return found[0] if found else self._instruction("min", x, y)

    def _ordered(self, x: Any, y: Any) -> tuple[Index, Index] | None:
        """The smaller and the larger one of indices, where their bounds tell."""
        for smaller, larger in ((x, y), (y, x)):
            known = self._compared(smaller, larger, strict=False)
            if known is not None and known.value:
                ends = [Index.of(int(v.value) if isinstance(v, Const) else v) for v in (smaller, larger)]
                return ends[0], ends[1]
        return None

    def lt(self, x: Any, y: Any) -> Value:
        """x < y; known at once for indices whose bounds tell it."""
        return self._compared(x, y, strict=True) or self._instruction("lt", x, y)

    def le(self, x: Any, y: Any) -> Value:
        """x <= y; known at once for indices whose bounds tell it."""
        return self._compared(x, y, strict=False) or self._instruction("le", x, y)

    def _compared(self, x: Any, y: Any, *, strict: bool) -> Const | None:
        left, right = _bounds(x), _bounds(y)
        if left is None or right is None or not any(isinstance(v, Index | Const) for v in (x, y)):
            return None
        if left[1] < right[0] or (not strict and left[1] == right[0]):
            return Const(np.bool_(True), bool_)
        if right[1] < left[0] or (strict and right[1] == left[0]):
            return Const(np.bool_(False), bool_)
        return None

    def and_(self, x: Any, y: Any) -> Value:
        """Bitwise and; of a truth that is known at once."""
        return self._with_known(x, y, False) or self._instruction("and_", x, y)

    def or_(self, x: Any, y: Any) -> Value:
        """Bitwise or; of a truth that is known at once."""
        return self._with_known(x, y, True) or self._instruction("or_", x, y)

    def _with_known(self, x: Any, y: Any, decides: bool) -> Value | None:
        for known, other in ((x, y), (y, x)):
            if isinstance(known, Const) and known.dtype == bool_ and hasattr(other, "dtype"):
                return known if bool(known.value) == decides else other
        return None

    def cast(self, x: Any, dtype: DType) -> Value:
        """x converted to dtype."""
        return x if x.dtype == dtype else self.scalar("cast", (x,), dtype)

    def bitcast(self, x: Any, dtype: DType) -> Value:
        """The bits of x as another dtype."""
        return x if x.dtype == dtype else self.scalar("bitcast", (x,), dtype)

    def complex(self, re: Any, im: Any) -> Value:
        """A complex number of its parts."""
        re, im = (self.cast(x, float32) if x.dtype.itemsize < 4 else x for x in self._alike(re, im))
        return self.scalar("complex", (re, im), _WHOLES[re.dtype])

    def _instruction(self, name: str, *args: Any) -> Value:
        args = self._alike(*args)
        return self.scalar(name, args, self._result(name, args[0].dtype))

    def _result(self, name: str, dtype: DType) -> DType:
        if name in _BOOLS:
            return bool_
        if name in ("abs", "real", "imag") and kind(dtype) == "c":
            return _PARTS[dtype]
        return dtype

    def _alike(self, *args: Any) -> tuple[Any, ...]:
        typed = next(a for a in args if hasattr(a, "dtype") and not isinstance(a, np.generic))
        return tuple(self._operand(a, typed) for a in args)

    def _operand(self, x: Any, typed: Any) -> Any:
        if _is_number(x):
            return self.constant(x, typed.dtype)
        return x

    # Indices

    def term(self, value: Any, stop: Extent | None = None) -> Index:
        """An int64 scalar as an index, with a bound that it is known to stay below (and at least 0)."""
        if isinstance(value, Index):
            return value
        if isinstance(value, Const):
            return Index.of(int(value.value))
        key = ("term", _identity(value))
        found = self.recall(key)
        if found is None:
            found = Index.of(Variable(self._name("t"), stop, value))
            self.remember(key, found)
        return found

    def quotient(self, index: Any, by: Extent) -> Index:
        """``index // by`` of an index that is not negative."""
        return self._divided(Index.of(index), by, 0)

    def remainder(self, index: Any, by: Extent) -> Index:
        """``index % by`` of an index that is not negative."""
        return self._divided(Index.of(index), by, 1)

    def _divided(self, index: Index, by: Extent, part: int) -> Index:
        if isinstance(by, int) and by == 0:  # in code that never runs: there is no element
            return Index.of(0)
        parts = divided(index, by)
        if parts is not None:
            return parts[part]
        key = ("divided", _identity(index), by)
        found = self.recall(key)
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

    def measure(self, size: Extent) -> Value:
        """The value of a number of elements."""
        return Index.of(size)

    # Memory

    def load(self, buffer: Buffer, index: Any, mask: Any = None) -> Value:
        """The element at an index."""
        return self.add_statement(Load(buffer, Index.of(index), buffer.dtype, mask))  # type: ignore[no-any-return]

    def store(self, buffer: Buffer, index: Any, value: Any, mask: Any = None) -> None:
        """The element at an index becomes a value; a number is converted."""
        value = self._operand(value, buffer)
        self.add_statement(Store(buffer, Index.of(index), value, mask))

    def copy(self, target: Buffer, at: Any, source: Buffer, start: Any, count: Any) -> None:
        """Elements from one place to another."""
        self.add_statement(Copy(target, Index.of(at), source, Index.of(start), Index.of(count)))

    # Locals

    def local(self, value: Any, dtype: DType | None = None) -> Local:
        """A variable that begins with a value."""
        value = self.constant(value, dtype) if dtype is not None and _is_number(value) else value
        local = Local(value.dtype, self._name("v"))
        self.add_statement(Declare(local, value))
        return local

    def get(self, local: Local) -> Value:
        """What a local holds now."""
        return self.add_statement(Get(local, local.dtype))  # type: ignore[no-any-return]

    def set(self, local: Local, value: Any) -> None:
        """Give a local another value."""
        value = self._operand(value, local)
        self.add_statement(Set(local, value))

    def accumulate(self, local: Local, instruction: str, value: Value) -> None:
        """``local = instruction(local, value)``, in a fixed order."""
        self.add_statement(Accumulate(local, instruction, value))

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
    def _loop(self, start: Any, stop: Any, kind: LoopKind, lanes: int = 0) -> Iterator[Index]:
        bound = stop if isinstance(stop, int | Size) else None
        if isinstance(stop, Index):
            bound = stop.offset if stop.is_fixed else (stop.bounds() or (None, None))[1]
        if not isinstance(start, int) or start < 0:
            bound = bound if Index.of(start).below() is not None else None
        variable = Variable(self._name("i"), bound)
        body = Block()
        with self.inside(body):
            yield Index.of(variable)
        self.add_statement(Loop(variable, Index.of(start), Index.of(stop), body, kind, lanes))

    def loop(self, stop: Any, start: Any = 0) -> Any:
        """A serial loop: ``with b.loop(n) as i``."""
        return self._loop(start, stop, "serial")

    def vector(self, stop: Any, start: Any = 0, lanes: int = 0) -> Any:
        """A loop whose iterations may run several at a time."""
        return self._loop(start, stop, "vector", lanes)

    def parallel(self, stop: Any) -> Any:
        """A loop whose iterations are shared out among threads; the last statement of a function."""
        return self._loop(0, stop, "parallel")

    def threads(self, stop: int) -> AbstractContextManager[Index]:
        """The threads of a block, a fixed number; the last statement of a parallel loop."""
        return self._loop(0, stop, "threads")

    def barrier(self) -> None:
        """Here the threads of a block wait for each other."""
        self.add_statement(Barrier())

    @contextmanager
    def if_(self, condition: Value) -> Iterator[Block]:
        """Statements that run where a condition holds; yields the block of those that run where not.

        Write into that one with ``inside`` after this block has ended, since it knows nothing of it.
        """
        then, otherwise = Block(), Block()
        with self.inside(then):
            yield otherwise
        self.add_statement(If(condition, then, otherwise))

    @contextmanager
    def while_(self, test: Any) -> Iterator[None]:
        """Statements that run again while ``test()``, a function that writes code, gives a bool."""
        before, body = Block(), Block()
        with self.inside(before):
            condition = test()
        with self.inside(body):
            yield
        self.add_statement(While(before, condition, body))

    def sign(self, x: Any) -> int:
        """See ``weft.ops.elementary.known_sign``."""
        return sign_of(x)

    # The rest of the statements

    def fail(self, condition: Value, number: int, *values: Any) -> None:
        """Note a failure where a condition holds."""
        if isinstance(condition, Const) and not condition.value:
            return
        self.add_statement(Fail(condition, number, values))

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
    ) -> None:
        """A matrix product by the BLAS library; see ``Matmul``.

        The epilogue is given an element with its row and column, and writes code that gives what is stored.
        """
        of = Index.of
        places = ((a[0], of(a[1])), (b[0], of(b[1])), (c[0], of(c[1])))
        distances = (of(rows[0]), of(rows[1]), of(rows[2]))
        then = None if epilogue is None else self._epilogue(epilogue, c[0].dtype)
        self.add_statement(Matmul(*places, of(m), of(n), of(k), distances, transposed, add, then))

    def _epilogue(self, code: Callable[[Value, Index, Index], Value], dtype: DType) -> Epilogue:
        element, body = Local(dtype, self._name("v")), Block()
        row, column = Variable(self._name("i")), Variable(self._name("i"))
        with self.inside(body):
            self.set(element, code(self.get(element), Index.of(row), Index.of(column)))
        return Epilogue(element, row, column, body)


def _bounds(x: Any) -> tuple[int, int] | None:
    """The least and the largest value of an index or a whole number, where they are known."""
    if isinstance(x, Index):
        return x.bounds()
    number = x.value if isinstance(x, Const) and x.dtype == int64 else x
    return (int(number), int(number)) if isinstance(number, int | np.integer) else None


def _is_number(x: Any) -> bool:
    """Whether an operand is a number of Python or NumPy, and not yet a scalar of the IR."""
    return isinstance(x, np.generic) or not hasattr(x, "dtype")


def _identity(x: Any) -> Any:
    """What makes two operands the same."""
    if isinstance(x, Const):
        return (x.dtype, np.asarray(x.value).tobytes())
    if isinstance(x, Index):
        return (frozenset(x.terms.items()), x.offset)
    return id(x)


def _method(name: str) -> Any:
    def method(self: Builder, *args: Any) -> Value:
        return self._instruction(name, *args)

    method.__name__ = name
    return method


for _name in INSTRUCTIONS:
    if _name not in vars(Builder):
        setattr(Builder, _name, _method(_name))

__all__ = ["Allocate", "Bind", "Builder", "Free", "Host", "Launch", "Leave", "Measure", "Wave"]

"""Random well-formed functions of Loop IR, for properties that must hold of every function.

``functions()`` is a hypothesis strategy of pairs (function, arrays for its buffers); ``sized_functions()``
gives (function, arrays, values of its named sizes). What a function computes is the same to the last bit
whether products and sums are fused, in whichever order sums are accumulated, and on any machine (but for the
bits of a NaN and the sign of a zero, which ``assert_same`` does not see). So floats that
are multiplied or accumulated are whole numbers, so small that all sums and products are exact; others are
only moved, compared, added and rounded. What floats become that do not fit an integer is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from weft.base.dtypes import (
    DTYPES,
    INTEGERS,
    DType,
    bool_,
    complex64,
    complex128,
    float64,
    int64,
    integer_range,
    kind,
)
from weft.base.sizes import named_size
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer, Function, Local, Matmul

Array = np.ndarray[Any, Any]
SMALL = 8  # floats in memory that are whole numbers lie between -SMALL and SMALL
WILD = [np.inf, -np.inf, np.nan, -0.0, 0.5, -2.75, 1e4, 1e-3, 0.1]


@dataclass(frozen=True)
class Number:
    """A scalar and what is known of it.

    Attributes:
        value: the scalar.
        bound: it is whole and lies between -bound and bound; None where that is not known.
        varies: whether it differs between lanes of the vector loop around.
    """

    value: Any
    bound: int | None
    varies: bool

    @property
    def dtype(self) -> DType:
        dtype: DType = self.value.dtype
        return dtype


@dataclass
class Around:
    """A loop around the statements that are written: its variable stays below ``count``."""

    index: Index
    count: int
    extent: Any
    kind: str


@dataclass
class Sum:
    """A local that the loops inside it accumulate."""

    local: Local
    instruction: str
    bound: int
    depth: int  # number of loops around its declaration


def functions() -> st.SearchStrategy[tuple[Function, list[Array]]]:
    """Functions without named sizes, and arrays for their buffers, written ones included."""
    return _drawn(False).map(lambda drawn: drawn[:2])


def sized_functions() -> st.SearchStrategy[tuple[Function, list[Array], dict[str, int]]]:
    """Functions, arrays for their buffers, and values of their named sizes."""
    return _drawn(True)


@st.composite
def _drawn(draw: Any, sized: bool) -> tuple[Function, list[Array], dict[str, int]]:
    sizes = {name: draw(st.integers(0, 19)) for name in ("n", "m")} if sized else {}
    return _Writer(draw, sizes).write()


def assert_same(actual: Sequence[Array], expected: Sequence[Array]) -> None:
    """Whether arrays are equal, NaN like NaN and -0.0 like 0.0."""
    for x, y in zip(actual, expected, strict=True):
        assert x.dtype == y.dtype
        if kind(x.dtype) == "f":  # of bfloat16, NumPy's tests do not know NaN
            x, y = x.astype(float64), y.astype(float64)
        np.testing.assert_array_equal(x, y)


def limit(dtype: DType) -> int:
    """Whole numbers up to here are exact in the arithmetic of a floating dtype."""
    return 2**53 if dtype in (float64, complex128) else 2**24


class _Writer:
    """A function while it is written."""

    def __init__(self, draw: Callable[[Any], Any], sizes: dict[str, int]) -> None:
        self.draw = draw
        self.b = Builder()
        self.sizes = sizes
        self.numbers: list[Number] = []
        self.locals: list[tuple[Local, int]] = []  # that can be set, with the number of loops around each
        self.sums: list[Sum] = []
        self.loops: list[Around] = []
        self.rounds: list[int] = []  # for each loop or while around, how often it runs at most
        self.inputs: dict[tuple[DType, bool], Buffer] = {}
        self.outputs: dict[DType, Buffer] = {}
        self.written: list[Buffer] = []
        self.wild: set[Buffer] = set()
        self.left = 0  # statements to write
        self.may_store = True

    # Choices

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def chance(self, one_in: int) -> bool:
        return bool(self.draw(st.integers(1, one_in)) == one_in)

    @property
    def in_vector(self) -> bool:
        return any(around.kind == "vector" for around in self.loops)

    def any_of(self, fits: Callable[[Number], bool]) -> Number | None:
        found = [x for x in self.numbers if fits(x)]
        return self.pick(found) if found else None

    def keep(self, value: Any, bound: int | None, *sources: Number) -> Number:
        out = Number(value, bound, any(x.varies for x in sources))
        self.numbers.append(out)
        return out

    # The whole

    def write(self) -> tuple[Function, list[Array], dict[str, int]]:
        self.left = self.draw(st.integers(6, 40))
        self.load()
        if self.chance(2):
            self.may_store = False  # each thread begins with what stands before a parallel loop
            self.statements(self.draw(st.integers(0, 4)))
            self.may_store = True
            with self.loop("parallel"):
                self.statements()
        else:
            self.statements()
            self.store()
        function = self.b.function("f", written=self.written, sizes=tuple(self.sizes))
        return function, [self.data(b) for b in function.buffers], self.sizes

    def statements(self, count: int | None = None) -> None:
        writers = [
            self.load,
            self.compute,
            self.compute,
            self.compute,
            self.declare,
            self.set,
            self.accumulate,
        ]
        writers += [self.gather, self.nest, self.nest, self.branch, self.repeat]
        if self.may_store:
            writers += [self.store, self.store, self.update, self.stage, self.copy, self.product]
        for _ in range(self.draw(st.integers(2, 8)) if count is None else count):
            if self.left <= 0:
                break
            self.left -= 1
            self.pick(writers)()
        if self.may_store and self.loops:
            self.store()

    # Memory

    def data(self, buffer: Buffer) -> Array:
        """Elements for a buffer."""
        rng = np.random.default_rng(self.draw(st.integers(0, 2**32 - 1)))
        n, dtype = buffer.size, buffer.dtype
        if kind(dtype) in "iu":
            low, high = integer_range(dtype)
            wide = rng.integers(low, high, n, dtype, endpoint=True)
            near = rng.integers(0 if low == 0 else -3, 9, n).astype(dtype)
            return np.where(rng.random(n) < 0.3, wide, near).astype(dtype)
        if kind(dtype) == "b":
            return rng.random(n) < 0.5  # type: ignore[return-value]
        if buffer in self.wild:
            return rng.choice(WILD, n).astype(dtype)
        whole = rng.integers(-SMALL, SMALL, n, endpoint=True).astype(np.float64)
        if kind(dtype) == "c":
            whole = whole + 1j * rng.integers(-SMALL, SMALL, n, endpoint=True)  # type: ignore[assignment]
        return whole.astype(dtype)

    def source(self, dtype: DType, wild: bool, last: int) -> Buffer:
        """A buffer to read that has an element of this index."""
        key = dtype, wild and kind(dtype) == "f"
        if key not in self.inputs:
            self.inputs[key] = self.b.buffer(f"x{len(self.inputs)}", dtype, 1)
            if key[1]:
                self.wild.add(self.inputs[key])
        buffer = self.inputs[key]
        buffer.size = max(buffer.size, last + 1)
        return buffer

    def affine(self) -> tuple[Index, int, bool]:
        """An index that is never negative, the largest that it can be, and whether it varies."""
        offset = self.draw(st.integers(0, 3))
        index, last, varies = Index.of(offset), offset, False
        for around in self.loops:
            stride = self.pick([0, 1, 1, 1, 2, -1])
            if stride < 0 and isinstance(around.extent, int):
                index = index + (around.count - 1) - around.index
            elif stride:
                index = index + around.index * abs(stride)
            last += max(around.count - 1, 0) * abs(stride)
            varies |= stride != 0 and around.kind == "vector"
        return index, last, varies

    def load(self) -> None:
        dtype = self.pick(DTYPES)
        index, last, varies = self.affine()
        mask = self.mask(index, last, varies) if self.chance(4) else None
        if mask is not None:
            last = mask[1]
            varies |= mask[0].varies
        buffer = self.source(dtype, self.chance(4), last)
        out = self.b.load(buffer, index, None if mask is None else mask[0].value)
        bound = None if buffer in self.wild or kind(dtype) in "iu" else SMALL
        self.numbers.append(Number(out, bound, varies))

    def mask(self, index: Index, last: int, varies: bool) -> tuple[Number, int] | None:
        """A condition, and the last element that may be read where it holds."""
        if self.chance(2):
            inside = self.draw(st.integers(0, last))
            return Number(self.b.le(index, inside), 1, varies), inside
        found = self.any_of(lambda x: x.dtype == bool_)
        return None if found is None else (found, last)

    def gather(self) -> None:
        """A load at a computed index."""
        x = self.any_of(lambda x: kind(x.dtype) in "iu")
        if x is None:
            return
        n = self.draw(st.integers(1, 6))
        near = self.b.cast(self.b.rem(x.value, n), int64)
        at = self.b.term(self.b.max(near, 0), n)
        dtype = self.pick(DTYPES)
        buffer = self.source(dtype, False, 2 * n)
        out = self.b.load(buffer, at * self.pick([1, 2]) + self.pick([0, 1]))
        self.keep(out, None if kind(dtype) in "iu" else SMALL, x)

    def target(self, dtype: DType, elements: int = 1) -> tuple[Buffer, Index, int]:
        """A place to write that differs in each iteration of the loops around, and its last element."""
        if dtype not in self.outputs:
            self.outputs[dtype] = self.b.buffer(f"y{len(self.outputs)}", dtype, 0)
            self.written.append(self.outputs[dtype])
        buffer = self.outputs[dtype]
        index, stride, count = Index.of(buffer.size), elements, elements
        for around in self.draw(st.permutations(self.loops)):
            index = index + around.index * stride
            stride = stride * around.extent
            count *= around.count
        buffer.size += count
        return buffer, index, buffer.size - 1

    def store(self) -> None:
        x = self.pick(self.numbers)
        buffer, index, _ = self.target(x.dtype)
        mask = self.any_of(lambda x: x.dtype == bool_) if self.chance(4) else None
        self.b.store(buffer, index, x.value, None if mask is None else mask.value)

    def update(self) -> None:
        """Read an element, and write it again."""
        x = self.pick(self.numbers)
        buffer, index, _ = self.target(x.dtype)
        old = Number(self.b.load(buffer, index), SMALL if kind(x.dtype) in "fcb" else None, self.in_vector)
        out = self.combined(old, x)
        self.b.store(buffer, index, (out or old).value)

    def stage(self) -> None:
        """Numbers on their way through scratch memory."""
        if self.in_vector:
            return
        n = self.draw(st.integers(1, 9))
        with self.loop("vector", n, start=0) as around:
            self.load()
            x = self.clamped(self.numbers[-1])
            buffer = self.b.scratch(f"s{len(self.b.scratches)}", x.dtype, n)
            self.b.store(buffer, around.index, x.value)
        with self.loop(self.pick(["serial", "vector"]), n, start=0) as around:
            out = self.b.load(buffer, self.pick([around.index, n - 1 - around.index]))
            self.numbers.append(Number(out, x.bound, around.kind == "vector"))
            self.store()

    def copy(self) -> None:
        if self.in_vector:
            return
        dtype, count = self.pick(DTYPES), self.draw(st.integers(0, 5))
        index, last, _ = self.affine()
        buffer, at, _ = self.target(dtype, count)
        self.b.copy(buffer, at, self.source(dtype, False, last + count), index, count)

    def product(self) -> None:
        """A small matrix product."""
        if self.in_vector or not self.chance(2):
            return
        dtype = self.pick([np.dtype("f4"), float64, complex64, complex128])
        m, n, k, rows = (self.draw(st.integers(1, 3)) for _ in range(4))
        transposed = self.draw(st.booleans()), self.draw(st.booleans())
        widths = (m if transposed[0] else k, k if transposed[1] else n, n)
        distances = tuple(Index.of(w + rows) for w in widths)
        a = self.source(dtype, False, 40), Index.of(self.draw(st.integers(0, 4)))
        b = self.source(dtype, False, 40), Index.of(self.draw(st.integers(0, 4)))
        buffer, at, _ = self.target(dtype, (m - 1) * (n + rows) + n)
        sizes = [Index.of(x) for x in (m, n, k)]
        add = self.draw(st.booleans())
        self.b.add_statement(Matmul(a, b, (buffer, at), *sizes, distances, transposed, add))

    # Scalars

    def clamped(self, x: Number, bound: int = SMALL) -> Number:
        """A number that is surely small, where it is a float; of the same dtype."""
        if kind(x.dtype) not in "fc" or (x.bound is not None and x.bound <= bound):
            return x
        if kind(x.dtype) == "c":
            parts = [self.part(x, name) for name in ("real", "imag")]
            re, im = (self.clamped(part, bound) for part in parts)
            return replace(x, value=self.b.complex(re.value, im.value), bound=bound)
        if x.bound is None:
            known = self.b.eq(x.value, x.value)
            whole = self.b.select(known, self.b.floor(x.value), self.b.constant(0, x.dtype))
            x = replace(x, value=whole)
        return replace(x, value=self.b.min(self.b.max(x.value, -bound), bound), bound=bound)

    def part(self, x: Number, name: str) -> Number:
        return replace(x, value=getattr(self.b, name)(x.value))

    def compute(self) -> None:
        x = self.pick(self.numbers)
        choose = {"b": self.of_bool, "i": self.of_integer, "u": self.of_integer, "f": self.of_float}
        self.pick(
            [choose.get(kind(x.dtype), self.of_complex)] * 4 + [self.convert, self.select, self.compare]
        )(x)

    def partner(self, x: Number) -> Number:
        """A number of the same dtype."""
        found = self.any_of(lambda y: y.dtype == x.dtype)
        assert found is not None
        return found

    def of_bool(self, x: Number) -> None:
        y = self.partner(x)
        name = self.pick(["and_", "or_", "xor", "not_"])
        args = (x.value,) if name == "not_" else (x.value, y.value)
        self.keep(getattr(self.b, name)(*args), 1, x, y)

    def of_integer(self, x: Number) -> None:
        y = self.partner(x)
        names = ["add", "sub", "mul", "div", "rem", "min", "max", "and_", "or_", "xor", "neg", "abs", "not_"]
        name = self.pick([*names, "shl", "shr", "pow", "bitcast"])
        if name in ("neg", "abs", "not_"):
            out = getattr(self.b, name)(x.value)
        elif name in ("shl", "shr"):
            out = getattr(self.b, name)(x.value, self.b.and_(y.value, x.dtype.itemsize * 8 - 1))
        elif name == "pow":
            out = self.b.pow(x.value, self.b.and_(y.value, 7))
        elif name == "bitcast":
            out = self.b.bitcast(x.value, self.pick([d for d in INTEGERS if d.itemsize == x.dtype.itemsize]))
        else:
            out = getattr(self.b, name)(x.value, y.value)
        self.keep(out, None, x, y)

    def of_float(self, x: Number) -> None:
        y = self.partner(x)
        name = self.pick(["neg", "abs", "floor", "trunc", "round", "sqrt", "div", "rem", "bits", "pair"])
        if name in ("neg", "abs", "floor", "trunc", "round"):
            self.keep(getattr(self.b, name)(x.value), x.bound, x)
        elif name == "sqrt":
            self.keep(self.b.sqrt(self.b.abs(self.clamped(x, 2**10).value)), None, x)
        elif name in ("div", "rem"):
            x, y = self.clamped(x, 2**10), self.clamped(y, 2**10)
            above = self.b.add(self.b.abs(y.value), 1.0)
            out = getattr(self.b, name)(x.value, above)
            self.keep(out, None if name == "div" else x.bound, x, y)
        elif name == "bits":
            whole = self.b.add(self.clamped(x, 2**10).value, 0.0)  # there is one zero then
            self.keep(self.b.bitcast(whole, np.dtype(f"i{x.dtype.itemsize}")), None, x)
        else:
            self.paired(x, y)

    def paired(self, x: Number, y: Number) -> None:
        out = self.combined(x, y)
        if out is not None:
            self.numbers.append(out)

    def combined(self, x: Number, y: Number) -> Number | None:
        """A sum, product, minimum or the like of two numbers of one dtype."""
        varies = x.varies or y.varies
        k = kind(x.dtype)
        if k in "biu":
            name = self.pick(["and_", "or_", "xor"])
            return Number(getattr(self.b, name)(x.value, y.value), 1 if k == "b" else None, varies)
        name = self.pick(["add", "sub", "mul"] + ["min", "max"] * (k == "f"))
        if x.bound is None or y.bound is None:
            return None if name == "mul" else Number(getattr(self.b, name)(x.value, y.value), None, varies)
        bound = {
            "mul": x.bound * y.bound * 2,
            "min": max(x.bound, y.bound),
            "max": max(x.bound, y.bound),
        }.get(name, x.bound + y.bound)
        if bound > limit(x.dtype):
            return None
        return Number(getattr(self.b, name)(x.value, y.value), bound, varies)

    def of_complex(self, x: Number) -> None:
        name = self.pick(["neg", "real", "imag", "conj", "pair", "pair"])
        if name in ("neg", "real", "imag"):
            self.keep(getattr(self.b, name)(x.value), x.bound, x)
        elif name == "conj":
            self.keep(self.b.complex(self.b.real(x.value), self.b.neg(self.b.imag(x.value))), x.bound, x)
        else:
            self.paired(x, self.partner(x))

    def compare(self, x: Number) -> None:
        y = self.partner(x)
        name = self.pick(["eq", "lt", "le"]) if kind(x.dtype) != "c" else "eq"
        self.keep(getattr(self.b, name)(x.value, y.value), 1, x, y)

    def select(self, x: Number) -> None:
        condition = self.any_of(lambda c: c.dtype == bool_)
        if condition is None:
            return
        y = self.partner(x)
        whole = x.bound is not None and y.bound is not None
        bound = max(x.bound or 0, y.bound or 0) if whole else None
        self.keep(self.b.select(condition.value, x.value, y.value), bound, x, y, condition)

    def convert(self, x: Number) -> None:
        dtype = self.pick(DTYPES)
        source, target = kind(x.dtype), kind(dtype)
        if source in "fc" and target in "iu":
            x = self.clamped(self.part(x, "real") if source == "c" else x, 100)
            value = self.b.abs(x.value) if target == "u" else x.value
            self.keep(self.b.cast(value, dtype), None, x)
        elif source in "iu" and target in "fc":
            small = self.b.and_(x.value, 127)  # likewise
            self.keep(self.b.cast(small, dtype), 127, x)
        elif target in "fc":
            x = self.clamped(x, 2**10)  # of which one rounding, or two, make the same
            self.keep(self.b.cast(x.value, dtype), x.bound and 2 * x.bound, x)
        else:
            self.keep(self.b.cast(x.value, dtype), 1 if target == "b" else None, x)

    # Locals

    def declare(self) -> None:
        x = self.clamped(self.pick(self.numbers))
        self.locals.append((self.b.local(x.value), len(self.loops)))
        self.read(self.locals[-1][0])

    def read(self, local: Local) -> None:
        bound = SMALL if kind(local.dtype) in "bfc" else None
        declared = next(depth for known, depth in self.locals if known is local)
        varies = any(around.kind == "vector" for around in self.loops[:declared])
        self.numbers.append(Number(self.b.get(local), bound, varies))

    def set(self) -> None:
        first = max((i + 1 for i, around in enumerate(self.loops) if around.kind != "serial"), default=0)
        own = [local for local, depth in self.locals if depth >= first]
        if not own:
            return
        local = self.pick(own)
        x = self.any_of(lambda x: x.dtype == local.dtype)
        if x is not None:
            self.b.set(local, self.clamped(x).value)
            self.read(local)

    def accumulate(self) -> None:
        usable = [s for s in self.sums if not any(a.kind == "parallel" for a in self.loops[s.depth :])]
        if not usable:
            return
        s = self.pick(usable)
        x = self.any_of(lambda x: x.dtype == s.local.dtype)
        if x is None:
            return
        if kind(x.dtype) in "fc":
            x = self.clamped(x)
            if s.instruction == "mul":
                sign = self.b.constant(self.pick([1, -1]), x.dtype)
                self.b.accumulate(s.local, "mul", sign)
                return
            s.bound += SMALL * int(np.prod(self.rounds))
        self.b.accumulate(s.local, s.instruction, x.value)

    # Structure

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget at the end what became known inside."""
        kept = len(self.numbers), len(self.locals), len(self.sums)
        yield
        del self.numbers[kept[0] :], self.locals[kept[1] :], self.sums[kept[2] :]

    @contextmanager
    def loop(self, how: str, count: int | None = None, start: int | None = None) -> Iterator[Around]:
        stop, extent, most = self.bounds(how) if count is None else (count, count, count)
        begin = self.pick([0, 0, 0, 1, 2]) if start is None and how != "parallel" else 0
        if how == "parallel":
            opened = self.b.parallel(stop)
        elif how == "vector":
            opened = self.b.vector(stop, begin, lanes=self.pick([0, 0, 4, 8]))
        else:
            opened = self.b.loop(stop, begin)
        with opened as index, self.scope():
            around = Around(index, most, extent, how)
            self.loops.append(around)
            self.rounds.append(most)
            self.numbers.append(Number(index, None, how == "vector"))
            yield around
            self.loops.pop()
            self.rounds.pop()

    def bounds(self, how: str) -> tuple[Any, Any, int]:
        """The end of a loop, the same or a larger number for strides, and the largest that it can be."""
        if self.sizes and self.chance(2):
            name = self.pick(list(self.sizes))
            return named_size(name), named_size(name), self.sizes[name]
        most = self.draw(st.integers(0, 21 if how == "vector" else 4))
        outer = [a for a in self.loops if a.kind != "vector" and isinstance(a.extent, int) and a.count <= 4]
        if outer and how != "parallel" and self.chance(4):
            around = self.pick(outer)
            return around.index + 1, around.count, around.count
        x = self.any_of(lambda x: kind(x.dtype) == "i" and not x.varies) if how != "parallel" else None
        if x is not None and self.chance(4):
            near = self.b.cast(self.b.rem(x.value, 5), int64)
            return self.b.term(self.b.max(near, 0), 5), 4, 4
        return most, most, most

    def nest(self) -> None:
        """A loop, around it what it accumulates."""
        if len(self.loops) >= 3:
            return
        how = "serial" if self.in_vector else self.pick(["serial", "vector", "vector"])
        begun = [self.begin_sum() for _ in range(self.draw(st.integers(0, 2)))]
        with self.loop(how):
            self.statements()
            self.accumulate()
        for s in begun:
            self.sums.remove(s)
            bound = s.bound if kind(s.local.dtype) in "bfc" and s.bound <= limit(s.local.dtype) else None
            self.numbers.append(Number(self.b.get(s.local), bound, self.in_vector))

    def begin_sum(self) -> Sum:
        x = self.clamped(self.pick(self.numbers))
        names = {"b": ["and_", "or_"], "f": ["add", "min", "max", "mul"], "c": ["add", "mul"]}
        name = self.pick(names.get(kind(x.dtype), ["add", "mul", "min", "max", "and_", "or_"]))
        self.sums.append(Sum(self.b.local(x.value), name, SMALL, len(self.loops)))
        return self.sums[-1]

    def branch(self) -> None:
        condition = self.any_of(lambda x: x.dtype == bool_ and not (self.in_vector and x.varies))
        if condition is None:
            return
        with self.b.if_(condition.value) as otherwise, self.scope():
            self.statements(self.draw(st.integers(1, 3)))
        if self.chance(2):
            with self.b.inside(otherwise), self.scope():
                self.statements(self.draw(st.integers(1, 3)))

    def repeat(self) -> None:
        """A while loop that counts."""
        if self.in_vector or len(self.rounds) >= 3:
            return
        count = self.draw(st.integers(0, 4))
        counter = self.b.local(0, int64)
        with self.b.while_(lambda: self.b.lt(self.b.get(counter), count)), self.scope():
            self.rounds.append(count)
            self.statements(self.draw(st.integers(1, 3)))
            self.rounds.pop()
            self.b.set(counter, self.b.add(self.b.get(counter), 1))

"""Random well-formed functions of Loop IR, for properties that must hold of every function.

``functions()`` is a hypothesis strategy of pairs (function, arrays for its buffers); ``sized_functions()``
gives (function, arrays, values of its named sizes). What a function computes is the same to the last bit
whether products and sums are fused, in whichever order sums are accumulated, and on any machine (but for the
bits of a NaN and the sign of a zero, which ``assert_same`` does not see). So floats that
are multiplied or accumulated are whole numbers, so small that all sums and products are exact; others are
only moved, compared, added and rounded. What floats become that do not fit an integer is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.loop.random_scalars import SMALL, WILD, Around, Array, Number, Scalars, Sum, limit
from weft.base.dtypes import (
    DTYPES,
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
from weft.loop.index import Index
from weft.loop.ir import Buffer, Function, Local, Matmul


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


class _Writer(Scalars):
    """A function while it is written."""

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

"""Random numbers of a function that is written at random: what is there, and what is computed of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from weft.base.dtypes import (
    DTYPES,
    INTEGERS,
    DType,
    bool_,
    complex128,
    float64,
    kind,
)
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer, Local

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


def limit(dtype: DType) -> int:
    """Whole numbers up to here are exact in the arithmetic of a floating dtype."""
    return 2**53 if dtype in (float64, complex128) else 2**24


class Scalars:
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

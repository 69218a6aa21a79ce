"""Numbers of Python whose value only a run tells: the index of a loop in the graph, ``int(t)``, ``t.item()``.

A ``Number`` computes as the Python number would, in int64, float64 and bool, and next to tensors it is weak
as Python's numbers are. Where Python must have the value itself (the index of a list, a shape, a key) the
root of the capture is asked, which leaves a guard; inside a loop or branch of the graph that is an error,
on which a loop of known length falls back to plain Python.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from weft.base.dtypes import bool_, float64, int64, scalar_dtype
from weft.base.records import NamedTuple
from weft.base.sizes import Size, named_size
from weft.capture.runtime.number_checks import (
    BITS,
    COUNT,
    bound_of,
    check_divisor,
    check_power,
    check_result,
    check_shift,
    may_overflow,
)
from weft.errors import CaptureError
from weft.ops import arithmetic, compare
from weft.ops.complex import absolute
from weft.ops.op import WeakNumber
from weft.ops.select import cast
from weft.ops.size import size_value
from weft.tensor.dispatch import captured_constant
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.staging import Unstaged

KINDS = {bool: bool_, int: int64, float: float64}
PLAIN = (bool, int, float)
_NUMBERS: Any = (bool, int, float, WeakNumber, Size, np.bool_, np.integer, np.floating)
_names = count()
_ARTICLE = {bool: "a bool", int: "an int", float: "a float"}


class Number(WeakNumber):
    """A Python bool, int or float that stands for a value of the graph.

    Attributes:
        kind: ``bool``, ``int`` or ``float``.
        tensor: its value, 0-d.
        form: an int as a polynomial in ints that nobody knows, so that ``(i + 2) - i`` is known to be 2;
            each is 0 or more. None where it is no such polynomial.
        bound: of an int, what its absolute value does not exceed; None if that is not known.
    """

    __slots__ = ("bound", "form", "kind", "tensor")

    __array_ufunc__ = None

    # The operators, which are attached below
    __add__: Any
    __sub__: Any
    __rsub__: Any
    __mul__: Any
    __truediv__: Any
    __floordiv__: Any
    __mod__: Any
    __neg__: Any
    __pos__: Any
    __abs__: Any
    __invert__: Any

    def __init__(self, kind: type, tensor: Any, form: Any = None, bound: int | None = None) -> None:
        self.kind = kind
        self.tensor = tensor
        self.form = form
        self.bound = 1 if kind is bool else bound

    @property
    def example(self) -> Any:  # type: ignore[override]
        """A Python number of its kind."""
        return self.kind()

    def in_dtype(self, dtype: Any) -> Any:
        """Its value as a tensor of a dtype."""
        return self.tensor if self.tensor.dtype == dtype else cast(self.tensor, dtype=dtype)

    def as_kind(self, kind: type) -> Any:
        """Its value as the tensor of a Python number of another kind."""
        return self.in_dtype(KINDS[kind])

    def next_to(self, tensor: Any) -> Any:
        """Its value as a tensor of the dtype that a Python number takes next to a tensor."""
        return self.in_dtype(scalar_dtype(self.example, tensor.dtype))

    def value(self) -> Any:
        """The Python number, from the root of the capture, which guards it; an error inside a region."""
        capture = thread.capture
        if capture is not None and capture.region:
            raise Unstaged(
                self.kind.__name__,
                f"Python needs the value of {_ARTICLE[self.kind]} here, which only a run tells inside a "
                "loop or branch of the graph",
                hint="compute with tensors here, or use a number that does not depend on them",
            )
        return self.kind(self.tensor.item())

    # What needs the value itself

    def __index__(self) -> int:
        if self.kind is float:
            raise TypeError("'float' object cannot be interpreted as an integer")
        return operator.index(self.value())

    def __int__(self) -> int:
        return int(self.value())

    def __float__(self) -> float:
        return float(self.value())

    def __complex__(self) -> complex:
        return complex(self.value())

    def __bool__(self) -> bool:
        return bool(self.value())

    def __hash__(self) -> int:
        return hash(self.value())

    def __reduce__(self) -> Any:
        return self.kind, (self.value(),)

    # As text: see weft.capture.runtime.text

    def __format__(self, spec: str) -> str:
        from weft.capture.runtime.text import mark_number

        return mark_number(self, spec)

    def __repr__(self) -> str:
        return format(self, "")

    # Parts

    @property
    def real(self) -> Number:
        """Itself."""
        return self

    @property
    def imag(self) -> Any:
        """Zero."""
        return 0.0 if self.kind is float else 0

    def conjugate(self) -> Number:
        """Itself."""
        return self

    def is_integer(self) -> Any:
        """Whether it is whole."""
        return self % 1 == 0

    @property
    def numerator(self) -> Number:
        """Of an int, itself."""
        return self if self.kind is not float else self.__getattr__("numerator")

    @property
    def denominator(self) -> int:
        """Of an int, one."""
        return 1 if self.kind is not float else self.__getattr__("denominator")

    def bit_length(self) -> Number:
        """Of an int, how many bits it takes."""
        size = abs(number_of(self._int("bit_length"))).tensor
        return Number(int, cast(compare.greater_equal(size, _powers()), dtype=int64).sum(), None, 63)

    def bit_count(self) -> Number:
        """Of an int, how many of its bits are set."""
        size = abs(number_of(self._int("bit_count"))).tensor
        bits = compare.bitwise_and(arithmetic.floor_divide(size, _powers()), captured_constant(np.array(1)))
        return Number(int, bits.sum(), None, 63)

    def _int(self, name: str) -> Number:
        return self if self.kind is not float else self.__getattr__(name)

    def __getattr__(self, name: str) -> Any:
        """Methods of Python's numbers that need the value itself."""
        if name.startswith("__") or not hasattr(self.kind, name):
            raise AttributeError(f"{self.kind.__name__!r} object has no attribute {name!r}")
        return getattr(self.value(), name)


def _powers() -> Any:
    """The powers of two that an int of 64 bits may have."""
    return captured_constant(2 ** np.arange(BITS, dtype=np.int64))


class LoopIndex(NamedTuple):
    """What is known of the index of a loop, whose name stands in the forms of numbers.

    It is kept by the capture: forms are sizes, and sizes may be kept for longer.

    Attributes:
        name: in forms.
        number: of indices that were named before.
        tensor: its value.
        low: what it is at least, as a form.
        high: what it is at most, likewise; None where that is not known.
    """

    name: str
    number: int
    tensor: Any
    low: Any
    high: Any


def fresh_index(tensor: Any, *, known_sign: bool = True, low: Any = 0, high: Any = None) -> Number:
    """The index of a loop: an int of its own, which is 0 or more if ``known_sign``."""
    if not known_sign:
        return Number(int, tensor, None, COUNT)
    count = next(_names)
    index = LoopIndex(f"i{count}", count, tensor, low, high)
    thread.capture.notes.indices[index.name] = index
    return Number(int, tensor, named_size(index.name), COUNT)


def number_of(x: Any) -> Number:
    """A plain number as a Number."""
    if isinstance(x, Number):
        return x
    if isinstance(x, Size):
        return Number(int, size_value(x, int64), x, COUNT)
    x = x.item() if isinstance(x, np.generic) else x
    kind = next(k for k in PLAIN if isinstance(x, k))
    if kind is int and not -(2**BITS) <= x < 2**BITS:
        raise CaptureError("int", f"ints next to values of a graph must fit into 64 bits, got {x}")
    known = (x, abs(x)) if kind is int else (None, None)
    return Number(kind, captured_constant(np.asarray(x, KINDS[kind])), *known)


def is_number(x: Any) -> bool:
    """Whether x is a Number, or a plain number that can become one."""
    return isinstance(x, _NUMBERS)


def higher_kind(a: type, b: type) -> Any:
    """The kind of a result of two kinds."""
    return PLAIN[max(PLAIN.index(a), PLAIN.index(b))]


# Arithmetic


_DIVISIONS = ("truediv", "floordiv", "mod")
_SIGNS = {"add": "+", "sub": "-", "mul": "*"}


def _form(name: str, x: Number, y: Number) -> Any:
    """The polynomial of a sum, difference or product of ints."""
    if name not in ("add", "sub", "mul") or x.form is None or y.form is None:
        return None
    out = getattr(operator, name)(x.form, y.form)
    return out if isinstance(out, int | Size) else None


def _arithmetic(name: str, op: Any, lowest: type) -> None:
    """Give Numbers a binary operator; the result is of the higher kind, at least the lowest."""

    def compute(x: Any, y: Any) -> Number:
        a, b = number_of(x), number_of(y)
        kind = higher_kind(lowest, higher_kind(a.kind, b.kind))
        operands = a.as_kind(kind), b.as_kind(kind)
        if name in _DIVISIONS and (isinstance(y, Number | Size) or y == 0):
            check_divisor(name, kind, *operands, b.form)
        out = op(*operands)
        if kind is not int:
            return Number(kind, out, _form(name, a, b))
        if may_overflow(name, a.bound, b.bound):
            check_result(_SIGNS[name], op, out, *operands)
        return Number(kind, out, _form(name, a, b), bound_of(name, a.bound, b.bound))

    _attach(name, compute, getattr(operator, name))


def _attach(name: str, compute: Callable[[Any, Any], Any], function: Callable[[Any, Any], Any]) -> None:
    """Both orders of an operator, with plain numbers, with tensors, and with what decides itself."""

    def forward(self: Number, other: Any) -> Any:
        if isinstance(other, Tensor):
            return function(self.next_to(other), other)
        return compute(self, other) if is_number(other) else NotImplemented

    def backward(self: Number, other: Any) -> Any:
        if isinstance(other, Tensor):
            return function(other, self.next_to(other))
        return compute(other, self) if is_number(other) else NotImplemented

    setattr(Number, f"__{name}__", forward)
    if name not in _COMPARISONS:
        setattr(Number, f"__r{name}__", backward)


def _power(x: Any, y: Any) -> Number:
    """A whole power of an int stays an int, unless the exponent is known to be negative."""
    whole = not isinstance(y, Number) and isinstance(y, int) and y < 0
    a, b = number_of(x), number_of(y)
    kind = float if whole else higher_kind(int, higher_kind(a.kind, b.kind))
    operands = a.as_kind(kind), b.as_kind(kind)
    out = Number(kind, arithmetic.pow(*operands))
    if kind is float:
        check_power(x, y, out.tensor, *operands)
    else:
        out.bound = _power_bound(a.bound, y)
        if out.bound is None:
            check_result("**", arithmetic.pow, out.tensor, *operands)
    return out


def _power_bound(limit: int | None, exponent: Any) -> int | None:
    """The limit of a power, if it is known to fit into 64 bits."""
    if limit is None or isinstance(exponent, Number | Size) or not 0 <= exponent <= BITS:
        return None
    return limit**exponent if limit**exponent < 2**BITS else None


def _compare(op: Any) -> Callable[[Any, Any], Number]:
    def compute(x: Any, y: Any) -> Number:
        a, b = number_of(x), number_of(y)
        kind = higher_kind(a.kind, b.kind)
        if kind is bool:
            kind = int
        return Number(bool, op(a.as_kind(kind), b.as_kind(kind)))

    return compute


def _bitwise(op: Any, sign: str) -> Callable[[Any, Any], Number]:
    def compute(x: Any, y: Any) -> Number:
        a, b = number_of(x), number_of(y)
        kind = higher_kind(a.kind, b.kind)
        if kind is float:
            raise TypeError("unsupported operand types for a bitwise operator: 'float'")
        operands = a.as_kind(kind), b.as_kind(kind)
        if sign in ("lshift", "rshift"):
            check_shift(sign, *operands, b.form)
        out = op(*operands)
        if sign == "lshift":
            check_result("<<", _shifted, out, *operands)
        return Number(kind, out)

    return compute


def _shifted(x: Any, by: Any) -> Any:
    """A float times a power of two."""
    return arithmetic.mul(x, arithmetic.pow(captured_constant(np.array(2.0)), by))


def _divmod(self: Any, other: Any) -> Any:
    return self // other, self % other


_COMPARISONS = {
    "lt": compare.less,
    "le": compare.less_equal,
    "gt": compare.greater,
    "ge": compare.greater_equal,
    "eq": compare.equal,
    "ne": compare.not_equal,
}
for _name, _op, _lowest in (
    ("add", arithmetic.add, int),
    ("sub", arithmetic.sub, int),
    ("mul", arithmetic.mul, int),
    ("truediv", arithmetic.div, float),
    ("floordiv", arithmetic.floor_divide, int),
    ("mod", arithmetic.remainder, int),
):
    _arithmetic(_name, _op, _lowest)
for _name, _op in _COMPARISONS.items():
    _attach(_name, _compare(_op), getattr(operator, _name))
for _name, _op in (
    ("and", compare.bitwise_and),
    ("or", compare.bitwise_or),
    ("xor", compare.bitwise_xor),
    ("lshift", compare.left_shift),
    ("rshift", compare.right_shift),
):
    _attach(_name, _bitwise(_op, _name), getattr(operator, f"{_name}_" if _name in ("and", "or") else _name))
_attach("pow", _power, operator.pow)
_attach("divmod", _divmod, _divmod)


def _unary(op: Any) -> Callable[[Number], Number]:
    def method(self: Number) -> Number:
        kind = higher_kind(int, self.kind)
        return Number(kind, op(self.as_kind(kind)), None, self.bound)

    return method


def _negative(self: Number) -> Number:
    out: Number = 0 - self
    return out if self.kind is not float else Number(float, arithmetic.neg(self.tensor))


Number.__neg__ = _negative
Number.__pos__ = _unary(lambda tensor: tensor)
Number.__abs__ = _unary(absolute)
Number.__invert__ = lambda self: -self - 1

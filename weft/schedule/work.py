"""How much work a kernel does: floating-point operations and bytes, counted in its loops.

And estimates of how long code takes, to decide what is worth sharing among threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from weft.base.dtypes import kind
from weft.base.sizes import Size
from weft.loop import ir
from weft.loop.index import Index, Variable
from weft.loop.ir import Block, Buffer, Function, Loop, Statement
from weft.loop.walk import statements
from weft.ops.cost import cost_of

UNKNOWN = 64  # what a number that only the run tells is taken for

Sizes = Mapping[str, int]
Known = dict[Variable, float]


def number_of(x: Any, sizes: Sizes) -> int:
    """An extent as a number; a size that only the run tells counts as ``UNKNOWN``.

    >>> from weft.base.sizes import named_size
    >>> from weft.schedule.work import number_of
    >>> number_of(named_size("n") * 2, {"n": 5})
    10
    """
    if not isinstance(x, Size):
        return int(x)
    return int(x.substitute({name: sizes.get(name, UNKNOWN) for name in x.names()}))


def count_bytes(statement: Statement, sizes: Sizes) -> int:
    """The bytes that a step reads and writes, each counted once."""
    if isinstance(statement, ir.Launch):
        return sum(_bytes(b, sizes) for b in statement.function.buffers)
    if isinstance(statement, ir.Copy):
        return int(2 * value_of(statement.count, sizes, {})) * statement.source.dtype.itemsize
    if isinstance(statement, ir.Host):
        return sum(_bytes(b, sizes) for b, _ in (*statement.inputs, *statement.outputs))
    if isinstance(statement, ir.Matmul):
        m, n, k = (value_of(x, sizes, {}) for x in (statement.m, statement.n, statement.k))
        batch = 1 if statement.batch is None else value_of(statement.batch, sizes, {})
        each = statement.a[0].dtype.itemsize, statement.c[0].dtype.itemsize
        return int((m * k + k * n) * batch) * each[0] + int(m * n * batch) * each[1]
    return 0


def _bytes(buffer: Buffer, sizes: Sizes) -> int:
    return number_of(buffer.size, sizes) * buffer.dtype.itemsize


def count_flops(statement: Statement, sizes: Sizes) -> int:
    """The floating-point operations of a step; a function such as exp counts as the instructions it takes."""
    if isinstance(statement, ir.Launch):
        return round(_block(statement.function.body, sizes, {}))
    return round(_own(statement, sizes, {})) if isinstance(statement, ir.Matmul) else 0


def trips_of(loop: Loop, sizes: Sizes, known: Known | None = None) -> float:
    """How often a loop goes round."""
    return max(0.0, value_of(loop.stop - loop.start, sizes, known or {}))


def value_of(x: Any, sizes: Sizes, known: Known) -> float:
    """The number that an index or a scalar stands for, as far as that can be told."""
    if isinstance(x, Index):
        total = float(number_of(x.offset, sizes))
        return total + sum(number_of(s, sizes) * _variable(v, sizes, known) for v, s in x.terms.items())
    if isinstance(x, ir.Const):
        return float(x.value)
    if isinstance(x, ir.Measure):
        return float(number_of(x.size, sizes))
    if isinstance(x, ir.Scalar) and x.instruction in _NUMBERS:
        return float(_NUMBERS[x.instruction](*[value_of(a, sizes, known) for a in x.args]))
    return UNKNOWN


def _variable(v: Variable, sizes: Sizes, known: Known) -> float:
    return known.get(v, UNKNOWN) if v.value is None else value_of(v.value, sizes, known)


_NUMBERS: dict[str, Any] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x // y if y else 0,
    "rem": lambda x, y: x % y if y else 0,
    "min": min,
    "max": max,
}


def _block(block: Block, sizes: Sizes, known: Known) -> float:
    return sum(_own(s, sizes, known) for s in block.statements)


def _own(s: Statement, sizes: Sizes, known: Known) -> float:
    if isinstance(s, ir.Scalar):
        return _instruction(s)
    if isinstance(s, ir.Accumulate):
        return 1.0 if kind(s.local.dtype) in "fc" else 0.0
    if isinstance(s, ir.Matmul):
        sides = (s.m, s.n, s.k) if s.batch is None else (s.m, s.n, s.k, s.batch)
        return 2.0 * prod(value_of(x, sizes, known) for x in sides)
    if isinstance(s, ir.If):
        return max(_block(s.then, sizes, known), _block(s.otherwise, sizes, known))
    if isinstance(s, ir.While):
        return UNKNOWN * (_block(s.test, sizes, known) + _block(s.body, sizes, known))
    return _loop(s, sizes, known) if isinstance(s, Loop) else 0.0


def _loop(s: Loop, sizes: Sizes, known: Known) -> float:
    """All iterations: those but the last as the one in the middle, since a last block may be cut short."""
    trips = trips_of(s, sizes, known)
    if trips < 1:
        return 0.0
    start = value_of(s.start, sizes, known)
    last = _block(s.body, sizes, {**known, s.variable: start + trips - 1})
    if trips < 2 or not _varies(s.body):
        return trips * last
    return (trips - 1) * _block(s.body, sizes, {**known, s.variable: start + (trips - 1) // 2}) + last


def _varies(block: Block) -> bool:
    """Whether a loop inside has bounds that depend on variables."""
    return any(isinstance(s, Loop) and not (s.stop - s.start).is_fixed for s in statements(block))


def _instruction(s: ir.Scalar) -> float:
    if kind(s.dtype) not in "fc":
        return 0.0
    single = float(cost_of(s.instruction).flops)
    if kind(s.dtype) != "c":
        return single
    return single * (6 if s.instruction in ("mul", "div") else 2)


def widest_float(function: Function) -> int:
    """The bytes of the widest floating-point number that a kernel works on; 4 if there is none."""
    return max([4, *[b.dtype.itemsize for b in function.buffers if kind(b.dtype) == "f"]])


SERIAL = 0.5  # ns a statement
LANES = 8  # statements of a vector loop that take as long as one


def iteration_cost(function: Function) -> float:
    """One iteration of the parallel loop of a function, in nanoseconds; all of it where it has none."""
    statements = function.body.statements
    if statements and isinstance(last := statements[-1], Loop) and last.kind == "parallel":
        return block_cost(last.body)
    return block_cost(function.body)


def block_cost(block: Block) -> float:
    """All statements of a block, in nanoseconds."""
    total = 0.0
    for s in block.statements:
        if isinstance(s, ir.Scalar):
            total += SERIAL * cost_of(s.instruction).time
        elif isinstance(s, ir.Load | ir.Store):
            total += SERIAL
        elif isinstance(s, Loop):
            inner = block_cost(s.body) * _extent(s)
            total += inner / LANES if s.kind == "vector" else inner
        elif isinstance(s, ir.If):
            total += max(block_cost(s.then), block_cost(s.otherwise))
        elif isinstance(s, ir.While):
            total += UNKNOWN * (block_cost(s.test) + block_cost(s.body))
        elif isinstance(s, ir.Copy):
            total += _known(s.count.offset) * 0.05
        elif isinstance(s, ir.Matmul):
            total += 2.0 * _length(s.m) * _length(s.n) * _length(s.k) / 50
        elif isinstance(s, ir.Launch | ir.Host):
            total += 100.0
    return total


def _extent(loop: Loop) -> float:
    """How often a loop turns; where its end is clipped, as often as it does before that."""
    return _length(loop.stop, loop.start)


def _length(stop: Index, start: Index | int = 0) -> float:
    """How far it is from a start to a stop; where that is clipped, how far before that."""
    for end in (stop, *_clipped(stop)):
        distance = end - start
        if distance.is_fixed:
            return _known(distance.offset)
    return UNKNOWN


def _clipped(stop: Index) -> list[Index]:
    """The ends that a loop's end is the smallest of."""
    if len(stop.terms) != 1:
        return []
    value = next(iter(stop.terms)).value
    if not isinstance(value, ir.Scalar) or value.instruction != "min":
        return []
    return [x for x in value.args if isinstance(x, Index) and x.terms]


def _known(x: object) -> float:
    return float(x) if isinstance(x, int) else float(UNKNOWN)

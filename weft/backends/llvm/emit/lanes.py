"""Which values of a vector loop differ from lane to lane, and how many lanes it runs at a time.

What is the same in all lanes is computed once, as a scalar. A loop whose iterations cannot go side by side,
because a loop or a while in it would end at another time in each lane, runs them one after another.
"""

from __future__ import annotations

from weft.backends.llvm.emit.types import HALVES, PARTS, Value
from weft.backends.llvm.target import Target
from weft.base.dtypes import DType, bool_
from weft.base.sizes import Size
from weft.loop import ir
from weft.loop.index import Index, Variable
from weft.loop.ir import Accumulate, Block, Declare, Load, Local, Loop, Scalar, Set, Statement, Store
from weft.loop.ir import Value as Expression
from weft.loop.walk import statements as statements
from weft.ops.cost import is_function

ASSIGNING = (Set, Accumulate, Declare)


class Varying:
    """What varies in a vector loop.

    Attributes:
        possible: whether its iterations can run side by side.
        reductions: the locals from outside that it accumulates into, with the instruction.
    """

    def __init__(self, loop: Loop) -> None:
        self.possible = True
        self.reductions: dict[Local, str] = {}
        self._found: set[Variable | Local | Scalar | Load | ir.Get] = {loop.variable}
        self._declared: set[Local] = set()
        self._walk(loop.body, masked=False)
        count = 0
        while count != len(self._found) and self.possible and not self._found.isdisjoint(self._declared):
            count = len(self._found)
            self._walk(loop.body, masked=False)  # again, since a local may vary by a later statement

    def __contains__(self, value: Expression | Local | Variable | Store) -> bool:
        if isinstance(value, Index):
            return any(map(self._differs, value.terms))
        return value in self._found

    def _differs(self, variable: Variable) -> bool:
        return variable in self._found if variable.value is None else variable.value in self

    def is_row(self, index: Index) -> bool:
        """Whether an index that varies goes from lane to lane by one element, or forward by two."""
        for variable, stride in index.terms.items():
            if not self._differs(variable):
                continue
            if variable.value is not None or isinstance(stride, Size) or stride not in (1, 2, -1):
                return False
        return True

    def _walk(self, block: Block, masked: bool) -> None:
        for s in block.statements:
            if isinstance(s, Scalar):
                if s not in self._found and any(map(self.__contains__, s.args)):
                    self._found.add(s)
            elif isinstance(s, Load):
                if s not in self._found and (s.index in self or (s.mask is not None and s.mask in self)):
                    self._found.add(s)
            elif isinstance(s, ASSIGNING):
                self._assign(s, masked)
            elif isinstance(s, ir.Get):
                if s.local in self._found:
                    self._found.add(s)
                self._require(s.local not in self.reductions)
            elif not isinstance(s, ir.Measure | ir.Fail):
                self._walk_inside(s, masked)

    def _assign(self, s: Declare | Set | Accumulate, masked: bool) -> None:
        if isinstance(s, Declare):
            self._declared.add(s.local)
        if s.local in self._declared:
            if masked or s.value in self:
                self._found.add(s.local)
        else:
            self._require(isinstance(s, Accumulate))
            if isinstance(s, Accumulate):
                self._require(self.reductions.setdefault(s.local, s.instruction) == s.instruction)

    def _walk_inside(self, s: Statement, masked: bool) -> None:
        if isinstance(s, Store):
            self._require(s.index in self)
        elif isinstance(s, Loop):
            self._require(s.start not in self and s.stop not in self)
            self._walk(s.body, masked)
        elif isinstance(s, ir.If):
            inside = masked or s.condition in self
            self._walk(s.then, inside)
            self._walk(s.otherwise, inside)
        elif isinstance(s, ir.While):
            self._walk(s.test, masked)
            self._require(s.condition not in self and not masked)
            self._walk(s.body, masked)
        else:
            self._require(False)

    def _require(self, condition: bool) -> None:
        self.possible = self.possible and condition


class Lanes:
    """The vector loop that is being written, if one is.

    Attributes:
        count: how many of its iterations are written at a time; 0 outside of one.
        varying: what differs from lane to lane in it.
        walking: its variable.
        mask: inside an if that lanes part in, the lanes that are active.
        reductions: the locals that are held in lanes, with the instruction that accumulates into them.
    """

    __slots__ = ("count", "mask", "reductions", "varying", "walking")

    count: int
    varying: Varying | None
    walking: Variable | None
    reductions: dict[Local, str]

    def __init__(self) -> None:
        self.mask: Value | None = None
        self.close()

    def open(self, loop: Loop, varying: Varying, count: int) -> None:
        """Begin to write lanes."""
        self.count, self.varying, self.walking = count, varying, loop.variable
        self.reductions = varying.reductions

    def close(self) -> None:
        """Write single elements again."""
        self.count, self.varying, self.walking, self.reductions = 0, None, None, {}


def lane_count(loop: Loop, varying: Varying, target: Target, extent: int | None) -> int:
    """How many iterations run at a time: some registers full, as many as the body leaves room for.

    >>> import numpy as np
    >>> from weft.backends.llvm.emit.lanes import Varying, lane_count
    >>> from weft.backends.llvm.target import Target
    >>> from weft.loop.builder import Builder
    >>> b = Builder()
    >>> x = b.buffer("x", np.dtype("f4"), 96)
    >>> with b.vector(96) as i:
    ...     b.store(x, i, b.neg(b.load(x, i)))
    >>> loop = b.block.statements[0]
    >>> lane_count(loop, Varying(loop), Target("", "", "", vector_bytes=64, registers=32), extent=96)
    32

    A chain of dependent instructions leaves the machine idle unless others run beside it: so sums take four
    registers, and long functions too where registers are small. Where the number of iterations is known, a
    count that divides it is preferred, since then nothing is left over that needs code of its own.
    """
    if loop.lanes:
        return loop.lanes
    widest, live, functions, scattered = _census(loop, varying)
    one = max(target.vector_bytes // widest, 1)
    narrow = target.vector_bytes == 16 and functions <= 2
    chains = narrow if functions else bool(varying.reductions)
    registers = 4 if chains and not scattered else 2
    while registers > 1 and live * registers > target.registers:
        registers //= 2
    if extent is not None and registers > 1 and extent % (one * registers):
        registers = registers // 2 if extent % (one * registers // 2) == 0 else registers
    return one * registers


def _census(loop: Loop, varying: Varying) -> tuple[int, int, int, bool]:
    """What a body needs: bytes of the widest number, live values, functions, and accesses lane by lane."""
    widest, functions, scattered = 1, 0, False
    for s in statements(loop.body):
        if isinstance(s, Scalar | Load) and s in varying:
            widest = max(widest, _register_bytes(s.dtype))
            functions += isinstance(s, Scalar) and is_function(s.instruction)
        elif isinstance(s, Store | Accumulate):
            widest = max(widest, _register_bytes(s.value.dtype))
        if isinstance(s, Load | Store) and s.index in varying:
            scattered |= not varying.is_row(s.index)
    return widest, max(live_values(loop.body, varying), 6 if functions else 1), functions, scattered


def _register_bytes(dtype: DType) -> int:
    if dtype == bool_:
        return 1
    if dtype in HALVES:
        return 4
    return PARTS[dtype].itemsize if dtype in PARTS else dtype.itemsize


def live_values(block: Block, varying: Varying) -> int:
    """The most values in lanes that wait for their last use at one time, roughly."""
    last: dict[Expression, int] = {}
    order = list(statements(block))
    for i, s in enumerate(order):
        for used in uses(s):
            last[used] = i
    ends = [0] * (len(order) + 1)
    live = most = 0
    for i, s in enumerate(order):
        if isinstance(s, Scalar | Load) and s in varying and s in last:
            live += 2 if s.dtype in PARTS else 1
            ends[last[s]] += 2 if s.dtype in PARTS else 1
        elif isinstance(s, Declare | Accumulate):
            live += isinstance(s, Declare) and s.local in varying
        most = max(most, live)
        live -= ends[i]
    return most + len(varying.reductions)


def uses(s: Statement) -> tuple[Expression, ...]:
    """The values that a statement names."""
    if isinstance(s, Scalar):
        return s.args
    if isinstance(s, ASSIGNING):
        return (s.value,)
    if isinstance(s, Store):
        return (s.value,) if s.mask is None else (s.value, s.mask)
    if isinstance(s, Load):
        return () if s.mask is None else (s.mask,)
    return ()


def assigned(*blocks: Block) -> list[Local]:
    """The locals that blocks set, in order, but for those that are declared in them."""
    inside = [s for block in blocks for s in statements(block) if isinstance(s, ASSIGNING)]
    declared = {s.local for s in inside if isinstance(s, Declare)}
    return list(dict.fromkeys([s.local for s in inside if s.local not in declared]))

"""Which products are fused with the sum that they go into, and so rounded once with it."""

from __future__ import annotations

from collections import Counter

from weft.backends.llvm.emit.lanes import statements, uses
from weft.loop.ir import Accumulate, Block, Scalar, Statement


def fusable(block: Block) -> set[Scalar]:
    """The products of a function that go into one sum, and nowhere else.

    One that is used twice is rounded, so that all see the same number: ``p - p`` is zero.
    """
    found: Counter[Scalar] = Counter()
    for s in statements(block):
        for x in uses(s):
            if isinstance(x, Scalar) and x.instruction == "mul":
                found[x] += 1 if _is_sum(s) else 2
    return {x for x, count in found.items() if count == 1}


def _is_sum(s: Statement) -> bool:
    return isinstance(s, Scalar | Accumulate) and s.instruction in ("add", "sub")

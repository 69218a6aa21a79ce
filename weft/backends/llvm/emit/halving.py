"""Which functions are rounded to half precision after all, so that a machine's quick ones are good enough."""

from __future__ import annotations

from collections.abc import Collection

from weft.backends.llvm.emit.lanes import statements, uses
from weft.backends.llvm.emit.types import HALVES
from weft.base.dtypes import float32
from weft.loop.ir import Block, Scalar, Statement

_PASSING = frozenset({"add", "sub", "mul", "div", "neg", "abs", "select"})  # whose results are as good


def halved(block: Block, functions: Collection[str]) -> set[Scalar]:
    """The calls of some functions whose results, or all that is computed of them, are half precision.

    What is stored, summed up, compared or looked at in float32 is not among them.

    >>> import numpy as np
    >>> from weft.backends.llvm.emit.halving import halved
    >>> from weft.loop.builder import Builder
    >>> b = Builder()
    >>> x, y = b.buffer("x", np.dtype("f4"), 1), b.buffer("y", np.dtype("f2"), 1)
    >>> b.store(y, 0, b.cast(b.mul(b.exp(b.load(x, 0)), 2.0), np.dtype("f2")))
    >>> b.store(x, 0, b.exp(b.add(b.load(x, 0), 1.0)))
    >>> len(halved(b.block, ["exp"]))
    1
    """
    found = statements(block)
    good: set[Scalar] = set()
    users: dict[Scalar, list[Statement]] = {}
    for s in found:
        for x in uses(s):
            if isinstance(x, Scalar):
                users.setdefault(x, []).append(s)
    for s in reversed(found):  # users come after what they use
        if not isinstance(s, Scalar):
            continue
        own = users.get(s, ())
        if s.dtype in HALVES or (s.dtype == float32 and own and all(_is_good(u, good) for u in own)):
            good.add(s)
    return {s for s in good if s.instruction in functions}


def _is_good(user: Statement, good: set[Scalar]) -> bool:
    if not isinstance(user, Scalar):
        return False
    halving = user.instruction == "cast" and user.dtype in HALVES
    return halving or (user.instruction in _PASSING and user in good)

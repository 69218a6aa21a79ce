"""Which functions may be a machine's quick ones, as half precision is all that their values have anyway.

Either what is computed of them is rounded to half precision after all; or they are powers of numbers that
were rounded so before, and are summed up, as in the logarithm of a softmax.
"""

from __future__ import annotations

from collections.abc import Collection

from weft.backends.llvm.emit.lanes import statements, uses
from weft.backends.llvm.emit.types import HALVES
from weft.base.dtypes import float32
from weft.loop.ir import Accumulate, Block, Scalar, Statement, Value
from weft.loop.known import sign_of

_PASSING = frozenset({"add", "sub", "mul", "div", "neg", "abs", "select"})  # whose results are as good


def halved(block: Block, functions: Collection[str]) -> set[Scalar]:
    """The calls of some functions whose results, or all that is computed of them, are half precision.

    What is stored, compared or looked at in float32 is not among them; what is summed up is, where it is a
    power between 0 and 1 of a number that comes from half precision.

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
    summed = {s for s, own in users.items() if s.dtype == float32 and _is_summed(s, own)}
    return {s for s in good | summed if s.instruction in functions}


def _is_summed(s: Scalar, users: list[Statement]) -> bool:
    """Whether a number is a power whose error is nothing beside that of its exponent, in sums alone."""
    if s.instruction != "exp" or sign_of(s.args[0]) >= 0 or not _is_of_halves(s.args[0]):
        return False
    return all(isinstance(user, Accumulate) and user.instruction == "add" for user in users)


def _is_of_halves(x: Value) -> bool:
    """Whether a number is a difference of others of which one was half precision, or a multiple of one."""
    if not isinstance(x, Scalar):
        return False
    if x.instruction == "cast":
        return getattr(x.args[0], "dtype", None) in HALVES
    return x.instruction in _PASSING and any(map(_is_of_halves, x.args))


def _is_good(user: Statement, good: set[Scalar]) -> bool:
    if not isinstance(user, Scalar):
        return False
    halving = user.instruction == "cast" and user.dtype in HALVES
    return halving or (user.instruction in _PASSING and user in good)

"""Loops of the main function that change an array in place, and whose iterations are independent, in vectors.

LLVM vectorises most loops itself. It cannot where a loop changes an array that it also reads elsewhere: here
the strides tell that the places are apart, or in which single iteration they meet, and the loop is cut there.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

from weft.loop.index import Index, Variable
from weft.loop.ir import Block, If, Load, Loop, LoopKind, Scalar, Store
from weft.loop.walk import blocks_of

LEAST = 32  # iterations: shorter loops are left to LLVM
_TRAPS = frozenset({"div", "rem"})  # of whole numbers by 0: not to be computed where nobody asked


def vectorise(block: Block) -> None:
    """Turn loops of a block, and of those inside, that change an array in place into vector loops."""
    statements: list[Any] = []
    for s in block.statements:
        for inner in blocks_of(s):
            vectorise(inner)
        statements += _in_vectors(s) if isinstance(s, Loop) and s.kind == "serial" else [s]
    block.statements[:] = statements


def _in_vectors(loop: Loop) -> list[Loop]:
    """The loops that do the work of one."""
    length = loop.stop - loop.start
    body = _straight(loop.body) if length.is_fixed else None
    if body is None or not isinstance(length.offset, int) or length.offset < LEAST:
        return [loop]
    touches = [s for s in body if isinstance(s, Load | Store)]
    if not _is_even(loop, body, touches) or not _changes_in_place(touches):
        return [loop]
    cuts = _find_cuts(loop, touches, length.offset)
    if cuts is None or len(cuts) > 1:
        return [loop]
    if not cuts:
        return [_part(loop, body, "", loop.start, loop.stop, "vector")]
    (at,) = cuts
    return [
        _part(loop, body, "a", loop.start, at, "vector"),
        _part(loop, body, "b", at, at + 1, "serial"),
        _part(loop, body, "c", at + 1, loop.stop, "vector"),
    ]


# Branches


def _straight(block: Block) -> list[Any] | None:
    """The scalars, loads and stores of a body without branches; None where it has other statements.

    A store in a branch that is not taken writes what was read from there before.
    """
    out: list[Any] = []
    for s in block.statements:
        if isinstance(s, If):
            taken = None if s.otherwise.statements else _blended(s, _last_read(out))
            if taken is None:
                return None
            out += taken
        elif isinstance(s, Scalar) or (isinstance(s, Load | Store) and s.mask is None):
            out.append(s)
        else:
            return None
    return out


def _last_read(statements: Sequence[Any]) -> dict[Any, Load]:
    """By buffer and index, the loads whose value is still what memory holds."""
    found: dict[Any, Load] = {}
    for s in statements:
        if isinstance(s, Load):
            found[s.buffer, s.index.key] = s
        elif isinstance(s, Store):
            found = {place: load for place, load in found.items() if place[0] is not s.buffer}
    return found


def _blended(s: If, read: dict[Any, Load]) -> list[Any] | None:
    """The statements of a branch that may run in any case; None where they may not."""
    out: list[Any] = []
    branch: list[Any] = s.then.statements
    for inner in branch:
        if isinstance(inner, Scalar) and inner.instruction not in _TRAPS:
            out.append(inner)
            continue
        is_access = isinstance(inner, Load | Store) and inner.mask is None
        old = read.get((inner.buffer, inner.index.key)) if is_access else None
        if old is None or any(isinstance(made, Store) for made in out):
            return None
        if isinstance(inner, Store):
            value = Scalar("select", (s.condition, inner.value, old), old.dtype)
            out += [value, Store(inner.buffer, inner.index, value)]
        else:
            out.append(inner)
    return out


# Dependences


def _is_even(loop: Loop, body: Sequence[Any], touches: Sequence[Any]) -> bool:
    """Whether each access walks by one element, or stays; a store walks, and no index is computed inside."""
    for s in touches:
        step = s.index.stride(loop.variable)
        if not isinstance(step, int) or abs(step) > 1 or (isinstance(s, Store) and step == 0):
            return False
    own = {id(s) for s in body}
    used = [x for s in body for x in ([s.index] if isinstance(s, Load | Store) else s.args)]
    terms = [v for x in used if isinstance(x, Index) for v in x.terms]
    return not any(v.value is not None and id(v.value) in own for v in terms)


def _changes_in_place(touches: Sequence[Any]) -> bool:
    read = {s.buffer for s in touches if isinstance(s, Load)}
    return any(isinstance(s, Store) and s.buffer in read for s in touches)


def _find_cuts(loop: Loop, touches: Sequence[Any], length: int) -> list[Index] | None:
    """The iterations in which a store meets what others read or write; None where that may be any."""
    found: dict[Any, Index] = {}
    for store in touches:
        for other in touches:
            if not isinstance(store, Store) or other.buffer is not store.buffer:
                continue
            step, distance = store.index.stride(loop.variable), other.index - store.index
            if distance.stride(loop.variable) == 0:
                if not _is_apart(distance, length):
                    return None
                continue
            at = distance.without(loop.variable) * step
            if other.index.stride(loop.variable) != 0 or not _is_inside(at, loop):
                return None
            found[at.key] = at
    return list(found.values())


def _is_apart(distance: Index, length: int) -> bool:
    """Whether a distance is 0, or at least a length, whatever the variables in it are."""
    parts = [*distance.terms.values(), distance.offset]
    return all(isinstance(p, int) for p in parts) and (gcd(*parts) == 0 or gcd(*parts) >= length)


def _is_inside(at: Index, loop: Loop) -> bool:
    bounds, first, last = at.bounds(), loop.start.bounds(), loop.stop.bounds()
    if bounds is None or first is None or last is None:
        return False
    return first[1] <= bounds[0] and bounds[1] < last[0]


# Parts of a loop


def _part(loop: Loop, body: Sequence[Any], name: str, start: Index, stop: Index, kind: LoopKind) -> Loop:
    """A loop over some of the iterations, with statements of its own."""
    variable = Variable(loop.variable.name + name, loop.variable.stop)
    now: dict[int, Any] = {}

    def moved(x: Any) -> Any:
        if isinstance(x, Index):
            terms = {variable if v is loop.variable else v: s for v, s in x.terms.items()}
            return Index(terms, x.offset)
        return now.get(id(x), x)

    for s in body:
        if isinstance(s, Scalar):
            now[id(s)] = Scalar(s.instruction, tuple(map(moved, s.args)), s.dtype)
        elif isinstance(s, Load):
            now[id(s)] = Load(s.buffer, moved(s.index), s.dtype)
        else:
            now[id(s)] = Store(s.buffer, moved(s.index), moved(s.value))
    return Loop(variable, start, stop, Block(list(now.values())), kind)

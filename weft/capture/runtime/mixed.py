"""Tensors that are numbers of Python on some way: what ``s`` is after ``s = 0.5`` and ``if c: s = x``.

Its value is that of the way taken. Who it is matters where it is changed in place: ``s += 1`` makes a new
number on the one way, so that others who have the old one keep it, and changes a tensor on the other. So
beside such a tensor the capture knows a truth value, which says where it is a number; branches and loops hand
it on as they do the tensor.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.base.records import NamedTuple
from weft.base.trees import tree_flatten
from weft.capture.runtime.number import Number, number_of
from weft.capture.runtime.state import Carried, Plan, is_leaf, number_kind
from weft.capture.runtime.undefined import is_undefined
from weft.errors import CaptureError
from weft.ops.alias import CHOICE, link_choice
from weft.ops.op import type_of
from weft.tensor.choices import Truth, both, either, negation, picked
from weft.tensor.dispatch import wrap
from weft.tensor.mode import thread
from weft.tensor.operators import rebind
from weft.tensor.tensor import Tensor


class NumberWays(NamedTuple):
    """On which ways something is a number of Python.

    Attributes:
        kinds: the kinds of number that it may be.
        truth: whether it is one: True, False, or a tensor that says so; None if nothing does.
    """

    kinds: frozenset[type]
    truth: Truth


NO_NUMBER = NumberWays(frozenset(), False)


class Mixed(NamedTuple):
    """A tensor that is a number on some way.

    Attributes:
        tensor: the tensor.
        ways: where it is a number.
        where: the statement at which the ways met.
    """

    tensor: Any
    ways: NumberWays
    where: str


def mixed_of(x: Any) -> Mixed | None:
    """What is known of a tensor that is a number on some way; None of anything else."""
    found: Mixed | None = thread.capture.root.notes.numbers.get(id(x))
    return found if found is not None and found.tensor is x else None


def note_mixed(tensor: Any, ways: NumberWays, where: str) -> None:
    """Note that a new tensor is a number on some way; of one from around a region it is known already."""
    if ways.truth is not False and isinstance(tensor, Tensor) and mixed_of(tensor) is None:
        thread.capture.root.notes.numbers[id(tensor)] = Mixed(tensor, ways, where)


def ways_of(x: Any) -> NumberWays:
    """On which ways something is a number."""
    found = mixed_of(x)
    if found is not None:
        return found.ways
    kind = x.kind if isinstance(x, Number) else number_kind(x)
    return NO_NUMBER if kind is None else NumberWays(frozenset({kind}), True)


def is_class_told(x: Any, classes: Any) -> bool:
    """Whether it can be told, at least by a run, whether something is of some classes."""
    found = mixed_of(x)
    answers = set() if found is None else {isinstance(kind(), classes) for kind in found.ways.kinds}
    return not answers or answers == {isinstance(x, classes)} or (len(answers) == 1 and _told(found))


def _told(found: Mixed | None) -> bool:
    return found is not None and found.ways.truth is not None


def truth_of_class(x: Any, classes: Any) -> Truth | None:
    """Whether a tensor that is a number on some way is of some classes there; None of any other tensor."""
    found = mixed_of(x)
    if found is None:
        return None
    (answer,) = {isinstance(kind(), classes) for kind in found.ways.kinds}
    if answer == isinstance(x, classes):
        return answer
    return found.ways.truth if answer else negation(found.ways.truth)


def carried_ways(value: Any, plan: Plan) -> list[NumberWays]:
    """For each leaf of a value that flows as a tensor, on which ways it is a number; no way of a number."""
    leaves = tree_flatten(value, is_leaf=is_leaf)[0]
    pairs = zip(leaves, plan.parts, strict=True)
    return [NO_NUMBER if p.kind else ways_of(x) for x, p in pairs if isinstance(p, Carried)]


# Where two ways meet


def truths_in(value: Any) -> Iterable[Any]:
    """The tensors that say of parts of a value whether they are numbers."""
    found = thread.capture.root.notes.numbers
    leaves = tree_flatten(value, is_leaf=is_leaf)[0] if found and not is_undefined(value) else ()
    mixed = [m for x in leaves if (m := mixed_of(x)) is not None]
    return [m.ways.truth for m in mixed if isinstance(m.ways.truth, Tensor)]


def note_met(
    value: Any, pair: Sequence[Any], where: str, predicate: Any, outer: Callable[[int, Any], Any]
) -> None:
    """Note the tensors of a variable that are numbers on one of two ways to it.

    Args:
        value: what the variable is.
        pair: what it was at the end of each way.
        where: the statement.
        predicate: what decides which way is taken.
        outer: gives what a tensor of a way flowed out as.
    """
    leaves = tree_flatten(value, is_leaf=is_leaf)[0]
    ends = [[None] * len(leaves) if is_undefined(x) else tree_flatten(x, is_leaf=is_leaf)[0] for x in pair]
    if any(len(end) != len(leaves) for end in ends):
        return
    for tensor, *rows in zip(leaves, *ends, strict=True):
        if isinstance(tensor, Tensor):
            first, second = (ways_of(x) for x in rows)
            kinds = first.kinds | second.kinds
            if kinds:
                told = [outer(k, w.truth) for k, w in enumerate((first, second))]
                note_mixed(tensor, NumberWays(kinds, _met(predicate, *told)), where)


def _met(predicate: Any, first: Truth | None, second: Truth | None) -> Truth | None:
    if first is None or second is None:
        return None
    return either(both(predicate, first), both(negation(predicate), second))


def as_flag(truth: Truth) -> Any:
    """A truth value as a tensor."""
    if truth is None:
        raise _untold("a variable of a loop", "must be a tensor on all ways, or a number")
    return number_of(truth).tensor if isinstance(truth, bool) else truth


# What is made of them


def note_computed(out: Any, function: Callable[..., Any], *operands: Any) -> Any:
    """Note of what a function gives of numbers, or of what may be such, where it is a number. Returns it."""
    if not thread.capture.root.notes.numbers or not isinstance(out, Tensor):
        return out
    mixed = next((m for m in map(mixed_of, operands) if m is not None), None)
    if mixed is not None and mixed_of(out) is None:
        given = [ways_of(x) for x in operands]
        truth: Truth | None = True
        for ways in given:
            truth = None if truth is None or ways.truth is None else both(truth, ways.truth)
        kinds = _kinds_of_result(function, [ways.kinds for ways in given])
        note_mixed(out, NumberWays(kinds, truth), mixed.where)
    return out


def _kinds_of_result(function: Callable[..., Any], kinds: Sequence[frozenset[type]]) -> frozenset[type]:
    """The kinds that a function gives of numbers of some kinds, as it does with ones."""
    found = set()
    for row in itertools.product(*kinds):
        with contextlib.suppress(TypeError):
            found.add(type(function(*[kind(1) for kind in row])))
    return frozenset(found | {float} if function is operator.pow else found)


def note_mixed_copies(made: Any, given: Any) -> None:
    """Note which tensors in a copy are numbers on some way, as they are in what was copied."""
    if thread.capture.root.notes.numbers:
        copies, originals = (tree_flatten(x, is_leaf=is_leaf)[0] for x in (made, given))
        for copy, original in zip(copies, originals, strict=False):
            note_computed(copy, lambda x: x, original)


def mixed_in_place(tensor: Any) -> Mixed | None:
    """What is known of a tensor that is to change in place, if it is a number on some way.

    Raises if nobody can say on which: it is an item of a list that a loop has filled with either.
    """
    if not thread.capture.root.notes.numbers:
        return None
    found, base = mixed_of(tensor), tensor
    while found is None and hasattr(base, "_link") and base._link[1] is not CHOICE:
        base = base._link[0]
        found = mixed_of(base)
    if found is not None and (base is not tensor or found.ways.truth is None):
        raise _untold("what changes in place", "must not be a number on some way")
    return found


def _untold(what: str, must: str) -> CaptureError:
    return CaptureError(
        "capture",
        f"{what} {must}, got an item of a list of which nothing tells which it is",
        hint="write `x = x + y` in place of `x += y`, or make the items tensors, with weft.tensor(...)",
    )


def changed(mixed: Mixed, sign: str, result: Any) -> Any:
    """What a variable is after ``current += operand``, whose result is a new tensor on one of the ways."""
    tensor = mixed.tensor
    if type_of(result) != type_of(tensor):
        raise CaptureError(
            sign,
            f"the result must be {type_of(tensor)} on both ways where {mixed.where} leaves a number of "
            f"Python on one way and a tensor on the other, got {type_of(result)}",
            hint="make it a tensor on both ways, with weft.tensor(...)",
        )
    truth = mixed.ways.truth
    out = wrap(result._data, result._node)
    rebind(tensor, sign, picked(truth, tensor, result))
    link_choice(out, truth, result, tensor)
    known = mixed_of(result)
    if known is not None:
        note_mixed(out, known.ways, mixed.where)
    return out

"""``weft.cond``, ``switch``, ``while_loop``, ``fori_loop`` and ``scan`` in converted code.

What their functions give, if it is new, is the output of one node. Where a function hands on a tensor from
outside, or a view of one, gives one tensor twice, changes what it was given, an attribute, an item or a
variable, or raises, it does so in one call and not in another, as an ``if`` and a loop do: and then it is
captured as these are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from types import FunctionType
from typing import Any

from weft.base.dtypes import DEFAULT_INT
from weft.base.records import NamedTuple
from weft.base.trees import tree_flatten, tree_leaves, tree_map, tree_unflatten
from weft.capture.program.slots import MISSING
from weft.capture.runtime.branch import and_
from weft.capture.runtime.container_calls import call_container
from weft.capture.runtime.deciding import may_decide
from weft.capture.runtime.handed import FUNCTIONS, handed_over, is_weft_function
from weft.capture.runtime.iterables import Range, Reversed, Source, Views, Zipped
from weft.capture.runtime.lists import GraphList, stacked
from weft.capture.runtime.loop import for_stmt, while_stmt
from weft.capture.runtime.meet import Statement, as_predicate, meet
from weft.capture.runtime.number import Number, number_of
from weft.capture.runtime.owners import note_made
from weft.capture.runtime.refs import New, Ref, Start, View, ref_of, related, tokens
from weft.capture.runtime.untold import call_weft_watched
from weft.capture.runtime.variables import putting_back, without_assigning
from weft.errors import CaptureError
from weft.ops.alias import link_choice
from weft.ops.op import type_of
from weft.ops.view.primitives import stack
from weft.ops.view.slices import flip_axes
from weft.tensor.creation import as_tensor
from weft.tensor.dispatch import wrap
from weft.tensor.mode import call_user, thread
from weft.tensor.tensor import Tensor
from weft.transform.control.branches import cond, converted, switch
from weft.transform.control.flat import CarryMismatch, attempt
from weft.transform.control.loops import fori_loop, scan, while_loop
from weft.transform.slots import DataSlot, GradSlot
from weft.transform.staging import Unstaged

Given = dict[str, Any]


class _ReachesOutside(Exception):  # noqa: N818 - says that another way must be taken
    """A function hands on what is outside, or changes it."""


def call_control(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function of control flow gives where the run decides; MISSING of other functions."""
    form = _FORMS.get(function) if type(function) is FunctionType else None
    if form is None:
        return MISSING
    try:
        bound = _signature(function).bind(*args, **kwargs)
    except TypeError:  # which the function says itself
        return MISSING
    bound.apply_defaults()
    if function is scan and _has_no_turn(bound.arguments):
        return MISSING
    given = {name: tree_map(_converted, x) for name, x in bound.arguments.items()}
    if any(isinstance(given.get(name), Number) for name in _DECIDE):
        return _stated(form, given, lambda _, out: out)
    given |= {name: given[name].tensor for name in _BOUNDS if isinstance(given.get(name), Number)}
    reach = _Reach([x for name in ("init", "xs") for x in _tensors(given.get(name))])
    try:
        with attempt(thread.capture):
            watched = {name: watch(reach, given[name]) for name, watch in form.watches.items()}
            bound.arguments.update({**given, **watched})
            out = call_weft_watched(function, bound.args, bound.kwargs)
            reach.leave()
            return form.settled(given, out, reach.kept)
    except _ReachesOutside:
        pass
    except CaptureError as refused:
        if not reach.found or isinstance(refused, CarryMismatch):
            raise
    given |= {"ys": reach.ys, "values": not reach.changes}
    return call_weft_watched(_in_containers_of_its_own, (form, given), {})


def _in_containers_of_its_own(form: _Form, given: Given) -> Any:
    return tree_map(lambda x: x, _stated(form, given, converted))


def _stated(form: _Form, given: Given, convert: Callable[[str, Any], Any]) -> Any:
    functions = {name: tree_map(_without_assigning, given[name]) for name in form.watches}
    return form.stated({**given, **functions}, convert)


def _without_assigning(x: Any) -> Any:
    return without_assigning(x) if callable(x) else x


_signature = lru_cache(maxsize=16)(inspect.signature)
_DECIDE = ("predicate", "index")  # those by which Python picks a function, if it knows them
_BOUNDS = ("lower", "upper")


def _converted(x: Any) -> Any:
    return handed_over(x) if isinstance(x, FUNCTIONS) and not is_weft_function(x) else x


def _tensors(tree: Any) -> list[Any]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


class _Reach:
    """Finds out whether functions that are captured give more than new tensors, or change something.

    Attributes:
        found: whether one does.
        changes: whether one changes something.
        kept: by number, the leaves of a carry that every turn hands on as they are; None before there is one.
        ys: how many tensors each turn of a scan gives beside it.
    """

    def __init__(self, given: Sequence[Any]) -> None:
        self.around = thread.capture
        self.given = {id(x) for t in given for x in related(t)}
        self.found = False
        self.changes = False
        self.kept: set[int] | None = None
        self.ys: int | None = None
        self._first: Sequence[Any] | None = None  # what a branch before has given

    def branch(self, function: Any) -> Any:
        """A branch, or the test of a loop, that is looked at when it ends."""

        def run(*operands: Any) -> Any:
            out = self._call(function, operands)
            tensors = _tensors(out)
            self._look(tensors, {}, 0)
            if self.changes or (self._first is not None and _alike(self._first, tensors)):
                self.leave()
            self._first = tensors
            return out

        return run if callable(function) else function

    def branches(self, functions: Any) -> Any:
        """Several."""
        return [self.branch(f) for f in functions] if isinstance(functions, tuple | list) else functions

    def turn(self, function: Any, carry: int, *, is_scan: bool = False) -> Any:
        """The body of a loop, likewise, of which some argument is the carry."""

        def run(*given: Any) -> Any:
            held = _tensors(given[carry])
            more = [t for i, x in enumerate(given) if i != carry for t in _tensors(x)]
            datas = [t._data for t in (*held, *more)]
            out = self._call(function, given, may_raise=not is_scan)
            if any(t._data is not data for t, data in zip((*held, *more), datas, strict=True)):
                self.changes = True
                self._find()
            after = out
            if is_scan and isinstance(out, tuple) and len(out) == 2:
                after, self.ys = out[0], len(tree_leaves(out[1]))
            starts = {id(t): i for i, t in enumerate((*held, *more))}
            leaves = tree_leaves(after)
            self._look(leaves, starts, len(held))
            if _alike(held, leaves):
                self.leave()
            return out

        return run if callable(function) else function

    def _call(self, function: Any, given: tuple[Any, ...], *, may_raise: bool = True) -> Any:
        try:
            with putting_back(function):
                out = call_user(function, *given)
        except Unstaged:
            raise _ReachesOutside from None
        except Exception as error:
            if may_raise and self._is_inside() and may_decide(error):
                raise _ReachesOutside from None
            raise
        if self._is_inside():
            for slot, _ in thread.capture.journal.values():
                self.changes = self.changes or not isinstance(slot, GradSlot)
                is_content = isinstance(slot, DataSlot | GradSlot)
                if not is_content or (isinstance(slot, DataSlot) and id(slot.tensor) in self.given):
                    self._find()
        return out

    def _is_inside(self) -> bool:
        return thread.capture is not self.around

    def _find(self) -> None:
        self.found = self.found or self._is_inside()

    def leave(self) -> None:
        """Take the other way, if it is known that it must be."""
        if self.found:
            raise _ReachesOutside

    def _look(self, leaves: Sequence[Any], starts: Mapping[int, int], count: int) -> None:
        """Look at what a function gave; of a carry the leaves that were given come first in starts."""
        if not self._is_inside():
            return
        refs = [ref_of(x, starts) if isinstance(x, Tensor) else None for x in leaves]
        kept = {i for i, ref in enumerate(refs) if isinstance(ref, Start) and ref.position == i < count}
        if count:
            self.kept = kept if self.kept is None else self.kept & kept
        seen = [set(tokens(ref)) for ref in refs if ref is not None]
        once = len(set().union(*seen)) == sum(map(len, seen))
        plain = all(ref is None or i in kept or _is_new(ref) for i, ref in enumerate(refs))
        if not (once and plain):
            self._find()


def _alike(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Whether tensors, or numbers in place of some, are of the types that those before have."""
    pairs = zip(before, after, strict=False)
    same = all(isinstance(y, Tensor) and type_of(x) == type_of(y) for x, y in pairs)
    return same and len(before) == len(after)


def _is_new(ref: Ref) -> bool:
    """Whether it is a tensor that the function made, or a view of such a one."""
    return type(ref) is New or (isinstance(ref, View) and type(ref.base) is New)


# What one node gives


def _as_it_is(given: Given, out: Any, kept: set[int] | None) -> Any:
    return out


def _after_while(given: Given, out: Any, kept: set[int] | None) -> Any:
    def ran() -> Any:
        return as_predicate(_goes_on(given, given["max_iterations"], given["init"]))

    return _after_loop(given, out, kept, ran)


def _after_for(given: Given, out: Any, kept: set[int] | None) -> Any:
    lower, upper = given["lower"], given["upper"]
    if not any(isinstance(x, Tensor) for x in (lower, upper)):
        return _after_loop(given, out, kept, lambda: lower < upper)
    return _after_loop(given, out, kept, lambda: as_predicate(number_of(0).tensor + lower < upper))


def _after_scan(given: Given, out: Any, kept: set[int] | None) -> Any:
    length = _length(given)
    if not isinstance(length, int):
        carry = _after_loop(given, out[0], kept, lambda: as_predicate(number_of(length).tensor > 0))
    elif length:
        carry = _after_loop(given, out[0], kept, lambda: True)
    else:
        return out
    return carry, out[1]


def _after_loop(given: Given, out: Any, kept: set[int] | None, ran: Callable[[], Any]) -> Any:
    """The carry after a loop: of leaves that no turn, or none at all, replaced it is the very tensors."""
    before = tree_leaves(given["init"])
    if not any(isinstance(x, Tensor) for x in before):
        return out
    after, form = tree_flatten(out)
    if all(i in (kept or ()) for i, x in enumerate(before) if isinstance(x, Tensor)):
        truth: Any = True
    else:
        truth = ran()
    leaves = []
    for i, (x, new) in enumerate(zip(before, after, strict=True)):
        if not isinstance(x, Tensor) or (truth is True and i not in (kept or ())):
            leaves.append(new)
        elif truth is False or i in (kept or ()):
            leaves.append(x)
        else:
            link_choice(new, truth, wrap(new._data, new._node), x)
            leaves.append(new)
    return tree_unflatten(form, leaves)


# As statements


def _cond(given: Given, convert: Callable[[str, Any], Any]) -> Any:
    functions = given["true_fn"], given["false_fn"]
    one, other = (partial(_result, "cond", f, given["operands"], convert) for f in functions)
    return _met(as_predicate(given["predicate"]), one, other, Statement.here("cond"))


def _switch(given: Given, convert: Callable[[str, Any], Any]) -> Any:
    runs = [partial(_result, "switch", f, given["operands"], convert) for f in given["branches"]]
    return _numbered(given["index"], runs, 0, Statement.here("switch"))


def _while(given: Given, convert: Callable[[str, Any], Any]) -> Any:
    left = given["max_iterations"]

    def turn(carry: Any, *count: Any) -> tuple[Any, ...]:
        return _result("while_loop", given["body_fn"], (carry,), convert), *[n - 1 for n in count]

    state = (convert("while_loop", given["init"]), *(() if left is None else (as_tensor(left),)))
    names = ("the carry", *(() if left is None else ("the count",)))
    return while_stmt(lambda carry, *n: _goes_on(given, n[0] if n else None, carry), turn, state, names)[0]


def _goes_on(given: Given, left: Any, carry: Any) -> Any:
    """Whether a loop goes on, with so many turns left."""
    tests = [] if left is None else [lambda: left > 0]
    return and_(*tests, lambda: call_user(given["cond_fn"], carry))


def _for(given: Given, convert: Callable[[str, Any], Any]) -> Any:
    lower, upper = (_number(given[name]) for name in _BOUNDS)

    def turn(i: Any, carry: Any) -> tuple[Any]:
        number = i.as_kind(int) if isinstance(i, Number) else as_tensor(i).astype(DEFAULT_INT)
        return (_result("fori_loop", given["body_fn"], (number, carry), convert),)

    source = Range(lower, upper, 1)
    source.every = given["checkpoint_every"]
    return for_stmt(source, turn, (convert("fori_loop", given["init"]),), ("the carry",))[0]


def _number(x: Any) -> Any:
    return Number(int, x.astype(DEFAULT_INT)) if isinstance(x, Tensor) else x


def _scan(given: Given, convert: Callable[[str, Any], Any]) -> Any:
    rows, form = tree_flatten(given["xs"])
    rows = [as_tensor(x) for x in rows]
    parts: list[Source] = [Views(x) for x in rows]
    source = parts[0] if len(parts) == 1 else Zipped(parts) if parts else Range(0, _length(given), 1)
    source = Reversed(source) if given["reverse"] else source
    source.every = given["checkpoint_every"]
    lists: list[Any] = []
    forms: list[Any] = []

    def turn(item: Any, carry: Any) -> tuple[Any]:
        row = () if not rows else (item,) if len(rows) == 1 else item
        after, y = call_user(given["f"], carry, tree_unflatten(form, row))
        leaves, structure = tree_flatten(convert("scan", y))
        forms.append(structure)
        if len(lists) < len(leaves):  # the first turn that Python runs
            lists.extend(note_made(GraphList()) for _ in leaves)
        for held, leaf in zip(lists, leaves, strict=True):
            row = wrap(leaf._data, leaf._node) if given["values"] else leaf
            call_container(held, held.append, (row,), {})
        return (convert("scan", after),)

    lists += [note_made(GraphList()) for _ in range(given["ys"] or 0)]
    carry = for_stmt(source, turn, (convert("scan", given["init"]),), ("the carry",))[0]
    ys = [_joined(held) for held in lists]
    ys = [flip_axes(y, axes=(0,)) for y in ys] if given["reverse"] else ys
    return carry, tree_unflatten(forms[0], ys)


def _joined(held: Any) -> Any:
    found = stacked(held)
    return stack([*list.__iter__(held)]) if found is None else found


def _has_no_turn(given: Given) -> bool:
    """Whether a scan goes along nothing, so that only the types of what turns would give matter."""
    rows = _tensors(given["xs"])
    length = given["length"] if given["length"] is not None or not rows else rows[0].shape[0]
    return isinstance(length, int) and length == 0


def _length(given: Given) -> Any:
    """How many turns a scan has."""
    return given["length"] if given["length"] is not None else tree_leaves(given["xs"])[0].shape[0]


def _result(
    name: str, function: Callable[..., Any], operands: tuple[Any, ...], convert: Callable[[str, Any], Any]
) -> Any:
    return convert(name, call_user(function, *operands))


def _met(predicate: Any, one: Callable[[], Any], other: Callable[[], Any], at: Statement) -> Any:
    ways = (lambda: (one(),), lambda: (other(),))
    (out,) = meet(predicate, ways, (None,), ("the result",), at)
    return out


def _numbered(number: Any, runs: Sequence[Callable[[], Any]], first: int, at: Statement) -> Any:
    """What the function with a number gives, of functions that are numbered from a first one on."""
    if len(runs) == 1:
        return runs[0]()
    half = len(runs) // 2
    below = partial(_numbered, number, runs[:half], first, at)
    above = partial(_numbered, number, runs[half:], first + half, at)
    return _met(as_predicate(number < first + half), below, above, at)


class _Form(NamedTuple):
    """How a function is captured.

    Attributes:
        watches: by parameter, how a function that it is given is looked at.
        settled: from the arguments, what one node gives, and the leaves that turns keep, what is given.
        stated: from the arguments, and what makes tensors of a result, what is given by way of a statement.
    """

    watches: dict[str, Callable[[_Reach, Any], Any]]
    settled: Callable[[Given, Any, set[int] | None], Any]
    stated: Callable[[Given, Callable[[str, Any], Any]], Any]


_FORMS: dict[Any, _Form] = {
    cond: _Form({"true_fn": _Reach.branch, "false_fn": _Reach.branch}, _as_it_is, _cond),
    switch: _Form({"branches": _Reach.branches}, _as_it_is, _switch),
    while_loop: _Form(
        {"cond_fn": _Reach.branch, "body_fn": partial(_Reach.turn, carry=0)}, _after_while, _while
    ),
    fori_loop: _Form({"body_fn": partial(_Reach.turn, carry=1)}, _after_for, _for),
    scan: _Form({"f": partial(_Reach.turn, carry=0, is_scan=True)}, _after_scan, _scan),
}

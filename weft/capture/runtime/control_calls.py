"""``weft.cond``, ``switch``, ``while_loop`` and ``fori_loop`` in converted code.

What their functions give, if it is new, is the output of one node. Where a function hands on a tensor from
outside, or changes an attribute, an item or a variable, it does so in one call and not in another, as an
``if`` and a loop do: and then it is captured as these are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import Any

from weft.base.dtypes import DEFAULT_INT
from weft.base.trees import tree_leaves, tree_map
from weft.capture.program.slots import MISSING
from weft.capture.runtime.handed import FUNCTIONS, handed_over, is_weft_function
from weft.capture.runtime.loop import while_stmt
from weft.capture.runtime.meet import Statement, as_predicate, meet
from weft.capture.runtime.refs import is_outer
from weft.capture.runtime.untold import call_weft_watched
from weft.errors import CaptureError
from weft.tensor.creation import as_tensor
from weft.tensor.mode import call_user, thread
from weft.tensor.tensor import Tensor
from weft.transform.control.branches import cond, converted, switch
from weft.transform.control.flat import CarryMismatch, attempt
from weft.transform.control.loops import fori_loop, while_loop
from weft.transform.slots import DataSlot, GradSlot


class _ReachesOutside(Exception):  # noqa: N818 - says that another way must be taken
    """A function hands on what is outside, or changes it."""


def call_control(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function of control flow gives; MISSING of other functions, and with keywords."""
    statement = _STATEMENTS.get(function) if isinstance(function, FunctionType) else None
    if statement is None or kwargs:
        return MISSING
    args = tuple(tree_map(_converted, x) for x in args)
    reach = _Reach()
    try:
        with attempt(thread.capture):
            out = call_weft_watched(function, tuple(tree_map(reach.watched, x) for x in args), {})
            if not reach.found:
                return out
            raise _ReachesOutside
    except _ReachesOutside:
        pass
    except CaptureError as refused:
        if not reach.found or isinstance(refused, CarryMismatch):
            raise
    return call_weft_watched(statement, args, {})


def _converted(x: Any) -> Any:
    return handed_over(x) if isinstance(x, FUNCTIONS) and not is_weft_function(x) else x


class _Reach:
    """Finds out whether a function that is captured hands on what is outside, or changes it."""

    def __init__(self) -> None:
        self.around = thread.capture
        self.found = False

    def watched(self, x: Any) -> Any:
        """A function that is looked at when it ends; anything else as it is."""
        if not callable(x) or isinstance(x, Tensor):
            return x

        def run(*operands: Any) -> Any:
            out = call_user(x, *operands)
            if thread.capture is not self.around and not self.found:
                slots = [slot for slot, _ in thread.capture.journal.values()]
                tensors = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
                only_contents = all(isinstance(slot, DataSlot | GradSlot) for slot in slots)
                self.found = not only_contents or any(map(is_outer, tensors))
            return out

        return run


def _cond(predicate: Any, one: Any, other: Any, *operands: Any) -> Any:
    then, orelse = (partial(_result, "cond", f, operands) for f in (one, other))
    return _met(as_predicate(predicate), then, orelse, Statement.here("cond"))


def _switch(index: Any, functions: Sequence[Any], *operands: Any) -> Any:
    runs = [partial(_result, "switch", f, operands) for f in functions]
    return _numbered(index, runs, 0, Statement.here("switch"))


def _while(test: Any, body: Any, init: Any) -> Any:
    def turn(carry: Any) -> tuple[Any]:
        return (_result("while_loop", body, (carry,)),)

    first = converted("while_loop", init)
    (out,) = while_stmt(lambda carry: call_user(test, carry), turn, (first,), ("the carry",))
    return out


def _for(lower: Any, upper: Any, body: Any, init: Any) -> Any:
    def turn(i: Any, carry: Any) -> tuple[Any, Any]:
        return i + 1, _result("fori_loop", body, (i, carry))

    state = as_tensor(lower).astype(DEFAULT_INT), converted("fori_loop", init)
    _, out = while_stmt(lambda i, _: i < upper, turn, state, ("the index", "the carry"))
    return out


_STATEMENTS: dict[Any, Callable[..., Any]] = {
    cond: _cond,
    switch: _switch,
    while_loop: _while,
    fori_loop: _for,
}


def _result(name: str, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    return converted(name, call_user(function, *operands))


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

"""Iteration: methods of the user run converted, and items that a run may not come to are taken with care.

Where a tensor decides whether a loop goes on, the capture takes all items: to take one must change nothing
then, as only some runs do it, and nobody may use the iterator again: only the run knows how far it has come.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from weft.capture.program.classes import MISSING, class_attribute
from weft.capture.runtime.methods import may_have_methods, method_of
from weft.capture.runtime.owners import is_made_inside
from weft.capture.runtime.places import owner_of, watching
from weft.capture.runtime.variables import cells_around
from weft.capture.runtime.whole import items as note_items
from weft.errors import CaptureError
from weft.tensor.mode import call_user, thread
from weft.transform.slots import DataSlot, Slot


class _Iterated:
    """An iterator of the user, whose method runs converted."""

    def __init__(self, iterator: Any, method: Any) -> None:
        self.iterator = iterator
        self.method = method

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return call_user(self.method, self.iterator)


def iterable_of(x: Any) -> Any:
    """Something that Python can iterate over, where methods of the user run converted."""
    if thread.capture is None or not may_have_methods(x):
        return x
    method = method_of(x, "__iter__")
    if method is not None:
        x = call_user(method, x)
    elif class_attribute(type(x), "__iter__") is MISSING and method_of(x, "__getitem__") is not None:
        return _by_index(x)
    step = method_of(x, "__next__")
    return x if step is None else _Iterated(x, step)


def _by_index(x: Any) -> Iterator[Any]:
    """The items of something that has ``__getitem__`` alone."""
    index = 0
    while True:
        try:
            value = call_user(method_of(x, "__getitem__"), x, index)
        except IndexError:
            return
        yield value
        index += 1


def items(x: Any) -> Any:
    """Something that Python takes apart, noted as read where it is from outside."""
    if thread.capture is None:
        return x
    return note_items(iterable_of(x))


END = object()  # instead of an item, where there is none any more


class Ahead:
    """Takes items of an iterator that a run may not come to.

    Attributes:
        what: the loop or function that may end early, for messages.
        moved: the iterators that move on with it, which must not be used after it.
    """

    def __init__(self, iterator: Any, what: str) -> None:
        self.iterator = iterator
        self.what = what
        self.moved = _moved_with(iterator)

    def next(self) -> Any:
        """The next item, or END; to take it must change nothing that was there before."""
        capture = thread.capture
        known = len(capture.notes.made), len(capture.nodes), len(capture.constants)
        variables = _variables_around(self.moved)
        with watching(capture):
            item = next(self.iterator, END)
            changed = [
                slot for slot, held in capture._attempts[-1].values() if self._lasts(slot, held, known)
            ]
        words = [slot.describe() for slot in changed]
        words += [f"an effect ({node.op.name})" for node in capture.nodes[known[1] :] if not node.is_pure]
        after = _variables_around(self.moved)
        words += [name for at, (name, x) in variables.items() if at in after and after[at][1] is not x]
        if words:
            raise self._refused(words[0])
        return item

    def _lasts(self, slot: Slot, held: Any, known: tuple[int, int, int]) -> bool:
        """Whether a slot belongs to something that was there before the item was taken."""
        capture, (made, nodes, constants) = thread.capture, known
        owner = owner_of(slot)
        if any(owner is x for x in self.moved) and is_made_inside(owner):
            return False
        if isinstance(slot, DataSlot):
            now = slot.get()
            if now._data is held._data and now._node is held._node:
                return False  # it was only looked whether others show its elements
            value = getattr(held._data, "value", None)
            new = [v for node in capture.nodes[nodes:] for v in node.outputs]
            return value not in {*new, *islice(capture.constants, constants, None)}
        return not any(owner is x for x in islice(capture.notes.made.values(), made, None))

    def _refused(self, what: str) -> CaptureError:
        return CaptureError(
            "iter",
            f"to take an item for {self.what} must change nothing where a tensor may end it early, got a "
            f"change of {what}, which a run that ends before must not make",
            hint="make the change in the body of the loop, or take all items into a list before",
        )

    def end(self) -> None:
        """Note that nobody knows how far the iterator has come."""
        why = f"after {self.what}, which a tensor may end early: only the run tells how far it has come"
        thread.capture.root.notes.ended.update({id(x): (x, why) for x in self.moved})


def _variables_around(iterators: Sequence[Any]) -> dict[Any, tuple[str, Any]]:
    """What variables around generators hold, and around the functions in them, each with its name."""
    found: dict[Any, tuple[str, Any]] = {}
    own, values = set[str](), list[Any]()
    for x in iterators:
        frame = x.gi_frame if isinstance(x, types.GeneratorType) else None
        if frame is not None:
            held = frame.f_locals
            own.update(frame.f_code.co_cellvars)
            values += held.values()
            found |= {(id(x), k): (k, held[k]) for k in frame.f_code.co_freevars if k in held}
    return found | {k: (name, content) for k, (name, _, content) in cells_around(values, own).items()}


def _moved_with(iterator: Any) -> list[Any]:
    """An iterator with those that it takes its items from."""
    found: list[Any] = []
    waiting = [iterator]
    feeds = thread.capture.root.notes.feeds
    while waiting:
        at = waiting.pop()
        if isinstance(at, _Iterated):
            waiting.append(at.iterator)
        elif isinstance(at, Iterator) and not any(at is x for x in found):
            found.append(at)
            made, taken_from = feeds.get(id(at), (None, ()))
            waiting += taken_from if made is at else ()
            if isinstance(at, types.GeneratorType) and at.gi_frame is not None:
                waiting += at.gi_frame.f_locals.values()
    return found


def next_of(iterator: Any, *default: Any) -> Any:
    """``next(iterator)``."""
    method = method_of(iterator, "__next__")
    if method is None:
        return next(iterator, *default)
    try:
        return call_user(method, iterator)
    except StopIteration:
        if not default:
            raise
        return default[0]

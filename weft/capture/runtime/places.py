"""Places of Python that captured code changes inside a branch or a loop.

The contents of a list or dict, an attribute, a cell: inside a region such a place is one more variable, which
holds a reference. ``take_places`` takes them out of the journal of the region, which keeps the slots of
tensors themselves: their data and gradients, and the states of generators.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from types import NoneType
from typing import Any

from weft.capture.program.classes import base_method
from weft.capture.program.slots import MISSING, AttrSlot, GeneratorSlot, ItemSlot, PythonSlot
from weft.capture.runtime.joined import before_joined_change, before_joined_read, unreadable
from weft.capture.runtime.owners import CONTAINERS, is_made_here, is_made_inside, is_outside
from weft.tensor.mode import thread
from weft.transform.slots import DataSlot, GradSlot, HooksSlot, PresenceSlot, Slot

Places = dict[tuple[Any, ...], tuple[Slot, Any]]  # by key, with what they hold


class ContentsSlot(Slot):
    """Everything in a list, dict or set."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        self.obj = obj
        self.key = ("contents", id(obj))

    def get(self) -> Any:
        """A copy of the contents, plain as they are held."""
        return [*list.__iter__(self.obj)] if isinstance(self.obj, list) else self._plain("copy")()

    def put(self, content: Any) -> None:
        """Let it hold other contents."""
        if isinstance(self.obj, list):
            self._plain("__setitem__")(slice(None), content)
        else:
            self._plain("clear")()
            self._plain("update")(content)

    def _plain(self, name: str) -> Any:
        """A method of the container, without those of a user's class."""
        return partial(base_method(type(self.obj), name), self.obj)

    def describe(self) -> str:
        """In words, for messages."""
        return f"a {next(kind.__name__ for kind in CONTAINERS if isinstance(self.obj, kind))}"


def check_joined_change(obj: Any) -> None:
    """Raise where it is not known what else changes with a container; what may nobody look at after it."""
    for other in before_joined_change(obj):
        if is_made_here(other) and not isinstance(other, set):
            content = unreadable(other)
            if isinstance(other, CONTAINERS):
                _replace(ContentsSlot(other), content)
            else:
                for name, value in content.items():
                    _replace(AttrSlot(other, name), value)


def _replace(slot: Slot, content: Any) -> None:
    thread.capture.remember(slot)
    slot.put(content)


def before_change(obj: Any) -> None:
    """Tell the running capture that a container is about to change."""
    check_joined_change(obj)
    capture = thread.capture
    if capture.region and not is_made_here(obj) and id(obj) not in capture.notes.received:
        capture.before_write(ContentsSlot(obj))
    else:
        capture.remember(ContentsSlot(obj))


def keeps(slot: Slot, value: Any) -> bool:
    """Whether a slot holds a value already, in each call: putting it there again changes nothing."""
    return slot.get() is value and thread.capture.root.is_known(slot.key)


def write_place(slot: Slot, content: Any) -> None:
    """Change a place in the running capture, which is told of it."""
    if isinstance(slot, ContentsSlot):
        _before_contents(slot.obj, content)
    else:
        thread.capture.before_write(slot)
    slot.put(content)


def _before_contents(obj: Any, content: Any) -> None:
    """Tell the running capture that the contents of a container change: a root knows items, one by one."""
    capture = thread.capture
    if capture.region:
        before_change(obj)
    elif isinstance(obj, dict | list) and not is_made_inside(obj) and is_outside(obj):
        pairs = content.items() if isinstance(obj, dict) else enumerate(content)
        for key, value in pairs:
            slot = ItemSlot(obj, key)
            if value is not slot.get():
                capture.before_write(slot)
            elif not keeps(slot, value):  # a way may have put there what it happens to hold
                capture.root.read_item(obj, key, value)
    else:
        capture.remember(ContentsSlot(obj))


def note_handed_on(slot: Slot, before: Any, after: Sequence[Any]) -> None:
    """Note that calls rely on the plain values of a place that ways change: another way hands them on."""
    root = thread.capture.root
    if not root.guards_reads:
        return
    if isinstance(slot, PythonSlot) and isinstance(before, tuple | list | dict):
        root.read_slot(slot, before)
        root.read_contents(before)
    elif isinstance(slot, PythonSlot) and isinstance(before, _PLAIN):
        root.read_slot(slot, before)
    elif isinstance(slot, ContentsSlot) and isinstance(slot.obj, dict | list) and is_outside(slot.obj):
        for key, value in before.items() if isinstance(slot.obj, dict) else enumerate(before):
            if isinstance(value, _PLAIN) and any(item_at(x, key) is not value for x in after):
                root.read_item(slot.obj, key, value)


_PLAIN = (int, float, complex, str, bytes, NoneType)


def item_at(content: Any, key: Any) -> Any:
    """The item of a container at a key or position, or MISSING."""
    try:
        return content[key]
    except (LookupError, TypeError):
        return MISSING


def note_read(obj: Any, what: str = "all") -> None:
    """Note what was looked at of a list, in the running region and those around it: "last", "len", "all"."""
    before_joined_read(obj)
    capture = thread.capture
    while capture is not None and capture.region:
        capture.notes.read.setdefault(id(obj), (obj, set()))[1].add(what)
        capture = capture.parent


def what_was_read(obj: Any) -> set[str]:
    """What the running region looked at of a list: "last", "len", "all"."""
    found = thread.capture.notes.read.get(id(obj))
    return set() if found is None else found[1]


def take_places(region: Any) -> Places:
    """The places of a region that hold Python, with what they hold at its end; they are then put back."""
    region.check_hooks()
    found: Places = {}
    for key, (slot, held) in reversed(list(region.journal.items())):
        content = slot.get()
        if isinstance(slot, DataSlot | GradSlot | PresenceSlot | GeneratorSlot | HooksSlot):
            continue
        del region.journal[key]
        slot.put(held)
        if not _is_dead(slot):
            found[key] = (slot, content)
    return dict(reversed(found.items()))


def _is_dead(slot: Slot) -> bool:
    """Whether nobody but its slot holds a container, so that it was made in the region and ends there."""
    if not isinstance(slot, ContentsSlot):
        return False
    return sys.getrefcount(slot.obj) <= 2


def changes_since(capture: Any, made: int = 0) -> bool:
    """Whether something was changed that was there before: see ``changed_since``."""
    return bool(changed_since(capture, made))


def changed_since(capture: Any, made: int = 0) -> list[Slot]:
    """What was there before the attempt which runs and was changed in it.

    Args:
        capture: the running one.
        made: how many objects it had made itself by then, which count, too; no others of its own do.
    """
    own = {id(x) for x in islice(capture.notes.made.values(), made, None)}
    return [slot for slot, _ in capture._attempts[-1].values() if id(owner_of(slot)) not in own]


@contextmanager
def watching(capture: Any) -> Iterator[None]:
    """While changes are noted that ``changes_since`` is asked for, and that stay."""
    capture._attempts.append({})
    try:
        yield
    finally:
        capture._attempts.pop()


def owner_of(slot: Slot) -> Any:
    """The object that a slot is a part of, if it is one."""
    return slot.obj if isinstance(slot, ContentsSlot) else getattr(slot, "owner", None)

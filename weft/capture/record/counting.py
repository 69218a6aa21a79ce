"""Python numbers that calls change: counters in attributes, items, globals and variables around a function.

The first capture takes a number that it reads by its value, and relies on that. Where the code has put
another number there in the end, each call would find a number that no call has seen. So the capture begins
again, and the place holds a ``Number`` meanwhile: each call reads the place, and writes a plain number there
when it has run. Where captured code needs the value itself, numbers stay values. Once that is no error: the
very first call may go a way of its own, as code does that makes its state when a counter is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.capture.program.program import Program
from weft.capture.program.slots import AttrSlot, PythonSlot
from weft.capture.program.sources import Dynamic
from weft.capture.runtime.number import KINDS, Number
from weft.errors import CaptureError
from weft.ops.guard import guard

if TYPE_CHECKING:
    from weft.capture.record.root import Root

Key = tuple[Any, ...]
_MOST = 256  # places that one function remembers
_COUNTS = (int, float)


class NumberChanges(Exception):  # noqa: N818 - no error of the user: the capture begins again
    """Raised at the end of a capture which relies on a number that the code changes."""

    def __init__(self, slot: Any) -> None:
        super().__init__(slot.describe())
        self.slot = slot


class Counted:
    """The places whose numbers the calls of one function change.

    Attributes:
        slots: the places, by key: their numbers are inputs.
        steady: keys of places whose numbers must be values, as captured code needs them.
        allowed: keys of places whose numbers are values in this capture, and may change all the same.
    """

    def __init__(self) -> None:
        self.slots: dict[Key, Any] = {}
        self.steady: set[Key] = set()
        self.allowed: frozenset[Key] = frozenset()
        self._once: set[Key] = set()  # that were allowed

    def capture(self, run: Callable[[], Program]) -> Program:
        """What a capture gives, which begins again where the code changes a number that it relies on."""
        tried: set[Key] = set()
        self.allowed = frozenset()
        begun = 0
        while True:
            begun += 1
            try:
                program = run()
                if not _relies_on_counts(program, tried):
                    return program
            except NumberChanges as found:
                key = found.slot.key
                if begun > _MOST:
                    raise _always_new(found.slot) from None
                if key not in self.slots and len(self.slots) < _MOST:
                    tried.add(key)
                    self.slots[key] = found.slot
                    continue
                tried.add(key)
            except Exception:
                if not tried:
                    raise
            self._give_up(tried)  # an error of the user comes again without them
            tried.clear()

    def _give_up(self, keys: Collection[Key]) -> None:
        for key in keys:
            self.slots.pop(key, None)
        self.allowed = self.allowed.union(k for k in keys if k not in self._once)
        self.steady.update(k for k in keys if k in self._once)
        self._once.update(keys)


def _always_new(slot: Any) -> CaptureError:
    """The error of a place that is another one each time the code is captured."""
    return CaptureError(
        "capture",
        f"a number that captured code changes must be in a place that stays, got {slot.describe()}, which "
        "each capture makes anew",
        hint="make the object by calling its class",
    )


def _relies_on_counts(program: Program, keys: Collection[Key]) -> bool:
    """Whether a program relies on the value of a number that its calls change."""
    inputs = zip(program.graph.inputs, program.sources, strict=True)
    counts = {v for v, s in inputs if isinstance(s, Dynamic) and _slot_key(s) in keys}
    return any(n.op is guard and n.inputs[0] in counts for n in program.graph.nodes)


def _slot_key(source: Dynamic) -> Key | None:
    slot = getattr(source.function, "__self__", None)
    return slot.key if isinstance(slot, PythonSlot) else None


def lend_numbers(root: Root) -> None:
    """Let the places that calls change hold numbers of the graph, while a function is captured."""
    for slot in () if root.counted is None else root.counted.slots.values():
        slot = AttrSlot(slot.owner, slot.name) if isinstance(slot, AttrSlot) else slot  # as it is by now
        held = slot.get()
        kind = count_kind(held)
        if kind is not None:
            tensor = root.number_input(Dynamic(slot.get, KINDS[kind]), _name(slot))
            root.lent_numbers[tensor._data.value] = (slot, np.asarray(held, KINDS[kind]))
            root.journal[slot.key] = (slot, held)
            slot.put(Number(kind, tensor))


def count_kind(x: Any) -> type[int] | type[float] | None:
    """The kind of a number that may be one to count with; None for all else, and for truth values."""
    if isinstance(x, bool) or not isinstance(x, _COUNTS):
        return None
    return int if isinstance(x, int) else float


def _name(slot: Any) -> str:
    return str(getattr(slot, "name", "") or getattr(slot, "index", "") or "number")


def may_change(root: Root, slot: Any, expected: Any, kind: type | None) -> bool:
    """Whether code that relies on a number may put another one of a kind there, which each call does then."""
    counted = root.counted
    counts = kind is not None and kind is not bool and issubclass(kind, _COUNTS)
    if counted is None or count_kind(expected) is None or not counts:
        return False
    if slot.key in counted.allowed or slot.key in counted.steady:
        return slot.key in counted.allowed
    raise NumberChanges(slot)

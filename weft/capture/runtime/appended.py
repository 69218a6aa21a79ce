"""Which tensors a loop appends to lists, and what else refers to them.

Mostly an item is a tensor that the turn made, and that nothing but the list refers to: then it is a row of
what the loop stacks. Where others may refer to it, too, items and those others are frozen (see
``weft.transform.frozen``), and a capture that must tell ``ITEMS`` keeps the two cases that it can: a variable
that is left with the tensor that was appended last (``h = f(h); l.append(h)``) is the last item after the
loop, and what is appended twice is one item in both places. All others are refused, so that Python runs a
loop of a few turns instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeGuard

from weft.base.records import NamedTuple
from weft.capture.runtime.refs import Components, New, Ref, outers, tokens
from weft.errors import CaptureError
from weft.ops.alias import link
from weft.tensor.dispatch import wrap
from weft.tensor.indexing import BRACKETS
from weft.tensor.mode import thread
from weft.transform.frozen import Telling, is_frozen


class Items(NamedTuple):
    """What a loop has appended: a tensor, and its rows as items if it is known how many they are."""

    rows: Any
    all: Any = None


class Appended:
    """What the turns of a loop append.

    Attributes:
        refs: what each tensor refers to.
        own: for each whether nothing else refers to it.
        positions: those of the loop that items may be one with, without it being known.
        last: by position that is left with an item, the number of the tensor that was appended.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self.refs: list[Ref] = []
        self.own: list[bool] = []
        self.positions: set[int] = set()
        self.last: dict[int, int] = {}

    def look(self, refs: Sequence[Ref | None], found: Components, hot: set[Any]) -> None:
        """Find who may refer to the items; refs says it of positions.

        Args:
            refs: what positions refer to at the end of a turn.
            found: what hangs together.
            hot: the sets of it in which something is changed in place.
        """
        if any(found.find(t) in hot for ref in self.refs for t in tokens(ref)):
            raise self.refused("a tensor that a loop appends to a list")
        counts = counts_of([*refs, *self.refs])
        self.own = [self._is_own(ref, counts) for ref in self.refs]
        self.last = {}
        if thread.capture.root.telling == Telling.ITEMS:
            self._tell(refs)
            self.positions = set()
            return
        others = [ref for ref, own in zip(self.refs, self.own, strict=True) if not own]
        sets = {found.find(t) for ref in others for t in tokens(ref)}
        self.positions = {i for i in range(len(refs)) if found.find(("position", i)) in sets}

    def _is_own(self, ref: Ref, counts: Counter[int]) -> bool:
        return self._is_new(ref) and counts[id(ref.tensor)] == 1

    def _is_new(self, ref: Ref) -> TypeGuard[New]:
        return type(ref) is New and not is_frozen(thread.capture.root.frozen, ref.tensor)

    def _tell(self, refs: Sequence[Ref | None]) -> None:
        """Find the positions that are left with items, or raise."""
        for k, (ref, own) in enumerate(zip(self.refs, self.own, strict=True)):
            if own:
                continue
            if not self._is_new(ref) or any(r != ref for r in self._users(ref.tensor, refs)):
                raise self._unknown()
            self.last |= {i: k for i, r in enumerate(refs) if r == ref}

    def _users(self, tensor: Any, refs: Sequence[Ref | None]) -> list[Ref]:
        """The references that may be one with a tensor."""
        given = [r for r in (*refs, *self.refs) if r is not None]
        return [r for r in given if any(t is tensor for t in outers(r))]

    def last_item(self, i: int, items: Sequence[Items], value: Any, ran: Any) -> Any:
        """The tensor that a position is left with after the loop, which is an item.

        Args:
            i: the position.
            items: what the loop has appended.
            value: a tensor with what it shows.
            ran: whether there was a turn: True, or a tensor that says so.
        """
        found = items[self.last[i]]
        if found.all is not None:
            return found.all[-1]
        if ran is not True:
            raise self._unknown()
        out = wrap(value._data, value._node)
        link(out, found.rows, BRACKETS, -1)
        return out

    def refused(self, what: str) -> CaptureError:
        """The error where something is changed in place that a list holds."""
        return CaptureError(
            "capture",
            f"{what} must not be changed in place there, got {self._where}, which does both",
            hint="write `x = x + y` in place of `x += y`, or append a copy with .clone()",
        )

    def _unknown(self) -> CaptureError:
        return CaptureError(
            "append",
            f"a tensor that {self._where} appends must be one that nothing else refers to, got one that "
            "others see, or that is a view of one",
            hint="append a copy with .clone()",
        )


def counts_of(refs: Sequence[Ref | None]) -> Counter[int]:
    """How many references may be one with a tensor, by its id."""
    return Counter(i for ref in refs if ref is not None for i in {id(t) for t in outers(ref)})

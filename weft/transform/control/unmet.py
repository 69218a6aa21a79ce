"""Tensors from outside that a branch changed without knowing them, by others that show their elements.

A change reaches the tensors of a tree that the capture has met by then. A branch may be the first that meets
one, after another branch, traced before it, has changed its elements. What that branch left in it is then
unknown, so both are traced again, with the tensor met before them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from weft.base.concrete import is_concrete
from weft.tensor.alias import family_of, is_aliased
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.control.regions import Region, attempt
from weft.transform.slots import DataSlot

T = TypeVar("T")


class Unmet(Exception):  # noqa: N818 - says that another way must be taken
    """A tensor that must be met before the branches."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def until_met(run: Callable[[], T]) -> T:
    """What a function gives that traces branches, called again until all that they change is met."""
    while True:
        try:
            with attempt(thread.capture):
                return run()
        except Unmet as found:
            tensor = found.tensor
        thread.capture.meet(tensor)


def check_met(regions: Sequence[Region], given: Sequence[Tensor]) -> None:
    """Raise Unmet if a tensor is met only after a branch has changed its elements.

    Args:
        regions: the branches; what they import is met next.
        given: further tensors that are met next.
    """
    lent = list(regions[0].capture.root.lent)
    used = (*given, *[t for region in regions for _, t in region.imports])
    unmet = {id(t) for t in used if is_concrete(t._data) and is_aliased(t)}
    for region in regions:
        late = unmet.union(lent[region.met :])
        changed = [c.slot.tensor for c in region.changes.values() if isinstance(c.slot, DataSlot)]
        for tensor in changed if late else ():
            for other in family_of(tensor) if is_aliased(tensor) else ():
                if id(other) in late and DataSlot(other).key not in region.changes:
                    raise Unmet(other)

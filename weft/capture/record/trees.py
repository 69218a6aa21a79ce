"""State that is a tree: a tuple, list or dict of tensors in one place, which calls replace as a whole.

The hidden state of a recurrent net is often a pair in an attribute. Each call finds another pair there, of
other tensors. So what counts is what the pair is made of: each call looks up the tensors in it, by the way to
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.capture.program.described import Change, TreeOut
from weft.capture.program.guards import Frame
from weft.capture.program.slots import PathSlot, PythonSlot, parts_of
from weft.capture.record.root import Root
from weft.tensor.tensor import Tensor

Key = tuple[Any, ...]
_MOST = 256  # parts of a tree


def open_trees(root: Root, changes: Sequence[Change], trees: Sequence[TreeOut]) -> set[Key]:
    """Rely on what replaced trees are made of, instead of which ones they are; gives where their tensors are.

    Args:
        root: whose guards there are.
        changes: what the captured code changed.
        trees: what leaves the capture; a list or dict that leaves as itself stays itself.
    """
    leaving = {id(leaf.plain) for tree in trees for leaf in tree.leaves if leaf.value is None}
    changed = {key[1] for c in changes if (key := c.slot.key)[0] in ("item", "contents")}
    replaced = [(c.slot, c.old) for c in changes if isinstance(c.slot, PythonSlot)]
    guarded = [(g.slot, g.expected) for g in root.guards if g.slot.key in root.rebound]
    found: set[Key] = set()
    for slot, old in (*replaced, *guarded):
        parts = list(parts_of(old))
        held = {id(x) for _, x in parts if isinstance(x, list | dict)}
        if type(old) not in (tuple, list, dict) or len(parts) > _MOST or held & (leaving | changed):
            continue
        if any(isinstance(x, Tensor) for _, x in parts) and not _is_held_elsewhere(root, slot, held):
            found |= _open(root, slot, parts, held)
    return found


def _is_held_elsewhere(root: Root, slot: PythonSlot, held: set[int]) -> bool:
    """Whether the code found one of some containers in another place, too, where it stays."""
    inside = [g.slot.key for g in root.guards if id(getattr(g.slot, "owner", None)) in held]
    others = [g for g in root.guards if g.slot.key != slot.key and g.slot.key not in inside]
    return any(id(g.expected) in held for g in others)


def _open(root: Root, slot: PythonSlot, parts: Sequence[tuple[Key, Any]], held: set[int]) -> set[Key]:
    for guard in [g for g in root.guards if id(getattr(g.slot, "owner", None)) in held]:
        root.guards.drop(guard.slot.key)
    root.guards.drop(slot.key)
    found = set()
    for path, x in parts:
        at = PathSlot(slot, path)
        if type(x) in (tuple, list, dict):
            root.guards.put(at, Frame(type(x), tuple(x) if isinstance(x, dict) else len(x)))
            continue
        root.guards.put(at, x)
        if isinstance(x, Tensor):
            found.add(at.key)
    return found

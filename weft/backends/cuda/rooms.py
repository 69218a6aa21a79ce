"""Room in the arena for what libraries work in: where nothing lies any more that is looked at later.

Plans of libraries tell how much they need only when a program is about to run, after its memory was planned.
The gradient of attention asks for hundreds of megabytes; by then the logits of a model, which are as large,
have been read for the last time. Small workspaces stay behind the arena, where all calls share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.backends.cuda.order import Access, accesses_of
from weft.backends.cuda.program import ARENA_ALIGNMENT

LARGE = 1 << 25  # bytes of a workspace from which on room is looked for
Span = tuple[int, int]  # bytes of the arena, from one to before another


def find_rooms(entries: Sequence[Any], slot: int, size: int) -> dict[int, Access]:
    """By number of an entry that works in much memory, bytes of the arena that no later entry touches.

    Args:
        entries: in their order.
        slot: of the arena.
        size: of the arena.
    """
    if not any(_workspace(entry) >= LARGE for entry in entries):
        return {}
    found: dict[int, Access] = {}
    taken: list[Span] = []  # apart from each other, in order
    for number in reversed(range(len(entries))):
        entry = entries[number]
        taken = _joined([*taken, *_touched(entry, slot, size)])
        if _workspace(entry) < LARGE:
            continue
        wanted = -(-_workspace(entry) // ARENA_ALIGNMENT) * ARENA_ALIGNMENT
        start = _hole(taken, wanted, size)
        if start is not None:  # entries before it may work there, too: they are done by then
            found[number] = Access(slot, start, start + wanted, True)
    return found


def sides_of(entry: Any) -> list[Sequence[Any]]:
    """The lists of entries inside a branch or a loop; none of other entries."""
    return [getattr(entry, name) for name in ("then", "otherwise", "test", "body") if hasattr(entry, name)]


def _workspace(entry: Any) -> int:
    """Bytes that a call of a library works in; 0 of other entries."""
    worker = getattr(entry, "product", None) or getattr(entry, "call", None)
    return 0 if worker is None else int(worker.workspace)


def _touched(entry: Any, slot: int, size: int) -> Iterator[Span]:
    """What an entry, or those inside it, touches of the arena."""
    sides = sides_of(entry)
    if sides:
        for one in (e for side in sides for e in side):
            yield from _touched(one, slot, size)
        asked = entry.condition
        if asked is not None and asked[0] == slot:
            yield asked[1], asked[1] + 1
        return
    for access in accesses_of(entry):
        if access.slot == slot:
            yield access.start, min(access.stop, size)


def _joined(spans: list[Span]) -> list[Span]:
    out: list[Span] = []
    for start, stop in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(stop, out[-1][1]))
        else:
            out.append((start, stop))
    return out


def _hole(taken: Sequence[Span], wanted: int, size: int) -> int | None:
    """Where so many bytes are free, the first such place; None where there is none."""
    end = 0
    for start, stop in (*taken, (size, size)):
        if start - end >= wanted:
            return end
        end = -(-stop // ARENA_ALIGNMENT) * ARENA_ALIGNMENT
    return None

"""Which entries wait for which, against every pair of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from weft.backends.cuda import order
from weft.backends.cuda.order import Access, dependencies


class Entry:
    def __init__(self, touched: list[Access] | None, slots: Sequence[int] = ()) -> None:
        self.touched = touched
        self._slots = slots

    def accesses(self) -> Any:
        return self.touched

    def slots(self) -> set[int]:
        return set(self._slots)


def some_entry(rng: random.Random) -> Entry:
    if rng.random() < 0.1:
        return Entry(None, [rng.randrange(4)])
    touched = []
    for _ in range(rng.randrange(1, 4)):
        start = rng.randrange(20)
        touched.append(Access(rng.randrange(4), start, start + rng.randrange(1, 12), rng.random() < 0.4))
    return Entry(touched)


def reached(after: list[list[int]], number: int) -> set[int]:
    found: set[int] = set()
    waiting = list(after[number])
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += after[one]
    return found


def meet(a: Entry, b: Entry, alias: dict[int, int]) -> bool:
    return any(
        alias.get(x.slot, x.slot) == alias.get(y.slot, y.slot)
        and (x.writes or y.writes)
        and max(x.start, y.start) < min(x.stop, y.stop)
        for x in order.accesses_of(a)
        for y in order.accesses_of(b)
    )


def test_entries_that_meet_are_ordered_and_no_others_need_be() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        entries = [some_entry(rng) for _ in range(25)]
        alias = {3: 0} if seed % 2 else {}
        after = dependencies(entries, alias)
        for j in range(len(entries)):
            before = reached(after, j)
            assert all(i in before for i in range(j) if meet(entries[i], entries[j], alias))
            for i in after[j]:
                assert meet(entries[i], entries[j], alias)
                assert not any(i in reached(after, other) for other in after[j] if other != i)


def test_long_lists_stay_in_a_row() -> None:
    entries = [Entry([Access(i, 0, 4, True)]) for i in range(order._MOST + 1)]
    assert dependencies(entries[:3], {}) == [[], [], []]
    assert dependencies(entries, {})[1:4] == [[0], [1], [2]]

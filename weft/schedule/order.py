"""The order of units: Kahn's algorithm, taking next what frees the most memory."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from weft.schedule.groups import Group
from weft.schedule.units import Web, is_view


def order_units(web: Web, groups: Mapping[int, Group]) -> list[Group | int]:
    """Groups and the numbers of other nodes, views left out, in an order in which they can run."""
    unit_of = {
        i: min(groups[i].members) if i in groups else i for i, n in enumerate(web.nodes) if not is_view(n)
    }
    needs: dict[int, set[int]] = {u: set() for u in unit_of.values()}
    for i, unit in unit_of.items():
        needs[unit].update(unit_of[j] for j in web.needs[i])
    _keep_effects_in_order(web, unit_of, needs)
    users: dict[int, list[int]] = {u: [] for u in needs}
    for unit, needed in needs.items():
        needed.discard(unit)
        for other in needed:
            users[other].append(unit)
    waits = {u: len(needed) for u, needed in needs.items()}
    ready: list[int] = []
    for u, count in waits.items():
        if count == 0:
            heappush(ready, u)
    order: list[Group | int] = []
    while ready:
        u = heappop(ready)
        order.append(groups[u] if u in groups else u)
        for other in users[u]:
            waits[other] -= 1
            if waits[other] == 0:
                heappush(ready, other)
    assert len(order) == len(needs), "groups form a cycle"
    return order


def _keep_effects_in_order(web: Web, unit_of: Mapping[int, int], needs: dict[int, set[int]]) -> None:
    last = None
    for i, unit in unit_of.items():
        if not web.nodes[i].is_pure:
            if last is not None:
                needs[unit].add(last)
            last = unit

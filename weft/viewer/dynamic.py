"""The dynamic graph behind a tensor, as records for the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.viewer.diagram import diagram_of
from weft.viewer.table import Table


def add_dynamic(table: Table, tensor: Any, params: Mapping[str, Any]) -> list[int]:
    """The numbers of the records of a tensor's dynamic graph, leaves first.

    >>> import weft
    >>> from weft.viewer.table import Table
    >>> x = weft.ones(2, requires_grad=True)
    >>> table = Table()
    >>> [table.records[i]["op"] for i in add_dynamic(table, weft.tanh(x), {"x": x})]
    ['x', 'Tanh', 'tensor']
    """
    diagram = diagram_of(tensor, params)
    held: list[Any] = [object() for _ in diagram.boxes]
    comes: dict[int, list[int]] = {}
    for arrow in diagram.arrows:
        comes.setdefault(arrow.target, []).append(arrow.source)
    found = []
    for i in reversed(_in_order(len(held), comes)):
        box = diagram.boxes[i]
        record = {
            "kind": box.kind,
            "op": box.label[0],
            "values": [table.number(held[i])],
            "inputs": [table.number(held[j]) for j in comes.get(i, ())],
            "types": list(box.label[1:]),
            "path": (),
            "part": "",
        }
        found.append(table.add(held[i], record))
    return found


def _in_order(count: int, comes: Mapping[int, list[int]]) -> list[int]:
    """Boxes in an order in which each comes before those it is computed from."""
    users = [0] * count
    for sources in comes.values():
        for source in sources:
            users[source] += 1
    ready = [i for i in range(count) if not users[i]]
    order = []
    while ready:
        order.append(i := ready.pop())
        for source in comes.get(i, ()):
            users[source] -= 1
            if not users[source]:
                ready.append(source)
    return order

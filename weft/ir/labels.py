"""What values are called in graph text: ``%x`` by name, ``%3`` by number, constants ``$c0`` or a literal.

Numbers are dense and start anew in each region, which sees nothing from around it. Constants with many
elements are numbered through all regions, because their data stands beside the text under that name.
"""

from __future__ import annotations

import re
from typing import Any

from weft.ir.graph import Array, Graph, Value
from weft.ir.literals import format_array, format_name, is_short

LABEL = re.compile(r"(?=[\d.]*[A-Za-z_])\w[\w.]*", re.ASCII)  # 0.weight too, but no number
_NUMBERED = re.compile(r"c\d+")


class ConstantNames:
    """The names of the constants of a graph and all its regions; one name for one array."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self._by_id: dict[tuple[int, str], str] = {}
        self._count = 0

    def name(self, value: Value, array: Array) -> str:
        """The name of a constant: its own, where it is free."""
        key = (id(array), value.name)
        if key in self._by_id:
            return self._by_id[key]
        own = value.name
        if not LABEL.fullmatch(own) or _NUMBERED.fullmatch(own) or own in self.arrays:
            own = f"c{self._count}"
            self._count += 1
        self._by_id[key] = own
        self.arrays[own] = array
        return own


class Labels:
    """The labels of the values of one graph, regions not included."""

    def __init__(self, graph: Graph, names: ConstantNames) -> None:
        self._labels: dict[Value, str] = {}
        self._taken: set[str] = set()
        self._count = 0
        self.constants: list[tuple[str, Value, Array]] = []  # those that are declared
        for value in graph.inputs:
            self._add(value)
        used = {v for node in graph.nodes for v in node.inputs}.union(graph.results)
        for value, array in graph.constants.items():
            if not value.name and value in used and is_short(array):
                self._labels[value] = format_array(array)
            else:
                name = names.name(value, array)
                self._labels[value] = f"${name}"
                self.constants.append((name, value, array))
        for node in graph.nodes:
            for value in node.outputs:
                self._add(value)

    def _add(self, value: Value) -> None:
        if value in self._labels:
            return
        if not value.name:
            self._labels[value] = f"%{self._count}"
            self._count += 1
            return
        base = label = f"%{format_name(value.name, LABEL)}"
        number = 2
        while label in self._taken:
            label, number = f"{base}~{number}", number + 1
        self._taken.add(label)
        self._labels[value] = label

    def __getitem__(self, value: Value) -> str:
        return self._labels.get(value, "%?")

    def listed(self, values: Any) -> str:
        """The labels of values, with commas."""
        return ", ".join(self[v] for v in values)


def numbered(name: str) -> bool:
    """Whether the name of a constant is merely a number."""
    return bool(_NUMBERED.fullmatch(name))

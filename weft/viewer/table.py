"""What the page knows of graphs: one record for each node, shared by all graphs that the node stands in.

A graph is a list of records. Values have numbers that stay the same from pass to pass, so the page sees which
nodes a pass left as they were, changed, added and took out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from graphlib import TopologicalSorter
from operator import itemgetter
from typing import Any

import numpy as np

from weft.ir.graph import Graph, Node, Operand, Value
from weft.viewer.diagram import diagram_of
from weft.viewer.parts import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    common_path,
    common_start,
    find_parts,
    parameters_served,
    users_of,
)

LONG = 160  # characters of an attribute that are kept
FEW_OUTPUTS = 8  # that have boxes of their own

Record = dict[str, Any]
Path = tuple[str, ...]


class Table:
    """Records of nodes, with numbers for their values.

    A record has: ``kind`` (input, param, constant, op, output), ``op``, ``values`` and ``inputs`` (numbers),
    ``types``, ``attrs``, ``path`` (the groups it is in, each with a letter for what it is: P part, M module,
    R the first value of a node with regions, B region), ``part``, ``at`` (file, line, function).
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.files: list[str] = []
        self._numbers: dict[Any, int] = {}
        self._kept: list[Any] = []  # so that an id stays its own
        self._known: dict[Any, int] = {}
        self._labels: dict[int, str] = {}
        self._files: dict[str, int] = {}

    def number(self, value: Any) -> int:
        """The number of a value, or of a node that gives none."""
        found = self._numbers.get(id(value))
        if found is None:
            found = self._numbers[id(value)] = len(self._numbers)
            self._kept.append(value)
        return found

    def add(self, key: Any, record: Record) -> int:
        """Enter a record of a value or node, once for each place that it stands in; its number."""
        full = (id(key), record["kind"], record["op"], record["path"], record["part"])
        if full not in self._known:
            self._known[full] = len(self.records)
            self._kept.append(key)
            self.records.append({k: v for k, v in record.items() if v})
            self._labels |= dict.fromkeys(record["values"], record["op"])
        return self._known[full]

    def find(self, node: Node, path: Path, part: str) -> int | None:
        """The number of the record of a node in a place, if it was entered."""
        return self._known.get((id(node), "op", name_of(node), path, part))

    def label(self, number: int) -> str:
        """What makes a value: an op, or the name of an input."""
        return self._labels.get(number, "?")

    def place(self, location: Any) -> list[Any] | None:
        """Where a node comes from, the file as a number."""
        if location is None:
            return None
        number = self._files.setdefault(location.file, len(self.files))
        if number == len(self.files):
            self.files.append(location.file)
        return [number, location.line, location.function]

    def add_graph(self, graph: Graph) -> list[int]:
        """The numbers of the records of a graph, in order of execution."""
        return _Graph(self, graph).run()


class _Graph:
    """Takes down one graph."""

    def __init__(self, table: Table, graph: Graph) -> None:
        self.table = table
        self.graph = graph
        self.parts = find_parts(graph)
        self.has_parts = len(set(self.parts.values())) > 1
        self.served = parameters_served(graph, self.parts)
        self.modules = {n.location.module for n in graph.nodes if n.location is not None}
        self.places = _modules_of(graph, self.parts)
        self.first = self._first_parts()
        self.out: list[int] = []

    def run(self) -> list[int]:
        graph = self.graph
        for i, (value, role) in enumerate(zip(graph.inputs, graph.roles, strict=True)):
            kind = "input" if role == "arg" else "param"
            path = self._top(self.first.get(value, "")) + self._holder(value, role)
            self._put(value, kind, value.name or f"input {i}", path, self.first.get(value, ""))
        paths = {n: self._path(n) for n in graph.nodes}
        self._constants(graph, paths, self.first)
        results = _result_names(graph)
        for node in graph.nodes:
            self._node(graph, node, paths[node], self.parts.get(node, ""), results)
        if len(graph.outputs) <= FEW_OUTPUTS:
            for i, value in enumerate(graph.outputs):
                name = "output" if len(graph.outputs) == 1 else f"output {i}"
                self._output(graph, value, name, self._top(self._part_of(value)), self._part_of(value))
        return self.out

    # Groups

    def _top(self, part: str) -> Path:
        return (f"P{part or FORWARD}",) if self.has_parts else ()

    def _path(self, node: Node) -> Path:
        part, own = self.parts.get(node, ""), self.places.get(node, "")
        own = self._without_root(self.served.get(node, "")) if part == OPTIMIZER else own
        return (*self._top(part), *_words(own))

    def _without_root(self, name: str) -> str:
        """A parameter's name as its model has it: without the variable that holds the model."""
        words = name.split(".")
        for i in range(len(words)):
            if ".".join(words[i:-1]) in self.modules and words[i:-1]:
                return ".".join(words[i:])
        return ".".join(words[1:])

    def _holder(self, value: Value, role: str) -> Path:
        """The module that a parameter is in, or the parameter that a state of the optimizer is for."""
        if role == "arg" or "." not in value.name:
            return ()
        owner = self._without_root(value.name).rpartition(".")[0]
        known = owner in self.modules or self.first.get(value) == OPTIMIZER
        return _words(owner) if known else ()

    def _first_parts(self) -> dict[Value, str]:
        """By input, the first part that uses it."""
        order = {FORWARD: 0, "backward": 1, OPTIMIZER: 2, "": 0}
        users = users_of(self.graph)
        found = {}
        for value in (*self.graph.inputs, *self.graph.constants):
            parts = [self.parts.get(n, "") for n in users.get(value, ())]
            found[value] = min(parts, key=lambda p: order[p], default="")
        return found

    def _part_of(self, value: Value) -> str:
        maker = next((n for n in reversed(self.graph.nodes) if value in n.outputs), None)
        return self.parts.get(maker, "") if maker is not None else ""

    # Records

    def _put(self, value: Value, kind: str, name: str, path: Path, part: str, comes: Any = ()) -> None:
        record = {"kind": kind, "op": name, "values": [self.table.number(value)], "inputs": list(comes),
                  "types": [str(value.type)], "path": path, "part": part}  # fmt: skip
        self.out.append(self.table.add(value, record))

    def _output(self, graph: Graph, value: Value, name: str, path: Path, part: str) -> None:
        known = _is_number(graph, value)
        record = {"kind": "output", "op": name, "values": [], "types": [str(value.type)],
                  "inputs": [] if known else [self.table.number(value)],
                  "numbers": [_short(graph.constants[value])] if known else [],
                  "path": path, "part": part}  # fmt: skip
        self.out.append(self.table.add(value, record))

    def _constants(self, graph: Graph, paths: Mapping[Node, Path], parts: Mapping[Value, str]) -> None:
        """Put each constant where those who use it are."""
        users = users_of(graph)
        for value, array in graph.constants.items():
            part = parts.get(value, "")
            top = self._top(part)
            around = [paths[n] for n in users.get(value, ()) if paths[n][: len(top)] == top]
            path = common_start(around) if around else top
            if np.asarray(array).size != 1:
                self._put(value, "constant", value.name or "constant", path, part)

    def _node(
        self, graph: Graph, node: Node, path: Path, part: str, results: Mapping[Value, list[str]]
    ) -> None:
        number = self.table.find(node, path, part)
        if number is None:
            record = self._record(graph, node, path, part)
            record["gives"] = [name for v in node.outputs for name in results.get(v, ())]
            number = self.table.add(node, record)
        self.out.append(number)
        regions = node.regions
        if not regions:
            return
        inside = (*path, f"R{self.table.records[number]['values'][0]}")
        module = "" if node.location is None else node.location.module
        for i, region in enumerate(regions):
            own = (*inside, f"B{region.name or f'region {i}'}") if len(regions) > 1 else inside
            self._region(node, region, own, part, module)

    def _record(self, graph: Graph, node: Node, path: Path, part: str) -> Record:
        number = self.table.number
        written = [_short(graph.constants[v]) for v in node.inputs if _is_number(graph, v)]
        attrs = {k: str(v)[:LONG] for k, v in node.attrs.items() if _is_shown(k, v)}
        if "arguments" in attrs:
            attrs["arguments"] = self._arguments(graph, node)
        return {
            "kind": "op",
            "op": name_of(node),
            "values": [number(v) for v in node.outputs] or [number(node)],
            "inputs": [number(v) for v in node.inputs if not _is_number(graph, v)],
            "types": [str(v.type) for v in node.outputs],
            "attrs": attrs,
            "numbers": written,
            "path": path,
            "part": part,
            "at": self.table.place(node.location),
        }

    def _arguments(self, graph: Graph, node: Node) -> str:
        """The arguments of a call as they would be written: by name, what they are."""

        def text(given: Any) -> str:
            if isinstance(given, Operand):
                value = node.inputs[given.index]
                known = _is_number(graph, value)
                return _short(graph.constants[value]) if known else self.table.label(self.table.number(value))
            if type(given) is tuple:
                return f"({', '.join(text(x) for x in given)})"
            return str(given)

        return ", ".join(f"{name}={text(given)}" for name, given in _named_arguments(node))[: 2 * LONG]

    def _region(self, owner: Node, region: Graph, path: Path, part: str, module: str) -> None:
        before = len(owner.inputs) - len(region.inputs)
        given: Sequence[Value] = owner.inputs[before:]
        named = _named_arguments(owner)
        names = {operand.index - before: name for name, operand in named if isinstance(operand, Operand)}
        for i, value in enumerate(region.inputs):
            comes = [self.table.number(given[i])] if i < len(given) else []
            self._put(value, "input", value.name or names.get(i) or f"input {i}", path, part, comes)
        paths = {node: (*path, *_words(_below(module, node))) for node in region.nodes}
        self._constants(region, dict.fromkeys(region.nodes, path), dict.fromkeys(region.constants, part))
        for node in region.nodes:
            self._node(region, node, paths[node], part, {})
        for i, value in enumerate(region.outputs):
            self._output(region, value, _result_name(owner, region, i), path, part)


def _result_names(graph: Graph) -> dict[Value, list[str]]:
    found: dict[Value, list[str]] = {}
    for i, value in enumerate(graph.outputs):
        found.setdefault(value, []).append(f"output {i}")
    for old, value in graph.updates:
        found.setdefault(value, []).append(f"{old.name} after")
    return found


def name_of(node: Node) -> str:
    """What a node is called: its op, or the function that it is a call of.

    >>> import weft
    >>> name_of(weft.make_graph(lambda x: -x)(weft.ones(2)).nodes[0])
    'neg'
    """
    return str(node.attrs.get("function", node.op.name))


def _named_arguments(node: Node) -> list[tuple[str, Any]]:
    """The arguments of a call, by name."""
    given = node.attrs.get("arguments") or ()
    return [(str(item[0]), item[1]) for item in given if type(item) is tuple and len(item) == 2]


@cache
def _words(module: str) -> Path:
    return tuple(f"M{word}" for word in module.split(".") if word)


def _modules_of(graph: Graph, parts: Mapping[Node, str]) -> dict[Node, str]:
    """By node, the path of its module; of sums of gradients, the one in which the ways parted."""
    found: dict[Node, str] = {}
    makers = {v: (i, n) for i, n in enumerate(graph.nodes) for v in n.outputs}
    for node in graph.nodes:
        own = "" if node.location is None else node.location.module
        sources = [
            found[n] for _, n in sorted((makers[v] for v in node.inputs if v in makers), key=itemgetter(0))
        ]
        is_sum = not own and parts.get(node) == BACKWARD and len(sources) > 1
        if is_sum:  # around the one that a gradient came through last, if another came another way
            own = sources[-1] if common_path(sources) == sources[-1] else sources[-1].rpartition(".")[0]
        found[node] = own
    return found


def _result_name(owner: Node, region: Graph, number: int) -> str:
    """What a result of a region is called: in a loop, what it carries into the next turn."""
    carried = number < owner.attrs.get("carries", 0) and len(region.outputs) >= owner.attrs["carries"]
    if carried and region is owner.attrs.get("body") and region.inputs[number].name:
        return f"next {region.inputs[number].name}"
    return f"result {number}" if len(region.outputs) > 1 else "result"


def _below(module: str, node: Node) -> str:
    """The path of a node's module, from another one on."""
    there = "" if node.location is None else node.location.module
    return there.removeprefix(module).strip(".") if there.startswith(module) else ""


def _is_shown(name: str, value: Any) -> bool:
    graphs: Iterable[Any] = value if isinstance(value, tuple) else (value,)
    return value is not None and name != "function" and not any(isinstance(g, Graph) for g in graphs)


def _is_number(graph: Graph, value: Value) -> bool:
    """Whether a value is a constant of one element, which is written into the box that uses it."""
    array = graph.constants.get(value)
    return array is not None and np.asarray(array).size == 1


def _short(array: Any) -> str:
    item = np.asarray(array).reshape(-1)[0]
    return f"{item:g}" if np.asarray(array).dtype.kind in "fiu" else str(item)


# The dynamic graph behind a tensor


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
    for i in TopologicalSorter({i: comes.get(i, ()) for i in range(len(held))}).static_order():
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

"""Graphs as text: one form, typed on every line, densely numbered, that ``weft.parse_graph`` reads back.

    graph f(%x: f32[2,4], param %w: f32[4,3]) {
      %0: f32[2,3] = matmul(%x, %w)         @ model.py:11
      %1: f32[2,3] = gelu(%0)               @ model.py:12
      %2: f32[2] = sum(%1, axes=(1,))       @ model.py:13
      return %2
    }

``str(graph)`` is for people: it shows base names of files. ``graph.to_text()`` keeps everything, with the
full names of files below; the data of constants too long for a line is beside it, in
``graph.constant_data()``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from weft.base.hooks import hooks
from weft.base.notebook import file_text
from weft.base.records import NamedTuple
from weft.errors import GraphError
from weft.ir.compare import same_literal
from weft.ir.graph import Array, Graph, Node, Operand, Value, operands_of
from weft.ir.labels import ConstantNames, Labels, numbered
from weft.ir.literals import format_array, format_literal, format_name, is_short
from weft.ir.location import Location

WIDTH = 100  # of a line of inputs
ALIGNED = 80  # of a line that locations are aligned behind: a long one does not push all others away
FILE = re.compile(r"[\w.<>/\\-]+", re.ASCII)
FUNCTION = re.compile(r"[\w.<>]+")
MODULE = re.compile(r"[\w.]+")
OP_NAME = re.compile(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)?", re.ASCII)


def format_graph(graph: Graph, *, locations: bool = True, expand: bool = False) -> str:
    """A graph for people to read.

    Args:
        graph: to print.
        locations: whether lines end with the user's file and line.
        expand: whether calls of composites, such as ``gelu``, show what they do.

    >>> import weft
    >>> from weft.ir.text import format_graph
    >>> graph = weft.make_graph(lambda x: x * 2.0 + 1.0, name="f")(weft.ones(3))
    >>> print(format_graph(graph, locations=False))
    graph f(%x: f32[3]) {
      %0: f32[3] = mul(%x, f32(2.0))
      %1: f32[3] = add(%0, f32(1.0))
      return %1
    }
    """
    return "\n".join(_Printer(locations=locations, expand=expand, files=None).print(graph))


def to_text(
    graph: Graph, *, locations: bool = True, expand: bool = False, names: Mapping[str, str] | None = None
) -> str:
    """A graph as text that ``weft.parse_graph`` reads back to the same graph.

    Args:
        graph: to print.
        locations: whether lines end with the user's file and line, with the full names of files below.
        expand: whether calls of composites, such as ``gelu``, show what they do, so that the text means the
            same to a version of weft that computes them in another way.
        names: what to call source files instead, by their full names.

    >>> import weft
    >>> graph = weft.make_graph(lambda x: x * 2.0, name="f")(weft.ones(3))
    >>> again = weft.parse_graph(graph.to_text(), constants=graph.constant_data())
    >>> again.same(graph)
    True
    """
    files: dict[str, str] = {}
    lines = list(_Printer(locations=locations, expand=expand, files=files).print(graph))
    if files:
        full = {label: (names or {}).get(name, name) for name, label in files.items()}
        lines += ["files {", *[f"  {label} = {json.dumps(name)}" for label, name in full.items()], "}"]
    return "\n".join(lines) + "\n"


def constant_data(graph: Graph, *, expand: bool = False) -> dict[str, Array]:
    """The data of the constants that text shows by name, with those of regions.

    >>> import weft
    >>> graph = weft.make_graph(lambda x: x + weft.arange(100.0))(weft.ones(100))
    >>> {name: array.shape for name, array in graph.constant_data().items()}
    {'c0': (100,)}
    """
    printer = _Printer(locations=False, expand=expand, files=None)
    list(printer.print(graph))
    return {name: printer.names.arrays[name] for name in printer.needed}


class _Line(NamedTuple):
    text: str
    location: Location | None = None


class _Printer:
    """One printing of a graph."""

    def __init__(self, *, locations: bool, expand: bool, files: dict[str, str] | None) -> None:
        self.locations = locations
        self.expand = expand
        self.files = files  # full names to labels, where all of a location is kept
        self.names = ConstantNames()
        self.needed: dict[str, None] = {}  # constants whose data is not in the text

    def print(self, graph: Graph) -> Iterator[str]:
        """The lines of the text."""
        lines = list(self._block(f"graph {format_name(graph.name, FUNCTION)}", graph, ""))
        marks = [self._location(line.location) for line in lines]
        widths = [len(line.text) for line, mark in zip(lines, marks, strict=True) if mark]
        column = max((w for w in widths if w <= ALIGNED), default=0)
        for line, mark in zip(lines, marks, strict=True):
            yield f"{line.text.ljust(column)}  {mark}" if mark else line.text

    def _block(self, title: str, graph: Graph, indent: str) -> Iterator[_Line]:
        """A graph or region."""
        labels = Labels(graph, self.names)
        yield from self._head(title, graph, labels, indent)
        inner = indent + "  "
        for name, value, array in labels.constants:
            yield _Line(inner + self._constant(name, value, array))
        for node in graph.nodes:
            yield from self._node(node, labels, inner)
        for old, new in graph.updates:
            yield _Line(f"{inner}update {labels[old]} = {labels[new]}")
        yield _Line(f"{inner}return {labels.listed(graph.outputs)}".rstrip())
        yield _Line(f"{indent}}}")

    def _head(self, title: str, graph: Graph, labels: Labels, indent: str) -> Iterator[_Line]:
        roles = (*graph.roles, *["?"] * len(graph.inputs))  # a graph that is wrong is printed too
        inputs = [
            f"{'' if role == 'arg' else role + ' '}{labels[v]}: {v.type}"
            for v, role in zip(graph.inputs, roles, strict=False)
        ]
        line = f"{indent}{title}({', '.join(inputs)}) {{"
        if len(line) <= WIDTH:
            yield _Line(line)
            return
        yield _Line(f"{indent}{title}(")
        yield from (_Line(f"{indent}    {text},") for text in inputs)
        yield _Line(f"{indent}) {{")

    def _constant(self, name: str, value: Value, array: Array) -> str:
        told = not value.name or (name == value.name and not numbered(name))
        title = "" if told else f" {json.dumps(value.name)}"
        if is_short(array):
            return f"const ${name}{title} = {format_array(array)}"
        self.needed[name] = None
        return f"const ${name}{title}: {value.type}"

    # Nodes

    def _node(self, node: Node, labels: Labels, indent: str) -> Iterator[_Line]:
        made = ", ".join(f"{labels[v]}: {v.type}" for v in node.outputs)
        text, regions = self._application(node, labels)
        text = f"{indent}{made} = {text}" if made else indent + text
        if not regions:
            yield _Line(text, node.location)
            return
        yield _Line(f"{text} {{", node.location)
        for title, region in regions:
            yield from self._block(title, region, indent + "  ")
        yield _Line(f"{indent}}}")

    def _application(self, node: Node, labels: Labels) -> tuple[str, list[tuple[str, Graph]]]:
        """The op on its operands, and the regions that follow, with their titles."""
        if node.op.name == "call" and (text := self._call(node, labels)) is not None:
            return text
        parts = [labels[v] for v in node.inputs]
        regions: list[tuple[str, Graph]] = []
        usual = node.op.usual(node.attrs)
        for name, value in node.attrs.items():
            if type(value) is Graph:
                regions.append((_title(name, name, value), value))
            elif type(value) is tuple and value and all(type(v) is Graph for v in value):
                regions += [(_title(f"{name}[{i}]", name, v), v) for i, v in enumerate(value)]
            elif name not in usual or not same_literal(usual[name], value):
                parts.append(f"{name}={self._literal(value)}")
        return f"{node.op.name}({', '.join(parts)})", regions

    def _call(self, node: Node, labels: Labels) -> tuple[str, list[tuple[str, Graph]]] | None:
        """A call as one line, or with its body; None if its operands are not as its arguments have them."""
        function, body = node.attrs.get("function", ""), node.attrs.get("body")
        used = list(dict.fromkeys(operands_of(node.attrs.get("arguments"))))
        if used != list(range(len(used))) or type(body) is not Graph:
            return None
        shown = _Arguments(node, labels)
        outs = None if self.expand or len(used) < len(node.inputs) else hooks.call_outputs(node)
        if outs is not None:
            only, keep = outs
            more = f" only {format_literal(only)}" if only is not None else ""
            more += f" keep {format_literal(keep)}" if keep else ""
            return f"{function}({shown.by_position(*hooks.argument_names(function))}){more}", []
        uses = labels.listed(node.inputs[len(used) :])
        text = f"call {format_name(function, FUNCTION)}({shown.by_name()})"
        return f"{text} uses ({uses})" if uses else text, [(_title("body", function, body), body)]

    def _literal(self, x: object) -> str:
        try:
            return format_literal(x)
        except GraphError:
            if self.files is not None:
                raise
            return f"<{type(x).__name__}>"  # for people, who may look at a graph because it is wrong

    # Locations

    def _location(self, location: Location | None) -> str:
        if location is None or not self.locations:
            return ""
        text = f"@ {self._file(location.file)}:{location.line}"
        if self.files is not None and location.function:
            text += f" in {format_name(location.function, FUNCTION)}"
        if location.module:
            text += f" ({format_name(location.module, MODULE)})"
        return f"{text} {format_name(location.phase)}" if location.phase else text

    def _file(self, file: str) -> str:
        base = format_name(file_text(file), FILE)
        if self.files is None:
            return base
        if file not in self.files:
            count = sum(label.partition("~")[0] == base for label in self.files.values())
            self.files[file] = f"{base}~{count + 1}" if count else base
        return self.files[file]


def _title(attribute: str, usual: str, region: Graph) -> str:
    """How a region begins: with its attribute, and its name where that is not the usual one."""
    return attribute if region.name == usual else f"{attribute} {format_name(region.name, FUNCTION)}"


class _Arguments:
    """The arguments of a call as text."""

    def __init__(self, node: Node, labels: Labels) -> None:
        self.arguments = node.attrs["arguments"]
        self.inputs = node.inputs
        self.labels = labels

    def by_name(self) -> str:
        """Each with its name, where it has one."""
        return ", ".join(f"{name}={self.one(x)}" if name else self.one(x) for name, x in self.arguments)

    def by_position(self, names: Sequence[str], required: int) -> str:
        """Operands that come first and are required without names, as one would write the call."""
        last = max((i for i, (name, _) in enumerate(self.arguments) if not name), default=-1)
        parts: list[str] = []
        plain = True
        for i, (name, x) in enumerate(self.arguments):
            fits = i < required and name == names[i] and next(operands_of(x), None) is not None
            plain = i <= last or (plain and fits)
            parts.append(self.one(x) if plain else f"{name}={self.one(x)}")
        return ", ".join(parts)

    def one(self, x: object) -> str:
        """An argument: a literal, an operand, or a tuple of these."""
        if isinstance(x, Operand):
            return self.labels[self.inputs[x.index]]
        if type(x) is tuple:
            inner = ", ".join(map(self.one, x))
            return f"({inner},)" if len(x) == 1 else f"({inner})"
        return format_literal(x)

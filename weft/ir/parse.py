"""Text to graph: what ``graph.to_text()`` wrote, or a person.

First the lines are read, then the graph is built: each op is looked up, each type inferred again and
compared with what is written, bodies of composites are traced again. Text that is no graph gives a
ParseError with line and column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.base.tracebacks import edge
from weft.errors import ParseError
from weft.ir.block import Block, Definition, Line
from weft.ir.graph import Array, Graph, Node
from weft.ir.labels import numbered
from weft.ir.location import Location
from weft.ir.reader import DEPTH, Literal, Reader, Ref
from weft.ir.text import FILE, FUNCTION, MODULE, OP_NAME
from weft.ir.types import TensorType
from weft.ir.verify import ROLES, problems

_FILES = re.compile(r"^files \{", re.MULTILINE)
_TILDE = re.compile(r"~\d+")
_CALL = re.compile(r"call[ \t]+[^\s(]")
_NAMED = re.compile(r"[A-Za-z_]\w*\s*=", re.ASCII)


@edge
def parse_graph(text: str, constants: Mapping[str, Array] | None = None) -> Graph:
    """The graph that a text stands for.

    Args:
        text: as ``graph.to_text()`` or ``str(graph)`` give it, or written by hand.
        constants: the data of the constants that the text shows by name, as ``graph.constant_data()`` has it.

    >>> import weft
    >>> graph = weft.parse_graph('''
    ... graph f(%x: f32[2,4], %w: f32[4,3]) {
    ...   %0: f32[2,3] = matmul(%x, %w)
    ...   %1: f32[2,3] = tanh(%0)
    ...   return %1
    ... }
    ... ''')
    >>> graph
    <graph f: 2 inputs, 2 nodes, 1 outputs>
    """
    if not isinstance(text, str):
        raise ParseError("parse_graph", f"takes text, got {type(text).__name__}")
    parser = _Parser(text, dict(constants or {}))
    try:
        return parser.graph()
    except RecursionError:
        raise parser.wrong("the text must not be nested so deep") from None


class _Parser(Reader):
    """Reads the lines of a graph; a ``Block`` builds each graph and region."""

    def __init__(self, text: str, constants: dict[str, Array]) -> None:
        super().__init__(text)
        self.constants = constants
        self.places: dict[Node, int] = {}
        self.files = self._read_files()

    def graph(self) -> Graph:
        """Read the whole text."""
        self.space()
        if not self.keyword("graph"):
            raise self.expected("'graph'")
        self.blank()
        graph = self.block(self.name("the name of a graph", FUNCTION))
        self.space()
        if self.at < len(self.text) and not _FILES.match(self.text, self.at):
            raise self.expected("the end of the text")
        for node, message in problems(graph):
            at = 0 if node is None else self.places.get(node, 0)
            raise self.wrong(message if node is None else f"{node.op.name}: {message}", at)
        return graph

    def block(self, name: str) -> Graph:
        """Read a graph or region from its inputs on."""
        self.expect("(")
        block = Block(self, name)
        for role, definition in self.listed(self.input):
            block.add_input(role, definition)
        self.blank()
        self.expect("{")
        self.depth += 1
        if self.depth > DEPTH:
            raise self.wrong(f"regions must not be nested more than {DEPTH} deep")
        self.space()
        while not self.take("}"):
            self.statement(block)
            self.end_line()
        self.depth -= 1
        return block.build()

    def input(self) -> tuple[str, Definition]:
        """Read an input: ``%x: f32[2]``, with a role before it where it is no argument."""
        role = "arg"
        if not self.peek("%"):
            start = self.at
            role = self.word("an input, such as %x: f32[2]")
            if role not in ROLES:
                raise self.wrong(f"expected one of the roles {', '.join(ROLES)}, got {role}", start)
            self.blank()
        return role, self.definition()

    def definition(self) -> Definition:
        """Read ``%x: f32[2]``."""
        start = self.at
        if not self.peek("%"):
            raise self.expected("a value, such as %0: f32[2]")
        label = self.label()
        self.sign(":")
        return Definition(label, self.type(), start)

    def at_end(self) -> bool:
        """Whether a statement ends here."""
        return self.at >= len(self.text) or self.text[self.at] in "\n};"

    def end_line(self) -> None:
        """Read the end of a statement."""
        self.blank()
        if not self.take(";") and (self.at >= len(self.text) or not self.at_end()):
            raise self.expected("the end of the line")
        self.space()

    # Statements

    def statement(self, block: Block) -> None:
        """Read one line of a block."""
        start = self.at
        if block.outputs is not None:
            raise self.expected("'}' after return")
        if self.keyword("const"):
            self.blank()
            self.constant(block)
        elif self.keyword("update"):
            self.blank()
            old = self.value()
            self.sign("=")
            block.updates.append((start, old, self.value()))
        elif self.keyword("return"):
            block.outputs = self.values()
        else:
            block.lines.append(self.application(start))

    def constant(self, block: Block) -> None:
        """Read the rest of ``const $c0: f32[9]`` or ``const $c0 = f32(1.0)``."""
        start = self.at
        if not self.peek("$"):
            raise self.expected("the name of a constant, such as $c0")
        label = self.label()
        self.blank()
        name = self.string() if self.peek('"') else "" if numbered(label[1:]) else label[1:]
        self.blank()
        if self.take("="):
            self.blank()
            found = self.value()
            if not isinstance(found, Literal):
                raise self.wrong("expected an array, such as f32(1.0)", start)
            block.add_constant(label, name, found.array, start)
            return
        self.expect(":")
        self.blank()
        block.add_constant(label, name, self.data(label[1:], self.type(), start), start)

    def data(self, key: str, type: TensorType, start: int) -> Array:
        """The data of a constant that is beside the text."""
        array = self.constants.get(key)
        if array is None:
            message = f"no data for the constant {key}"
            raise self.wrong(message, start, hint="pass constants=graph.constant_data()")
        if not isinstance(array, np.ndarray):
            raise self.wrong(f"the constant {key} must be an array, got {array.__class__.__name__}", start)
        if array.dtype != type.dtype or array.shape != type.shape:
            got = f"{array.dtype.name}{list(array.shape)}"
            raise self.wrong(f"the constant {key} must be of the type {type}, got {got}", start)
        return array

    def value(self) -> Ref | Literal:
        """Read a value: a label, or an array that is written out."""
        start = self.at
        found = self.literal()
        if not isinstance(found, Ref | Literal):
            raise self.wrong("expected a value, such as %0 or f32(1.0)", start)
        return found

    def values(self) -> list[Ref | Literal]:
        """Read values up to the end of the line."""
        out: list[Ref | Literal] = []
        self.blank()
        while not self.at_end():
            out.append(self.value())
            self.blank()
            if not self.take(","):
                break
            self.space()
        return out

    def application(self, start: int) -> Line:
        """Read a node: its outputs, op, arguments and what follows."""
        outputs: list[Definition] = []
        while self.peek("%"):
            outputs.append(self.definition())
            self.blank()
            if not self.take(","):
                self.expect("=")
            self.blank()
        called = bool(_CALL.match(self.text, self.at)) and self.keyword("call")
        self.blank()
        at = self.at
        op = self.name("the name of a function", FUNCTION) if called else self.match(OP_NAME)
        if op is None:
            raise self.expected("the name of an op")
        self.expect("(")
        line = Line(start, at, outputs, op, called, self.listed(self.argument))
        while self.suffix(line):
            pass
        return line

    def argument(self) -> tuple[str, Any, int]:
        """Read an argument, with its name or ""."""
        start = self.at
        name = ""
        if _NAMED.match(self.text, self.at):
            name = self.word("a name")
            self.space()
            self.expect("=")
            self.space()
        return name, self.literal(), start

    def suffix(self, line: Line) -> bool:
        """Read one thing that follows the arguments: what a call uses and keeps, regions, a location."""
        self.blank()
        if self.keyword("uses"):
            self.blank()
            self.expect("(")
            line.uses = self.listed(self.value)
        elif self.keyword("only"):
            line.only = self.numbers()
        elif self.keyword("keep"):
            line.keep = self.numbers()
        elif self.take("{"):
            self.regions(line)
            return False
        else:
            line.location = self.location() if self.peek("@") else None
            return False
        return True

    def regions(self, line: Line) -> None:
        """Read the location of a node with regions, and these."""
        self.blank()
        line.location = self.location() if self.peek("@") else None
        self.space()
        while not self.take("}"):
            self.region(line)
            self.space()

    def numbers(self) -> tuple[int, ...]:
        """Read whole numbers in brackets."""
        self.blank()
        self.expect("(")
        return tuple(self.listed(self.whole))

    def region(self, line: Line) -> None:
        """Read ``body(%0: f32[]) { ... }`` or ``branches[0](...) { ... }``."""
        start = self.at
        attribute = self.word("the name of a region")
        index = None
        if self.take("["):
            index = self.whole()
            self.expect("]")
        self.blank()
        usual = line.op if line.called else attribute
        graph = self.block(usual if self.peek("(") else self.name("the name of a region", FUNCTION))
        line.regions.append((attribute, index, graph, start))

    # Locations

    def location(self) -> Location:
        """Read ``@ model.py:12 in forward (encoder.attn) backward``."""
        self.expect("@")
        self.blank()
        start = self.at
        name = self.name("the name of a file", FILE)
        self.match(_TILDE)
        label = self.text[start : self.at]
        self.expect(":")
        number = self.whole()
        self.blank()
        parts = {"function": "", "module": "", "phase": ""}
        if self.keyword("in"):
            self.blank()
            parts["function"] = self.name("the name of a function", FUNCTION)
            self.blank()
        if self.take("("):
            parts["module"] = self.name("the path of a module", MODULE)
            self.expect(")")
            self.blank()
        if not self.at_end():
            parts["phase"] = self.name("a phase")
        return Location(self.files.get(label, name), number, **parts)

    def _read_files(self) -> dict[str, str]:
        """The full names of files by their labels, from the table at the end of the text."""
        found = list(_FILES.finditer(self.text))
        files: dict[str, str] = {}
        if not found:
            return files
        self.at = found[-1].end()
        self.space()
        while not self.take("}"):
            start = self.at
            self.name("the name of a file", FILE)
            self.match(_TILDE)
            label = self.text[start : self.at]
            self.sign("=")
            files[label] = self.string()
            self.space()
        self.space()
        if self.at < len(self.text):
            raise self.expected("the end of the text")
        self.at = 0
        return files

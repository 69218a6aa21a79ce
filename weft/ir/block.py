"""A graph or region that is being read from text: labels become values, lines nodes."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from typing import Any

from weft.base.hooks import hooks
from weft.base.records import NamedTuple, dataclass, field
from weft.ir.graph import Array, Graph, Node, Operand, Value
from weft.ir.location import Location
from weft.ir.reader import Literal, Reader, Ref
from weft.ir.types import TensorType

_AGAIN = re.compile(r"~\d+$")


class Definition(NamedTuple):
    """A value that text declares, and where."""

    label: str
    type: TensorType
    at: int


@dataclass(eq=False, slots=True)
class Line:
    """What a line says: outputs, op, arguments (name or "", what is given, where), and what follows them."""

    start: int
    at: int
    outputs: list[Definition]
    op: str
    called: bool
    arguments: list[tuple[str, Any, int]]
    regions: list[tuple[str, int | None, Graph, int]] = field(default_factory=list)
    uses: list[Ref | Literal] = field(default_factory=list)
    only: tuple[int, ...] | None = None
    keep: tuple[int, ...] = ()
    location: Location | None = None


class Block:
    """One graph or region: what was read of it, and the values that its labels stand for."""

    def __init__(self, reader: Any, name: str) -> None:
        self.reader: Reader = reader
        self.places: dict[Node, int] = reader.places
        self.name = name
        self.inputs: list[Value] = []
        self.roles: list[str] = []
        self.lines: list[Line] = []
        self.updates: list[tuple[int, Ref | Literal, Ref | Literal]] = []
        self.outputs: list[Ref | Literal] | None = None
        self.constants: dict[Value, Array] = {}
        self._values: dict[str, Value] = {}
        self._literals: dict[tuple[Any, ...], Value] = {}

    # Values

    def add_input(self, role: str, definition: Definition) -> None:
        """Declare an input."""
        self.inputs.append(self.define(definition))
        self.roles.append(role)

    def add_constant(self, label: str, name: str, array: Array, at: int) -> None:
        """Declare a constant."""
        type = TensorType(array.shape, array.dtype)
        value = self._enter(label, Value(type, name), at)
        self.constants[value] = array

    def define(self, definition: Definition) -> Value:
        """The new value of a label."""
        value = Value(definition.type, _name_of(definition.label))
        return self._enter(definition.label, value, definition.at)

    def _enter(self, label: str, value: Value, at: int) -> Value:
        if label in self._values:
            raise self.reader.wrong(f"a value must be made once, got {label} again", at)
        self._values[label] = value
        return value

    def value(self, x: Ref | Literal) -> Value:
        """The value that is meant."""
        if isinstance(x, Literal):
            return self._literal(x.array)
        if x.label not in self._values:
            hint = "a region sees only its own inputs" if self.reader.text.count(x.label + ":") else None
            raise self.reader.wrong(f"{x.label} is not made in {self.name}", x.at, hint)
        return self._values[x.label]

    def _literal(self, array: Array) -> Value:
        filled = array.size and not any(array.strides)
        key = (array.dtype, array.shape, array.flat[0].tobytes() if filled else array.tobytes())
        if key not in self._literals:
            value = Value(TensorType(array.shape, array.dtype))
            self._literals[key] = value
            self.constants[value] = array
        return self._literals[key]

    # The graph

    def build(self) -> Graph:
        """The graph, once all of it was read."""
        if self.outputs is None:
            raise self.reader.wrong(f"{self.name} must end with return", self.reader.at - 1)
        made = [[self.define(d) for d in line.outputs] for line in self.lines]
        nodes = [self.node(line, outs) for line, outs in zip(self.lines, made, strict=True)]
        return Graph(
            self.name,
            self.inputs,
            nodes,
            [self.value(x) for x in self.outputs],
            constants=self.constants,
            roles=self.roles,
            updates=[(self.value(old), self.value(new)) for _, old, new in self.updates],
        )

    def node(self, line: Line, outputs: list[Value]) -> Node:
        """The node of a line."""
        op = hooks.find_op("call" if line.called else line.op)
        if op is None:
            raise self.unknown_op(line)
        if line.called or not hasattr(op, "type_rule"):
            inputs, attrs = self.call(line)
            op = hooks.find_op("call")
        else:
            inputs, attrs = self.operands(line)
        node = Node(op, inputs, attrs, outputs, line.location)
        self.places[node] = line.start
        return node

    def unknown_op(self, line: Line) -> Exception:
        """The error that there is no such op."""
        close = get_close_matches(line.op, hooks.op_names(), 1)
        hint = f"did you mean {close[0]}?" if close else "a custom op must be declared before text is read"
        return self.reader.wrong(f"the op must be known, got {line.op}", line.at, hint)

    def operands(self, line: Line) -> tuple[list[Value], dict[str, Any]]:
        """The operands and attributes of an op."""
        if line.uses or line.keep or line.only is not None:
            message = f"only calls have 'uses', 'only' and 'keep', got one after {line.op}"
            raise self.reader.wrong(message, line.at)
        inputs: list[Value] = []
        attrs: dict[str, Any] = {}
        for name, x, at in line.arguments:
            if name:
                self._add(attrs, name, self._plain(x, at), at)
            elif isinstance(x, Ref | Literal) and not attrs:
                inputs.append(self.value(x))
            else:
                raise self.reader.wrong("expected operands first, then attributes as name=literal", at)
        self._check_count(line, len(inputs))
        self.regions(line, attrs)
        for name, usual in hooks.find_op(line.op).usual(attrs).items():
            attrs.setdefault(name, usual)
        return inputs, attrs

    def _check_count(self, line: Line, count: int) -> None:
        op = hooks.find_op(line.op)
        least, most = len(op.inputs), None if op.variadic else len(op.inputs)
        if count < least or (most is not None and count > most):
            wanted = f"{least} operands" if most is not None else f"at least {least} operands"
            raise self.reader.wrong(f"{line.op} takes {wanted}, got {count}", line.at)

    def _add(self, attrs: dict[str, Any], name: str, x: object, at: int) -> None:
        if name in attrs:
            raise self.reader.wrong(f"an attribute must be given once, got {name} again", at)
        attrs[name] = x

    def _plain(self, x: object, at: int) -> Any:
        if isinstance(x, Ref | Literal):
            raise self.reader.wrong("an attribute must be a literal, got a value", at)
        return tuple([self._plain(i, at) for i in x]) if type(x) is tuple else x

    def regions(self, line: Line, attrs: dict[str, Any]) -> None:
        """Enter the regions of a line into its attributes."""
        several: dict[str, list[Graph]] = {}
        for name, index, graph, at in line.regions:
            if index is None:
                self._add(attrs, name, graph, at)
            elif index == len(several.get(name, ())) and name not in attrs:
                several.setdefault(name, []).append(graph)
            else:
                raise self.reader.wrong(f"regions must be numbered from 0 on, got {name}[{index}]", at)
        for name, graphs in several.items():
            self._add(attrs, name, tuple(graphs), line.at)

    # Calls

    def call(self, line: Line) -> tuple[list[Value], dict[str, Any]]:
        """The operands and attributes of a call; the body of a composite is traced again."""
        names = () if line.called else hooks.argument_names(line.op)[0]
        inputs: list[Value] = []
        arguments: list[tuple[str, Any]] = []
        named = False
        for i, (name, x, at) in enumerate(line.arguments):
            if named and not name and not line.called:
                raise self.reader.wrong("arguments by position must come before those by name", at)
            named = named or bool(name)
            place = names[i] if not name and i < len(names) else name
            arguments.append((place, self._argument(x, inputs)))
        inputs += [self.value(x) for x in line.uses]
        attrs: dict[str, Any] = {"function": line.op, "arguments": tuple(arguments)}
        self.regions(line, attrs)
        if not line.called:
            self._trace(line, inputs, attrs)
        elif set(attrs) != {"function", "arguments", "body"}:
            raise self.reader.wrong(f"a call must have one region, its body, got {line.op} without", line.at)
        return inputs, attrs

    def _argument(self, x: object, inputs: list[Value]) -> Any:
        if isinstance(x, Ref | Literal):
            value = self.value(x)
            if value not in inputs:
                inputs.append(value)
            return Operand(inputs.index(value))
        return tuple([self._argument(i, inputs) for i in x]) if type(x) is tuple else x

    def _trace(self, line: Line, inputs: list[Value], attrs: dict[str, Any]) -> None:
        if line.regions or line.uses:
            raise self.reader.wrong(f"a call with a body is written as call {line.op}(...)", line.at)
        types = [v.type for v in inputs]
        body = hooks.composite_body(line.op, attrs["arguments"], types, line.only, line.keep, line.location)
        if body is None:
            given = ", ".join(map(str, types)) or "none"
            message = f"{line.op}: arguments must fit it, got operands of the types {given}"
            raise self.reader.wrong(message, line.at)
        attrs["body"] = body


def _name_of(label: str) -> str:
    """The name of a value by its label: none for a number."""
    text = label[1:]
    if text.isdigit():
        return ""
    text = _AGAIN.sub("", text)
    return str(json.loads(text)) if text.startswith('"') else text

"""The names that nodes of an ONNX graph see, and graphs inside graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weft.onnx.attributes import Attributes
from weft.onnx.model import array_of

if TYPE_CHECKING:
    import onnx

    from weft.onnx.importer import Runner


@dataclass
class Scope:
    """The names that nodes see.

    Attributes:
        values: by name.
        parent: the names around, for a graph that is an attribute.
        versions: of the operator sets, by domain.
        attributes: of the function that the nodes are in.
        functions: those that the nodes are in, outermost first.
    """

    values: dict[str, Any]
    versions: Mapping[str, int]
    parent: Scope | None = None
    attributes: Attributes = field(default_factory=dict)
    functions: tuple[tuple[str, str, str], ...] = ()

    def __contains__(self, name: object) -> bool:
        return name in self.values or (self.parent is not None and name in self.parent)

    def __getitem__(self, name: str) -> Any:
        if name in self.values:
            return self.values[name]
        if self.parent is None:
            raise KeyError(name)
        return self.parent[name]


class Body:
    """A graph that is an attribute of a node: called, its nodes run in what is captured then."""

    def __init__(self, runner: Runner, graph: onnx.GraphProto, scope: Scope, where: str) -> None:
        self.graph = graph
        self.input_names = tuple(item.name for item in graph.input)
        self.output_names = tuple(item.name for item in graph.output)
        self._runner = runner
        self._scope = scope
        self._where = where
        self._stored: dict[str, Any] | None = None

    def __call__(self, *inputs: Any) -> list[Any]:
        """What it gives for inputs; it also sees the values around its node."""
        outer, runner = self._scope, self._runner
        if self._stored is None:
            self._stored = runner.initializers(self.graph, self._where)
        values = {**self._stored, **dict(zip(self.input_names, map(runner.kept, inputs), strict=False))}
        scope = Scope(values, outer.versions, outer, outer.attributes, outer.functions)
        found = runner.run_nodes(self.graph.node, self.output_names, scope, self._where)
        return [runner.tensor(x) for x in found]

    def passes_on(self, place: int, output: int) -> bool:
        """Whether an output is an input as it is, or always true."""
        makers = {name: node for node in self.graph.node for name in node.output}
        name = self.output_names[output]
        for _ in makers:  # no more steps than there are nodes, also where these form a cycle
            if name in makers and makers[name].op_type in ("Identity", "Cast"):
                name = makers[name].input[0]
        return name == self.input_names[place] or self._is_true(name, makers.get(name))

    def _is_true(self, name: str, maker: onnx.NodeProto | None) -> bool:
        """Whether a name is a constant that holds true."""
        if maker is None:
            tensors = [t for t in self.graph.initializer if t.name == name]
        else:
            tensors = [a.t for a in maker.attribute if a.name == "value" and maker.op_type == "Constant"]
        return len(tensors) == 1 and bool(array_of(tensors[0], self._where).all())

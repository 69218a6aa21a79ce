"""Work on weights alone, which need not be done again at each call: it becomes a graph of its own.

Inputs of the role "weight" are arrays that stay as they are. Constants are known already: what is computed of
them alone is a constant, too. The right sides of products are packed ahead (``weft.ops.panels``), and whole
numbers that others are made from, such as the sums of a matrix of bytes, are computed ahead. Other numbers
stay where they are computed: kernels do not round between a product and a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import float32, float64, int8, kind
from weft.base.records import NamedTuple
from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value, has_sizes
from weft.ir.interpret import interpret
from weft.ir.order import needed_nodes
from weft.ops.bytes import matmul_bytes
from weft.ops.contract import matrix_multiply as matmul
from weft.ops.panels import matmul_panels, pack_panels
from weft.ops.view.primitives import permute
from weft.passes.dce import dce
from weft.schedule.cpu.machine import Machine
from weft.schedule.cpu.matmul.blas import suits_blas
from weft.schedule.cpu.matmul.few_rows import suits_few_rows
from weft.schedule.cpu.matmul.plan import Matrices, panel_width, word_width
from weft.schedule.cpu.units import unit_for
from weft.schedule.extents import ceil_div

WEIGHT = "weight"
LEAST = 1 << 12  # elements of a right side: fewer are packed as fast as anything is looked up
LEAST_COLUMNS = 8  # of a right side of bytes: a tile of fewer has idle lanes, which the other side may fill


class Split(NamedTuple):
    """A graph in two.

    Attributes:
        prepare: from the inputs with these numbers to what it gives the other one; None if nothing is left.
        numbers: of the inputs that are read to prepare.
        main: from the inputs of the whole, then what was prepared, to its results.
    """

    prepare: Graph | None
    numbers: tuple[int, ...]
    main: Graph


def split_prepared(graph: Graph, machine: Machine) -> Split | None:
    """A graph as what is computed of weights alone, and the rest; None where that gains nothing.

    >>> import weft
    >>> from weft.schedule.cpu.machine import Machine
    >>> from weft.schedule.cpu.prepared import split_prepared
    >>> x, w = weft.TensorType(("batch", 256), weft.float32), weft.ones((128, 256))
    >>> graph = weft.make_graph(lambda x, w: x @ w.T)(x, w)
    >>> split = split_prepared(graph.replace(roles=("arg", "weight")), Machine())
    >>> [[node.op.name for node in part.nodes] for part in (split.prepare, split.main)]
    [['permute', 'pack_panels'], ['matmul_panels']]
    """
    if WEIGHT not in graph.roles and all(array.size < LEAST for array in graph.constants.values()):
        return None
    found = _Splitting(graph, machine)
    nodes = [found.replaced(node) for node in graph.nodes]
    return found.split(nodes) if found.made else None


class _Splitting:
    """Finds what is computed of weights alone, and puts other nodes in place of those that gain by it.

    Attributes:
        made: by what is packed, and how wide, the panels.
    """

    def __init__(self, graph: Graph, machine: Machine) -> None:
        self._graph, self._machine = graph, machine
        self.made: dict[tuple[Value, int], Value] = {}
        self._makers = {v: node for node in graph.nodes for v in node.outputs}
        roles = zip(graph.inputs, graph.roles, strict=True)
        self._known = set(graph.constants)
        self._fixed = {*graph.constants, *[v for v, role in roles if role == WEIGHT]}
        for node in graph.nodes:
            if self._fixed.issuperset(node.inputs) and _may_be_early(node):
                self._fixed.update(node.outputs)
                if self._known.issuperset(node.inputs):
                    self._known.update(node.outputs)

    def replaced(self, node: Node) -> Node:
        """A node, or what gives the same from panels."""
        if node.op not in (matmul, matmul_bytes) or node.inputs[1] not in self._fixed:
            return node
        (x, w), (out,) = node.inputs, node.outputs
        if x in self._fixed or w.type.ndim != 2:
            return node
        width = self._width(node) if node.op is matmul else self._width_of_words(node)
        if width is None:
            return node
        panels = self._panels(w, width)
        attrs = {"columns": w.type.shape[1]}
        return Node(matmul_panels, [x, panels], attrs, [out], node.location)

    def _width(self, node: Node) -> int | None:
        """How wide panels of the right side of a product are best; None where it is best left as it is."""
        (x, w), (out,) = node.inputs, node.outputs
        if w.type.dtype not in (float32, float64):
            return None
        k, n = w.type.shape
        turned = self._is_turned(x)
        rows = x.type.shape[-2] if turned else size_of(x.type.shape[:-1])
        left = (1, x.type.shape[-2]) if turned else (k, 1)
        right = (1, k) if self._is_turned(w) else (n, 1)
        p = Matrices(rows, n, k, left, right, w.type.dtype)
        sizes: tuple[Any, ...] = (p.n, p.k, p.m)
        if any(not isinstance(s, Size) and s == 0 for s in sizes) or n * k < LEAST:
            return None
        tuning = self._machine.tuning
        if suits_blas(p, tuning) or suits_few_rows(p, out.type.ndim, tuning):
            return None
        return panel_width(p, self._machine)

    def _width_of_words(self, node: Node) -> int | None:
        """Likewise, of a product of bytes by a unit of the processor."""
        (x, w), machine = node.inputs, self._machine
        unit = unit_for(machine.units, int8, int8)
        shape = (*x.type.shape, *w.type.shape)
        if unit is None or any(isinstance(s, Size) or s == 0 for s in shape):
            return None
        (k, n), rows = w.type.shape, size_of(x.type.shape[:-1])
        if k < unit.group or n < LEAST_COLUMNS or n * k < LEAST:
            return None
        words = ceil_div(k, unit.group)
        return word_width(Matrices(rows, n, words, (words, 1), (n, 1), unit.dot.total), machine)

    def _is_turned(self, value: Value) -> bool:
        """Whether a matrix is the transpose of one that lies in order."""
        node, rank = self._makers.get(value), value.type.ndim
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        return node is not None and node.op is permute and node.attrs["axes"] == swapped

    def _panels(self, value: Value, width: int) -> Value:
        panels = self.made.get((value, width))
        if panels is None:
            panels = Value(pack_panels.type_rule(value.type, width=width), value.name)
            self.made[value, width] = panels
        return panels

    def split(self, nodes: Sequence[Node]) -> Split:
        """Both graphs."""
        graph = self._graph
        packs = [
            Node(pack_panels, [value], {"width": width}, [panels])
            for (value, width), panels in self.made.items()
        ]
        known = [panels for (value, _), panels in self.made.items() if value in self._known]
        made = [v for v in self.made.values() if v not in known] + self._whole_numbers(nodes)
        parts = [self._early([*graph.nodes, *packs], results) for results in (known, made)]
        constants = {**graph.constants, **dict(zip(known, interpret(parts[0], []), strict=True))}
        numbers = tuple(i for i, v in enumerate(graph.inputs) if v in parts[1].inputs)
        main: Graph = dce.function(
            graph.replace(
                inputs=(*graph.inputs, *made),
                roles=(*graph.roles, *[WEIGHT] * len(made)),
                nodes=[node for node in nodes if not set(made).issuperset(node.outputs)],
                constants=constants,
            )
        )
        return Split(parts[1] if made else None, numbers, main)

    def _early(self, nodes: Sequence[Node], results: Sequence[Value]) -> Graph:
        """The graph that gives what is computed ahead."""
        graph, early = self._graph, needed_nodes(nodes, results)
        used = {v for node in early for v in node.inputs}
        constants = {v: a for v, a in graph.constants.items() if v in used}
        inputs = [v for v in graph.inputs if v in used]
        return Graph(f"{graph.name}_weights", inputs, early, results, constants=constants)

    def _whole_numbers(self, nodes: Sequence[Node]) -> list[Value]:
        """Whole numbers that are computed of weights alone, and used by what is not."""
        late = [v for node in nodes if not self._fixed.issuperset(node.outputs) for v in node.inputs]
        wanted = dict.fromkeys([*late, *self._graph.results])
        return [v for v in wanted if v in self._fixed - self._known and self._is_computed(v)]

    def _is_computed(self, value: Value) -> bool:
        """Whether a value is of whole numbers, takes work, and is no larger than what it is made from."""
        node = self._makers.get(value)
        if node is None or kind(value.type.dtype) not in "iub" or len(node.outputs) != 1:
            return False
        if node.op.view:
            return self._is_computed(node.inputs[0])
        return size_of(value.type.shape) <= sum(size_of(v.type.shape) for v in node.inputs)


def _may_be_early(node: Node) -> bool:
    """Whether a node gives the same whenever it runs, and its results have sizes that are known."""
    known = not any(isinstance(s, Size) for v in node.outputs for s in v.type.shape)
    plain = node.is_pure and not node.op.ambient and not node.op.fallible and not node.regions
    return known and plain and bool(node.outputs) and not has_sizes(node.attrs)

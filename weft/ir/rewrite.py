"""The driver of rewriting: one sweep over a graph, in which rules put other nodes in the place of a node.

Nodes are visited in order, each after what it uses is in its final form, so a rule that looks at a node and
at what made its inputs needs one sweep alone. What a rule emits goes through the rules too, and so do the
regions of nodes that stay. ``weft.ir.pattern`` finds patterns, ``weft.passes.rules`` makes rules of Python
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.records import NamedTuple
from weft.errors import GraphError
from weft.ir.graph import Array, Attrs, Graph, Node, Value
from weft.ir.location import Location
from weft.ir.types import TensorType

Results = Sequence[Value]
Rule = Callable[["Draft", Node], Results | None]
Rules = Mapping[Any, Sequence[Rule]]  # by op; those under None hold for every op
Hints = Sequence["Hint"] | None
_DEPTH = 50  # rules that set each other off; what never ends goes deeper than this


class Hint(NamedTuple):
    """What a node must have for a rule to hold: looked at before the rule is asked.

    A rule that is a method of an object with ``hints``, by op, is asked where one of them fits.

    Attributes:
        constants: numbers, of which one must be among its inputs; None stands for any; empty where it need
            have no constant.
        ops: what must make others of its inputs.
    """

    constants: tuple[Any, ...]
    ops: frozenset[Any]

    def fits(self, arrays: Sequence[Array], makers: set[Any]) -> bool:
        """Whether a node may be meant, by the constants among its inputs and the ops that make others."""
        if not self.ops <= makers:
            return False
        return not self.constants or any(
            number is None or array.size != 1 or array.item() == number
            for number in self.constants
            for array in arrays
        )


class Draft:
    """A graph while a sweep rewrites it.

    Attributes:
        nodes: so far; those in ``dead`` are left out at the end.
        constants: of the graph, and those that rules add.
        made: by value the node that makes it.
        uses: by value how many inputs and results are that value, those of nodes to come included.
        again: whether what a rule emits goes through the rules too.
        fresh: values that rules emitted.
    """

    def __init__(self, graph: Graph, rules: Rules, *, again: bool = True) -> None:
        self.graph = graph
        self.rules = rules
        self._every = tuple(rules.get(None, ()))
        self._by_op: dict[Any, Sequence[tuple[Rule, Hints]]] = {}
        self.again = again
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = dict(graph.constants)
        self.made: dict[Value, Node] = {}
        self.dead: set[Node] = set()
        self.fresh: set[Value] = set()
        self.uses: dict[Value, int] = dict.fromkeys(graph.results, 1)
        self._replaced: dict[Value, Value] = {}
        self._regions: dict[Graph, Graph] = {}
        self._users: dict[Value, list[Node]] = {}
        self._indexed = 0
        self._location: Location | None = None
        self._depth = 0
        self.changed = False
        uses = self.uses
        for node in graph.nodes:
            for v in node.inputs:
                uses[v] = uses.get(v, 0) + 1

    # What rules ask

    def array(self, value: Value) -> Array | None:
        """The array of a constant; None for another value."""
        return self.constants.get(value)

    def producer(self, value: Value, op: object) -> Node | None:
        """The node that makes a value, if it applies an op."""
        node = self.made.get(value)
        return node if node is not None and node.op is op else None

    # What rules do

    def emit(self, op: Any, inputs: Sequence[Value], **attrs: Any) -> tuple[Value, ...]:
        """Apply an op; gives its outputs, or what rules put in their place."""
        types = op.type_rule(*[v.type for v in inputs], **attrs)
        outs = [Value(t) for t in ((types,) if op.outputs == 1 else types)]
        node = Node(op, inputs, attrs, outs, self._location)
        self.fresh.update(outs)
        self._count(node, 1)
        return tuple(self._put(node))

    def expand(self, graph: Graph, inputs: Sequence[Value]) -> list[Value]:
        """Put the nodes of a closed graph here, with values of their own; gives its outputs."""
        now = dict(zip(graph.inputs, inputs, strict=True))
        for value, array in graph.constants.items():
            now[value] = self.constant(array, value.name)
        for node in graph.nodes:
            outs = [Value(v.type) for v in node.outputs]
            copy = Node(node.op, [now[v] for v in node.inputs], node.attrs, outs, node.location)
            copy = _located(copy, self._location)
            self.fresh.update(outs)
            self._count(copy, 1)
            now.update(zip(node.outputs, self._put(copy), strict=True))
        return [now[v] for v in graph.outputs]

    def _put(self, node: Node) -> Results:
        if self.again:
            return self.place(node)
        self.append(node)
        return node.outputs

    def constant(self, array: Array, name: str = "") -> Value:
        """A new constant."""
        value = Value(TensorType(array.shape, array.dtype), name)
        self.constants[value] = array
        return value

    def fit(self, value: Value, wanted: TensorType, broadcast: object, rule: str) -> Value:
        """A value as one of a type, broadcast where it must be."""
        if value.type == wanted:
            return value
        shape, given = wanted.shape, value.type.shape
        pairs = zip(reversed(given), reversed(shape), strict=False)
        fits = len(given) <= len(shape) and all(a in (1, b) for a, b in pairs)
        if value.type.dtype != wanted.dtype or not fits:
            raise GraphError(rule, f"the replacement must be of type {wanted}, got {value.type}")
        return self.emit(broadcast, [value], shape=shape)[0]

    # The sweep

    def place(self, node: Node) -> Results:
        """Put a node at the end, its regions swept, or what the first rule that holds gives for it."""
        results = self._by_rules(node)
        if results is None and node.attrs and (self.again or self.fresh.isdisjoint(node.outputs)):
            swept = map_regions(node, self._sweep_region)
            if swept is not node:
                self.changed = True
                node = swept
                results = self._by_rules(node)
        if results is not None:
            return results
        self.append(node)
        return node.outputs

    def _sweep_region(self, region: Graph) -> Graph:
        found = self._regions.get(region)
        if found is None:
            found = self._regions[region] = sweep(region, self.rules, again=self.again)
        return found

    def _by_rules(self, node: Node) -> Results | None:
        rules = self._by_op.get(node.op)
        if rules is None:
            rules = self._hinted(node)
        if not rules:
            return None
        for out in node.outputs:
            self.made[out] = node
        arrays: list[Array] | None = None
        for rule, hints in rules:
            if hints is not None:
                if arrays is None:
                    arrays = [self.constants[v] for v in node.inputs if v in self.constants]
                    makers = {self.made[v].op for v in node.inputs if v in self.made}
                if not any(hint.fits(arrays, makers) for hint in hints):
                    continue
            outer, self._location = self._location, node.location or self._location
            self._enter(rule)
            results = rule(self, node)
            self._depth -= 1
            self._location = outer
            if results is not None:
                self._replace(node, results)
                return results
        return None

    def _hinted(self, node: Node) -> Sequence[tuple[Rule, Hints]]:
        """The rules for the op of a node, each with its hints, if it has some."""
        op = node.op
        rules = (*self.rules.get(op, ()), *self._every)
        tables = [getattr(getattr(rule, "__self__", None), "hints", None) for rule in rules]
        found = [(r, None if t is None else t.get(op, ())) for r, t in zip(rules, tables, strict=True)]
        self._by_op[op] = found
        return found

    def _enter(self, rule: Rule) -> None:
        self._depth += 1
        if self._depth > _DEPTH:
            owner = getattr(rule, "__self__", rule)
            message = f"a rule must come to an end, got {_DEPTH} replacements that set each other off"
            hint = "its replacement, or that of another rule, holds its pattern again"
            raise GraphError(getattr(owner, "__name__", repr(owner)), message, hint=hint)

    def append(self, node: Node) -> None:
        """Put a node at the end as it is."""
        self.nodes.append(node)
        for out in node.outputs:
            self.made[out] = node

    # For patterns with several results, of which some were in place before the last

    def users(self, value: Value) -> list[Node]:
        """The nodes in place that use a value."""
        for node in self.nodes[self._indexed :]:
            for v in node.inputs:
                self._users.setdefault(v, []).append(node)
        self._indexed = len(self.nodes)
        return [n for n in self._users.get(value, ()) if n not in self.dead]

    def dependents(self, values: Sequence[Value]) -> list[Node]:
        """The nodes in place that use values, directly or not, in order."""
        reached = set(values)
        found = []
        for node in self.nodes:
            if not reached.isdisjoint(node.inputs) and node not in self.dead:
                reached.update(node.outputs)
                found.append(node)
        return found

    def redirect(self, pairs: Sequence[tuple[Value, Value]], moved: Sequence[Node]) -> None:
        """Let values stand for others that are in place, and move what depends on these to the end."""
        for old, new in pairs:
            self.substitute(old, new)
            self.kill(self.made[old])
        away = set(moved)
        self.nodes = [n for n in self.nodes if n not in away]
        for node in moved:
            self.append(self._resolved(node))
        self._users.clear()
        self._indexed = 0

    def resolve(self, value: Value) -> Value:
        """The value that stands for one of the graph now."""
        while value in self._replaced:
            value = self._replaced[value]
        return value

    def _replace(self, node: Node, results: Results) -> None:
        self.changed = True
        for old, new in zip(node.outputs, results, strict=True):
            self.substitute(old, new)
        self._drop_uses(node)

    def substitute(self, old: Value, new: Value) -> None:
        """Let a value stand for another from now on."""
        if old is not new:
            self._replaced[old] = new
            self.uses[new] = self.uses.get(new, 0) + self.uses.pop(old, 0)

    def _count(self, node: Node, number: int) -> None:
        for v in node.inputs:
            self.uses[v] = self.uses.get(v, 0) + number

    def _drop_uses(self, node: Node) -> None:
        """Take back what a node uses; nodes that nothing uses any more die with it."""
        pending = [node]
        while pending:
            node = pending.pop()
            self._count(node, -1)
            for v in node.inputs:
                source = self.made.get(v)
                if source is None or source in self.dead or any(self.uses.get(o) for o in source.outputs):
                    continue
                if source.is_pure:
                    self.dead.add(source)
                    pending.append(source)

    def kill(self, node: Node) -> None:
        """Drop a node that was put in place, and what it alone used."""
        self.dead.add(node)
        self._drop_uses(node)

    def visit(self, node: Node) -> None:
        """Take the next node of the graph, with its inputs as they are now."""
        self.place(self._resolved(node))

    def _resolved(self, node: Node) -> Node:
        replaced = self._replaced
        if not replaced or replaced.keys().isdisjoint(node.inputs):
            return node
        inputs = [self.resolve(v) for v in node.inputs]
        return Node(node.op, inputs, node.attrs, node.outputs, node.location)

    def finish(self) -> Graph:
        """The rewritten graph; the same object if nothing changed."""
        graph = self.graph
        if not self.changed:
            return graph
        updates = [(old, self.resolve(new)) for old, new in graph.updates]
        outputs = [self.resolve(v) for v in graph.outputs]
        used = {*outputs, *[new for _, new in updates]}
        nodes = []
        for node in reversed(self.nodes):
            if node not in self.dead or not used.isdisjoint(node.outputs):  # a rule may use again what died
                nodes.append(node)
                used.update(node.inputs)
        constants = {v: a for v, a in self.constants.items() if v in used}
        return graph.replace(nodes=nodes[::-1], outputs=outputs, updates=updates, constants=constants)


def sweep(graph: Graph, rules: Rules, *, again: bool = True) -> Graph:
    """A graph after rules, in its regions too; the same object if none holds anywhere.

    Args:
        graph: to rewrite.
        rules: by op, functions ``rule(draft, node)`` that give the values that stand for the node's outputs,
            or None where they do not hold; those under None are tried on every node. They add nodes with
            ``draft.emit``.
        again: whether what rules emit goes through the rules too.
    """
    if None not in rules and not _concerns(graph, rules):
        return graph
    draft = Draft(graph, rules, again=again)
    for node in graph.nodes:
        draft.visit(node)
    return draft.finish()


def _concerns(graph: Graph, rules: Rules) -> bool:
    """Whether a graph has an op that rules are for."""
    return any(
        n.op in rules or (n.attrs and any(_concerns(r, rules) for r in n.regions)) for n in graph.nodes
    )


def map_regions(node: Node, function: Callable[[Graph], Graph]) -> Node:
    """A node with other regions; the same object if the function gives each as it is."""
    changed: dict[str, Any] = {}
    for name, value in node.attrs.items():
        if type(value) is Graph:
            new: Any = function(value)
            if new is not value:
                changed[name] = new
        elif type(value) is tuple and value and type(value[0]) is Graph:
            new = tuple([function(g) for g in value])
            if any(a is not b for a, b in zip(new, value, strict=True)):
                changed[name] = new
    if not changed:
        return node
    attrs: Attrs = {**node.attrs, **changed}
    return Node(node.op, node.inputs, attrs, node.outputs, node.location)


def reading(node: Node, now: Mapping[Value, Value]) -> Node:
    """A node with the values that stand for its inputs; the same object where none does."""
    if now.keys().isdisjoint(node.inputs):
        return node
    return Node(node.op, [now.get(v, v) for v in node.inputs], node.attrs, node.outputs, node.location)


def giving(graph: Graph, now: Mapping[Value, Value], **changes: Any) -> Graph:
    """A graph with other parts, which gives the values that stand for its results."""
    updates = [(old, now.get(v, v)) for old, v in graph.updates]
    return graph.replace(outputs=[now.get(v, v) for v in graph.outputs], updates=updates, **changes)


def _located(node: Node, location: Location | None) -> Node:
    """A node that comes from a place if it came from none, with what is in its regions."""
    if node.location is not None or location is None:
        return node
    node = Node(node.op, node.inputs, node.attrs, node.outputs, location)
    return map_regions(node, lambda g: g.replace(nodes=[_located(n, location) for n in g.nodes]))


def is_uniform(array: Array, number: Array) -> bool:
    """Whether all elements of an array have the bits of a number."""
    if array.dtype != number.dtype or array.size == 0:
        return False
    first, last = array[(0,) * array.ndim], array[(-1,) * array.ndim]
    if first.tobytes() != number.tobytes() or last.tobytes() != number.tobytes():
        return False
    if array.size == 1 or not any(array.strides):
        return True
    width = array.itemsize if array.itemsize in (1, 2, 4, 8) else 1
    flat = np.ascontiguousarray(array).reshape(-1).view(f"u{width}").reshape(array.size, -1)
    return bool((flat == flat[0]).all())


def uniform(array: Array) -> Any | None:
    """The one number that fills an array, or None."""
    if array.size == 0:
        return None
    first = array[(0,) * array.ndim]
    return first if is_uniform(array, np.asarray(first)) else None

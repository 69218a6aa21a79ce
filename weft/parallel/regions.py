"""Factors of control flow: along which dimensions loops and branches are cut, from what is in their regions.

Dimensions of values in a region that go together by the ops there are one class. A class is a factor of the
node where each rank can go through the whole loop on its part alone: every op has a rule for it, and sums
over it are only added up, by carries or in what is collected. Those are the parts of a sum, which is made
after the loop; no message is sent inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import Any
from weakref import WeakKeyDictionary

from weft.base.records import NamedTuple
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import uniform
from weft.ops import collective as ops
from weft.ops.arithmetic import add, div, mul, neg, sub
from weft.ops.factors import Factors, Names, options
from weft.ops.view.primitives import permute, reshape
from weft.ops.view.slices import pad_axes, slice_axes
from weft.passes.loops import BRANCHES, LOOPS, as_loop

FactorsOf = Callable[[Node], Factors | None]
_MOVES = (permute, reshape, slice_axes, neg)  # what gives the parts of a sum for the parts of a sum
_Slot = tuple[Any, int]  # a dimension: of a value, or of an input or output of a node by its place


class Inside(NamedTuple):
    """How the regions of a node go together with its inputs and outputs.

    Attributes:
        factors: of the node.
        names: by value of a region the factor of each dimension.
        rows: by node of a region the factors of what it takes and gives, as the node around has them.
        inner: by node of a region that has regions itself, how those do, and what its factors are here.
        sums: by factor the outputs that are parts of a sum over it.
        once: by factor the inputs that are added to such sums.
    """

    factors: Factors
    names: Mapping[Value, Names]
    rows: Mapping[Node, tuple[tuple[Names, ...], tuple[Names, ...]]]
    inner: Mapping[Node, tuple[Inside, Mapping[str, str]]]
    sums: Mapping[str, tuple[int, ...]]
    once: Mapping[str, tuple[int, ...]]


class _Part(NamedTuple):
    """A region, and which slots of the node its inputs and outputs are: a place, and dimensions before."""

    graph: Graph
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]


_known: WeakKeyDictionary[Node, Inside | None] = WeakKeyDictionary()


def inside_of(node: Node, factors_of: FactorsOf) -> Inside | None:
    """How the regions of a node can be cut; None where everything must be whole."""
    if node not in _known:
        _known[node] = _inspected(node, factors_of)
    return _known[node]


def _inspected(node: Node, factors_of: FactorsOf) -> Inside | None:
    if node.op not in (*LOOPS, *BRANCHES) or not node.is_pure:
        return None
    meets = (n.op.sequence or n.op.ambient or n.op is ops.shard for r in node.regions for n in r.walk())
    return None if any(meets) else _Inspection(node, factors_of).found()


def _parts(node: Node) -> list[_Part]:
    loop = as_loop(node)
    if loop is None:  # branches
        given = tuple([(i, 0) for i in range(1, len(node.inputs))])
        return [_Part(g, given, tuple([(i, 0) for i in range(len(g.outputs))])) for g in node.regions]
    head, n, m = len(loop.steps), len(loop.inits), len(loop.rows)
    carries = [(head + i, 0) for i in range(n)]
    rows = [(head + n + i, 1) for i in range(m)]
    same = [(head + n + m + i, 0) for i in range(len(loop.fixed))]
    made = [(i, 0) if i < n else (i, 1) for i in range(len(loop.body.outputs))]
    parts = [_Part(loop.body, (*carries, *rows, *same), tuple(made))]
    if loop.test is not None:
        parts.append(_Part(loop.test, (*carries, *same), ()))
    return parts


class _Inspection:
    def __init__(self, node: Node, factors_of: FactorsOf) -> None:
        self.node, self.factors_of = node, factors_of
        self.loop, self.parts = as_loop(node), _parts(node)
        self.above: dict[_Slot, _Slot] = {}
        self.sizes: dict[_Slot, list[Any]] = {}
        self.stuck: set[_Slot] = set()
        self.bases: dict[Node, dict[str, _Slot]] = {}  # by node, one dimension of each of its factors
        self.found_factors: dict[Node, Factors] = {}
        self.inner: dict[Node, Inside] = {}

    def found(self) -> Inside:
        """All of it."""
        for part in self.parts:
            self._join_ends(part)
            for node in part.graph.nodes:
                self._join(part.graph, node)
        self._stick_unequal()
        sums: dict[_Slot, tuple[set[int], set[int]]] = {}
        for slot in [s for node in self.bases for s in self._folded(node)]:
            root = self._root(slot)
            if root not in self.stuck and root not in sums:
                flow = self._flow(root)
                if flow is None:
                    self.stuck.add(root)
                else:
                    sums[root] = flow
        return self._told(sums)

    # Classes of dimensions

    def _root(self, slot: _Slot) -> _Slot:
        while slot in self.above:
            slot = self.above[slot]
        return slot

    def _slot(self, key: Any, dim: int, size: Any) -> _Slot:
        slot = (key, dim)
        if slot not in self.above:
            self.sizes.setdefault(slot, [size])
        return slot

    def _unite(self, a: _Slot, b: _Slot) -> None:
        a, b = self._root(a), self._root(b)
        if a == b:
            return
        self.above[b] = a
        self.sizes[a] += self.sizes.pop(b)
        if b in self.stuck:
            self.stuck.add(a)

    def _stick(self, slot: _Slot) -> None:
        self.stuck.add(self._root(slot))

    def _slots(self, graph: Graph, v: Value) -> list[_Slot] | None:
        """The dimensions of a value; None for a constant that is filled with a number, which any part is."""
        if filled_with(graph, v) is not None:
            return None
        slots = [self._slot(v, d, s) for d, s in enumerate(v.type.shape)]
        if v in graph.constants:
            for slot in slots:
                self._stick(slot)
        return slots

    def _join_ends(self, part: _Part) -> None:
        """What the node takes and gives goes with what the region does."""
        graph, node = part.graph, self.node
        ends = [("in", v, at, node.inputs) for v, at in zip(graph.inputs, part.inputs, strict=True)]
        ends += [("out", v, at, node.outputs) for v, at in zip(graph.outputs, part.outputs, strict=False)]
        for side, v, (place, lead), values in ends:
            slots, shape = self._slots(graph, v), values[place].type.shape
            mine = [self._slot((side, place), d, s) for d, s in enumerate(shape)]
            for slot, other in zip(mine[lead:], slots or (), strict=False):
                self._unite(slot, other)
        if self.loop is not None and graph is self.loop.body:
            for k, init in enumerate(self.loop.inits):
                for d, size in enumerate(init.type.shape):
                    self._unite(self._slot(("out", k), d, size), (("in", len(self.loop.steps) + k), d))

    def _join(self, graph: Graph, node: Node) -> None:
        """Dimensions that go together by an op; those that it needs whole are stuck."""
        values = (*node.inputs, *node.outputs)
        if node.regions and (inside := inside_of(node, self.factors_of)) is not None:
            self.inner[node], factors = inside, inside.factors
        else:
            factors = None if node.regions else self.factors_of(node)  # type: ignore[assignment]
        if factors is None:
            for slot in [s for v in values for s in self._slots(graph, v) or ()]:
                self._stick(slot)
            return
        self.found_factors[node] = factors
        first = self.bases[node] = {}
        blocked = {factors.picks[0]} if factors.picks else set()
        blocked.update(name for name, fold in factors.folds.items() if fold != "add")
        if any(not self._is_zero(graph, node.inputs[i]) for i in factors.once):
            blocked.update(factors.folds)
        for v, names in zip(values, (*factors.inputs, *factors.outputs), strict=True):
            for slot, name in zip(self._slots(graph, v) or (), names, strict=False):
                (count, base), *more = options(name) if name else ((0, ""),)
                blocked.update(other for _, other in more)
                if count != 1:
                    blocked.add(base)
                    self._stick(slot)
                elif base in first:
                    self._unite(first[base], slot)
                else:
                    first[base] = slot
        for base in blocked & first.keys():
            self._stick(first[base])

    def _stick_unequal(self) -> None:
        """Classes of which some dimension cannot be cut wherever the ends of the node can."""
        ends: dict[_Slot, list[Any]] = {}
        for slot in [*self.above, *self.sizes]:
            key, dim = slot
            if type(key) is tuple:
                values = self.node.inputs if key[0] == "in" else self.node.outputs
                ends.setdefault(self._root(slot), []).append(values[key[1]].type.shape[dim])
        for root, sizes in self.sizes.items():
            known = all(isinstance(s, int) for s in sizes)
            if not known or root not in ends or gcd(*sizes) != gcd(*ends[root]):
                self.stuck.add(root)

    # Sums

    def _folded(self, node: Node) -> list[_Slot]:
        """Dimensions over which a node gives parts of a sum."""
        names = self.inner[node].sums if node in self.inner else self.found_factors[node].folds
        return [self.bases[node][name] for name in names if name in self.bases[node]]

    def _is_zero(self, graph: Graph, v: Value) -> bool:
        number = filled_with(graph, v)
        return number is not None and not number

    def _flow(self, root: _Slot) -> tuple[set[int], set[int]] | None:
        """The outputs that are parts of sums over a class, and the carries that are; None if it cannot be."""
        forced: set[int] = set()
        while True:
            outs: list[set[int]] = []
            for part in self.parts:
                carries = [part.graph.inputs[k] for k in sorted(forced)]
                found = _Flow(self, part.graph, root, set(carries))
                if not found.run():
                    return None
                outs.append({k for k, _ in part.outputs if part.graph.outputs[k] in found.sums})
                if found.wanted is not None:
                    at = part.graph.inputs.index(found.wanted)
                    if self.loop is None or at >= len(self.loop.inits) or part.graph is not self.loop.body:
                        return None
                    forced.add(at)
                    break
            else:
                more = self._uneven(outs, forced)
                if more is None:
                    return None
                if not more:
                    return set().union(*outs), forced
                forced |= more

    def _uneven(self, outs: Sequence[set[int]], forced: set[int]) -> set[int] | None:
        """Carries that come out as parts of sums and did not go in so; None if ends do not fit."""
        if self.loop is None:
            every = set().union(*outs)
            pairs = [
                (part.graph, k) for part, mine in zip(self.parts, outs, strict=True) for k in every - mine
            ]
            return set() if all(self._is_zero(g, g.outputs[k]) for g, k in pairs) else None
        body, count = self.loop.body, len(self.loop.inits)
        if any(k not in outs[0] and not self._is_zero(body, body.outputs[k]) for k in forced):
            return None
        return {k for k in outs[0] if k < count} - forced

    # What comes of it

    def _told(self, sums: Mapping[_Slot, tuple[set[int], set[int]]]) -> Inside:
        numbers: dict[_Slot, str] = {}

        def name(slot: _Slot) -> str:
            root = self._root(slot)
            return "" if root in self.stuck else numbers.setdefault(root, f"c{len(numbers)}")

        def ends(side: str, values: Sequence[Value]) -> tuple[Names, ...]:
            return tuple(
                [
                    tuple([name(self._slot((side, i), d, s)) for d, s in enumerate(v.type.shape)])
                    for i, v in enumerate(values)
                ]
            )

        graphs = [part.graph for part in self.parts]
        every = [v for g in graphs for v in (*g.inputs, *[v for n in g.nodes for v in n.outputs])]
        names = {v: tuple([name(self._slot(v, d, s)) for d, s in enumerate(v.type.shape)]) for v in every}
        rows: dict[Node, Any] = {}
        inner: dict[Node, tuple[Inside, Mapping[str, str]]] = {}
        for node, bases in self.bases.items():
            now = {base: name(slot) for base, slot in bases.items()}
            factors = self.found_factors[node]
            sides = (factors.inputs, factors.outputs)
            rows[node] = tuple([tuple([_named(row, now) for row in side]) for side in sides])
            if node in self.inner:
                inner[node] = self.inner[node], now
        head = 0 if self.loop is None else len(self.loop.steps)
        given, made_sums = ends("in", self.node.inputs), ends("out", self.node.outputs)
        found = {name(root): pair for root, pair in sums.items() if root not in self.stuck}
        return Inside(
            Factors(given, made_sums),
            names,
            rows,
            inner,
            {n: tuple(sorted(outs)) for n, (outs, _) in found.items()},
            {n: tuple([head + k for k in sorted(forced)]) for n, (_, forced) in found.items()},
        )


class _Flow:
    """Where the parts of sums over a class go in a region.

    Attributes:
        sums: values that are parts of sums.
        wanted: an input that is added to one, which must be one itself.
    """

    def __init__(self, inspection: _Inspection, graph: Graph, root: _Slot, sums: set[Value]) -> None:
        self.inspection, self.graph, self.root, self.sums = inspection, graph, root, sums
        self.wanted: Value | None = None

    def run(self) -> bool:
        """Follow them; whether they are only added up."""
        for node in self.graph.nodes:
            if not self._node(node):
                return False
            if self.wanted is not None:
                return True
        return True

    def _node(self, node: Node) -> bool:
        see = self.inspection
        bases = [b for b, slot in see.bases.get(node, {}).items() if see._root(slot) == self.root]
        taken = [v in self.sums for v in node.inputs]
        if node in see.inner:
            return self._inner(node, see.inner[node], bases)
        factors = see.found_factors.get(node)
        if factors is not None and any(b in factors.folds for b in bases):
            self.sums.update(node.outputs)
            return not any(taken)
        if not any(taken):
            return True
        if bases or not self._is_linear(node, taken):
            return False
        self.sums.update(node.outputs)
        return True

    def _inner(self, node: Node, inside: Inside, bases: Sequence[str]) -> bool:
        once = {i for b in bases for i in inside.once.get(b, ())}
        for i, v in enumerate(node.inputs):
            if v in self.sums and i not in once:
                return False
            if i in once and v not in self.sums and not self._joins(v):
                return False
        for b in bases:
            self.sums.update(node.outputs[k] for k in inside.sums.get(b, ()))
        return True

    def _is_linear(self, node: Node, taken: Sequence[bool]) -> bool:
        """Whether a node of parts of sums gives parts of a sum."""
        if node.op in _MOVES:
            return True
        if node.op is pad_axes:
            return not node.attrs["value"]
        if node.op in (add, sub):
            others = [v for v, is_sum in zip(node.inputs, taken, strict=True) if not is_sum]
            return all(self._joins(v) for v in others)
        if node.op is mul:
            return sum(taken) == 1
        return node.op is div and taken[0] and not taken[1]

    def _joins(self, v: Value) -> bool:
        """Whether a value can be added to parts of sums: nothing, or a carry, which is then one, too."""
        if self.inspection._is_zero(self.graph, v):
            return True
        if v in self.graph.inputs:
            self.wanted = v
            return True
        return False


def _named(row: Names, now: Mapping[str, str]) -> Names:
    return tuple([now.get(options(name)[0][1], "") if name else "" for name in row])


def filled_with(graph: Graph, v: Value) -> Any | None:
    """The one number that fills a constant of some dimensions, or None."""
    return uniform(graph.constants[v]) if v in graph.constants else None

"""Value numbering: equal numbers mean equal values, bit for bit, wherever in a graph they are computed.

A value is numbered by its op, attributes and the numbers of its inputs. An output of a loop is numbered by
the equations that it depends on, not by its node, so two loops that compute it among different other things
agree: each carry gets a label, refined from its initial value by what the body makes of it, and the output is
known by its expression in labels together with the equations ``label = initial value, next value`` of the
labels it needs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from weft.base.sizes import Size
from weft.ir.graph import Array, Graph, Node, Value
from weft.ops.call import call
from weft.ops.control import while_loop
from weft.passes.loops import BRANCHES, Loop, as_loop

_LARGE = 1 << 20  # bytes: larger constants are equal if they are one array
Key = Hashable


class Numbering:
    """Numbers of values of any number of graphs."""

    def __init__(self) -> None:
        self._known: dict[Key, int] = {}
        self._fresh = count(-2, -1)
        self._depth = 0  # of the loop being numbered: rows and carries of loops around it are not its own

    def number(self, key: Key) -> int:
        """The number of a key; equal keys have one."""
        known = self._known
        found = known.get(key)
        if found is None:
            found = known[key] = len(known)
        return found

    def constant(self, array: Array) -> int:
        """The number of a constant: that of its bits, and of a large one that of the array."""
        if array.nbytes > _LARGE:
            return self.number(("array", id(array)))
        return self.number(("constant", array.dtype, array.shape, array.tobytes()))

    def of_graph(self, graph: Graph, inputs: Sequence[int]) -> dict[Value, int]:
        """The numbers of all values of a graph, given those of its inputs."""
        numbers = dict(zip(graph.inputs, inputs, strict=True))
        for value, array in graph.constants.items():
            numbers[value] = self.constant(array)
        for node in graph.nodes:
            numbers.update(zip(node.outputs, self.of_node(node, numbers), strict=True))
        return numbers

    def of_node(self, node: Node, numbers: Mapping[Value, int]) -> Sequence[int]:
        """The numbers of the outputs of a node."""
        op = node.op
        ins = tuple([numbers[v] for v in node.inputs])
        if op.commutative == "bits" and ins[0] > ins[1]:
            ins = ins[::-1]
        if not node.attrs:
            if op.effect:
                return [next(self._fresh) for _ in node.outputs]
            if len(node.outputs) == 1:
                return (self.number((op, ins)),)
            return [self.number((op, ins, i)) for i in range(len(node.outputs))]
        if not node.is_pure:
            return [next(self._fresh) for _ in node.outputs]
        return self._of_pure(node, ins)

    def _of_pure(self, node: Node, ins: tuple[int, ...]) -> Sequence[int]:
        if node.op in BRANCHES:
            return self._of_branches(node, ins)
        if (loop := as_loop(node)) is not None:
            return self._of_loop(loop, ins)
        if node.op is call:
            body = node.attrs["body"]
            inside = self.of_graph(body, ins)
            return [inside[v] for v in body.outputs]
        attrs = tuple([(k, self._literal(node.attrs[k])) for k in sorted(node.attrs)])
        return [self.number((node.op, ins, attrs, i)) for i in range(len(node.outputs))]

    def _literal(self, x: Any) -> Key:
        """A key of a literal: True, 1 and 1.0 differ, and so do the zeros."""
        kind = type(x)
        if kind is tuple:
            return tuple([self._literal(i) for i in x])
        if kind is int or kind is str:
            return x  # type: ignore[no-any-return]
        if kind is Graph:
            numbers = self.of_graph(x, [self.number(("input", i)) for i in range(len(x.inputs))])
            return ("graph", *[numbers[v] for v in x.results])
        if kind is float or kind is complex or kind is bool:
            return (kind, repr(x))
        if isinstance(x, tuple):  # a named one
            return (kind, *[self._literal(i) for i in x])
        return x if isinstance(x, np.dtype | Size | None) else (kind, repr(x))

    def _of_branches(self, node: Node, ins: tuple[int, ...]) -> list[int]:
        parts = [self.of_graph(branch, ins[1:]) for branch in node.attrs["branches"]]
        outs = [
            [inside[v] for v in branch.outputs]
            for inside, branch in zip(parts, node.attrs["branches"], strict=True)
        ]
        return [self.number((node.op, ins[0], *choices)) for choices in zip(*outs, strict=True)]

    # Loops

    def _of_loop(self, loop: Loop, ins: tuple[int, ...]) -> list[int]:
        h, c, r = len(loop.steps), len(loop.inits), len(loop.rows)
        inits = ins[h : h + c]
        self._depth += 1
        rows = [self.number(("row", self._depth, i)) for i in ins[h + c : h + c + r]]
        fixed = ins[h + c + r :]
        labels, inside, test = self._label(loop, inits, rows, fixed)
        self._depth -= 1
        after = [inside[v] for v in loop.body.outputs]
        masks = _depend(loop)
        equations = list(zip(labels, inits, after[:c], strict=True))
        goes_on = self._way(loop, ins[:h], test)
        on_test = masks[-1]

        def key(what: str, i: int, mask: int) -> Key:
            needed = _closure(mask | on_test, masks)
            return (what, i, goes_on, frozenset(e for k, e in enumerate(equations) if needed >> k & 1))

        out = [self.number(key("carry", labels[i], 1 << i)) for i in range(c)]
        out += [self.number(key("stack", after[i], masks[i])) for i in range(c, len(after))]
        out += [self.number(key("trips", 0, 0)) for _ in loop.trips]
        return out

    def _label(
        self, loop: Loop, inits: Sequence[int], rows: Sequence[int], fixed: Sequence[int]
    ) -> tuple[list[int], dict[Value, int], int]:
        """Labels of the carries, and in them the numbers of the values of the body and of the test."""
        labels: list[int] = [self.number(("carry", self._depth, i)) for i in inits]
        inside = self.of_graph(loop.body, [*labels, *rows, *fixed])
        while labels:
            nexts = [inside[v] for v in loop.body.outputs[: len(inits)]]
            labels = [self.number(("carry", self._depth, i, n)) for i, n in zip(inits, nexts, strict=True)]
            inside = self.of_graph(loop.body, [*labels, *rows, *fixed])
            after = [inside[v] for v in loop.body.outputs[: len(inits)]]
            if len(set(zip(labels, after, strict=True))) == len(set(labels)):
                break  # carries with one label become values with one label: the equations are well defined
        test = -1
        if loop.test is not None:
            test = self.of_graph(loop.test, [*labels, *fixed])[loop.test.outputs[0]]
        return labels, inside, test

    def _way(self, loop: Loop, count: Sequence[int], test: int) -> Key:
        """What decides how often a loop goes round, and in which direction."""
        if loop.node.op is while_loop:
            return ("while", test)
        attrs = loop.node.attrs
        return ("scan", attrs["length"], attrs["reverse"], *count)


def _depend(loop: Loop) -> list[int]:
    """Which carries each output of the body depends on, as bits, and at the end those of the test."""
    body = _bits(loop.body, len(loop.inits))
    out = [body.get(v, 0) for v in loop.body.outputs]
    if loop.test is None:
        return [*out, 0]
    return [*out, _bits(loop.test, len(loop.inits)).get(loop.test.outputs[0], 0)]


def _bits(graph: Graph, carries: int) -> dict[Value, int]:
    bits = {v: 1 << i for i, v in enumerate(graph.inputs[:carries])}
    for node in graph.nodes:
        mask = 0
        for v in node.inputs:
            mask |= bits.get(v, 0)
        for out in node.outputs:
            bits[out] = mask
    return bits


def _closure(mask: int, masks: Sequence[int]) -> int:
    """All carries that some carries depend on."""
    done = 0
    while todo := mask & ~done:
        lowest = todo & -todo
        done |= lowest
        mask |= masks[lowest.bit_length() - 1]
    return mask

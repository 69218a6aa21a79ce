"""The pass ``stage``: the program of one rank of a pipeline, by a table of who does what in which order.

What a stage does to a microbatch is a graph of its own, the same for all microbatches and for every number of
ranks; the program of a rank calls them in the order of its row, with sends and receives between them. Sums
over microbatches follow the tree over shards, each as early as it can be, so that few are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from weft.base.dtypes import int64
from weft.base.ranks import axis_size
from weft.errors import ParallelError
from weft.ir.graph import Array, Graph, Node, Operand, Value
from weft.ir.location import Location
from weft.ir.types import TensorType
from weft.ops import collective as ops
from weft.ops.arithmetic import add, mul
from weft.ops.call import call
from weft.ops.pipeline import receive, send
from weft.ops.view.primitives import join, reshape
from weft.ops.view.slices import slice_axes
from weft.parallel.fold_shards import FOLDS, fold_shards
from weft.parallel.schedules import BACKWARD, FORWARD, WEIGHTS
from weft.parallel.stage_plan import EVERYWHERE, StagePlan, Unit
from weft.parallel.stages import Part
from weft.passes.base import graph_pass

PIPE = "pipe"  # the axis of stages
_MOST = 1 << 15  # messages from a rank to another that are told apart
_NAMES = {FORWARD: "forward", BACKWARD: "backward", WEIGHTS: "weights"}


@graph_pass(once=True)
def stage(graph: Graph, plan: StagePlan | None = None, place: int = 0) -> Graph:
    """The program of a rank of a pipeline.

    Args:
        graph: of a rank of a mesh with a rank for each microbatch.
        plan: what runs where.
        place: of the rank along the axis of stages.
    """
    return graph if plan is None else _Staging(graph, plan, place).run()


class _Staging:
    """The program of a rank while it is being written.

    Where values are is followed for all ranks, so that every rank numbers messages alike.

    Attributes:
        now: by value of the graph that runs once, that of this rank.
        of_row: likewise by value and microbatch.
        held: by value that runs once, the ranks that have it.
        counts: by pair of ranks, how many messages go from one to the other.
    """

    def __init__(self, graph: Graph, plan: StagePlan, place: int) -> None:
        self.graph, self.plan, self.place, self.cut = graph, plan, place, plan.cut
        self.table, self.mesh = plan.table, plan.mesh
        self.everybody = frozenset(range(len(self.table.rows)))
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        self.now: dict[Value, Value] = {}
        self.of_row: dict[tuple[Value, int], Value] = {}
        self.stacks: dict[Node, Value] = {}
        self.counts: dict[tuple[int, int], int] = {}
        self.held: dict[Value, frozenset[int]] = {}
        self.bodies: dict[Any, tuple[Graph, list[Value], list[Value]]] = {}
        self.sums: dict[Node, _Tree] = {}
        self.start_of = {n.outputs[0]: n for n in self.cut.starts}
        self.inputs = [self._input(v) for v in graph.inputs]

    def _input(self, v: Value) -> Value:
        home = self.plan.homes.get(v)
        self.held[v] = self.everybody if home is None else frozenset([self.table.homes[home]])
        here = self.place in self.held[v]
        self.now[v] = v if here else Value(_absent(v.type), v.name)
        return self.now[v]

    def run(self) -> Graph:
        """The graph of this rank."""
        self._begin()
        for unit in self.plan.before:
            self._run_unit(unit)
        self._share_for_parts()
        numbers = self._message_numbers()
        for part, m in self.plan.actions(self.place):
            self._run_part(part, m, numbers)
        for node in self.cut.ends:
            self._end(node)
        for unit in self.plan.after:
            self._run_unit(unit)
        outputs = [self._result(v, self.plan.targets.get(i)) for i, v in enumerate(self.graph.outputs)]
        updates = [self._update(old, new) for old, new in self.graph.updates]
        return Graph(
            self.graph.name,
            self.inputs,
            self.nodes,
            outputs,
            constants=self.constants,
            roles=self.graph.roles,
            updates=updates,
        )

    # What runs once

    def _begin(self) -> None:
        """Sums over microbatches that these themselves need, such as how many targets count; on all ranks."""
        if not self.cut.first:
            return
        nodes = [n for n in self.graph.nodes if n in self.cut.first]
        made = {v for n in nodes for v in n.outputs}
        wanted = [v for v in self.plan.inner if v in made]
        body, ins = _closed("begin", nodes, wanted, self.graph.constants)
        folded = fold_shards(body, mesh=self.mesh, axis=self.plan.batch)
        outs = self._call("begin", folded, [self._common(v) for v in ins])
        for v, out in zip(wanted, outs, strict=True):
            self.now[v], self.held[v] = out, self.everybody

    def _run_unit(self, unit: Unit) -> None:
        """Nodes that run once: on the rank of a stage, or on all."""
        body, ins, outs = self._body(unit.name, unit.nodes, unit.wanted)
        where = self.everybody if unit.stage is EVERYWHERE else frozenset([self.table.homes[unit.stage]])
        if where == self.everybody:
            self._share_all(ins)
        for v in ins:
            self._share(v, where)
        if self.place in where:
            self.now.update(
                zip(outs, self._call(unit.name, body, [self._common(v) for v in ins]), strict=True)
            )
        self.held.update(dict.fromkeys(outs, where))

    def _share(self, v: Value, ranks: frozenset[int]) -> None:
        """Let ranks have a value that runs once."""
        have = self.held[v]
        if ranks <= have:
            return
        (source,) = have if len(have) == 1 else (min(have),)
        if ranks == self.everybody:
            x = self.now[v] if self.place == source else self._zeros(v.type)
            attrs = {"axis": PIPE, "root": source, "mesh": self.mesh}
            found = self._emit(ops.broadcast, [x], None, **attrs)
            if self.place not in have:
                self.now[v] = found
            self.held[v] = self.everybody
            return
        for target in sorted(ranks - have):
            number = self._next_number(source, target)
            if self.place == source:
                self._send(self.now[v], target, number, None)
            elif self.place == target:
                self.now[v] = self._receive(v.type, source, number, None)
            self.held[v] = self.held[v] | {target}

    def _share_all(self, values: Sequence[Value]) -> None:
        """Let all ranks have values, of which those of a rank and dtype are one message."""
        grouped: dict[tuple[int, Any], list[Value]] = {}
        for v in values:
            if self.held[v] != self.everybody:
                grouped.setdefault((min(self.held[v]), v.type.dtype), []).append(v)
        for (source, dtype), group in grouped.items():
            sizes = [prod(v.type.shape) for v in group]
            if len(group) == 1:
                continue
            joined = self._zeros(TensorType((sum(sizes),), dtype))
            if self.place == source:
                flat = [
                    self._emit(reshape, [self.now[v]], None, shape=(size,))
                    for v, size in zip(group, sizes, strict=True)
                ]
                joined = self._emit(join, flat, None, axis=0)
            attrs = {"axis": PIPE, "root": source, "mesh": self.mesh}
            found = self._emit(ops.broadcast, [joined], None, **attrs)
            starts = accumulate(sizes, initial=0)
            for v, start, size in zip(group, starts, sizes, strict=False):
                ends = {"starts": (start,), "stops": (start + size,), "steps": (1,)}
                piece = self._emit(slice_axes, [found], None, **ends)
                self.now[v] = self._emit(reshape, [piece], None, shape=v.type.shape)
                self.held[v] = self.everybody

    def _share_for_parts(self) -> None:
        """Send what parts need that runs once, such as a weight that two stages use."""
        for part in self.plan.parts:
            where = frozenset([self.table.homes[part[1]]])
            for v in self.plan.inputs_of(part):
                if v in self.start_of:
                    for x in self.start_of[v].inputs:
                        self._share(x, where)
                elif v not in self.cut.made:
                    self._share(v, where)

    def _common(self, v: Value) -> Value:
        if v not in self.now:
            assert v in self.graph.constants, f"rank {self.place} has no {v}"
            self.now[v] = v
            self.constants[v] = self.graph.constants[v]
        return self.now[v]

    # Microbatches

    def _message_numbers(self) -> dict[tuple[Value, int, int], int]:
        """By value, microbatch and the rank it goes to, the number of the message."""
        found = {}
        for v, targets in self.plan.sent.items():
            source = self.table.homes[self.cut.made[v][1]]
            for target in targets:
                for m in range(self.table.microbatches):
                    found[v, m, target] = self._next_number(source, target)
        return found

    def _next_number(self, source: int, target: int) -> int:
        number = self.counts.get((source, target), 0)
        self.counts[source, target] = number + 1
        if number >= _MOST:
            message = f"at most {_MOST} messages can go from a rank to another in a step, got more"
            raise ParallelError("stage", message, hint="fewer microbatches, or a cut that fewer values cross")
        return number

    def _run_part(self, part: Part, m: int, numbers: Mapping[tuple[Value, int, int], int]) -> None:
        pieces = self.plan.pieces[part]
        for i, (nodes, wanted) in enumerate(pieces):
            if nodes:
                name = f"{_NAMES[part[0]]}{part[1]}" + (f".{i}" if len(pieces) > 1 else "")
                self._run_piece(self._body(name, nodes, wanted), name, m, numbers)

    def _run_piece(
        self,
        called: tuple[Graph, list[Value], list[Value]],
        name: str,
        m: int,
        numbers: Mapping[tuple[Value, int, int], int],
    ) -> None:
        body, ins, outs = called
        given = [self._of_row(v, m, numbers) for v in ins]
        for v, made in zip(outs, self._call(name, body, given), strict=True):
            self.of_row[v, m] = made
            for target in self.plan.sent.get(v, ()):
                self._send(made, target, numbers[v, m, target], None)
            for end in self.plan.summed.get(v, ()):
                self._sum(end).add(m, made)

    def _of_row(self, v: Value, m: int, numbers: Mapping[tuple[Value, int, int], int]) -> Value:
        if v in self.start_of:
            return self._row(self.start_of[v], m)
        if v not in self.cut.made:
            return self._common(v)
        if (v, m) not in self.of_row:
            source = self.table.homes[self.cut.made[v][1]]
            self.of_row[v, m] = self._receive(v.type, source, numbers[v, m, self.place], None)
        return self.of_row[v, m]

    def _row(self, node: Node, m: int) -> Value:
        """What a microbatch takes of the batch."""
        (out,), at = node.outputs, node.location
        if (out, m) in self.of_row:
            return self.of_row[out, m]
        count = self.table.microbatches
        if node.op is ops.take_shard:
            if node not in self.stacks:
                attrs = {**node.attrs, "count": count, "mesh": self.mesh}
                self.stacks[node] = self._emit(ops.take_shards, [self._common(node.inputs[0])], at, **attrs)
            found = self._nth(self.stacks[node], m, at)
        else:
            if node not in self.stacks:
                attrs = {"axis": node.attrs["axis"], "mesh": self.mesh}
                first = self._emit(ops.axis_index, [], at, **attrs)
                self.stacks[node] = self._emit(mul, [first, self._number(count)], at)
            found = self._emit(add, [self.stacks[node], self._number(m)], at)
        self.of_row[out, m] = found
        return found

    def _nth(self, stack: Value, m: int, at: Location | None) -> Value:
        shape = stack.type.shape
        ends = {
            "starts": (m, *[0] * (len(shape) - 1)),
            "stops": (m + 1, *shape[1:]),
            "steps": (1,) * len(shape),
        }
        return self._emit(reshape, [self._emit(slice_axes, [stack], at, **ends)], at, shape=shape[1:])

    # Sums over microbatches

    def _sum(self, node: Node) -> _Tree:
        if node not in self.sums:
            self.sums[node] = _Tree(self, node, self.table.microbatches)
        return self.sums[node]

    def _end(self, node: Node) -> None:
        """One value of those of all microbatches: of this rank's first, then of the ranks along the batch."""
        (x,), out, where = node.inputs, self.plan.result_of(node), self.plan.where_ends(node)
        ranks = self.everybody if where is EVERYWHERE else frozenset([self.table.homes[where]])
        self.held[out] = ranks
        if x not in self.cut.made:
            for v in self.start_of[x].inputs if x in self.start_of else [x]:
                self._share(v, ranks)
        if self.place not in ranks:
            return
        tree = self._sum(node)
        if x not in self.cut.made:  # the same for all microbatches, or rows themselves
            for m in range(self.table.microbatches):
                tree.add(m, self._row(self.start_of[x], m) if x in self.start_of else self._common(x))
        if node.op is not ops.all_gather and axis_size("stage", self.mesh, self.plan.batch) == 1:
            self.now[out] = tree.result()
            return
        attrs, op = {**node.attrs, "mesh": self.mesh}, node.op
        if node in self.cut.scattered:
            attrs["dim"], op = self.cut.scattered[node].attrs["dim"], ops.reduce_scatter
        elif op is ops.all_gather:
            op = ops.gather_shards
        self.now[out] = self._emit(op, [tree.result()], node.location, **attrs)

    # Results

    def _result(self, v: Value, home: int | None) -> Value:
        if home is None:
            if v not in self.graph.constants:
                self._share(v, self.everybody)
            return self._common(v)
        rank = self.table.homes[home]
        self._share(v, frozenset([rank]))
        return self._common(v) if self.place == rank else self._zeros(_absent(v.type))

    def _update(self, old: Value, new: Value) -> tuple[Value, Value]:
        home = self.plan.homes.get(old)
        if new in self.graph.constants:
            self.held[new] = self.everybody
        rank = None if home is None else self.table.homes[home]
        self._share(new, self.everybody if rank is None else frozenset([rank]))
        mine = self.inputs[self.graph.inputs.index(old)]
        return mine, self._common(new) if rank in (None, self.place) else mine

    # Writing

    def _body(
        self, name: str, nodes: Sequence[Node], wanted: Sequence[Value]
    ) -> tuple[Graph, list[Value], list[Value]]:
        if name not in self.bodies:
            there = [self._in_mesh(n) for n in nodes]
            body, ins = _closed(name, there, list(wanted), self.graph.constants)
            self.bodies[name] = body, ins, list(wanted)
        return self.bodies[name]

    def _in_mesh(self, node: Node) -> Node:
        if "mesh" not in node.attrs:
            return node
        return Node(node.op, node.inputs, {**node.attrs, "mesh": self.mesh}, node.outputs, node.location)

    def _call(self, name: str, body: Graph, inputs: Sequence[Value]) -> list[Value]:
        outs = [Value(v.type, v.name) for v in body.outputs]
        arguments = tuple([(f"x{i}", Operand(i)) for i in range(len(inputs))])
        attrs = {"function": name, "arguments": arguments, "body": body}
        self.nodes.append(Node(call, inputs, attrs, outs))
        return outs

    def _send(self, x: Value, to: int, number: int, at: Location | None) -> None:
        attrs = {"to": to, "number": number, "axis": PIPE, "mesh": self.mesh}
        self.nodes.append(Node(send, [x], attrs, [], at))

    def _receive(self, t: TensorType, source: int, number: int, at: Location | None) -> Value:
        attrs = {"shape": t.shape, "dtype": t.dtype.name, "source": source, "number": number}
        return self._emit(receive, [], at, **attrs, axis=PIPE, mesh=self.mesh)

    def _number(self, number: int) -> Value:
        value = Value(TensorType((), int64))
        self.constants[value] = np.array(number)
        return value

    def _zeros(self, t: TensorType) -> Value:
        value = Value(t)
        self.constants[value] = np.zeros(t.shape, t.dtype)
        return value

    def _emit(self, op: Any, inputs: Sequence[Value], at: Location | None, **attrs: Any) -> Value:
        out = Value(op.type_rule(*[v.type for v in inputs], **attrs))
        self.nodes.append(Node(op, inputs, attrs, [out], at))
        return out


class _Tree:
    """The sum of the values of all microbatches, by the tree over them; parts of it as early as can be."""

    def __init__(self, staging: _Staging, node: Node, count: int) -> None:
        self.staging, self.node = staging, node
        self.sizes = [count]
        while self.sizes[-1] > 1:
            self.sizes.append(-(-self.sizes[-1] // 2))
        self.waiting: dict[tuple[int, int], Value] = {}
        self.rows: dict[int, Value] = {}
        self.done: Value | None = None

    def add(self, m: int, x: Value) -> None:
        """Take in the value of a microbatch."""
        if self.node.op is ops.all_gather:
            self.rows[m] = x
        else:
            self._up(0, m, x)

    def _up(self, level: int, i: int, x: Value) -> None:
        if level == len(self.sizes) - 1:
            self.done = x
            return
        if i ^ 1 >= self.sizes[level]:  # without a neighbour
            self._up(level + 1, i // 2, x)
            return
        other = self.waiting.pop((level, i ^ 1), None)
        if other is None:
            self.waiting[level, i] = x
            return
        pair = [other, x] if i & 1 else [x, other]
        self._up(level + 1, i // 2, self.staging._emit(FOLDS[self.node.op], pair, self.node.location))

    def result(self) -> Value:
        """The sum, or all values along a new first axis."""
        if self.node.op is not ops.all_gather:
            assert self.done is not None
            return self.done
        at = self.node.location
        rows = [
            self.staging._emit(reshape, [x], at, shape=(1, *x.type.shape))
            for _, x in sorted(self.rows.items())
        ]
        return rows[0] if len(rows) == 1 else self.staging._emit(join, rows, at, axis=0)


def _absent(t: TensorType) -> TensorType:
    """What a rank holds of a tensor that is elsewhere."""
    return TensorType((0, *t.shape[1:]), t.dtype)


def _closed(
    name: str, nodes: Sequence[Node], wanted: Sequence[Value], constants: Mapping[Value, Array]
) -> tuple[Graph, list[Value]]:
    """A graph of nodes, and the values around it that it takes."""
    own = {v for n in nodes for v in n.outputs}
    used = dict.fromkeys(v for n in nodes for v in n.inputs if v not in own)
    ins = [v for v in used if v not in constants]
    fixed = {v: constants[v] for v in used if v in constants}
    return Graph(name, ins, nodes, wanted, constants=fixed), ins

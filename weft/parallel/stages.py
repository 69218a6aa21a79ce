"""Stages: a training step cut into the parts of a pipeline.

A program for virtual shards (``partition``) has values that each microbatch has its own of. They are computed
by *slots*, in this order: forward through the stages, then backward, ``F0 F1 .. B1 B0``. A node needs what
its own slot or earlier ones made, whatever the model looks like; so any program can be cut, and how well
shows in what goes from slot to slot. Forward nodes are cut where the program says so (``par.next_stage``),
else so that stages cost alike; backward nodes go to the stage of what they are the backward of. Of a backward
slot, what other slots need is ``B``, and the rest, the gradients of weights, is ``W``.

What all microbatches have in common runs once: on the rank of the one stage whose values it needs, or on all
ranks, where it needs none or those of several (such as the norm of all gradients).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from weft.base.dtypes import kind
from weft.base.shapes import size_of
from weft.errors import ParallelError
from weft.ir.graph import Graph, Node, Value
from weft.ir.stats import node_flops
from weft.ops import collective as ops
from weft.ops.pipeline import next_stage
from weft.parallel.fold_shards import STARTS, what_varies
from weft.parallel.schedules import BACKWARD, FORWARD, WEIGHTS

_NEAR = 0.35  # of a stage: how far from equal costs a cut may be where less has to be sent
Part = tuple[str, int]  # F, B or W, and the stage


class Cutting:
    """A program of a rank, cut into stages.

    Attributes:
        graph: of a rank of the virtual mesh.
        stages: how many stages there are.
        starts: nodes that take the rows of a microbatch.
        ends: nodes that make one value of those of all microbatches.
        first: nodes of sums over microbatches that these themselves need.
        main: by node that every microbatch runs, the part that it belongs to.
        made: by value of a microbatch, the part that makes it.
        common: nodes that run once, but for those of ``first``.
        scattered: by end of which each rank along the batch needs a part, the node that takes that.
    """

    def __init__(self, graph: Graph, axis: str, stages: int, mesh: str) -> None:
        self.graph, self.stages = graph, stages
        self.users: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for v in dict.fromkeys(node.inputs):
                self.users.setdefault(v, []).append(node)
        self.varying, ends = what_varies(graph, axis, mesh)
        self.weighted = _depending(graph, _weights(graph))
        inner = self._inner_ends(ends)
        self.first = _leading_to(graph, [v for n in inner for v in n.outputs], ())
        after = {v for n in inner for v in n.outputs}
        self.ends = [n for n in graph.nodes if n in ends and n not in inner]
        needed = _leading_to(graph, [v for n in self.ends for v in n.inputs], after)
        own = [n for n in graph.nodes if n in needed and not self.varying.isdisjoint(n.outputs)]
        self.starts = [
            n for n in own if n.op in STARTS and n.attrs.get("axis") == axis and n.attrs["mesh"] != mesh
        ]
        self.nodes = [n for n in own if n not in set(self.starts)]
        running = {*self.nodes, *self.starts, *self.ends}
        self.common = [
            n for n in graph.nodes if n not in running and n not in ends and self._is_common(n, inner)
        ]
        self.scattered = self._scattered(axis, mesh)
        gone = set(self.scattered.values())
        self.common = [n for n in self.common if n not in gone]
        self._cut()

    def _scattered(self, axis: str, mesh: str) -> dict[Node, Node]:
        """By a sum over microbatches of which each rank along the batch needs a part, what takes that."""
        found, results = {}, set(self.graph.results)
        for node in self.ends:
            (out,) = node.outputs
            used = self.users.get(out, [])
            if node.op is ops.all_reduce and len(used) == 1 and out not in results:
                take, told = used[0], used[0].attrs
                if take.op is ops.take_shard and (told["axis"], told["mesh"]) == (axis, mesh):
                    found[node] = take
        return found

    def _is_common(self, node: Node, inner: set[Node]) -> bool:
        return node not in inner and self.varying.isdisjoint((*node.inputs, *node.outputs))

    def _inner_ends(self, ends: set[Node]) -> set[Node]:
        """The ends that values of microbatches depend on; they must not depend on weights."""
        found: dict[Value, set[Node]] = {}
        inner: set[Node] = set()
        for node in self.graph.nodes:
            before = set().union(*[found.get(v, set()) for v in node.inputs])
            if node in ends:
                before = before | {node}
            elif not self.varying.isdisjoint(node.outputs):
                inner |= before
            if before:
                found.update(dict.fromkeys(node.outputs, before))
        for node in self.graph.nodes:
            if node in inner and not self.weighted.isdisjoint(node.inputs):
                message = (
                    "a pipeline works on one microbatch after another, so none may need something of all of "
                    f"them that depends on weights, got {node.op.name} of {node.inputs[0].type}"
                )
                hint = "statistics of a batch (batch normalisation) need a mesh without the axis of stages"
                where = None if node.location is None else node.location.place
                raise ParallelError("stage", message, hint=hint, location=where)
        return inner

    # Which node belongs to which stage

    def _cut(self) -> None:
        behind = _behind_gradients(self.nodes)
        forward = [n for n in self.nodes if n not in behind]
        numbers = self._numbers(forward)
        self._late(forward, numbers)
        slots = dict(numbers)
        slots.update(self._backward([n for n in self.nodes if n in behind], numbers))
        self.main: dict[Node, Part] = {}
        last = self.stages - 1
        needed = self._needed_elsewhere(slots)
        for node in self.nodes:
            slot = slots[node]
            if slot <= last:
                self.main[node] = FORWARD, slot
            else:
                self.main[node] = BACKWARD if node in needed else WEIGHTS, 2 * last + 1 - slot
        self.made = {v: part for n, part in self.main.items() for v in n.outputs}

    def _numbers(self, forward: Sequence[Node]) -> dict[Node, int]:
        """The stage of each forward node."""
        marks = [n for n in forward if n.op is next_stage]
        if not forward:
            return {}
        if len(forward) < self.stages:
            where = next((n.location.place for n in forward if n.location is not None), None)
            message = f"a step must have a node for each of the {self.stages} stages, got {len(forward)}"
            raise ParallelError("stage", message, hint="use fewer stages", location=where)
        if not marks:
            return self._balanced(forward)
        at: dict[Value, int] = {}
        numbers: dict[Node, int] = {}
        for node in forward:
            numbers[node] = max([at.get(v, 0) for v in node.inputs], default=0) + (node.op is next_stage)
            at.update(dict.fromkeys(node.outputs, numbers[node]))
        count = max(numbers.values()) + 1
        if count < self.stages:
            where = None if marks[-1].location is None else marks[-1].location.place
            message = (
                f"{self.stages} stages need {self.stages - 1} marks one behind the other, got {count - 1}"
            )
            hint = f"par.auto(model, mesh, stages={self.stages}), more of par.next_stage(x), or none"
            raise ParallelError("stage", message, hint=hint, location=where)
        costs = [0.0] * count
        for node, number in numbers.items():
            costs[number] += _cost(node)
        group = grouped(costs, self.stages)
        return {node: group[number] for node, number in numbers.items()}

    def _balanced(self, forward: Sequence[Node]) -> dict[Node, int]:
        """Stages of equal cost, cut nearby where the least must be sent, and between modules if it can be."""
        costs = list(accumulate(map(_cost, forward)))
        sent = self._sent_at(forward)
        cuts: list[int] = []
        for k in range(1, self.stages):
            wanted, width = costs[-1] * k / self.stages, costs[-1] / self.stages
            least = cuts[-1] + 1 if cuts else 1
            places = range(least, len(forward) - (self.stages - k) + 1)
            away = {i: abs(costs[i - 1] - wanted) for i in places}
            most = max(_NEAR * width, 1.3 * min(away.values()))
            near = [i for i in places if away[i] <= most]
            inside = {i: _shared_module(forward[i - 1], forward[i]) for i in near}
            cuts.append(min(near, key=lambda i: (sent[i], inside[i], away[i])))
        bounds = [0, *cuts, len(forward)]
        return {n: k for k in range(self.stages) for n in forward[bounds[k] : bounds[k + 1]]}

    def _sent_at(self, forward: Sequence[Node]) -> list[int]:
        """The bytes that would be sent forward if the nodes were cut before each of them."""
        place = {n: i for i, n in enumerate(forward)}
        change = [0] * (len(forward) + 2)
        for i, node in enumerate(forward):
            for v in node.outputs:
                last = max([place[u] for u in self.users.get(v, ()) if u in place], default=i)
                if v in self.weighted:
                    change[i + 1] += bytes_of(v)
                    change[last + 1] -= bytes_of(v)
        return list(accumulate(change))

    def _late(self, forward: Sequence[Node], numbers: dict[Node, int]) -> None:
        """Let what needs no weights run where it is used: its inputs are everywhere."""
        for node in reversed(forward):
            used = [numbers[u] for v in node.outputs for u in self.users.get(v, ()) if u in numbers]
            if used and self.weighted.isdisjoint(node.outputs):
                numbers[node] = max(numbers[node], min(used))

    def _backward(self, nodes: Sequence[Node], numbers: Mapping[Node, int]) -> dict[Node, int]:
        """The slot of each backward node: that of its forward, and not before what it takes.

        Its line and module tell which forward it is of. Where several stages have the same, it is the last
        one that makes or uses something that it takes.
        """
        last = 2 * self.stages - 1
        stage_at: dict[object, set[int]] = {}
        latest: dict[Value, int] = {}
        origin = _origins(self.graph, self.varying)
        for node, number in numbers.items():
            stage_at.setdefault(_line(node), set()).add(number)
            for v in (*node.inputs, *node.outputs):
                for source in origin.get(v, (v,)):
                    latest[source] = max(latest.get(source, 0), number)
        found: dict[Node, int] = {}
        slot: dict[Value, int] = {}
        for node in nodes:
            stages = stage_at.get(_line(node), set())
            if len(stages) != 1 or node.location is None:
                sources = [s for v in node.inputs if v not in slot for s in origin.get(v, (v,))]
                stages = {min([latest[s] for s in sources if s in latest], default=self.stages - 1)}
            before = [slot[v] for v in node.inputs if v in slot]
            found[node] = max([last - min(stages), *before])
            slot.update(dict.fromkeys(node.outputs, found[node]))
        return found

    def _needed_elsewhere(self, slots: Mapping[Node, int]) -> set[Node]:
        """The nodes of which something in a later slot depends."""
        ends = [v for n in self.nodes for v in n.inputs]
        made = {v: slots[n] for n in self.nodes for v in n.outputs}
        crossing = {v for n in self.nodes for v in n.inputs if v in made and made[v] != slots[n]}
        found: set[Node] = set()
        values = crossing.intersection(ends)
        for node in reversed(self.nodes):
            if not values.isdisjoint(node.outputs):
                found.add(node)
                values.update(v for v in node.inputs if made.get(v) == slots[node])
        return found

    def nodes_of(self, part: Part) -> list[Node]:
        """The nodes of a part, in order."""
        return [n for n in self.nodes if self.main[n] == part]


def _weights(graph: Graph) -> list[Value]:
    """Inputs that are no arguments and can have gradients."""
    pairs = zip(graph.inputs, graph.roles, strict=True)
    return [v for v, role in pairs if role != "arg" and kind(v.type.dtype) in "fc"]


def _depending(graph: Graph, values: Iterable[Value]) -> set[Value]:
    found = set(values)
    for node in graph.nodes:
        if not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


def _leading_to(graph: Graph, values: Iterable[Value], known: Iterable[Value]) -> set[Node]:
    """The nodes that values depend on, up to known ones."""
    stop, wanted = set(known), set(values)
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outputs) and stop.isdisjoint(node.outputs):
            found.add(node)
            wanted.update(node.inputs)
    return found


def _behind_gradients(nodes: Sequence[Node]) -> set[Node]:
    """What gradients added, and what depends on it."""
    values: set[Value] = set()
    found: set[Node] = set()
    for node in nodes:
        backward = node.location is not None and node.location.phase == "backward"
        if backward or not values.isdisjoint(node.inputs):
            found.add(node)
            values.update(node.outputs)
    return found


def _origins(graph: Graph, varying: set[Value]) -> dict[Value, tuple[Value, ...]]:
    """Of values that are made of inputs alone, such as a weight with other axes, these inputs."""
    found: dict[Value, tuple[Value, ...]] = {v: (v,) for v in graph.inputs}
    for node in graph.nodes:
        if varying.isdisjoint(node.outputs) and all(v in found or v in graph.constants for v in node.inputs):
            sources = dict.fromkeys(s for v in node.inputs for s in found.get(v, ()))
            found.update(dict.fromkeys(node.outputs, tuple(sources)))
    return found


def _line(node: Node) -> object:
    at = node.location
    return None if at is None else (at.file, at.line, at.module)


def _shared_module(one: Node, other: Node) -> float:
    """How deep the module is that two nodes are both in; endless if they are in the same one."""
    paths = [n.location.module.split(".") if n.location is not None else [] for n in (one, other)]
    if paths[0] == paths[1]:
        return float("inf")
    return next((i for i, (a, b) in enumerate(zip(*paths, strict=False)) if a != b), min(map(len, paths)))


def _cost(node: Node) -> float:
    return float(node_flops(node)) + sum(size_of(v.type.shape) for v in node.outputs)


def bytes_of(v: Value) -> int:
    """The bytes of a value."""
    return int(size_of(v.type.shape)) * v.type.dtype.itemsize


def grouped(costs: Sequence[float], count: int) -> list[int]:
    """Neighbours joined to so many groups, of which the dearest is as cheap as can be: the group of each.

    >>> from weft.parallel.stages import grouped
    >>> grouped([3.0, 1.0, 1.0, 1.0], 2)
    [0, 1, 1, 1]
    """
    sums = [0.0, *accumulate(costs)]
    n = len(costs)
    best: dict[tuple[int, int], tuple[float, int]] = {(0, 0): (0.0, 0)}
    for k in range(1, count + 1):
        for i in range(k, n - (count - k) + 1):
            options = [
                (max(best[k - 1, j][0], sums[i] - sums[j]), j) for j in range(k - 1, i) if (k - 1, j) in best
            ]
            best[k, i] = min(options)
    groups, end = [0] * n, n
    for k in range(count, 0, -1):
        begin = best[k, end][1]
        groups[begin:end] = [k - 1] * (end - begin)
        end = begin
    return groups

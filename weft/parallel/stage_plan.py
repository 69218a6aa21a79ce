"""What runs where in a pipeline, decided alike by all ranks: units of nodes, homes of tensors, messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from weft.base.records import NamedTuple
from weft.ir.graph import Graph, Node, Value
from weft.ops.collective import all_gather
from weft.parallel.schedules import BACKWARD, FORWARD, WEIGHTS, Schedule
from weft.parallel.stages import Cutting, Part, bytes_of

EVERYWHERE = None  # instead of a stage: all ranks have it, or run it
_SMALL = 1 << 10  # bytes of a value of several stages up to which all ranks compute it
PIECES = 4  # in which the gradients of a stage's weights are computed at most, so that sums start in between
_LEAST = 1 << 16  # bytes of gradients of a piece at least
_AFTER = 1 << 20  # the level of what comes after the microbatches


class Unit(NamedTuple):
    """Nodes that run once, together.

    Attributes:
        name: in the text of graphs.
        stage: whose rank runs them; None for all ranks.
        nodes: in order.
        wanted: values that others need of it.
    """

    name: str
    stage: int | None
    nodes: list[Node]
    wanted: list[Value]


class StagePlan:
    """A step cut into stages, with a table that says who runs them.

    Args:
        graph: of a rank of a mesh with a rank for each microbatch.
        table: who runs what in which order.
        mesh: of the ranks there are, as text.
        batch: the axis of the batch.
        gradients: by number of a result the number of the input that it is the gradient of.
        given: for each input the place along the pipeline where it is now, or None; it stays there where no
            microbatch tells otherwise, as in a program that is an optimizer's step alone.
        pieces: in how many the gradients of a stage's weights may be computed.

    Attributes:
        cut: the step in stages.
        homes: by input that belongs to a stage, that stage.
        targets: by number of an output that belongs to a stage, that stage.
        before: what runs once, before microbatches.
        after: likewise, after them.
        inner: sums over microbatches that these need themselves.
        parts: what microbatches run, in order.
        nodes: of each part.
        pieces: what each part calls, one after another: nodes, and values that others need of them.
        wanted: by part, the values that others need of it.
        sent: by value of a microbatch, the ranks that it is sent to.
        summed: by value of a microbatch, the ends that take it.
    """

    def __init__(
        self,
        graph: Graph,
        table: Schedule,
        mesh: str,
        batch: str,
        gradients: Mapping[int, int],
        given: Sequence[int | None] = (),
        pieces: int = PIECES,
    ) -> None:
        self.graph, self.table, self.mesh, self.batch = graph, table, mesh, batch
        self.cut = Cutting(graph, batch, table.stages, mesh)
        self.inner = [v for n in graph.nodes if n in self.cut.first for v in n.outputs if self._is_inner(n)]
        stages = range(table.stages)
        self.parts: list[Part] = [(FORWARD, k) for k in stages]
        self.parts += [(kind, k) for k in reversed(stages) for kind in (BACKWARD, WEIGHTS)]
        self.nodes = {part: self._with_views(self.cut.nodes_of(part)) for part in self.parts}
        self._needed = self._needed_nodes()
        self.targets: dict[int, int] = {}
        self.homes = self._homes(gradients, given)
        self.where, units = self._where(self.homes)
        made = self._units(self._late(units))
        self.before = [unit for level, unit in made if level < _AFTER]
        self.after = [unit for level, unit in made if level >= _AFTER]
        self._find_messages()
        self.pieces = {part: self._pieces(part, pieces) for part in self.parts}

    def _homes(self, gradients: Mapping[int, int], given: Sequence[int | None]) -> dict[Value, int]:
        """The stage of each input that belongs to one: where its gradient, or what overwrites it, is made."""
        graph = self.graph
        pairs = zip(graph.inputs, given, strict=False)
        now = {v: self.table.homes.index(place) for v, place in pairs if place is not None}
        if self.cut.nodes:
            told = {*[graph.inputs[i] for i in gradients.values()], *[old for old, _ in graph.updates]}
            now = {v: stage for v, stage in now.items() if v not in told}
        where, _ = self._where(now)
        for number, owner in gradients.items():
            stage = where.get(graph.results[number])
            if stage is not None and graph.results[number].type.ndim:
                home = now.setdefault(graph.inputs[owner], stage)
                if number < len(graph.outputs):
                    self.targets[number] = home
        for old, new in graph.updates:
            stage = where.get(new)
            if stage is not None and old.type.ndim:
                now.setdefault(old, stage)
        return now

    def _is_inner(self, node: Node) -> bool:
        """Whether a node of what comes first gives what microbatches need."""
        return not self.cut.varying.isdisjoint(node.inputs) and self.cut.varying.isdisjoint(node.outputs)

    def _with_views(self, nodes: Sequence[Node]) -> list[Node]:
        """Nodes of a part with the views of inputs that they take, such as a weight with other axes.

        These are read as they are inside of a part; handed to it, they would have to be copied.
        """
        views: dict[Value, Node] = {}
        known = set(self.graph.inputs)
        for node in self.cut.common:
            if node.op is all_gather and known.issuperset(node.inputs):
                known.update(node.outputs)  # the parts of a weight, see ZeRO
            elif node.op.view is not None and known.issuperset(node.inputs):
                views.update(dict.fromkeys(node.outputs, node))
                known.update(node.outputs)
        wanted = {v for n in nodes for v in n.inputs}
        found = []
        for node in reversed(dict.fromkeys(views.values())):
            if not wanted.isdisjoint(node.outputs):
                found.append(node)
                wanted.update(node.inputs)
        return [*reversed(found), *nodes]

    def _used(self) -> set[Value]:
        """What is needed of what runs once, but for that itself."""
        used = set(self.graph.results)
        for part in self.parts:
            used.update(self.inputs_of(part))
        for node in (*self.cut.starts, *self.cut.ends):
            used.update(node.inputs)
        return used

    def _needed_nodes(self) -> set[Node]:
        """The nodes that run once and are of use."""
        wanted = self._used()
        found = set()
        for node in reversed(self.cut.common):
            if node.op.effect or not wanted.isdisjoint(node.outputs):
                found.add(node)
                wanted.update(node.inputs)
        return found

    def result_of(self, node: Node) -> Value:
        """What ranks have of an end: the sum of all microbatches, or their own parts of it."""
        (out,) = self.cut.scattered.get(node, node).outputs
        return out

    def where_ends(self, node: Node) -> int | None:
        """The stage on whose rank an end runs; None for all ranks."""
        (x,) = node.inputs
        if x in self.cut.made:
            return self.cut.made[x][1]
        return self.where.get(x)

    def _where(
        self, homes: Mapping[Value, int]
    ) -> tuple[dict[Value, int | None], dict[Node, tuple[int, int | None]]]:
        """The stage of each value that runs once, None for all ranks; and of each node its level and stage.

        What needs values of several stages begins another level. What is small runs on all ranks, such as
        the norm of all gradients; what is large on the first of these stages, such as the gradient of a
        weight that two stages use.
        """
        self.where = where = {v: homes.get(v) for v in self.graph.inputs}
        level: dict[Value, int] = {}
        units: dict[Node, tuple[int, int | None]] = {}
        ends = set(self.cut.ends)
        for node in self.graph.nodes:
            if node in ends:
                made = self.result_of(node)
                where[made], level[made] = self.where_ends(node), _AFTER
            elif node in self._needed:
                stages = [s for s in (where.get(v) for v in node.inputs) if s is not None]
                at = max([level.get(v, 0) for v in node.inputs], default=0)
                if len(set(stages)) > 1:
                    at += 1
                shared = len(set(stages)) != 1 and all(bytes_of(v) <= _SMALL for v in node.outputs)
                stage = EVERYWHERE if shared or not stages else min(stages)
                units[node] = at, stage
                where.update(dict.fromkeys(node.outputs, stage))
                level.update(dict.fromkeys(node.outputs, at))
        return where, units

    def _late(self, units: Mapping[Node, tuple[int, int | None]]) -> dict[Node, tuple[int, int | None]]:
        """What a stage does before microbatches and needs after them alone is done after them, too."""
        found, used = dict(units), self._used() - set(self.graph.results)
        for node in reversed(self.graph.nodes):
            level, stage = found.get(node, (0, EVERYWHERE))
            users = [found[u] for v in node.outputs for u in self.cut.users.get(v, ()) if u in found]
            if stage is EVERYWHERE or not users or not used.isdisjoint(node.outputs):
                continue
            last = min([at if where == stage else at - 1 for at, where in users])
            found[node] = max(level, last), stage
        return found

    def _units(self, units: Mapping[Node, tuple[int, int | None]]) -> list[tuple[int, Unit]]:
        """The units in the order in which they run."""
        grouped: dict[tuple[int, int], list[Node]] = {}
        for node in self.graph.nodes:
            if node in units:
                level, stage = units[node]
                grouped.setdefault((level, -1 if stage is None else stage), []).append(node)
        used = self._used()
        found = []
        for key in sorted(grouped):
            nodes = grouped[key]
            own = set(nodes)
            others = used | {v for n in units if n not in own for v in n.inputs}
            wanted = [v for n in nodes for v in n.outputs if v in others]
            level, stage = key
            when = f"before{level}" if level < _AFTER else f"after{level - _AFTER}"
            name = f"{when}_all" if stage < 0 else f"{when}_stage{stage}"
            found.append((level, Unit(name, EVERYWHERE if stage < 0 else stage, nodes, wanted)))
        return found

    def _find_messages(self) -> None:
        self.summed: dict[Value, list[Node]] = {}
        for node in self.cut.ends:
            if node.inputs[0] in self.cut.made:
                self.summed.setdefault(node.inputs[0], []).append(node)
        users: dict[Value, dict[Part, None]] = {}
        for part in self.parts:
            for v in self.inputs_of(part):
                if v in self.cut.made:
                    users.setdefault(v, {})[part] = None
        self.wanted = {part: self._wanted(part, users) for part in self.parts}
        self.sent: dict[Value, list[int]] = {}
        homes = self.table.homes
        for part in self.parts:
            for v in self.wanted[part]:
                ranks = dict.fromkeys(homes[stage] for _, stage in users.get(v, ()))
                ranks.pop(homes[part[1]], None)
                if ranks:
                    self.sent[v] = sorted(ranks)

    def _wanted(self, part: Part, users: Mapping[Value, Mapping[Part, None]]) -> list[Value]:
        made = [v for n in self.nodes[part] for v in n.outputs]
        return [v for v in made if v in users or v in self.summed]

    def _pieces(self, part: Part, most: int) -> list[tuple[list[Node], list[Value]]]:
        """A part in pieces: of the gradients of weights, where about as many bytes of them are done, and the
        least goes from piece to piece. They are the same on every mesh, and so are the bits.
        """
        nodes = self.cut.nodes_of(part)
        ready = [sum(bytes_of(v) for v in n.outputs if v in self.summed) for n in nodes]
        count = min(most, sum(ready) // _LEAST, len(nodes)) if part[0] == WEIGHTS else 1
        if count < 2:
            return [(self.nodes[part], self.wanted[part])]
        done, crossing = list(accumulate(ready)), self._crossing(nodes)
        bounds = [0]
        for k in range(1, count):
            wanted = done[-1] * k / count
            places = range(bounds[-1] + 1, len(nodes) - (count - k) + 1)
            near = [i for i in places if abs(done[i - 1] - wanted) <= done[-1] / (2 * count)]
            if near:
                bounds.append(min(near, key=lambda i: (crossing[i], abs(done[i - 1] - wanted))))
        pairs = zip(bounds, [*bounds[1:], len(nodes)], strict=True)
        return [self._piece(part, nodes[a:b], nodes[b:]) for a, b in pairs]

    def _crossing(self, nodes: Sequence[Node]) -> list[int]:
        """The bytes of what nodes from each place on need of those before it, in one part."""
        change = [0] * (len(nodes) + 1)
        place = {v: i for i, n in enumerate(nodes) for v in n.outputs}
        last: dict[Value, int] = {}
        for i, node in enumerate(nodes):
            last.update({v: i for v in node.inputs if v in place})
        for v, end in last.items():
            change[place[v] + 1] += bytes_of(v)
            change[end + 1] -= bytes_of(v)
        return list(accumulate(change))

    def _piece(
        self, part: Part, nodes: Sequence[Node], later: Sequence[Node]
    ) -> tuple[list[Node], list[Value]]:
        used = {v for n in later for v in n.inputs}.union(self.wanted[part])
        return self._with_views(nodes), [v for n in nodes for v in n.outputs if v in used]

    def inputs_of(self, part: Part) -> Sequence[Value]:
        """The values that a part takes, but for constants."""
        own = {v for n in self.nodes[part] for v in n.outputs}
        used = dict.fromkeys(v for n in self.nodes[part] for v in n.inputs if v not in own)
        return [v for v in used if v not in self.graph.constants]

    def actions(self, rank: int) -> list[tuple[Part, int]]:
        """The parts that a rank runs, each with its microbatch, in order."""
        found: list[tuple[Part, int]] = []
        for kind, stage, m in self.table.rows[rank]:
            found.append(((kind, stage), m))
            if kind == BACKWARD and not self.table.splits:
                found.append(((WEIGHTS, stage), m))
        return found

    def kept_bytes(self) -> tuple[int, ...]:
        """For each rank the most bytes that it keeps of forward passes for backward passes."""
        return tuple([self._kept(self.actions(rank)) for rank in range(len(self.table.rows))])

    def _kept(self, actions: Sequence[tuple[Part, int]]) -> int:
        changes = [0] * (len(actions) + 1)
        begins: dict[tuple[Value, int], int] = {}
        ends: dict[tuple[Value, int], int] = {}
        for at, (part, m) in enumerate(actions):
            if part[0] == FORWARD:
                made = self.wanted[part]
                for v in (*made, *[v for v in self.inputs_of(part) if v in self.cut.made]):
                    begins.setdefault((v, m), at)
            else:
                ends.update({(v, m): at for v in self.inputs_of(part) if (v, m) in begins})
        for (v, m), end in ends.items():
            changes[begins[v, m]] += bytes_of(v)
            changes[end + 1] -= bytes_of(v)
        return max(accumulate(changes), default=0)

"""Plans of compiled steps with an axis ``pipe``: the program of each rank along it is followed.

Times follow from operations and bytes; ranks beside each other along other axes go in step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.base.ranks import Mesh, mesh_axes
from weft.errors import ParallelError
from weft.ir.graph import Graph, Node
from weft.ops.call import call
from weft.parallel.planner.clusters import Cluster
from weft.parallel.planner.follow import follow, moved_bytes
from weft.parallel.planner.links import added, collective, ring_of
from weft.parallel.planner.links import send as hand_on
from weft.parallel.planner.plan import Event, Traffic
from weft.parallel.planner.works import is_collective, rated_works
from weft.parallel.stage import PIPE
from weft.parallel.step import MeshBuild
from weft.schedule.memory_report import memory

Followed = tuple[list[Event], dict[str, float], list[Traffic]]


def follow_places(graphs: Sequence[Graph], build: MeshBuild, mesh: Mesh, cluster: Cluster) -> Followed:
    """The timelines of the ranks along a pipeline, the time of the busiest by parts, and what it sends."""
    return _Places(graphs, build, mesh, cluster).run()


def called_bytes(graph: Graph, build: MeshBuild) -> int:
    """The most memory that a graph which is called by a rank takes for what is in between."""
    bodies = {n.attrs["function"]: n.attrs["body"] for n in graph.nodes if n.op is call}
    return max([int(memory(build.rewritten(body)).arena) for body in bodies.values()], default=0)


class _Places:
    def __init__(self, graphs: Sequence[Graph], build: MeshBuild, mesh: Mesh, cluster: Cluster) -> None:
        self.graphs, self.build, self.mesh, self.cluster = graphs, build, mesh, cluster
        self.ring = ring_of(mesh.axes, PIPE)
        self.now = [0.0] * len(graphs)
        self.parts: list[dict[str, float]] = [{"compute": 0.0} for _ in graphs]
        self.sent: list[dict[str, dict[str, float]]] = [{} for _ in graphs]
        self.seconds: list[dict[str, float]] = [{} for _ in graphs]
        self.come: dict[
            tuple[int, int, int], float
        ] = {}  # by source, target and number, when a message is there
        self.events: list[Event] = []
        self.known: dict[str, Followed] = {}
        self.free: dict[tuple[int, str], float] = {}  # when links are done with what was started
        self.under_way: dict[Any, tuple[str, float]] = {}
        self.hides = not cluster.processors or mesh.size < cluster.processors

    def run(self) -> Followed:
        at = [0] * len(self.graphs)
        going = True
        while going:
            going = False
            for place, graph in enumerate(self.graphs):
                while at[place] < len(graph.nodes) and self._step(place, graph.nodes[at[place]]):
                    at[place] += 1
                    going = True
        if any(i < len(graph.nodes) for i, graph in zip(at, self.graphs, strict=True)):
            raise ParallelError("plan", "ranks of a pipeline must get to the end, they wait for each other")
        end = max(self.now)
        place = max(range(len(self.graphs)), key=lambda p: self.parts[p]["compute"])
        parts = dict(self.parts[place])
        parts["bubble"] = parts.get("bubble", 0.0) + end - self.now[place]
        rows = [
            Traffic(k, self.sent[place].get(k, {}), s, parts.get(k, 0.0))
            for k, s in self.seconds[place].items()
        ]
        return self.events, {k: s for k, s in parts.items() if s}, rows

    def _step(self, place: int, node: Node) -> bool:
        """Go on by a node; False if what it waits for is not known yet."""
        name = str(node.op.name)
        if name == "start_receive":
            return True
        if name in ("receive", "wait_receive"):
            key = (int(node.attrs["source"]), place, int(node.attrs["number"]))
            if key not in self.come:
                return False
            self._spend(place, "bubble", max(0.0, self.come[key] - self.now[place]))
        elif name == "send":
            moved = hand_on(self.cluster, moved_bytes(node), self.ring)
            self.come[place, int(node.attrs["to"]), int(node.attrs["number"])] = (
                self.now[place] + moved.seconds
            )
            self._note(place, "send over pipe", moved.seconds, moved.bytes)
        elif node.op is call:
            self._call(place, node)
        elif is_collective(node):
            self._meet(place, node)
        else:
            size = sum(moved_bytes(node) for _ in node.outputs)
            seconds = (
                self.cluster.device.sweep_seconds(2 * size) if node.op.view is None and node.outputs else 0.0
            )
            self._spend(place, "compute", seconds, name)
        return True

    def _call(self, place: int, node: Node) -> None:
        function = str(node.attrs["function"])
        if function not in self.known:
            body = self.build.rewritten(node.attrs["body"])
            inside = Mesh(self.mesh.text) if any(map(is_collective, body.walk())) else Mesh("")
            works = rated_works(body, self.cluster.device, "f32")
            self.known[function] = follow(works, inside, self.cluster, agree=False)
        _, parts, traffic = self.known[function]
        for kind, seconds in parts.items():
            self._spend(place, kind, seconds, function)
        for row in traffic:
            self._note(place, row.what, row.seconds, row.bytes)

    def _meet(self, place: int, node: Node) -> None:
        name, axis = str(node.op.name), str(node.attrs.get("axis", ""))
        key = place, axis, node.attrs.get("number")
        if name.startswith("wait_"):
            label, end = self.under_way.pop(key, ("", 0.0))
            self._spend(place, label, max(0.0, end - self.now[place]), f"wait for {label}")
            return
        if not axis:
            return
        plain = "all_reduce" if "all_reduce" in name else "all_gather" if "gather" in name else name
        ring = ring_of(mesh_axes(str(node.attrs["mesh"])), axis)
        moved = collective(self.cluster, plain, moved_bytes(node), ring)
        label = f"{plain} over {axis}"
        self._note(place, label, moved.seconds, moved.bytes)
        if not name.startswith("start_") or not self.hides:
            self._spend(place, label, moved.seconds, label)
            return
        begin = max(self.now[place], self.free.get((place, axis), 0.0))
        self.free[place, axis] = begin + moved.seconds
        self.under_way[key] = label, begin + moved.seconds
        if moved.seconds:
            self.events.append(Event(place, label, label, begin, begin + moved.seconds, "links"))

    def _spend(self, place: int, kind: str, seconds: float, name: str = "") -> None:
        if not seconds:
            return
        if name:
            self.events.append(Event(place, name, kind, self.now[place], self.now[place] + seconds))
        self.parts[place][kind] = self.parts[place].get(kind, 0.0) + seconds
        self.now[place] += seconds

    def _note(self, place: int, label: str, seconds: float, moved: Mapping[str, float]) -> None:
        if seconds:
            self.seconds[place][label] = self.seconds[place].get(label, 0.0) + seconds
            self.sent[place][label] = added(self.sent[place].get(label, {}), moved)

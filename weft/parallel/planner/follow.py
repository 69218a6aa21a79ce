"""Following the program of a rank: what it computes, and what it waits for, one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.ranks import Mesh, mesh_axes
from weft.ir.graph import Node
from weft.parallel.planner.clusters import Cluster
from weft.parallel.planner.links import Moved, added, collective, ring_of
from weft.parallel.planner.plan import Event, Traffic
from weft.parallel.planner.works import Work

_START, _WAIT = "start_", "wait_"
_WORD = 8  # bytes of a meeting without arrays


def follow(
    works: Sequence[Work], mesh: Mesh, cluster: Cluster, agree: bool = True, results: int = 0
) -> tuple[list[Event], dict[str, float], list[Traffic]]:
    """The timeline of a rank, its time by parts, and what it sends.

    A sum that is started goes on beside what is computed, one after another along an axis; where ranks keep
    all processors busy, moving data takes processors from them, and nothing is hidden.

    Args:
        works: what the rank does, in order.
        mesh: of the ranks.
        cluster: where they are.
        agree: whether ranks agree on what they run first.
        results: of a call, each of which goes to a tensor.
    """
    return _Following(mesh, cluster).run(works, agree, results)


class _Following:
    def __init__(self, mesh: Mesh, cluster: Cluster) -> None:
        self.mesh, self.cluster = mesh, cluster
        self.now = 0.0
        self.free: dict[str, float] = {}  # when the links of an axis are done with what was started
        self.under_way: dict[Any, tuple[str, float, float]] = {}
        self.events: list[Event] = []
        self.parts: dict[str, float] = defaultdict(float, compute=0.0)
        self.seconds: dict[str, float] = defaultdict(float)
        self.exposed: dict[str, float] = defaultdict(float)
        self.sent: dict[str, dict[str, float]] = {}
        self.hides = not cluster.processors or mesh.size < cluster.processors

    def run(
        self, works: Sequence[Work], agree: bool, results: int
    ) -> tuple[list[Event], dict[str, float], list[Traffic]]:
        if agree and self.mesh.size > 1:  # ranks agree on what they run
            self._meet("agree", "all", self._called(results))
        for work in works:
            if work.node is None:
                self._compute(work)
            else:
                self._collective(work, work.node)
        rows = [Traffic(k, dict(self.sent[k]), s, self.exposed[k]) for k, s in self.seconds.items() if s]
        return self.events, {k: s for k, s in self.parts.items() if s}, rows

    def _word(self) -> Moved:
        names = ",".join(name for name, _ in self.mesh.axes)
        return collective(self.cluster, "all_gather", _WORD * self.mesh.size, ring_of(self.mesh.axes, names))

    def _called(self, results: int) -> Moved:
        """What ranks take to call a program: as it was measured, or a word of each to all."""
        seen, word = self.cluster.links[0].measured, self._word()
        if "call" not in seen:
            return word
        return word._replace(seconds=float(seen["call"]) + results * float(seen.get("result", 0.0)))

    def _compute(self, work: Work) -> None:
        if work.seconds:
            self.events.append(Event(0, work.name, "compute", self.now, self.now + work.seconds))
            self.now += work.seconds
            self.parts["compute"] += work.seconds

    def _collective(self, work: Work, node: Node) -> None:
        name, axis = str(node.op.name), str(node.attrs.get("axis", "all"))
        if name == "commit":
            if self.mesh.size > 1:
                self._meet("commit", "all", self._word())
            return
        plain = name.removeprefix(_START).removeprefix(_WAIT)
        plain = (
            "all_reduce" if plain.startswith("all_reduce") else "all_gather" if "gather" in plain else plain
        )
        key = (axis, node.attrs.get("number"))
        if name.startswith(_WAIT):
            self._wait(*self.under_way.pop(key, ("", 0.0, 0.0)))
            return
        ring = ring_of(mesh_axes(str(node.attrs["mesh"])), axis)
        moved = collective(self.cluster, plain, moved_bytes(node), ring)
        moved = Moved(work.runs * moved.seconds, {k: work.runs * n for k, n in moved.bytes.items()})
        label = f"{plain} over {axis}"
        if name.startswith(_START) and self.hides:
            self._note(label, moved)
            begin = max(self.now, self.free.get(axis, 0.0))
            self.free[axis] = begin + moved.seconds
            self.under_way[key] = label, begin, self.free[axis]
            if moved.seconds:
                self.events.append(Event(0, label, label, begin, self.free[axis], "links"))
        else:
            self._meet(plain, axis, moved)

    def _meet(self, what: str, axis: str, moved: Moved) -> None:
        """All ranks wait until it is done."""
        label = f"{what} over {axis}" if axis != "all" else what
        self._note(label, moved)
        if moved.seconds:
            self.exposed[label] += moved.seconds
            self.events.append(Event(0, label, label, self.now, self.now + moved.seconds))
            self.parts[label] += moved.seconds
            self.now += moved.seconds

    def _wait(self, label: str, begin: float, end: float) -> None:
        late = max(0.0, end - self.now)
        if label and late:
            self.exposed[label] += late
            self.parts[label] += late
            self.events.append(Event(0, f"wait for {label}", label, self.now, end))
            self.now = end

    def _note(self, label: str, moved: Moved) -> None:
        self.seconds[label] += moved.seconds
        self.sent[label] = added(self.sent.get(label, {}), moved.bytes)


def moved_bytes(node: Node) -> float:
    """The bytes of the whole array that ranks move."""
    values = [*node.inputs[:1], *node.outputs[:1]]
    return float(max(np.prod(v.type.shape, dtype=float) * v.type.dtype.itemsize for v in values))

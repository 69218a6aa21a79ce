"""What collectives take: by the ranks that meet, where they are, and how much they move.

Ranks of an axis of a mesh are so many places apart (its stride). What does not fit into one unit of a link
goes over the next: there the members that share a unit send side by side, each by its own adapter. Large
messages go round a ring, so that each rank sends 2 (n - 1) / n of a sum of n; small ones take a message for
each level of a tree. See Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in
MPICH.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log2

from weft.base.ranks import Axes
from weft.base.records import NamedTuple
from weft.parallel.planner.clusters import Cluster

# By collective, how often a rank sends the array (n - 1 parts of n), and how often a tree is gone through.
_ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "broadcast": 1}


class Ring(NamedTuple):
    """Ranks that meet.

    Attributes:
        size: how many.
        stride: how many ranks of the world are from one to the next.
    """

    size: int
    stride: int = 1


class Moved(NamedTuple):
    """What a collective takes.

    Attributes:
        seconds: from its beginning to its end.
        bytes: that each rank sends, by name of link.
    """

    seconds: float
    bytes: dict[str, float]


def added(*moved: Mapping[str, float]) -> dict[str, float]:
    """Bytes by link, of several.

    >>> from weft.parallel.planner.links import added
    >>> added({"a": 1.0}, {"a": 2.0, "b": 3.0})
    {'a': 3.0, 'b': 3.0}
    """
    found: dict[str, float] = {}
    for row in moved:
        for link, count in row.items():
            found[link] = found.get(link, 0.0) + count
    return found


def ring_of(axes: Axes, names: str) -> Ring:
    """The ranks along one axis of a mesh, or several with commas between them.

    >>> from weft.parallel.planner.links import ring_of
    >>> ring_of((("pipe", 2), ("data", 4), ("model", 8)), "data")
    Ring(size=4, stride=8)
    """
    stride, count, found = 1, 1, 0
    wanted = names.split(",")
    for name, size in reversed(axes):
        if name in wanted:
            count *= size
            found = found or stride
        stride *= size
    return Ring(count, found or 1)


def inside_units(cluster: Cluster, ring: Ring) -> list[int]:
    """How many members of a ring are in one unit of each link that it needs."""
    found = []
    for link in cluster.links:
        most = ring.size if link.ranks == 0 else max(1, link.ranks // ring.stride)
        found.append(min(ring.size, most))
        if found[-1] == ring.size:
            break
    return found


def collective(cluster: Cluster, op: str, size: float, ring: Ring) -> Moved:
    """What a collective takes.

    Args:
        cluster: where.
        op: its name.
        size: bytes of the whole array: what is summed, what was gathered.
        ring: of ranks.

    >>> from weft.parallel.planner.clusters import find_cluster
    >>> from weft.parallel.planner.links import Ring, collective
    >>> dgx = find_cluster("dgx-a100")
    >>> host, hosts = (collective(dgx, "all_reduce", 1e9, Ring(8, stride)) for stride in (1, 8))
    >>> 8 < hosts.seconds / host.seconds < 14, list(hosts.bytes)
    (True, ['InfiniBand HDR'])
    """
    if ring.size == 1 or not size:
        return Moved(0.0, {})
    if op == "permute_ranks":
        return send(cluster, size, ring)
    rounds = _ROUNDS.get(op, 1)
    sent = rounds * size * (ring.size - 1) / ring.size
    units = inside_units(cluster, ring)
    rate, latency, below = float("inf"), 0.0, 1
    moved: dict[str, float] = {}
    nearer = ""
    for link, inside in zip(cluster.links, units, strict=False):
        if inside > below:
            rate = min(rate, link.rate * below)
            latency += rounds * link.latency * ceil(log2(inside / below))
            over = sent / below  # of the hops of a ring, one for each unit below goes over this link
            if nearer:
                moved[nearer] -= over
            moved[link.name], nearer = over, link.name
        below = inside
    seen = cluster.links[0].seen(op, size, ring.size) if len(moved) == 1 else None
    return Moved(latency + sent / rate if seen is None else seen, moved)


def send(cluster: Cluster, size: float, ring: Ring) -> Moved:
    """What it takes to hand an array on to the next rank of a ring, where each does."""
    if ring.size == 1 or not size:
        return Moved(0.0, {})
    units = inside_units(cluster, ring)
    far = next((i for i, inside in enumerate(units) if inside > 1), len(units) - 1)
    if units[far] < ring.size:  # some go over the next link, and the others wait for them
        far += 1
    link = cluster.links[min(far, len(cluster.links) - 1)]
    return Moved(link.latency + size / link.rate, {link.name: size})

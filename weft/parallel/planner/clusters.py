"""Clusters: what devices compute and what links carry, read from the files of ``weft/parallel/clusters``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from weft.base.records import NamedTuple
from weft.errors import ArgumentError, DomainError, FileError

NOTHING: Mapping[str, Any] = MappingProxyType({})
_LIKE_GATHERING = ("reduce_scatter", "all_to_all", "broadcast")  # each rank gets as much


class Device(NamedTuple):
    """What one device can do.

    The fractions are of what the data sheet says, and are reached by large work: products of matrices, fused
    attention, sweeps over memory.

    Attributes:
        name: of it.
        memory: bytes that it holds.
        bandwidth: bytes a second of its memory.
        flops: operations a second, by kind of number.
        product: fraction of the operations that a product of matrices reaches.
        attention: fraction that fused attention reaches.
        sweep: fraction of the bandwidth that a kernel by elements reaches.
        launch: seconds that each kernel takes beside its work.
    """

    name: str
    memory: float
    bandwidth: float
    flops: Mapping[str, float]
    product: float = 0.75
    attention: float = 0.5
    sweep: float = 0.8
    launch: float = 5e-6

    def product_seconds(self, flops: float, moved: float, precision: str, fraction: float = 0.0) -> float:
        """The time of a product of so many operations on so many bytes."""
        rate = self.flops[precision] * (fraction or self.product)
        return self.launch + max(flops / rate, moved / (self.bandwidth * self.sweep))

    def sweep_seconds(self, moved: float, kernels: int = 1) -> float:
        """The time of kernels by elements that move so many bytes."""
        return kernels * self.launch + moved / (self.bandwidth * self.sweep)


class Link(NamedTuple):
    """What joins the ranks of a unit: the devices of a host, or the hosts.

    Attributes:
        name: of it.
        ranks: of a unit; 0 for as many as there are.
        bandwidth: bytes a second that each rank can send, while all do.
        fraction: of it that collectives reach.
        latency: seconds of a message.
        measured: what collectives were seen to take in steps, for so many "ranks": by op, rows of bytes and
            seconds; and the seconds of a "call".
    """

    name: str
    ranks: int
    bandwidth: float
    fraction: float = 0.8
    latency: float = 10e-6
    measured: Mapping[str, Any] = NOTHING

    @property
    def rate(self) -> float:
        """Bytes a second that a rank sends."""
        return self.bandwidth * self.fraction

    def seen(self, op: str, size: float, ranks: int) -> float | None:
        """Seconds that a collective over so many bytes was measured to take, if it was for so many ranks.

        >>> from weft.parallel.planner.clusters import Link
        >>> table = {"ranks": 2, "all_reduce": [[1000, 1e-5], [3000, 3e-5]]}
        >>> link = Link("shared memory", 0, 1e9, measured=table)
        >>> [round(1e6 * link.seen("all_reduce", size, 2)) for size in (10, 2000, 4000)]
        [10, 20, 40]
        """
        rows = self.measured.get("all_gather" if op in _LIKE_GATHERING else op)
        if not rows or self.measured.get("ranks") != ranks:
            return None
        for (less, sooner), (more, later) in pairwise(rows):
            if size <= more or more == rows[-1][0]:
                return float(max(sooner, sooner + (later - sooner) * (size - less) / (more - less)))
        return float(rows[0][1])


class Cluster(NamedTuple):
    """Devices, and the links between them from the nearest to the farthest.

    Attributes:
        name: of it.
        device: each of its ranks runs on one.
        links: of units of growing size.
        processors: of a host whose ranks share them; 0 where each rank has a device of its own.
    """

    name: str
    device: Device
    links: tuple[Link, ...]
    processors: int = 0


def known_clusters() -> list[str]:
    """The names of the clusters that come with weft.

    >>> from weft.parallel.planner.clusters import known_clusters
    >>> "dgx-a100" in known_clusters()
    True
    """
    files = resources.files("weft.parallel") / "clusters"
    return sorted(f.name.removesuffix(".toml") for f in files.iterdir() if f.name.endswith(".toml"))


def find_cluster(given: str | Path | Cluster) -> Cluster:
    """A cluster by its name, or from a file.

    >>> from weft.parallel.planner.clusters import find_cluster
    >>> find_cluster("dgx-h100").device.name
    'H100 80 GB'
    """
    if isinstance(given, Cluster):
        return given
    if not isinstance(given, str | Path):
        raise ArgumentError("plan", f"a cluster must be a name or a path, got {type(given).__name__}")
    text = str(given)
    if text.endswith(".toml"):
        return parse_cluster(Path(text).read_text("utf-8"), text)
    if text not in known_clusters():
        hint = "or give the path of a .toml file; weft plan --measure writes one of this machine"
        raise DomainError(
            "plan", f"clusters must be among {', '.join(known_clusters())}, got {text!r}", hint=hint
        )
    file = resources.files("weft.parallel") / "clusters" / f"{text}.toml"
    return parse_cluster(file.read_text("utf-8"), text)


def parse_cluster(text: str, path: str = "cluster") -> Cluster:
    """A cluster from the text of a file."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileError(
            "plan", f"{path} must be a TOML file of a cluster, got other text ({error})"
        ) from None
    links = found.pop("links", [])
    device = found.pop("device", {})
    if not (isinstance(links, list) and links):
        raise FileError("plan", f"{path} must have [[links]], got none")
    made = Cluster(
        **_checked(path, "cluster", {"device": None, "links": (), **found}, Cluster),
    )
    rows = tuple([Link(**_checked(path, "link", {"ranks": 0, **row}, Link)) for row in links])
    for row in rows:
        _check_measured(path, row.measured)
    sizes = [row.ranks for row in rows]
    if any(a == 0 or (b and b <= a) for a, b in pairwise(sizes)):
        raise FileError("plan", f"{path}: ranks of links must grow from one to the next, got {sizes}")
    return made._replace(device=Device(**_checked(path, "device", device, Device)), links=rows)


def _check_measured(path: str, measured: Any) -> None:
    """Raise unless it is seconds, or rows of bytes and seconds that grow."""
    message = f"{path}: measured must have numbers, or rows of bytes and seconds"
    if not isinstance(measured, Mapping):
        raise FileError("plan", f"{message}, got {measured!r}")
    for name, given in measured.items():
        flat = [x for row in given for x in row] if _is_table(given) else [given]
        if not all(type(x) in (int, float) and 0 <= x < float("inf") for x in flat):
            raise FileError("plan", f"{message}, got {name} = {given!r}")
        if _is_table(given) and any(b[0] <= a[0] for a, b in pairwise(given)):
            raise FileError("plan", f"{message} of more and more bytes, got {name} = {given!r}")


def _is_table(given: Any) -> bool:
    rows = isinstance(given, list) and len(given) > 0
    return rows and all(isinstance(row, list) and len(row) == 2 for row in given)


def _checked(path: str, what: str, given: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """The fields of a record, if it has them, and none is missing or no positive number."""
    known, needed = kind._fields, [f for f in kind._fields if f not in kind._field_defaults]
    for name, value in given.items():
        if name not in known:
            raise FileError("plan", f"{path}: fields of a {what} are {', '.join(known)}, got {name}")
        numbers = value.values() if isinstance(value, dict) else [value]
        if any(isinstance(x, bool | int | float) and not x >= 0 for x in numbers):
            raise FileError("plan", f"{path}: {name} of a {what} must not be negative, got {value}")
    missing = [name for name in needed if name not in given]
    if missing:
        raise FileError("plan", f"{path}: a {what} must have {', '.join(missing)}, got none")
    return dict(given)

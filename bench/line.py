"""How a run is set, and what it finds: one line for each case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from statistics import median, quantiles

from bench.case import Case
from bench.frameworks import environment_of


@dataclass(frozen=True)
class Settings:
    """How long to measure.

    Args:
        pythons: from the name of an environment to its interpreter.
        labels: only these, if any are given; ``jax*`` is all ways to use JAX.
        rounds: how often every worker is asked for a burst.
        burst: seconds that a burst should take.
        limit: seconds after which a step that does not end has failed.
        compile_limit: the same for a first step.
        urgent: whether what is timed runs before all other programs of the machine.
    """

    pythons: dict[str, str]
    labels: frozenset[str] = frozenset()
    rounds: int = 15
    burst: float = 0.1
    limit: float = 60.0
    compile_limit: float = 180.0
    urgent: bool = False

    def python(self, label: str) -> str:
        """The interpreter that a label runs in."""
        return self.pythons[environment_of(label)]

    def wanted(self, labels: Iterable[str]) -> list[str]:
        """Those of the labels that are to be run and whose environment is there."""
        return [
            label
            for label in labels
            if environment_of(label) in self.pythons
            and (not self.labels or any(fnmatch(label, pattern) for pattern in self.labels))
        ]


@dataclass
class Line:
    """What was found for one case: by label, samples in seconds (bytes for memory), and what failed.

    ``most`` is what weft may take, where that is the goal.
    """

    name: str
    goal: float | None
    unit: str = "s"
    samples: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)  # seconds of the first step
    beside: tuple[str, ...] = ()
    flops: float = 0.0
    bytes: float = 0.0
    most: float | None = None

    def median(self, label: str) -> float:
        """The median of a label."""
        return median(self.samples[label])

    def best(self, label: str) -> float:
        """The smallest sample of a label, which other programs on the machine disturb least."""
        return min(self.samples[label])

    def quartiles(self, label: str) -> tuple[float, float]:
        """The lower and the upper quartile of a label."""
        found = self.samples[label]
        if len(found) < 2:
            return found[0], found[0]
        low, _, high = quantiles(found, n=4)
        return low, high

    def best_peer(self) -> str | None:
        """The fastest of those that count."""
        peers = [n for n in self.samples if not n.startswith("weft") and n != "c" and n not in self.beside]
        return min(peers, key=self.median, default=None)

    def ratio(self, label: str = "weft") -> float | None:
        """The best peer's time over that of weft."""
        peer = self.best_peer()
        if peer is None or label not in self.samples:
            return None
        return self.median(peer) / self.median(label)


def line_of(case: Case) -> Line:
    """An empty line for a case."""
    return Line(case.name, case.goal, beside=case.beside, flops=float(case.flops), bytes=float(case.bytes))

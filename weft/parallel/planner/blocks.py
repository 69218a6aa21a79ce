"""What a block of a transformer takes on one rank: products, sweeps over memory, sums over ``model``.

Bytes are counted as kernels move them when what is by elements is fused: norms, the function inside with its
bias, dropout with the residual. Backward passes read what was saved and the gradient, and write a gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from weft.base.records import NamedTuple
from weft.parallel.planner.clusters import Cluster
from weft.parallel.planner.links import added, collective, ring_of
from weft.parallel.planner.memory import numbers_bytes
from weft.parallel.planner.setup import Setup
from weft.parallel.planner.transformer import Transformer


class Times(NamedTuple):
    """Seconds of one microbatch, and the bytes that it moves.

    Attributes:
        compute: of products and sweeps.
        sums: of collectives over ``model``.
        weights: of ``compute``, what makes gradients of weights, which no other rank waits for.
        bytes: sent over each link.
    """

    compute: float
    sums: float
    weights: float = 0.0
    bytes: Mapping[str, float] = MappingProxyType({})

    @property
    def total(self) -> float:
        """All of it."""
        return self.compute + self.sums

    def __add__(self, other: object) -> Times:
        assert isinstance(other, Times)
        times = self.compute + other.compute, self.sums + other.sums, self.weights + other.weights
        return Times(*times, added(self.bytes, other.bytes))

    def times(self, count: int) -> Times:
        """So often."""
        moved = {k: count * v for k, v in self.bytes.items()}
        return Times(count * self.compute, count * self.sums, count * self.weights, moved)


NOTHING = Times(0.0, 0.0)


class Blocks:
    """The times of the parts of a transformer, for one microbatch on one rank."""

    def __init__(self, model: Transformer, setup: Setup, cluster: Cluster) -> None:
        self.model, self.setup, self.cluster = model, setup, cluster
        self.device = cluster.device
        self.tokens = setup.micro * model.context
        self.width = setup.width_bytes

    # Blocks

    def forward(self) -> Times:
        """A block, forward."""
        attention = self._attention(1)
        products = [self._product(n, k) for n, k in self._sizes()]
        sweeps = self._stream(8 + (14 if self.model.dropout else 12)) + self._inside(1)
        return Times(sum(products) + attention + sweeps, 0.0) + self._sums(2)

    def backward(self) -> Times:
        """A block, backward, with what is computed again."""
        products = sum(self._product(n, k) for n, k in self._sizes())
        sweeps = self._stream(12 + (10 if self.model.dropout else 4)) + self._inside(2)
        found = Times(2 * products + self._attention(2) + sweeps, 0.0, products) + self._sums(2)
        if self.setup.recompute == "full":
            found += self.forward()
        elif self.setup.recompute == "attention" and not self.model.fused:
            found += Times(self._attention(1), 0.0)
        return found

    def _sizes(self) -> list[tuple[float, float]]:
        """Columns and depth of the products with weights, of this rank."""
        m, ranks = self.model, self.setup.model
        wide = m.inner * (2 if m.gated else 1)
        return [
            ((m.width + 2 * m.kv_width) / ranks, m.width),
            (m.width, m.width / ranks),
            (wide / ranks, m.width),
            (m.width, m.inner / ranks),
        ]

    def _product(self, columns: float, depth: float) -> float:
        rows = self.tokens
        moved = self.width * (rows * depth + depth * columns + rows * columns)
        return self.device.product_seconds(2 * rows * columns * depth, moved, self.setup.precision)

    def _attention(self, passes: int) -> float:
        """Scores, their softmax, and what is read by them; backward takes twice the products."""
        m, device = self.model, self.device
        heads, flops = m.heads / self.setup.model, 4 * self.tokens * m.context * m.width / self.setup.model
        scores = self.tokens * m.context * heads
        if m.fused:  # of what is ahead of a token nothing is computed; backward computes scores again
            work = 0.5 * flops * (1 if passes == 1 else 2.5)
            moved = passes * self.width * 4 * self.tokens * m.width / self.setup.model
            return device.product_seconds(work, moved, self.setup.precision, device.attention)
        moved = self.width * (scores + 2 * self.tokens * m.width / self.setup.model)
        products = 2 * passes * device.product_seconds(flops / 2, moved, self.setup.precision)
        sweeps = (2 if passes == 1 else 3) * self.width + ((2 * self.width + 1) if m.dropout else 0)
        return products + device.sweep_seconds(scores * sweeps, 2)

    def _stream(self, moved: int) -> float:
        """Norms, dropout and residuals; so many bytes an element of 16 bits."""
        part = self.setup.model if self.setup.sequence else 1
        total = moved * self.width / 2 * self.tokens * self.model.width / part
        return self.device.sweep_seconds(total, 4)

    def _inside(self, passes: int) -> float:
        """The function between the products."""
        arrays = (3 if self.model.gated else 2) if passes == 1 else (5 if self.model.gated else 3)
        total = arrays * self.width * self.tokens * self.model.inner / self.setup.model
        return self.device.sweep_seconds(total)

    def _sums(self, count: int) -> Times:
        """Sums over the axis ``model``: with the sequence cut, each is a gather and a scatter."""
        size = self.width * self.tokens * self.model.width
        ring = ring_of(self.setup.axes, "model")
        ops = ("all_gather", "reduce_scatter") if self.setup.sequence else ("all_reduce",)
        found = [collective(self.cluster, op, size, ring) for op in ops]
        each = Times(0.0, sum(f.seconds for f in found), 0.0, added(*[f.bytes for f in found]))
        return each.times(count)

    # Both ends

    def head(self) -> tuple[Times, Times]:
        """The logits and the loss, forward and backward."""
        m, ranks = self.model, self.setup.model
        product = self._product(m.vocab / ranks, m.width)
        logits = self.tokens * m.vocab / ranks
        there = Times(product + self.device.sweep_seconds(logits * (self.width + 12), 3), 0.0)
        back = Times(2 * product + self.device.sweep_seconds(logits * (self.width + 8), 2), 0.0, product)
        return there + self._sums(1), back + self._sums(1)

    def table(self) -> tuple[Times, Times]:
        """Looking tokens up, forward and backward."""
        seconds = self.device.sweep_seconds(2 * self.width * self.tokens * self.model.width, 2)
        return Times(seconds, 0.0) + self._sums(1), Times(seconds, 0.0, seconds)

    # Gradients

    def add_up(self, parameters: float) -> Times:
        """Adding the gradients of a microbatch to those of the ones before."""
        weights, gradients, _ = numbers_bytes(self.setup)
        seconds = self.device.sweep_seconds((weights + 2 * gradients) * parameters)
        return Times(seconds, 0.0, seconds)

"""From a transformer, a setup and a cluster to a plan: an event simulation of one pipeline.

All pipelines of the axis ``data`` do the same, and all ranks of ``model`` go in step; so one rank of each
stage is followed. What it does in which order is the table of ``weft.parallel.schedules``, how long each
action takes is summed up from its blocks. After the last backward pass gradients are summed over ``data``,
then weights are stepped.
"""

from __future__ import annotations

from functools import lru_cache

from weft.base.records import NamedTuple
from weft.parallel.planner.blocks import NOTHING, Blocks, Times
from weft.parallel.planner.clusters import Cluster
from weft.parallel.planner.links import Moved, added, collective, ring_of, send
from weft.parallel.planner.memory import (
    layer_activations,
    numbers_bytes,
    stage_layers,
    stage_parameters,
    state_bytes,
    working_bytes,
)
from weft.parallel.planner.plan import Event, Plan, Traffic
from weft.parallel.planner.setup import Setup, check_setup
from weft.parallel.planner.transformer import Transformer
from weft.parallel.schedules import BACKWARD, FORWARD, WEIGHTS, Schedule, Slot, schedule

_NAMES = {FORWARD: "forward", BACKWARD: "backward", WEIGHTS: "weights"}


@lru_cache(maxsize=64)
def table_of(name: str, ranks: int, microbatches: int, chunks: int) -> Schedule:
    """The table of a pipeline; a pipeline of one rank goes forward and backward by turns."""
    if ranks == 1:
        return schedule("1f1b", ranks=1, microbatches=microbatches)
    return schedule(name, ranks=ranks, microbatches=microbatches, stages=ranks * chunks)


class Costs(NamedTuple):
    """What the stages of a setup take, for one microbatch.

    Attributes:
        layers: blocks of each stage.
        parameters: of each stage, on one rank.
        forward, backward: times of each stage.
        again: seconds that a stage computes again, which are in ``backward``.
        shared: for each stage seconds in which it waits for weights and gradients that ``zero=3`` moves,
        forward
            and backward.
        hand_on: what it takes to hand a microbatch on to the next stage.
        gather: moves of ``zero=3`` in one microbatch of each stage.
    """

    layers: list[int]
    parameters: list[float]
    forward: list[Times]
    backward: list[Times]
    again: list[float]
    shared: list[tuple[float, float]]
    hand_on: Moved
    gather: list[Moved]


def costs_of(model: Transformer, setup: Setup, cluster: Cluster) -> Costs:
    """What the stages of a setup take."""
    blocks = Blocks(model, setup, cluster)
    stages = setup.pipe * setup.chunks
    layers = stage_layers(model.layers, stages)
    parameters = stage_parameters(model, setup, layers)
    there, back = blocks.forward(), blocks.backward()
    forward = [there.times(n) for n in layers]
    backward = [back.times(n) for n in layers]
    for stage, ends in ((0, blocks.table()), (-1, blocks.head())):
        forward[stage] += ends[0]
        backward[stage] += ends[1]
    if setup.microbatches > 1:
        backward = [b + blocks.add_up(p) for b, p in zip(backward, parameters, strict=True)]
    plain = Blocks(model, setup._replace(recompute="none"), cluster).backward()
    again = [n * (back.compute - plain.compute) for n in layers]
    gather, shared = [], []
    data = ring_of(setup.axes, "data")
    for p, f, b in zip(parameters, forward, backward, strict=True):
        if setup.zero < 3:
            gather.append(Moved(0.0, {}))
            shared.append((0.0, 0.0))
            continue
        weights = collective(cluster, "all_gather", setup.width_bytes * p, data)
        sums = collective(cluster, "reduce_scatter", numbers_bytes(setup)[1] * p, data)
        total = added(weights.bytes, weights.bytes, sums.bytes)
        gather.append(Moved(2 * weights.seconds + sums.seconds, total))
        both = weights.seconds + sums.seconds
        shared.append((max(0.0, weights.seconds - f.total), max(0.0, both - b.total)))
    parts = setup.model if setup.scatter or setup.sequence else 1
    size = setup.width_bytes * setup.micro * model.context * model.width / parts
    hand_on = send(cluster, size, ring_of(setup.axes, "pipe"))
    return Costs(layers, parameters, forward, backward, again, shared, hand_on, gather)


def predict(
    model: Transformer, setup: Setup, cluster: Cluster, name: str = "transformer", whole: bool = True
) -> Plan:
    """The plan of a training step.

    Args:
        model: what is trained.
        setup: on which mesh, and how.
        cluster: where.
        name: what the plan is called.
        whole: follow all microbatches. Otherwise those that begin and end a step, the ones between take as
        long as the
            last ones that were followed; that is much quicker where there are many.

    >>> from weft.parallel.planner.clusters import find_cluster
    >>> from weft.parallel.planner.predict import predict
    >>> from weft.parallel.planner.setup import Setup
    >>> from weft.parallel.planner.transformer import GPT3
    >>> setup = Setup(1536, data=16, model=8, pipe=8, chunks=2, schedule="interleaved")
    >>> plan = predict(GPT3, setup, find_cluster("dgx-a100"))
    >>> plan.ranks, 0.3 < plan.utilization < 0.6
    (1024, True)
    """
    check_setup(model, setup)
    return _Prediction(model, setup, cluster, name, whole).plan()


class _Prediction:
    def __init__(self, model: Transformer, setup: Setup, cluster: Cluster, name: str, whole: bool) -> None:
        self.model, self.setup, self.cluster, self.name = model, setup, cluster, name
        self.costs = costs_of(model, setup, cluster)
        followed = setup.microbatches
        if not whole and setup.schedule != "gpipe" and followed > 2 * setup.pipe:
            followed = 2 * setup.pipe + followed % setup.pipe
        self.followed = followed
        self.table = self._table(followed)
        self.own = [self._stages_of(rank) for rank in range(setup.pipe)]
        self.data = ring_of(setup.axes, "data")

    def _table(self, microbatches: int) -> Schedule:
        return table_of(self.setup.schedule, self.setup.pipe, microbatches, self.setup.chunks)

    def _between(self, slots: list[Slot], hand_on: float) -> float:
        """Seconds of the microbatches that were not followed."""
        left = self.setup.microbatches - self.followed
        if not left:
            return 0.0
        shorter = self._slots(hand_on, self._table(self.followed - self.setup.pipe))
        period = max(s.end for s in slots) - max(s.end for s in shorter)
        return left / self.setup.pipe * period

    def _stages_of(self, rank: int) -> list[int]:
        return [stage for stage, home in enumerate(self.table.homes) if home == rank]

    def plan(self) -> Plan:
        setup, cluster = self.setup, self.cluster
        slots = self._slots(self.costs.hand_on.seconds, self.table)
        between = self._between(slots, self.costs.hand_on.seconds)
        events = [self._event(slot) for slot in slots]
        ends = [max(s.end for s in slots if s.rank == r) for r in range(setup.pipe)]
        sums = [self._sum_gradients(r) for r in range(setup.pipe)]
        done = [self._summed(r, ends[r], sums[r].seconds, slots) for r in range(setup.pipe)]
        reduced = max(done) + between
        step = [self._optimizer(r) for r in range(setup.pipe)]
        gathers = [self._gather(r) for r in range(setup.pipe)]
        late = [self._late(r, gathers[r].seconds, slots) for r in range(setup.pipe)]
        total = reduced + max(a + b for a, b in zip(step, late, strict=True))
        rank = max(range(setup.pipe), key=lambda r: sum(s.end - s.start for s in slots if s.rank == r))
        parts = self._parts(rank, slots)
        hand_on = max(ends) + between - self._without_sends(slots, between)
        parts["send over pipe"] = hand_on
        exposed = done[rank] - ends[rank]
        parts["sum over data"] = exposed
        parts["optimizer"] = step[rank]
        parts["gather over data"] += late[rank]
        parts["bubble"] = total - sum(parts.values())
        for r in range(setup.pipe):
            start = max(done[r] - sums[r].seconds, 0.0) + between
            if sums[r].seconds:
                events.append(
                    Event(r, "sum of gradients", "sum over data", start, done[r] + between, "links")
                )
            events.append(Event(r, "optimizer", "optimizer", reduced, reduced + step[r]))
            if late[r]:
                at = reduced + step[r]
                events.append(Event(r, "gather of weights", "gather over data", at, at + late[r], "links"))
        traffic = self._traffic(rank, sums[rank], exposed, gathers[rank], late[rank], hand_on)
        precision = cluster.device.flops.get(setup.precision, 0.0)
        return Plan(
            self.name,
            str(setup),
            cluster.name,
            setup.ranks,
            total,
            {name: s for name, s in parts.items() if abs(s) > 1e-12},
            traffic,
            self.memory(),
            cluster.device.memory,
            self.model.flops(setup.batch),
            precision,
            events,
        )

    # Time

    def _without_sends(self, slots: list[Slot], between: float) -> float:
        """When the last rank would be done, if sending took no time."""
        if not self.costs.hand_on.seconds:
            return max(s.end for s in slots) + between
        plain = self._slots(0.0, self.table)
        return max(s.end for s in plain) + self._between(plain, 0.0)

    def _slots(self, hand_on: float, table: Schedule) -> list[Slot]:
        c = self.costs
        forward = [f.total + s[0] for f, s in zip(c.forward, c.shared, strict=True)]
        backward = [b.total + s[1] for b, s in zip(c.backward, c.shared, strict=True)]
        weights = [b.weights for b in c.backward]
        if table.splits:
            backward = [b - w for b, w in zip(backward, weights, strict=True)]
        return table.timeline(forward, backward, weights, hand_on)

    def _event(self, slot: Slot) -> Event:
        kind, stage, m = slot.action
        what = f"{_NAMES[kind]} {m}" + (f" of stage {stage}" if self.setup.chunks > 1 else "")
        return Event(slot.rank, what, _NAMES[kind], slot.start, slot.end)

    def _parts(self, rank: int, slots: list[Slot]) -> dict[str, float]:
        """What the rank does in its actions."""
        c, count = self.costs, self.setup.microbatches
        own = self.own[rank]
        again = sum(c.again[s] for s in own)
        sums = sum(c.forward[s].sums + c.backward[s].sums for s in own)
        return {
            "forward": count * sum(c.forward[s].compute for s in own),
            "backward": count * (sum(c.backward[s].compute for s in own) - again),
            "recompute": count * again,
            "sum over model": count * sums,
            "gather over data": count * sum(sum(c.shared[s]) for s in own),
        }

    def _sum_gradients(self, rank: int) -> Moved:
        if self.setup.zero == 3:
            return Moved(0.0, {})  # each microbatch sums its own
        size = numbers_bytes(self.setup)[1] * sum(self.costs.parameters[s] for s in self.own[rank])
        op = "all_reduce" if self.setup.zero == 0 else "reduce_scatter"
        return collective(self.cluster, op, size, self.data)

    def _summed(self, rank: int, end: float, seconds: float, slots: list[Slot]) -> float:
        """When a rank has summed its gradients: beside the last backward passes, if these overlap."""
        if not self.setup.overlap or not seconds:
            return end + seconds
        last = self.followed - 1
        own = [
            s for s in slots if s.rank == rank and s.action.microbatch == last and s.action.kind != FORWARD
        ]
        window = sum(s.end - s.start for s in own)
        blocks = max(1, sum(self.costs.layers[s] for s in self.own[rank]))
        return max(end + seconds / blocks, end - window + seconds)

    def _optimizer(self, rank: int) -> float:
        """Read weights, gradients and moments, write them: of half precision 30 bytes, else 28."""
        parameters = sum(self.costs.parameters[s] for s in self.own[rank])
        weights, gradients, state = numbers_bytes(self.setup)
        moved = (gradients + 2 * state + weights) if self.setup.precision != "f32" else 28
        share = self.setup.data if self.setup.zero else 1
        return self.cluster.device.sweep_seconds(moved * parameters / share, 2)

    def _gather(self, rank: int) -> Moved:
        if self.setup.zero not in (1, 2):
            return Moved(0.0, {})
        size = self.setup.width_bytes * sum(self.costs.parameters[s] for s in self.own[rank])
        return collective(self.cluster, "all_gather", size, self.data)

    def _late(self, rank: int, seconds: float, slots: list[Slot]) -> float:
        """What of gathering the weights is not hidden by the first forward pass of the next step."""
        if not self.setup.overlap or not seconds:
            return seconds
        first = sum(self.costs.forward[s].total for s in self.own[rank])
        blocks = max(1, sum(self.costs.layers[s] for s in self.own[rank]))
        return max(seconds / blocks, seconds - first)

    # Bytes

    def _traffic(
        self, rank: int, sums: Moved, exposed: float, gather: Moved, late: float, hand_on: float
    ) -> list[Traffic]:
        c, own, count = self.costs, self.own[rank], self.setup.microbatches
        total = sum([c.forward[s] + c.backward[s] for s in own], NOTHING).times(count)
        found = [Traffic("sum over model", dict(total.bytes), total.sums, total.sums)]
        hops = 2 * len(own) * count
        sent = {k: hops * n for k, n in c.hand_on.bytes.items()}
        found.append(Traffic("send over pipe", sent, hops * c.hand_on.seconds, hand_on))
        found.append(Traffic("sum over data", sums.bytes, sums.seconds, exposed))
        every = [{k: count * n for k, n in c.gather[s].bytes.items()} for s in own]
        moved = added(gather.bytes, *every)
        seconds = gather.seconds + count * sum(c.gather[s].seconds for s in own)
        waited = late + count * sum(sum(c.shared[s]) for s in own)
        found.append(Traffic("gather over data", moved, seconds, waited))
        return [row for row in found if row.seconds]

    # Memory

    def memory(self) -> dict[str, float]:
        """Bytes of the rank that needs most."""
        every = [self._memory_of(r, n) for r, n in enumerate(self._alive())]
        return max(every, key=lambda found: sum(found.values()))

    def _alive(self) -> tuple[int, ...]:
        size = layer_activations(self.model, self.setup)
        stream = self.setup.width_bytes * self.setup.micro * self.model.context * self.model.width
        sizes = [int(n * size) for n in self.costs.layers]
        sizes[0] += self.setup.micro * self.model.context * 8  # the tokens
        sizes[-1] += int(2 * stream / (self.setup.model if self.setup.sequence else 1))
        return self.table.alive(sizes)

    def _memory_of(self, rank: int, alive: int) -> dict[str, float]:
        parameters = sum(self.costs.parameters[s] for s in self.own[rank])
        is_last = len(self.table.homes) - 1 in self.own[rank]
        return {
            **state_bytes(self.setup, parameters),
            "activations": float(alive),
            "working": working_bytes(self.model, self.setup, is_last),
        }

"""A search over meshes: all that can be, by a quick estimate; the best of them by their plans.

The estimate takes the time of a microbatch on the slowest rank, and the bubble of a schedule by its formula;
the plan follows the schedule's table. A few thousand candidates take seconds, and no solver is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

from weft.base.public import public
from weft.base.records import NamedTuple
from weft.errors import DomainError
from weft.parallel.planner.clusters import Cluster
from weft.parallel.planner.links import collective, ring_of
from weft.parallel.planner.memory import layer_activations, numbers_bytes, state_bytes, working_bytes
from weft.parallel.planner.plan import Plan
from weft.parallel.planner.predict import Costs, costs_of, predict
from weft.parallel.planner.setup import RECOMPUTE, Setup
from weft.parallel.planner.transformer import Transformer
from weft.schedule.explanation import show_seconds

_MICRO = (1, 2, 4, 8)
_CHUNKS = (1, 2, 3, 4, 5, 6, 8)
_RESERVE = 0.1  # of the memory of a device, for what no plan counts: the driver, messages, gaps
_CLOSE = 1.25  # times the best estimate: what is worse is not planned


class Found(NamedTuple):
    """What a search found.

    Attributes:
        setup: a mesh, and how it is used.
        plan: of it.
        reason: what makes it better than the next one.
    """

    setup: Setup
    plan: Plan
    reason: str


class Estimate(NamedTuple):
    """A quick estimate.

    Attributes:
        seconds: of a step.
        memory: bytes of a rank.
    """

    seconds: float
    memory: float


def estimate(model: Transformer, setup: Setup, cluster: Cluster) -> Estimate:
    """About what a plan would say, without following a schedule.

    >>> from weft.parallel.planner.clusters import find_cluster
    >>> from weft.parallel.planner.predict import predict
    >>> from weft.parallel.planner.search import estimate
    >>> from weft.parallel.planner.setup import Setup
    >>> from weft.parallel.planner.transformer import GPT3
    >>> dgx, setup = find_cluster("dgx-a100"), Setup(1536, data=16, model=8, pipe=8)
    >>> about, plan = estimate(GPT3, setup, dgx), predict(GPT3, setup, dgx)
    >>> abs(about.seconds / plan.seconds - 1) < 0.05, abs(about.memory / plan.memory_bytes - 1) < 0.05
    (True, True)
    """
    costs = costs_of(model, setup, cluster)
    ranks = _by_rank(costs, setup)
    turn = max(sum(row) for row in ranks) + 2 * costs.hand_on.seconds * (
        setup.chunks if setup.pipe > 1 else 0
    )
    waits = _waits(costs, setup) * (setup.pipe - 1)
    parameters = max(sum(costs.parameters[s] for s in own) for own in _owners(setup))
    weights, gradients, state = numbers_bytes(setup)
    data = ring_of(setup.axes, "data")
    ends = 0.0
    if setup.zero < 3:
        ends = collective(cluster, "reduce_scatter", gradients * parameters, data).seconds
        ends += collective(
            cluster, "all_gather", (weights if setup.zero else gradients) * parameters, data
        ).seconds
        ends = max(0.0, ends - (max(row[1] for row in ranks) if setup.overlap else 0.0))
    ends += cluster.device.sweep_seconds(
        (gradients + 2 * state + weights) * parameters / (setup.data if setup.zero else 1)
    )
    return Estimate(setup.microbatches * turn + waits + ends, _memory(model, setup, costs))


def _owners(setup: Setup) -> list[list[int]]:
    """The stages of each rank."""
    stages = setup.pipe * setup.chunks
    return [list(range(rank, stages, setup.pipe)) for rank in range(setup.pipe)]


def _by_rank(costs: Costs, setup: Setup) -> list[tuple[float, float]]:
    """Seconds of a microbatch, forward and backward, of each rank."""
    found = []
    for own in _owners(setup):
        there = sum(costs.forward[s].total + costs.shared[s][0] for s in own)
        found.append((there, sum(costs.backward[s].total + costs.shared[s][1] for s in own)))
    return found


def _waits(costs: Costs, setup: Setup) -> float:
    """Seconds of the bubble for each rank but one."""
    stages = len(costs.forward)
    there = sum(f.total for f in costs.forward) / stages
    back = sum(b.total for b in costs.backward) / stages
    if setup.schedule == "zero-bubble":
        weights = sum(b.weights for b in costs.backward) / stages
        return max(0.0, there + back - 2 * weights)
    return there + back


def _memory(model: Transformer, setup: Setup, costs: Costs) -> float:
    pipe, chunks, count = setup.pipe, setup.chunks, setup.microbatches
    first = {
        "gpipe": count * chunks,
        "1f1b": min(count, pipe) * chunks,
        "zero-bubble": min(count, pipe) * chunks,
        "interleaved": min(count * chunks, pipe * chunks + pipe - 1),
    }[setup.schedule]
    last = {"1f1b": chunks, "interleaved": min(count * chunks, (chunks - 1) * pipe + 1)}
    size = max(costs.layers) * layer_activations(model, setup)
    parameters = max(sum(costs.parameters[s] for s in own) for own in _owners(setup))
    state = sum(state_bytes(setup, parameters).values())
    ends = {pipe == 1: first, True: last.get(setup.schedule, first)}  # of the first rank, and of the last
    return max(state + alive * size + working_bytes(model, setup, is_last) for is_last, alive in ends.items())


def candidates(model: Transformer, ranks: int, batch: int, precision: str = "bf16") -> Iterator[Setup]:
    """All setups that a search looks at."""
    for width in _divisors(ranks):
        if model.heads % width or width > model.heads:
            continue
        for pipe in _divisors(ranks // width):
            data = ranks // width // pipe
            if batch % data or (model.layers % pipe and (model.layers + 2) % pipe) or pipe > model.layers:
                continue
            for micro in _MICRO:
                if (batch // data) % micro:
                    continue
                setup = Setup(batch, data, width, pipe, micro, precision=precision)
                yield from _ways(model, setup)


def _ways(model: Transformer, setup: Setup) -> Iterator[Setup]:
    again = RECOMPUTE if not model.fused else ("none", "full")
    for zero in (0, 1, 2, 3) if setup.data > 1 else (0,):
        if zero == 3 and setup.pipe > 1:
            continue  # weights would be gathered for each microbatch of each stage
        if zero == 2 and setup.pipe > 1 and setup.microbatches > 1:
            continue  # gradients are whole until the last microbatch was added
        for recompute in again:
            made = setup._replace(zero=zero, recompute=recompute)
            if setup.pipe == 1:
                yield made
                continue
            yield made
            yield made._replace(schedule="zero-bubble")
            for chunks in _CHUNKS[1:]:
                stages = setup.pipe * chunks
                if setup.microbatches % setup.pipe == 0 and stages in _near(model.layers, stages):
                    yield made._replace(schedule="interleaved", chunks=chunks)


def _near(layers: int, stages: int) -> list[int]:
    return [stages] if layers % stages == 0 or (layers + 2) % stages == 0 else []


def _divisors(n: int) -> list[int]:
    return [k for k in range(1, n + 1) if n % k == 0]


@public
def search(
    model: Transformer,
    ranks: int,
    batch: int,
    cluster: Cluster,
    *,
    memory: float | None = None,
    most: int = 5,
    precision: str = "bf16",
    name: str = "transformer",
) -> list[Found]:
    """The best meshes for a model on so many ranks, each with the reason why it is better than the next.

    Args:
        model: what is trained.
        ranks: how many devices there are.
        batch: sequences of a step.
        cluster: of the devices.
        memory: bytes that a rank may use; by default nine tenths of what its device has.
        most: how many meshes are given, at most; of each the best way to use it.
        precision: of products.
        name: of the plans.

    >>> from weft.parallel.planner.clusters import find_cluster
    >>> from weft.parallel.planner.search import search
    >>> from weft.parallel.planner.transformer import Transformer
    >>> small = Transformer(24, 1024, 16, 1024, 50257)
    >>> best, *others = search(small, 8, 512, find_cluster("dgx-a100"), most=2)
    >>> best.setup.mesh
    'data=8'
    """
    limit = memory if memory is not None else (1 - _RESERVE) * cluster.device.memory
    rated = []
    least = float("inf")
    for setup in candidates(model, ranks, batch, precision):
        about = estimate(model, setup, cluster)
        least = min(least, about.memory)
        if about.memory <= limit:
            rated.append((about.seconds, setup))
    if not rated:
        needs = "no mesh divides so many ranks, this batch, the heads and the layers"
        if least < float("inf"):
            needs = f"the smallest needs {least / 1e9:.1f} GB of {limit / 1e9:.1f} GB"
        raise DomainError(
            "plan", f"a mesh must fit into the memory of a device, got none: {needs}", hint="more ranks"
        )
    rated.sort(key=lambda row: row[0])
    return _explained(_planned(model, cluster, rated, limit, most, name))


def _planned(
    model: Transformer, cluster: Cluster, rated: list[tuple[float, Setup]], limit: float, most: int, name: str
) -> list[tuple[Setup, Plan]]:
    """Plans of the best, one for each mesh, the best first."""
    found: dict[str, list[tuple[Setup, Plan]]] = {}
    for seconds, setup in rated:
        if seconds > _CLOSE * rated[0][0] and len(found) >= most:
            break
        if len(found) >= 2 * most and setup.mesh not in found:
            continue
        if len(found.get(setup.mesh, ())) >= 3:
            continue  # of each mesh the three that look best
        plan = predict(model, setup, cluster, name, whole=False)
        if plan.memory_bytes <= limit:
            found.setdefault(setup.mesh, []).append((setup, plan))
    best = [min(rows, key=lambda row: row[1].seconds) for rows in found.values()]
    return sorted(best, key=lambda row: row[1].seconds)[:most]


def _explained(rows: list[tuple[Setup, Plan]]) -> list[Found]:
    found = []
    for i, (setup, plan) in enumerate(rows):
        reason = compared(plan, rows[i + 1][1]) if i + 1 < len(rows) else ""
        found.append(Found(setup, plan, reason))
    return found


def compared(plan: Plan, other: Plan) -> str:
    """What makes a plan quicker than another, and what it pays for that."""
    parts = {
        name: other.parts.get(name, 0.0) - plan.parts.get(name, 0.0) for name in {*plan.parts, *other.parts}
    }
    gains = sorted(((s, n) for n, s in parts.items() if s > 0.002 * plan.seconds), reverse=True)[:2]
    losses = sorted((s, n) for n, s in parts.items() if s < -0.002 * plan.seconds)[:1]
    if not gains:
        return "as quick as the next"
    text = " and ".join(f"{show_seconds(s)} less {n}" for s, n in gains)
    return text + "".join(f", for {show_seconds(-s)} more {n}" for s, n in losses)

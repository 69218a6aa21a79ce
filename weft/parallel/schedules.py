"""Schedules of a pipeline: tables that say which rank does what in which order, checked before anything runs.

A stage is a part of the model; a microbatch is a part of the batch. ``F`` is the forward pass of a microbatch
through a stage, ``B`` its backward pass; where that is cut in two, ``B`` gives the gradient of the stage's
input and ``W`` those of its weights. Before an action a rank receives what the stage before (of ``F``) or
behind (of ``B``) made of the microbatch; after it, it sends on. Sends do not wait, receives do.

GPipe is of Huang and others ("GPipe", 2019), 1F1B of Narayanan and others ("PipeDream", 2019), the
interleaved one of Narayanan and others ("Efficient large-scale language model training on GPU clusters using
Megatron-LM", 2021), and the last of Qi and others ("Zero bubble pipeline parallelism", 2023; their ZB-H1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from weft.base.lazy import cached_property
from weft.base.records import NamedTuple
from weft.errors import DomainError, ParallelError

FORWARD, BACKWARD, WEIGHTS = "F", "B", "W"


class Action(NamedTuple):
    """What a rank does at a time: the pass of a microbatch through a stage.

    Attributes:
        kind: "F" forward, "B" backward, "W" the gradients of the weights where these are apart.
        stage: of the model.
        microbatch: of the batch.

    >>> from weft import parallel as par
    >>> print(par.Action("F", 1, 3))
    F3 of stage 1
    """

    kind: str
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch} of stage {self.stage}"


class Slot(NamedTuple):
    """An action with its time.

    Attributes:
        rank: that runs it.
        action: what it is.
        start: when it begins.
        end: when it is done.
    """

    rank: int
    action: Action
    start: float
    end: float


class Schedule:
    """A table of actions: for each rank of a pipeline those that it runs, in order. Prints as a drawing.

    Made by ``par.schedule``, or by hand; ``check`` says whether it can run.

    Args:
        name: what it is called.
        rows: for each rank its actions; each may be given as a tuple of kind, stage and microbatch.

    Attributes:
        name: what it is called.
        rows: for each rank its actions.
        stages: how many stages there are.
        microbatches: how many microbatches there are.

    >>> from weft import parallel as par
    >>> print(par.schedule("1f1b", ranks=2, microbatches=3))
    1f1b: 2 ranks, 2 stages, 3 microbatches; idle 25%; alive 2, 1
    rank 0  F0 F1 .. B0 F2 B1 .. B2
    rank 1  .. F0 B0 F1 B1 F2 B2 ..
    """

    def __init__(self, name: str, rows: Sequence[Sequence[Action | tuple[str, int, int]]]) -> None:
        self.name = name
        self.rows = tuple([tuple([Action(*action) for action in row]) for row in rows])
        every = [action for row in self.rows for action in row]
        self.stages = max([a.stage for a in every], default=-1) + 1
        self.microbatches = max([a.microbatch for a in every], default=-1) + 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and (self.name, self.rows) == (other.name, other.rows)

    def __hash__(self) -> int:
        return hash((self.name, self.rows))

    def __repr__(self) -> str:
        return f"<Schedule {self.name}: {self._sizes()}>"

    def __str__(self) -> str:
        return drawn(self)

    def _sizes(self) -> str:
        counts = {"rank": len(self.rows), "stage": self.stages, "microbatch": self.microbatches}
        plurals = {"microbatch": "es"}
        return ", ".join(f"{n} {word}{plurals.get(word, 's') * (n != 1)}" for word, n in counts.items())

    @cached_property
    def splits(self) -> bool:
        """Whether the gradients of weights are actions of their own."""
        return any(action.kind == WEIGHTS for row in self.rows for action in row)

    @cached_property
    def homes(self) -> tuple[int, ...]:
        """For each stage the rank that runs it."""
        found = {action.stage: rank for rank, row in enumerate(self.rows) for action in row}
        return tuple([found[stage] for stage in range(self.stages)])

    def needs(self, action: Action) -> tuple[Action, ...]:
        """The actions whose results another one takes.

        >>> from weft import parallel as par
        >>> table = par.schedule("gpipe", ranks=2, microbatches=1)
        >>> table.needs(par.Action("B", 0, 0))
        (Action(kind='F', stage=0, microbatch=0), Action(kind='B', stage=1, microbatch=0))
        """
        kind, stage, m = action
        if kind == FORWARD:
            return (Action(FORWARD, stage - 1, m),) if stage else ()
        if kind == WEIGHTS:
            return (Action(BACKWARD, stage, m),)
        own = Action(FORWARD, stage, m)
        return (own,) if stage == self.stages - 1 else (own, Action(BACKWARD, stage + 1, m))

    def check(self) -> Schedule:
        """Raise unless the table can run to its end: itself.

        Every stage must be on one rank, every microbatch must go forward and backward through it once, and
        ranks that each run their actions in order, waiting for what others send, must get to the end.
        """
        _check_complete(self)
        self.timeline()
        return self

    def timeline(
        self,
        forward: float | Sequence[float] = 1.0,
        backward: float | Sequence[float] = 1.0,
        weights: float | Sequence[float] = 1.0,
        send: float = 0.0,
    ) -> list[Slot]:
        """When each action runs, in the order of their beginnings; raises for ranks that wait in vain.

        Args:
            forward: how long an ``F`` takes, or for each stage how long.
            backward: likewise ``B``; where weights are not apart it is all of the backward pass.
            weights: likewise ``W``.
            send: how long something takes from one rank to another.
        """
        return _Run(self, {FORWARD: forward, BACKWARD: backward, WEIGHTS: weights}, send).slots()

    def bubble(
        self,
        forward: float | Sequence[float] = 1.0,
        backward: float | Sequence[float] = 1.0,
        weights: float | Sequence[float] = 1.0,
        send: float = 0.0,
    ) -> float:
        """The part of the time in which ranks wait.

        >>> from weft import parallel as par
        >>> par.schedule("gpipe", ranks=4, microbatches=4).bubble(1, 1)
        0.4285714285714286
        """
        slots = self.timeline(forward, backward, weights, send)
        total = max([slot.end for slot in slots], default=0.0) * len(self.rows)
        return 1 - sum(slot.end - slot.start for slot in slots) / total if total else 0.0

    def alive(self, sizes: Sequence[int] | None = None, late: Sequence[int] | None = None) -> tuple[int, ...]:
        """For each rank, of how many microbatches it keeps activations at most, or how many bytes these have.

        A stage keeps what its forward pass made until its backward pass is done, that of weights included.

        Args:
            sizes: the bytes that each stage keeps of a microbatch; without, each counts 1.
            late: of these, the bytes that a ``W`` of its own needs; by default all of them.

        >>> from weft import parallel as par
        >>> par.schedule("gpipe", ranks=2, microbatches=4).alive()
        (4, 4)
        >>> par.schedule("1f1b", ranks=2, microbatches=4).alive([100, 50])
        (200, 50)
        """
        whole = [1] * self.stages if sizes is None else sizes
        kept = [0] * self.stages if not self.splits else whole if late is None else late
        found = []
        for row in self.rows:
            now = most = 0
            for kind, stage, _ in row:
                change = {FORWARD: whole[stage], BACKWARD: kept[stage] - whole[stage], WEIGHTS: -kept[stage]}
                now += change[kind]
                most = max(most, now)
            found.append(most)
        return tuple(found)


# Checks


def _check_complete(table: Schedule) -> None:
    """Raise unless every action that there must be is there once, in its order and on its rank."""
    homes: dict[int, int] = {}
    places: dict[Action, tuple[int, int]] = {}
    for rank, row in enumerate(table.rows):
        for at, action in enumerate(row):
            kind, stage, microbatch = action
            if kind not in (FORWARD, BACKWARD, WEIGHTS) or stage < 0 or microbatch < 0:
                raise _refused(
                    table, f"an action is F, B or W, numbers are from 0, got {tuple(action)}", rank
                )
            if homes.setdefault(stage, rank) != rank:
                where = f"rank {homes[stage]} runs others of that stage"
                raise _refused(table, f"a stage must be on one rank, got {action}, and {where}", rank)
            if action in places:
                raise _refused(table, f"an action must be there once, got {action} twice", rank)
            places[action] = rank, at
    kinds = (FORWARD, BACKWARD, WEIGHTS) if table.splits else (FORWARD, BACKWARD)
    for stage in range(table.stages):
        for m in range(table.microbatches):
            for kind in kinds:
                _check_action(table, Action(kind, stage, m), places, homes)


def _check_action(
    table: Schedule, action: Action, places: Mapping[Action, tuple[int, int]], homes: Mapping[int, int]
) -> None:
    if action not in places:
        users = [a for a in places if action in table.needs(a)]
        rank = places[users[0]][0] if users else homes.get(action.stage)
        waits = f"{users[0]} waits for it" if users else "every microbatch goes through every stage"
        raise _refused(table, f"{action} is missing: {waits}", rank)
    rank, at = places[action]
    for need in table.needs(action):
        if need in places and places[need][0] == rank and places[need][1] > at:
            raise _refused(table, f"{action} must come after {need}", rank)


def _refused(table: Schedule, message: str, rank: int | None = None) -> ParallelError:
    where = "" if rank is None else f"rank {rank}: "
    return ParallelError("schedule", f"{where}{message} (in {table.name!r})")


class _Run:
    """A table while it is being run: each rank goes through its row, and waits for what others send."""

    def __init__(self, table: Schedule, costs: Mapping[str, float | Sequence[float]], send: float) -> None:
        self.table, self.costs, self.send = table, costs, send
        self.ends: dict[Action, float] = {}
        self.ranks = {action: rank for rank, row in enumerate(table.rows) for action in row}

    def slots(self) -> list[Slot]:
        rows = self.table.rows
        at, clock = [0] * len(rows), [0.0] * len(rows)
        found: list[Slot] = []
        moved = True
        while moved:
            moved = False
            for rank, row in enumerate(rows):
                while at[rank] < len(row) and (ready := self._ready(row[at[rank]], rank)) is not None:
                    action = row[at[rank]]
                    start = max(clock[rank], ready)
                    clock[rank] = self.ends[action] = start + self._cost(action)
                    found.append(Slot(rank, action, start, clock[rank]))
                    at[rank] += 1
                    moved = True
        if any(i < len(row) for i, row in zip(at, rows, strict=True)):
            raise self._stuck(at)
        return sorted(found, key=lambda slot: (slot.start, slot.rank))

    def _ready(self, action: Action, rank: int) -> float | None:
        """When what an action takes is there; None if that is not known yet."""
        needed = self.table.needs(action)
        if not all(need in self.ends for need in needed):
            return None
        return max([self.ends[n] + self.send * (self.ranks[n] != rank) for n in needed], default=0.0)

    def _cost(self, action: Action) -> float:
        cost = self.costs[action.kind]
        return float(cost[action.stage]) if isinstance(cost, Sequence) else float(cost)

    def _stuck(self, at: Sequence[int]) -> ParallelError:
        lines = []
        for rank, row in enumerate(self.table.rows):
            if at[rank] == len(row):
                lines.append(f"  rank {rank}: has ended")
                continue
            action = row[at[rank]]
            missing = next(need for need in self.table.needs(action) if need not in self.ends)
            where = f"on rank {self.ranks[missing]}" if missing in self.ranks else "which nobody runs"
            lines.append(f"  rank {rank}: {action} waits for {missing} {where}")
        message = f"ranks must not wait for each other forever, in {self.table.name!r} they do:"
        return ParallelError("schedule", "\n".join([message, *lines]), hint="change the order of the actions")


# Drawing


def drawn(table: Schedule) -> str:
    """A table as text: a line for each rank, a column for each unit of time, dots where it waits."""
    slots = table.timeline()
    columns = int(max([slot.end for slot in slots], default=0))
    several = table.stages > len(table.rows)
    cells = [["."] * columns for _ in table.rows]
    for rank, (kind, stage, m), start, _ in slots:
        cells[rank][int(start)] = f"{kind}{stage}.{m}" if several else f"{kind}{m}"
    width = max([len(cell) for row in cells for cell in row], default=1)
    label = len(f"rank {len(table.rows) - 1}")
    lines = [
        f"{f'rank {r}':<{label}}  " + " ".join("." * width if c == "." else f"{c:<{width}}" for c in row)
        for r, row in enumerate(cells)
    ]
    alive = ", ".join(map(str, table.alive()))
    head = f"{table.name}: {table._sizes()}; idle {table.bubble():.0%}; alive {alive}"
    return "\n".join([head, *[line.rstrip() for line in lines]])


# The usual ones


def schedule(name: str, *, ranks: int, microbatches: int, stages: int | None = None) -> Schedule:
    """One of the usual tables: "gpipe", "1f1b", "interleaved" or "zero-bubble".

    Args:
        name: which one.
        ranks: of the pipeline.
        microbatches: of a rank's part of the batch.
        stages: of the model, a multiple of the ranks; by default as many, twice that if interleaved. Each
            rank has neighbouring ones; if interleaved, each hands on to the next rank after every stage.

    >>> from weft import parallel as par
    >>> print(par.schedule("zero-bubble", ranks=2, microbatches=3))
    zero-bubble: 2 ranks, 2 stages, 3 microbatches; idle 10%; alive 2, 2
    rank 0  F0 F1 .. B0 W0 F2 B1 W1 B2 W2
    rank 1  .. F0 B0 F1 B1 W0 F2 B2 W1 W2
    """
    if name not in TABLES:
        raise DomainError("schedule", f"must be one of {', '.join(TABLES)}, got {name!r}")
    for what, number in {"ranks": ranks, "microbatches": microbatches}.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise DomainError("schedule", f"{what} must be a positive int, got {number!r}")
    count = stages if stages is not None else 2 * ranks if name == "interleaved" and ranks > 1 else ranks
    if isinstance(count, bool) or not isinstance(count, int) or count < 1 or count % ranks:
        raise DomainError("schedule", f"stages must be a multiple of the {ranks} ranks, got {stages!r}")
    if name == "interleaved" and microbatches > ranks and microbatches % ranks:
        message = (
            f"the {ranks} ranks must divide the microbatches of an interleaved table, got {microbatches}"
        )
        raise DomainError("schedule", message, hint=f"{microbatches - microbatches % ranks} microbatches")
    rows = TABLES[name](ranks, microbatches, count // ranks)
    return Schedule(name, rows).check()


Row = list[Action]


def _whole(make: Callable[[int, int, int], Row]) -> Callable[[int, int, int], list[Row]]:
    """Tables in which all stages of a rank are neighbours and run one after another."""

    def rows(ranks: int, microbatches: int, chunks: int) -> list[Row]:
        return [list(_spread(make(r, ranks, microbatches), chunks)) for r in range(ranks)]

    return rows


def _spread(row: Row, chunks: int) -> Iterator[Action]:
    for kind, rank, m in row:
        own = range(rank * chunks, (rank + 1) * chunks)
        for stage in own if kind == FORWARD else reversed(own):
            yield Action(kind, stage, m)


def _gpipe(rank: int, ranks: int, microbatches: int) -> Row:
    order = range(microbatches)
    return [Action(FORWARD, rank, m) for m in order] + [Action(BACKWARD, rank, m) for m in order]


def _one_by_one(rank: int, ranks: int, microbatches: int) -> Row:
    """As many forward passes as stages are left, then one backward for each forward."""
    forward = [Action(FORWARD, rank, m) for m in range(microbatches)]
    backward = [Action(BACKWARD, rank, m) for m in range(microbatches)]
    return _alternating(forward, backward, ranks - rank - 1)


def _alternating(forward: Row, backward: Row, first: int) -> Row:
    """Some forward passes, then one and one, then the backward passes that are left."""
    first = min(first, len(forward))
    row = forward[:first]
    for one, other in zip(forward[first:], backward, strict=False):
        row += [one, other]
    return row + backward[len(forward) - first :]


def _zero_bubble(rank: int, ranks: int, microbatches: int) -> Row:
    """Likewise; rank r puts off r gradients of weights, and has them to do where it would wait."""
    row: Row = []
    done = 0
    for action in _one_by_one(rank, ranks, microbatches):
        row.append(action)
        if action.kind == BACKWARD and action.microbatch >= rank:
            row.append(Action(WEIGHTS, rank, done))
            done += 1
    return row + [Action(WEIGHTS, rank, m) for m in range(done, microbatches)]


def _interleaved(ranks: int, microbatches: int, chunks: int) -> list[Row]:
    """Every rank has several stages, of which each is followed by one of the next rank.

    Microbatches go in groups of as many as there are ranks through one stage of a rank after another.
    """
    groups = [range(g, min(g + ranks, microbatches)) for g in range(0, microbatches, ranks)]
    rows = []
    for rank in range(ranks):
        own = range(rank, ranks * chunks, ranks)
        forward = [Action(FORWARD, s, m) for group in groups for s in own for m in group]
        backward = [Action(BACKWARD, s, m) for group in groups for s in reversed(own) for m in group]
        first = 2 * (ranks - rank - 1) + (chunks - 1) * ranks
        rows.append(_alternating(forward, backward, first))
    return rows


TABLES: Mapping[str, Callable[[int, int, int], list[Row]]] = {
    "gpipe": _whole(_gpipe),
    "1f1b": _whole(_one_by_one),
    "interleaved": _interleaved,
    "zero-bubble": _whole(_zero_bubble),
}

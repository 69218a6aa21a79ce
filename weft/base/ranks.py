"""Ranks: the processes that run one program together, and what they say to each other.

A ``World`` has ranks, a ``Group`` is some of them, in order; both are interfaces, and ``weft.parallel`` has
what stands behind them: MPI, threads of one process, or a world of one. A mesh arranges the ranks of a world
along named axes and is written as text, ``"data=2,model=4"``: the last axis goes from rank to rank. An axis,
or several (``"data,model"``), names the groups along it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from threading import local
from typing import Any

import numpy as np

from weft.base.hooks import hooks
from weft.base.lazy import cached_property
from weft.base.records import NamedTuple
from weft.errors import DomainError, ParallelError

Array = np.ndarray[Any, Any]
Axes = tuple[tuple[str, int], ...]
SMALL = 1 << 13  # bytes up to which every rank folds everything: one message each instead of two


class Meeting(NamedTuple):
    """What ranks must agree on when they meet: the op, what it takes, and its attributes.

    Attributes:
        op: name of the collective.
        axis: of the mesh.
        detail: shape, dtype and what else must be alike.
    """

    op: str
    axis: str
    detail: str

    def __str__(self) -> str:
        return f"{self.op} of {self.detail}" + (f' over "{self.axis}"' if self.axis else "")


class Group(ABC):
    """Some ranks of a world, in order. Every method is called by all of them, in the same sequence.

    Attributes:
        rank: the place of this rank in the group.
        size: how many there are.
    """

    rank: int
    size: int

    @abstractmethod
    def gather(self, meeting: Meeting, x: Array) -> Array:
        """The arrays of all ranks, along a new first axis."""

    @abstractmethod
    def exchange(self, meeting: Meeting, x: Array) -> Array:
        """Row j of the result is row ``rank`` of what rank j gave."""

    @abstractmethod
    def pass_on(self, meeting: Meeting, x: Array, target: int | None, source: int | None) -> Array | None:
        """Send an array to one rank and get that of another; None stands for nobody."""

    def open(self) -> None:  # noqa: B027 - where nothing has to be made ready
        """Be ready for messages from one rank to another."""

    def send(self, number: int, x: Array, target: int) -> None:
        """Begin to send an array to one rank, which receives it by its number; does not wait.

        Nobody may change the array until ``sent``.
        """
        raise NotImplementedError

    def receive(self, meeting: Meeting, number: int, out: Array, source: int) -> None:
        """Wait for what a rank sends under a number."""
        raise NotImplementedError

    def expect(self, meeting: Meeting, number: int, out: Array, source: int) -> Pending:
        """Begin to receive what a rank sends under a number; nobody may touch out until it is finished."""
        return Pending(lambda: self.receive(meeting, number, out, source))

    def sent(self) -> None:  # noqa: B027 - where sends are done at once, nothing is left to wait for
        """Wait until all that was sent has gone."""

    def fold(self, meeting: Meeting, x: Array, fold: np.ufunc, out: Array) -> None:
        """Write all arrays folded into one, by one tree over the ranks."""
        if self.size == 2 or x.nbytes <= SMALL:  # of two ranks, each gets no more than it must
            out[...] = tree_fold(list(self.gather(meeting, x)), fold)
            return
        flat = x.reshape(-1)
        width = -(-flat.size // self.size)
        padded = np.zeros(width * self.size, x.dtype)
        padded[: flat.size] = flat
        rows = self.exchange(meeting, padded.reshape(self.size, width))
        mine = tree_fold(list(rows), fold)  # every rank folds one slice of all
        out[...] = self.gather(meeting, mine).reshape(-1)[: flat.size].reshape(x.shape)

    def reduce(self, meeting: Meeting, x: Array, fold: np.ufunc, out: Array) -> None:
        """Likewise, in whatever order is fastest."""
        self.fold(meeting, x, fold, out)

    def folding(
        self, meeting: Meeting, fold: np.ufunc, ordered: bool, like: Array
    ) -> Callable[[Array], Array]:
        """What folds arrays of the shape and dtype of one, called again and again."""
        do = self.fold if ordered else self.reduce

        def run(x: Array) -> Array:
            out = np.empty(x.shape, x.dtype)
            do(meeting, x, fold, out)
            return out

        return run

    def start(self, meeting: Meeting, x: Array, fold: np.ufunc, out: Array, ordered: bool) -> Pending:
        """Begin to fold all arrays into one; neither x nor out may be touched until it is finished."""
        return Pending(lambda: (self.fold if ordered else self.reduce)(meeting, x, fold, out))

    def start_rows(self, meeting: Meeting, x: Array, out: Array, *, exchanged: bool) -> Pending:
        """Begin to ``gather``, or to ``exchange``, into out; neither may be touched until it is finished."""
        return Pending(lambda: np.copyto(out, (self.exchange if exchanged else self.gather)(meeting, x)))


class Pending:
    """Something that ranks have begun together.

    Attributes:
        seconds: from its beginning to its end; 0 where nothing of it was done before somebody waited.
        spent: seconds that beginning it took.
    """

    seconds = spent = 0.0

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish

    def finish(self) -> None:
        """Wait until it is done."""
        self._finish()


class Hiding:
    """How long ranks were at what they began together, and how long they only waited for it.

    Attributes:
        count: how often something was begun.
        seconds: from beginning to end, of all of it.
        waited: seconds in which nothing else was done.
    """

    def __init__(self, count: int = 0, seconds: float = 0.0, waited: float = 0.0) -> None:
        self.count, self.seconds, self.waited = count, seconds, waited

    def add(self, seconds: float, waited: float) -> None:
        """Take down one that has ended."""
        self.count += 1
        self.seconds += max(seconds, waited)
        self.waited += waited

    def since(self, before: Hiding) -> Hiding:
        """What was added since an earlier state."""
        return Hiding(self.count - before.count, self.seconds - before.seconds, self.waited - before.waited)

    @property
    def share(self) -> float:
        """The part of the time in which something else was done."""
        return 1 - self.waited / self.seconds if self.seconds else 0.0


hiding = Hiding()  # of this process


class World(ABC):
    """The ranks that run a program together.

    Attributes:
        rank: of this process.
        size: number of ranks.
        mesh: text of the mesh that was made last, or "".
    """

    rank: int
    size: int
    mesh: str = ""

    @cached_property
    def under_way(self) -> dict[Any, tuple[Array, Pending, Callable[[Array], None]]]:
        """What this rank began, where the result will be, by what names it."""
        return {}

    @cached_property
    def ready(self) -> dict[Any, Callable[[Array], Array]]:
        """What folds arrays of this rank with those of others, by all that tells how."""
        return {}

    in_threads: bool = False  # whether ranks are threads of one process
    goes_on: bool = False  # whether ranks can meet again after one has failed
    planned: dict[str, int] | None = None  # axes that a planned world gives to whoever asks for a mesh
    on_call: Callable[[Any, Sequence[Any]], None] | None = (
        None  # told of programs before they run, with arrays
    )
    trusted: bool = False  # whether all ranks agreed on what runs, so that its meetings need no comparing

    @abstractmethod
    def group(self, members: tuple[int, ...]) -> Group:
        """The group of ranks, of which this is one; all its members ask for it."""

    def fail(self, error: BaseException) -> None:  # noqa: B027 - where nobody else is, nobody is told
        """Tell all others that this rank failed: what they wait for will not come."""


class Alone(World, Group):
    """A world of one rank, and its one group."""

    def __init__(self) -> None:
        self.rank, self.size, self.mesh = 0, 1, ""

    def group(self, members: tuple[int, ...]) -> Group:
        """Itself."""
        return self

    def gather(self, meeting: Meeting, x: Array) -> Array:
        """The array, along a new first axis."""
        return x[None]

    def exchange(self, meeting: Meeting, x: Array) -> Array:
        """The same."""
        return x

    def pass_on(self, meeting: Meeting, x: Array, target: int | None, source: int | None) -> Array | None:
        """The same, where it is to be had."""
        return None if source is None or target is None else x


class _Here(local):
    world: World | None = None


_here = _Here()  # the world of a thread that is a rank of its own
_process: list[World] = []


def world() -> World:
    """The world that this thread runs in: that of the process, unless it is a simulated rank."""
    if _here.world is not None:
        return _here.world
    if not _process:
        _process.append(hooks.process_world())
    return _process[0]


def enter_world(other: World | None) -> World | None:
    """Let this thread run in another world, or in that of the process; gives the one before."""
    before, _here.world = _here.world, other
    return before


# Meshes


@lru_cache
def mesh_axes(mesh: str) -> Axes:
    """The axes of a mesh with their sizes.

    >>> from weft.base.ranks import mesh_axes
    >>> mesh_axes("data=2,model=4")
    (('data', 2), ('model', 4))
    """
    pairs = [part.partition("=") for part in mesh.split(",")] if mesh else []
    return tuple((name, int(size)) for name, _, size in pairs)


@lru_cache
def _mesh_size(mesh: str) -> int:
    return prod(size for _, size in mesh_axes(mesh))


def mesh_text(axes: Axes) -> str:
    """A mesh as text."""
    return ",".join(f"{name}={size}" for name, size in axes)


@lru_cache
def axis_size(op: str, mesh: str, axis: str) -> int:
    """How many ranks a group along an axis has."""
    return prod(size for _, size in _along(op, mesh, axis))


def _along(op: str, mesh: str, axis: str) -> Axes:
    sizes = dict(mesh_axes(mesh))
    names = axis.split(",") if axis else []
    for name in names:
        if name not in sizes:
            known = ", ".join(sizes) or "none"
            raise DomainError(op, f"the axis must be one of the mesh ({known}), got {name!r}")
    if len(set(names)) < len(names):
        raise DomainError(op, f"an axis must be named once, got {axis!r}")
    return tuple((name, sizes[name]) for name in names)


def coordinates(mesh: str, rank: int) -> dict[str, int]:
    """Where a rank stands on each axis.

    >>> from weft.base.ranks import coordinates
    >>> coordinates("data=2,model=4", 6)
    {'data': 1, 'model': 2}
    """
    axes = mesh_axes(mesh)
    places = np.unravel_index(rank, [size for _, size in axes]) if axes else ()
    return {name: int(place) for (name, _), place in zip(axes, places, strict=True)}


@lru_cache
def members(op: str, mesh: str, axis: str, rank: int) -> tuple[int, ...]:
    """The ranks of the group along an axis that a rank belongs to, in order."""
    axes, along = mesh_axes(mesh), _along(op, mesh, axis)
    at, sizes = coordinates(mesh, rank), [size for _, size in axes]
    found = []
    for place in np.ndindex(*[size for _, size in along]):
        now = {**at, **{name: p for (name, _), p in zip(along, place, strict=True)}}
        found.append(int(np.ravel_multi_index([now[name] for name, _ in axes], sizes)) if axes else 0)
    return tuple(found)


SHARDS = 8  # virtual shards of the batch; every number of ranks that divides it gives the same bits


class Mesh(NamedTuple):
    """The ranks of a world along named axes; made by ``weft.parallel.mesh``.

    Attributes:
        text: the axes with their sizes; the last one goes from rank to rank.
        shards: in how many parts a batch is summed, whatever the number of ranks.
    """

    text: str
    shards: int = SHARDS

    @property
    def axes(self) -> Axes:
        """The names of the axes, with their sizes."""
        return mesh_axes(self.text)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return prod(size for _, size in self.axes)

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each axis."""
        return dict(self.axes)

    def place(self, rank: int) -> dict[str, int]:
        """Where a rank stands on each axis.

        >>> from weft import parallel as par
        >>> par.Mesh("data=2,model=4").place(6)
        {'data': 1, 'model': 2}
        """
        return coordinates(self.text, rank)

    def __repr__(self) -> str:
        return f"mesh({self.text.replace(',', ', ')})"


def place_on(op: str, mesh: str, axis: str) -> int:
    """The place of this rank in its group along an axis."""
    here = _in_mesh(op, mesh)
    return members(op, mesh, axis, here.rank).index(here.rank)


def group_of(op: str, mesh: str, axis: str) -> Group:
    """The group of this rank along an axis."""
    here = _in_mesh(op, mesh)
    found = members(op, mesh, axis, here.rank)
    return ALONE if len(found) == 1 else here.group(found)


def check_world(mesh: str) -> None:
    """Raise unless this world has as many ranks as a mesh."""
    _in_mesh("place", mesh)


def _in_mesh(op: str, mesh: str) -> World:
    here = world()
    count = _mesh_size(mesh)
    if count != here.size:
        raise ParallelError(
            op, f"a graph for {count} ranks (mesh {mesh}) must run in a world of so many, got {here.size}"
        )
    return here


ALONE = Alone()


# One fixed order of sums


def tree_fold(parts: Sequence[Any], fold: Any) -> Any:
    """Parts folded by one binary tree over their order: neighbours first, one without a neighbour goes up.

    Folding runs of a power of two first, and then what comes of them, is the same tree, to the last bit.

    >>> from weft.base.ranks import tree_fold
    >>> tree_fold(["a", "b", "c", "d", "e"], lambda x, y: f"({x}{y})")
    '(((ab)(cd))e)'
    """
    row = list(parts)
    while len(row) > 1:
        pairs = [fold(a, b) for a, b in zip(row[::2], row[1::2], strict=False)]
        row = pairs + row[len(row) & ~1 :]
    return row[0]


def tree_fold_into(parts: Sequence[Any], fold: Any, out: Any) -> None:
    """Write arrays folded by that tree into one of their shape.

    >>> import numpy as np
    >>> from weft.base.ranks import tree_fold_into
    >>> total = np.empty(2)
    >>> tree_fold_into([np.ones(2), np.ones(2), np.ones(2)], np.add, total)
    >>> total
    array([3., 3.])
    """
    if len(parts) == 2:
        fold(*parts, out=out)
        return
    if len(parts) == 1:
        out[...] = parts[0]
        return
    half = 1 << (len(parts) - 1).bit_length() - 1  # the first of the last two has so many
    fold(tree_fold(parts[:half], fold), tree_fold(parts[half:], fold), out=out)

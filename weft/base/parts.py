"""``Parts``: what a tensor holds of which each rank of a mesh has a part, as others hold an array of NumPy.

A dimension may be cut over axes; with stripes, ``3*model``, each third of it is, and a rank has a part of
every third, one behind the other: so are queries, keys and values cut that one product makes. The first
dimension may have a *home*, ``pipe:2``: all of it is on the ranks with that place along an axis, and the
others hold nothing. Shape and dtype are those of the whole. Where the ranks do not divide a size, parts have
the size rounded up, and the elements past the end are zeros that nobody reads.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import prod
from sys import getrefcount
from typing import Any, NoReturn

import numpy as np

from weft.base.device import CPU, Device
from weft.base.dtypes import DType, short_name
from weft.base.hooks import hooks
from weft.base.ranks import axis_size, check_world, coordinates, members, world
from weft.errors import ParallelError, ShapeError

Array = np.ndarray[Any, Any]
Ranges = tuple[slice, ...]
Cut = tuple[str, ...]  # for each dimension the axes it is cut over, with commas between, or ""
HOME = ":"  # between an axis and the place along it that holds everything
STRIPES = "*"  # between the number of equal pieces of a dimension, of which each is cut, and an axis


class Parts:
    """The part of this rank, of elements that all ranks of a mesh hold together.

    Attributes:
        part: the elements of this rank.
        shape: the sizes of the whole.
        dtype: of the elements.
        size: how many elements the whole has.
        cut: for each dimension the axes it is cut over.
        mesh: as text.
    """

    __slots__ = ("__weakref__", "cut", "dtype", "mesh", "part", "shape", "size")
    __array_ufunc__ = None  # NumPy's functions do not take it for an object of theirs
    form = None  # ops go the general way

    def __init__(self, part: Array, shape: tuple[int, ...], cut: Cut, mesh: str) -> None:
        self.part = part
        self.shape = shape
        self.dtype: DType = part.dtype
        self.size = prod(shape)
        self.cut = cut
        self.mesh = mesh

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def device(self) -> Device:
        """Where the part is."""
        part: Any = self.part
        found: Device = CPU if type(part) is np.ndarray else part.device
        return found

    @property
    def base(self) -> Parts:
        """Not None: who may write over the part asks ``is_sole``, and knows how it is cut."""
        return self

    @property
    def is_sole(self) -> bool:
        """Whether nobody else holds the part."""
        base = self.part.base
        lent = base is None or getattr(type(base), "is_lease", False)
        return lent and getrefcount(self.part) == _ALONE

    def on(self, device: Device) -> Parts:
        """The same with the part on a device."""
        return Parts(hooks.copy_to(self.part, device), self.shape, self.cut, self.mesh)

    def copy(self) -> Parts:
        """The same elements in memory of their own."""
        return Parts(self.part.copy(), self.shape, self.cut, self.mesh)

    def __str__(self) -> str:
        return cut_text(self.shape, self.dtype, self.cut)

    def __repr__(self) -> str:
        return f"<{self} on mesh({self.mesh.replace(',', ', ')})>"

    def to_host(self) -> NoReturn:
        """Raise: no rank has all elements, and to ask the others is something that all of them must do."""
        raise ParallelError(
            "placed tensor",
            f"its elements must be asked for by all ranks together, got {self} of which this rank has a part",
            hint="x.full() on all ranks gives the whole tensor",
        )

    def item(self) -> NoReturn:
        """Raise likewise."""
        self.to_host()

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        self.to_host()


def _alone() -> int:
    """What getrefcount says of a part that nobody else holds."""
    probe = Parts(np.empty(1), (1,), ("",), "")
    return getrefcount(probe.part)


_ALONE = _alone()


def cut_text(shape: tuple[int, ...], dtype: DType, cut: Cut) -> str:
    """The type of a tensor that is cut.

    >>> import numpy as np
    >>> from weft.base.parts import cut_text
    >>> cut_text((8, 4), np.dtype("f4"), ("data", ""))
    'f32[8@data,4]'
    """
    sizes = [f"{s}@{axes.replace(',', '@')}" if axes else str(s) for s, axes in zip(shape, cut, strict=True)]
    return f"{short_name(dtype)}[{','.join(sizes)}]"


def stripes_of(axis: str) -> tuple[int, str]:
    """In how many pieces a dimension is first, and the axis that each of them is cut over.

    >>> from weft.base.parts import stripes_of
    >>> stripes_of("3*model"), stripes_of("data")
    ((3, 'model'), (1, 'data'))
    """
    count, star, name = axis.rpartition(STRIPES)
    return (int(count), name) if star else (1, axis)


def plain_axes(axes: str) -> str:
    """The axes of a dimension, without stripes."""
    return ",".join([stripes_of(a)[1] for a in axes.split(",")]) if STRIPES in axes else axes


def indices_of(size: int, axes: str, mesh: str, rank: int) -> Array:
    """Which elements of a dimension that is in stripes a rank has.

    >>> from weft.base.parts import indices_of
    >>> indices_of(12, "3*model", "model=2", 1).tolist()
    [2, 3, 6, 7, 10, 11]
    """
    found, at = np.arange(size), coordinates(mesh, rank)
    for axis in axes.split(","):
        stripes, name = stripes_of(axis)
        count = axis_size("place", mesh, name)
        if len(found) % (stripes * count):
            pieces = f"each of the {stripes} pieces of a dimension in stripes"
            message = f"the {count} ranks along {name!r} must divide {pieces}, got a size of {size}"
            raise ShapeError("place", message)
        found = found.reshape(stripes, count, -1)[:, at[name]].reshape(-1)
    return found


@lru_cache(1 << 12)
def home_of(cut: Cut) -> tuple[str, int] | None:
    """The axis and the place along it where all of a tensor is; None if it is along no axis in one place.

    >>> from weft.base.parts import home_of
    >>> home_of(("pipe:2,model", "")), home_of(("model",))
    (('pipe', 2), None)
    """
    first = cut[0].split(",")[0] if cut else ""
    axis, colon, place = first.partition(HOME)
    return (axis, int(place)) if colon else None


def with_home(cut: Cut, axis: str, place: int) -> Cut:
    """A cut of a tensor that is on the ranks with one place along an axis."""
    cut = without_home(cut)
    return (f"{axis}{HOME}{place},{cut[0]}".rstrip(","), *cut[1:])


def without_home(cut: Cut) -> Cut:
    """A cut of the same tensor where all ranks hold it."""
    return tuple([",".join(a for a in axes.split(",") if HOME not in a) for axes in cut])


def is_home(cut: Cut, mesh: str, rank: int) -> bool:
    """Whether a rank holds something of a tensor."""
    home = home_of(cut)
    return home is None or coordinates(mesh, rank)[home[0]] == home[1]


def counts_of(cut: Cut, mesh: str) -> tuple[int, ...]:
    """In how many parts each dimension is cut."""
    return tuple([axis_size("place", mesh, plain_axes(axes)) if axes else 1 for axes in without_home(cut)])


def padded_shape(shape: tuple[int, ...], cut: Cut, mesh: str) -> tuple[int, ...]:
    """The sizes of all parts together.

    >>> from weft.base.parts import padded_shape
    >>> padded_shape((5, 3), ("data", ""), "data=2")
    (6, 3)
    """
    return tuple([-(-s // n) * n for s, n in zip(shape, counts_of(cut, mesh), strict=True)])


@lru_cache(1 << 12)
def part_shape(shape: tuple[int, ...], cut: Cut, mesh: str) -> tuple[int, ...]:
    """The sizes of each part, on ranks that hold one."""
    return tuple([-(-s // n) for s, n in zip(shape, counts_of(cut, mesh), strict=True)])


def own_shape(shape: tuple[int, ...], cut: Cut, mesh: str) -> tuple[int, ...]:
    """The sizes of the part of this rank."""
    sizes = part_shape(shape, cut, mesh)
    return sizes if is_home(cut, mesh, world().rank) else (0, *sizes[1:])


def pieces_of(shape: tuple[int, ...], cut: Cut, mesh: str, rank: int) -> list[tuple[Ranges, Ranges]]:
    """Where the part of a rank is in the whole, less what is past the end, and where that is in the part.

    >>> from weft.base.parts import pieces_of
    >>> pieces_of((5,), ("data",), "data=2", 1)
    [((slice(3, 5, None),), (slice(0, 2, None),))]
    >>> [there for there, here in pieces_of((8,), ("2*data",), "data=2", 1)]
    [(slice(2, 4, None),), (slice(6, 8, None),)]
    """
    found: list[list[tuple[int, int, int]]] = []  # begin and end in the whole, begin in the part
    for size, axes, width in zip(shape, without_home(cut), part_shape(shape, cut, mesh), strict=True):
        if STRIPES in axes:
            found.append(_runs(indices_of(size, axes, mesh, rank)))
            continue
        place = members("place", mesh, axes, rank).index(rank) if axes else 0
        start = min(place * width, size)
        found.append([(start, min(start + width, size), 0)])
    if not is_home(cut, mesh, rank):
        found[0] = [(0, 0, 0)]
    return [
        (tuple([slice(a, b) for a, b, _ in runs]), tuple([slice(at, at + b - a) for a, b, at in runs]))
        for runs in product(*found)
    ]


def _runs(indices: Array) -> list[tuple[int, int, int]]:
    """Numbers as runs of neighbours: where each begins and ends, and its place."""
    starts = [0, *(np.flatnonzero(np.diff(indices) != 1) + 1).tolist()]
    ends = [*starts[1:], len(indices)]
    return [(int(indices[a]), int(indices[b - 1]) + 1, a) for a, b in zip(starts, ends, strict=True)]


def take_part(whole: Array, cut: Cut, mesh: str) -> Array:
    """The part of this rank of an array, in memory of its own."""
    check_world(mesh)
    pieces = pieces_of(whole.shape, cut, mesh, world().rank)
    shape = own_shape(whole.shape, cut, mesh)
    own = whole[pieces[0][0]]
    if own.shape == shape:
        return np.array(own, order="C")
    out = np.zeros(shape, whole.dtype)
    for there, here in pieces:
        out[here] = whole[there]
    return out


def placed_like(data: Any, like: Any) -> Any:
    """Data for a tensor that stays where it is: in the parts of what it holds, or whole.

    What is in other parts than that moves, for which all ranks come together.
    """
    if not isinstance(like, Parts):
        return hooks.whole_array(data) if isinstance(data, Parts) and isinstance(like, np.ndarray) else data
    if isinstance(data, Parts) and (data.cut, data.mesh) == (like.cut, like.mesh):
        return data
    whole = hooks.whole_array(data) if isinstance(data, Parts) else data
    if not isinstance(whole, np.ndarray):
        return whole
    return Parts(take_part(whole, like.cut, like.mesh), like.shape, like.cut, like.mesh)


def is_cut(cut: Cut, mesh: str) -> bool:
    """Whether a cut leaves a rank with less than the whole."""
    home = home_of(cut)
    away = home is not None and axis_size("place", mesh, home[0]) > 1
    return away or any(n > 1 for n in counts_of(cut, mesh))

"""Meshes: the ranks of a world along named axes; and how a tensor is cut over them (``P``)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from weft.base.parts import STRIPES, plain_axes
from weft.base.ranks import SHARDS, Mesh, mesh_axes, mesh_text, world
from weft.errors import ArgumentError, DomainError, ParallelError
from weft.parallel.world import asked, mesh_now


def mesh(*, shards: int = SHARDS, **axes: int) -> Mesh:
    """Arrange the ranks of the world along named axes; it is the mesh of this world from now on.

    The sizes must multiply to the number of ranks; one may be -1, for what is left. A script that no launcher
    started is a world of one.

    Args:
        shards: in how many parts gradients are summed; ranks along "data" must divide it to give equal bits.
        axes: names with their sizes; the last one goes from rank to rank.

    >>> from weft import parallel as par
    >>> par.mesh(data=1, model=1)
    mesh(data=1, model=1)
    """
    here = world()
    axes = here.planned or axes
    found = _completed({name: _checked(name, size) for name, size in axes.items()}, here.size)
    count = prod(found.values())
    if count != here.size:
        given = ", ".join(f"{name}={size}" for name, size in found.items()) or "no axes"
        ranks = f"{here.size} rank{'s' * (here.size != 1)}"
        message = f"the axes must multiply to the {ranks} of the world, got {given} ({count} ranks)"
        raise ParallelError("mesh", message, hint=f"start the script with: weft launch -n {count} script.py")
    if shards < 1 or shards & (shards - 1):
        raise DomainError("mesh", f"shards must be a power of two, got {shards}")
    here.mesh = mesh_text(tuple(found.items()))
    return Mesh(here.mesh, shards)


def _checked(name: str, size: object) -> int:
    if not isinstance(size, int) or isinstance(size, bool) or (size < 1 and size != -1):
        raise DomainError("mesh", f"the size of an axis must be a positive int or -1, got {name}={size!r}")
    return size


def _completed(axes: dict[str, int], count: int) -> dict[str, int]:
    """The axes with a size for -1."""
    open_ = [name for name, size in axes.items() if size == -1]
    if len(open_) > 1:
        raise DomainError("mesh", f"one size may be -1, got {len(open_)}")
    known = prod(size for size in axes.values() if size != -1)
    if open_ and count % known:
        raise ParallelError("mesh", f"the other axes ({known} ranks) must divide the {count} of the world")
    return {name: count // known if size == -1 else size for name, size in axes.items()}


Cut = tuple[str, ...]  # for each dimension the axes it is cut over, with commas between, or ""


def _is_axis(text: str) -> bool:
    """Whether a text names an axis, or the stripes of one."""
    count, star, name = text.rpartition(STRIPES)
    return name.isidentifier() and (not star or (count.isdecimal() and int(count) > 0))


class P(tuple[Any, ...]):
    """How a tensor is cut: for each dimension an axis of the mesh, several, or None.

    Dimensions that are not named are whole. ``"3*model"`` cuts each third of a dimension over the axis: a
    rank has its part of all three, as of queries, keys and values that one product makes.

    >>> from weft import parallel as par
    >>> par.P("data", None), par.P(None, ("data", "model")), par.P("3*model")
    (P('data', None), P(None, ('data', 'model')), P('3*model'))
    """

    def __new__(cls, *dims: str | Sequence[str] | None) -> P:  # noqa: D102
        for dim in dims:
            names = list(dim) if isinstance(dim, list | tuple) else [dim]
            if not all(n is None or (isinstance(n, str) and _is_axis(n)) for n in names):
                raise ArgumentError("P", f"each dimension takes names of axes, or None, got {dim!r}")
        return super().__new__(cls, dims)

    def cut(self, op: str, mesh: str, ndim: int) -> Cut:
        """For each of so many dimensions the axes it is cut over."""
        if len(self) > ndim:
            raise ArgumentError(op, f"must name at most {ndim} dimensions, got {self!r}")
        parts = [d if isinstance(d, str) else "" if d is None else ",".join(d) for d in self]
        names = [name for part in parts for name in plain_axes(part).split(",") if part]
        known = dict(mesh_axes(mesh))
        for name in names:
            if name not in known:
                raise DomainError(op, f"axes must be of the mesh ({', '.join(known)}), got {name!r}")
        if len(set(names)) < len(names):
            raise DomainError(op, f"an axis cuts one dimension, got {self!r}")
        return (*parts, *[""] * (ndim - len(parts)))

    def __repr__(self) -> str:
        return f"P({', '.join(map(repr, self))})"


def current_mesh(op: str) -> str:
    """The text of the mesh that this world made last."""
    text = asked(mesh_now)
    if not text:
        raise ParallelError(op, "needs a mesh, and none was made", hint="make one: par.mesh(data=par.size())")
    return text

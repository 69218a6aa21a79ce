"""The public collectives: they name the mesh of this world, check what is given, and call the ops."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from weft.base.dtypes import float32, float64
from weft.base.public import public
from weft.base.ranks import axis_size, world
from weft.base.shapes import normalize_axis
from weft.errors import ArgumentError, DomainError
from weft.ops import collective as ops
from weft.ops.op import Op, Tensor, intercepted
from weft.parallel.mesh import P, current_mesh
from weft.parallel.world import asked, mesh_now
from weft.tensor.creation import asarray
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor as Eager
from weft.tensor.tensor import wrap

ndarray = np.ndarray
_FOLDS: Mapping[str, Op] = {
    "sum": ops.all_reduce,
    "max": ops.all_reduce_max,
    "min": ops.all_reduce_min,
}
_READY = 1 << 10  # sums that are kept ready
Axis = str | Sequence[str]


def _axis(op: str, axis: Axis) -> dict[str, Any]:
    """The attributes that say along which axis of which mesh."""
    return _named(op, current_mesh(op), axis if isinstance(axis, str) else ",".join(axis))


@lru_cache
def _named(op: str, mesh: str, text: str) -> dict[str, Any]:
    if not text:
        raise ArgumentError(op, "must name an axis of the mesh, got none")
    axis_size(op, mesh, text)
    return {"axis": text, "mesh": mesh}


def _is_plain(x: object) -> bool:
    """Whether x is a tensor of an array of floats that nobody watches: neither a graph nor a transform."""
    if type(x) is not Eager or x._node is not None or intercepted.threads:
        return False
    data = x._data
    return type(data) is ndarray and (data.dtype is float32 or data.dtype is float64)


def _made_ready(op: str, axis: str, ordered: bool, data: Any) -> Callable[[Any], Any]:
    """What sums arrays such as one, for this call and later ones."""
    here, name = world(), _FOLDS[op].name
    told = _named("all_reduce", here.mesh, axis)
    found = ops.folding(name, ordered, data, **told)
    if len(here.ready) >= _READY:
        here.ready.clear()
    here.ready[op, axis, here.mesh, data.shape, data.dtype, ordered] = found
    return found


@public
def all_reduce(x: Tensor, axis: Axis, *, op: str = "sum", reproducible: bool = True) -> Tensor:
    """The sum (or "max", "min") over the ranks along an axis, on all of them.

    Sums follow one fixed binary tree over the ranks, so they do not depend on how messages are cut; with
    ``reproducible=False`` the fastest order is taken. The gradient of the result counts once, as all ranks
    hold the same.

    >>> import weft
    >>> from weft import parallel as par
    >>> _ = par.mesh(data=1)
    >>> par.all_reduce(weft.tensor([1.0, 2.0]), "data")
    tensor([1., 2.])
    """
    if _is_plain(x) and type(axis) is str and type(op) is str:
        # A small sum takes no longer than to call an op: of that nothing is left here but the kernel.
        here, data, ordered = world(), x._data, bool(reproducible)
        ready = here.ready.get((op, axis, here.mesh, data.shape, data.dtype, ordered))
        if ready is not None:
            return wrap(ready(data))
        if op in _FOLDS and here.mesh:
            return wrap(_made_ready(op, axis, ordered, data)(data))
    fold = _FOLDS.get(op)
    if fold is None:
        raise DomainError("all_reduce", f"op must be among {', '.join(_FOLDS)}, got {op!r}")
    return fold(asarray(x), **_axis("all_reduce", axis), ordered=bool(reproducible))


@public
def all_gather(x: Tensor, axis: Axis, *, dim: int = 0) -> Tensor:
    """The tensors of all ranks along an axis, joined along a dimension.

    Its gradient is the sum of what all ranks made of it, each rank's part.
    """
    x = asarray(x)
    return ops.all_gather(x, **_axis("all_gather", axis), dim=normalize_axis("all_gather", dim, x.ndim))


@public
def reduce_scatter(x: Tensor, axis: Axis, *, dim: int = 0) -> Tensor:
    """Of the sum over the ranks along an axis, this rank's part along a dimension."""
    x = asarray(x)
    where = normalize_axis("reduce_scatter", dim, x.ndim)
    return ops.reduce_scatter(x, **_axis("reduce_scatter", axis), dim=where, ordered=True)


@public
def all_to_all(x: Tensor, axis: Axis, *, split: int, join: int) -> Tensor:
    """Part j along one dimension goes to rank j, which joins what it gets along another."""
    x = asarray(x)
    parts = {k: normalize_axis("all_to_all", d, x.ndim) for k, d in (("split", split), ("join", join))}
    return ops.all_to_all(x, **_axis("all_to_all", axis), **parts)


@public
def permute_ranks(x: Tensor, axis: Axis, to: Sequence[int] | int) -> Tensor:
    """Rank i along an axis sends to rank ``to[i]``, or to nobody for -1; who gets nothing has zeros.

    An int stands for a ring: rank i sends to rank i + to.
    """
    given = _axis("permute_ranks", axis)
    count = axis_size("permute_ranks", given["mesh"], given["axis"])
    if isinstance(to, Sequence):
        targets = tuple(operator.index(t) for t in to)
    else:
        targets = tuple((i + operator.index(to)) % count for i in range(count))
    return ops.permute_ranks(asarray(x), **given, to=targets)


@public
def broadcast(x: Tensor, axis: Axis, *, root: int = 0) -> Tensor:
    """What one rank along an axis holds, on all of them."""
    return ops.broadcast(asarray(x), **_axis("broadcast", axis), root=operator.index(root))


@public
def copy_to_ranks(x: Tensor, axis: Axis) -> Tensor:
    """The same tensor, as each rank's own: the gradients of all ranks are summed."""
    return ops.copy_to_ranks(asarray(x), **_axis("copy_to_ranks", axis))


@public
def take_shard(x: Tensor, axis: Axis, *, dim: int = 0) -> Tensor:
    """Of a tensor that all ranks hold alike, this rank's part along a dimension."""
    x = asarray(x)
    return ops.take_shard(x, **_axis("take_shard", axis), dim=normalize_axis("take_shard", dim, x.ndim))


@public
def axis_index(axis: Axis) -> Tensor:
    """The place of this rank along an axis, as a tensor; in a graph it is a node."""
    return ops.axis_index.on_tensors(**_axis("axis_index", axis))  # type: ignore[no-any-return]


@public
def shard(x: Tensor, *cut: Axis | None) -> Tensor:
    """x itself, with a note how a program for a mesh is to cut it.

    For each dimension there is an axis, several, or None; dimensions that are not named are whole. Without a
    mesh, and outside of graphs, it does nothing.

    >>> import weft
    >>> from weft import parallel as par
    >>> _ = par.mesh(data=1)
    >>> graph = weft.make_graph(lambda x: par.shard(x, "data"), name="f")(weft.ones(4))
    >>> print(graph.to_text(locations=False), end="")
    graph f(%x: f32[4]) {
      %0: f32[4] = shard(%x, cut=("data",), mesh="data=1")
      return %0
    }
    """
    x, mesh = asarray(x), asked(mesh_now)
    if not mesh or thread.capture is None:
        return x
    return ops.shard(x, cut=P(*cut).cut("shard", mesh, x.ndim), mesh=mesh)

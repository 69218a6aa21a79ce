"""Collectives: what the ranks of a mesh compute together, as ops like all others.

Each says which axis of which mesh it goes along; both are text, so that a graph is the same on every rank and
reads back from its text. All ranks of a group run the same ones in the same order: they have an effect, are
never left out, merged or moved across another along the same axis.

A value is either *replicated* (all ranks hold the same one, which is counted once) or each rank has its own.
What ``all_reduce`` gives and what ``copy_to_ranks`` and ``take_shard`` take is replicated; so ``all_reduce``
and ``copy_to_ranks`` are each other's derivatives, as are ``all_gather`` and ``reduce_scatter`` (whose values
are each rank's own); ``all_to_all`` and ``permute_ranks`` go back the way they came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from weft.base.dtypes import int64, kind
from weft.base.parts import plain_axes, stripes_of
from weft.base.ranks import Meeting, axis_size, group_of, mesh_axes, place_on, tree_fold_into
from weft.errors import AxisError, DomainError, DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import batch_leading
from weft.ops.compare import equal
from weft.ops.families import linear, lowered, primitive
from weft.ops.op import Array, Attrs, Op, Rule, Sample, Samples, Tensor, TensorLike, no_gradient, type_of
from weft.ops.samples import complex_array, int_array, real_array
from weft.ops.select import cast, select


@lru_cache(1 << 12)
def meeting_of(op: str, shape: tuple[int, ...], dtype: Any, axis: str, detail: str = "") -> Meeting:
    """What ranks must agree on that run an op on arrays."""
    more = f" {detail}" if detail != "" else ""
    return Meeting(op, axis, f"{TensorType(shape, dtype)}{more}")


def _shifted(attrs: Attrs, inputs: Sequence[Any]) -> Attrs:
    """Attributes that name dimensions, one further right."""
    return {k: v + 1 if k in ("dim", "split", "join") else v for k, v in attrs.items()}


BATCH = batch_leading(_shifted)
# Of an op at which the ranks along an axis meet, on the host and in the order of the program
IN_STEP: dict[str, Any] = {"effect": True, "sequence": "axis", "host": True}


# Types


def same_type(op: str, dtypes: str = "biufc") -> Rule:
    """The type rule of an op that gives what it takes."""

    def rule(x: TensorType, *, axis: str, mesh: str, **rest: object) -> TensorType:
        axis_size(op, mesh, axis)
        if kind(x.dtype) not in dtypes:
            raise DtypeError(op, f"the dtype must be a number's, got {x}")
        return x

    return rule


def _check_dim(op: str, x: TensorType, dim: int) -> None:
    if not 0 <= dim < x.ndim:
        raise AxisError(op, f"the dimension must be in 0..{x.ndim - 1}, got {dim} for {x}")


def _resized(x: TensorType, dim: int, size: int) -> TensorType:
    return TensorType((*x.shape[:dim], size, *x.shape[dim + 1 :]), x.dtype)


def divided(op: str, x: TensorType, dim: int, count: int, axis: str) -> TensorType:
    """The type of one of the equal parts along a dimension."""
    _check_dim(op, x, dim)
    size = x.shape[dim]
    if isinstance(size, int) and size % count:
        message = f'dimension {dim} must divide by the {count} ranks of "{axis}", got {x}'
        raise ShapeError(op, message, hint=f"pad it to {size + -size % count}")
    return _resized(x, dim, size // count)


def _gather_type(x: TensorType, *, axis: str, dim: int, mesh: str) -> TensorType:
    _check_dim("all_gather", x, dim)
    return _resized(x, dim, x.shape[dim] * axis_size("all_gather", mesh, axis))


def _part_type(op: str) -> Rule:
    def rule(x: TensorType, *, axis: str, dim: int, mesh: str, **rest: object) -> TensorType:
        return divided(op, x, dim, axis_size(op, mesh, axis), axis)

    return rule


def _all_to_all_type(x: TensorType, *, axis: str, split: int, join: int, mesh: str) -> TensorType:
    count = axis_size("all_to_all", mesh, axis)
    part = divided("all_to_all", x, split, count, axis)
    _check_dim("all_to_all", part, join)
    return _resized(part, join, part.shape[join] * count)


def _permute_type(x: TensorType, *, axis: str, to: tuple[int, ...], mesh: str) -> TensorType:
    count = axis_size("permute_ranks", mesh, axis)
    targets = [t for t in to if t != NOBODY]
    if len(to) != count or len(set(targets)) < len(targets) or not all(0 <= t < count for t in targets):
        message = f"to must name for each of the {count} ranks another one, each once, or -1, got {to}"
        raise DomainError("permute_ranks", message)
    return x


def _broadcast_type(x: TensorType, *, axis: str, root: int, mesh: str) -> TensorType:
    count = axis_size("broadcast", mesh, axis)
    if not 0 <= root < count:
        raise DomainError("broadcast", f"the root must be in 0..{count - 1}, got {root}")
    return x


# Kernels


def _fold_into(
    op: str, out: Array, x: Array, fold: np.ufunc, *, axis: str, mesh: str, ordered: bool = True
) -> None:
    """Write the arrays of all ranks folded, by one tree over the ranks unless any order will do."""
    group = group_of(op, mesh, axis)
    if group.size == 1:
        out[...] = x
        return
    meeting = meeting_of(op, x.shape, x.dtype, axis, "" if ordered else "in any order")
    (group.fold if ordered else group.reduce)(meeting, x, fold, out)


_UFUNCS = {"all_reduce": np.add, "all_reduce_max": np.maximum, "all_reduce_min": np.minimum}


def folding(op: str, ordered: bool, like: Array, *, axis: str, mesh: str) -> Callable[[Array], Array]:
    """The kernel of a sum or an extreme over ranks, for arrays of the shape and dtype of one."""
    group = group_of(op, mesh, axis)
    if group.size == 1:
        return np.copy
    meeting = meeting_of(op, like.shape, like.dtype, axis, "" if ordered else "in any order")
    return group.folding(meeting, _UFUNCS[op], ordered, like)


def _reducer(op: str, fold: np.ufunc) -> Rule:
    def kernel(x: Array, *, axis: str, mesh: str, ordered: bool = True) -> Array:
        out = np.empty(x.shape, x.dtype)
        _fold_into(op, out, x, fold, axis=axis, mesh=mesh, ordered=ordered)
        return out

    return kernel


def _reducer_into(op: str, fold: np.ufunc) -> Rule:
    """Likewise, with the array for the result."""

    def into(out: Array, x: Array, *, axis: str, mesh: str, ordered: bool = True) -> None:
        _fold_into(op, out, x, fold, axis=axis, mesh=mesh, ordered=ordered)

    return into


def _made(type_rule: Rule, into: Callable[..., None], x: Array, **attrs: Any) -> Array:
    """What a kernel gives that writes into an array."""
    t = type_rule(type_of(x), **attrs)
    out = np.empty(t.shape, t.dtype)
    into(out, x, **attrs)
    return out


def _gather(out: Array, x: Array, *, axis: str, dim: int, mesh: str) -> None:
    group = group_of("all_gather", mesh, axis)
    rows = group.gather(meeting_of("all_gather", x.shape, x.dtype, axis, f"dim={dim}"), x)
    np.concatenate(list(rows), axis=dim, out=out)


def split_parts(x: Array, dim: int, count: int) -> Array:
    """Equal parts along a dimension, along a new first axis."""
    shape = (*x.shape[:dim], count, x.shape[dim] // count, *x.shape[dim + 1 :])
    return np.ascontiguousarray(np.moveaxis(x.reshape(shape), dim, 0))


def _reduce_scatter(out: Array, x: Array, *, axis: str, dim: int, mesh: str, ordered: bool = True) -> None:
    group = group_of("reduce_scatter", mesh, axis)
    meeting = meeting_of("reduce_scatter", x.shape, x.dtype, axis, f"dim={dim}")
    rows = group.exchange(meeting, split_parts(x, dim, group.size))
    tree_fold_into(list(rows), np.add, out)


def _all_to_all(out: Array, x: Array, *, axis: str, split: int, join: int, mesh: str) -> None:
    group = group_of("all_to_all", mesh, axis)
    meeting = meeting_of("all_to_all", x.shape, x.dtype, axis, f"split={split} join={join}")
    np.concatenate(list(group.exchange(meeting, split_parts(x, split, group.size))), axis=join, out=out)


NOBODY = -1


def _permute(out: Array, x: Array, *, axis: str, to: tuple[int, ...], mesh: str) -> None:
    _permute_type(type_of(x), axis=axis, to=to, mesh=mesh)  # else ranks would wait for nobody
    group = group_of("permute_ranks", mesh, axis)
    target = to[group.rank]
    source = to.index(group.rank) if group.rank in to else None
    meeting = meeting_of("permute_ranks", x.shape, x.dtype, axis, f"to={to}")
    found = group.pass_on(meeting, x, None if target == NOBODY else target, source)
    out[...] = 0 if found is None else found


def _broadcast(out: Array, x: Array, *, axis: str, root: int, mesh: str) -> None:
    group = group_of("broadcast", mesh, axis)
    found = group.gather(meeting_of("broadcast", x.shape, x.dtype, axis, f"root={root}"), x)
    out[...] = found[root]


def _part_here(x: Array, *, axis: str, dim: int, mesh: str) -> Array:
    """The part of this rank, where it lies in an array."""
    count = axis_size("take_shard", mesh, axis)
    width = divided("take_shard", type_of(x), dim, count, axis).shape[dim]
    start = place_on("take_shard", mesh, axis) * width
    return x[(slice(None),) * dim + (slice(start, start + width),)]


def _copy(out: Array, x: Array, **attrs: object) -> None:
    out[...] = x


def _take_shard(out: Array, x: Array, *, axis: str, dim: int, mesh: str) -> None:
    out[...] = _part_here(x, axis=axis, dim=dim, mesh=mesh)


# Samples: of a world of one; those of more are in tests/parallel

_ONE = {"axis": "data", "mesh": "data=1"}


def _samples(*, more: Attrs | None = None, complex: bool = True) -> Samples:
    attrs = {**_ONE, **(more or {})}

    def made() -> list[Sample]:
        out = [Sample((real_array((2, 3)),), attrs), Sample((real_array((4, 0)),), attrs)]
        out += [Sample((int_array((3, 2)),), attrs), Sample((real_array((3, 4)).T[::-1],), attrs)]
        return [*out, Sample((complex_array((2, 2)),), attrs)] if complex else out

    return made


# Declarations


all_reduce: Op = linear(
    "all_reduce",
    type_rule=same_type("all_reduce"),
    eval=_reducer("all_reduce", np.add),
    into=_reducer_into("all_reduce", np.add),
    transpose=(lambda g, axis, mesh: copy_to_ranks(g, axis=axis, mesh=mesh),),
    batch=BATCH,
    samples=_samples(more={"ordered": True}),
    defaults={"ordered": True},
    total=False,
    **IN_STEP,
)
"""``all_reduce(x, axis, mesh, ordered)``: the sum over the ranks along an axis, on all of them."""

copy_to_ranks: Op = linear(
    "copy_to_ranks",
    type_rule=same_type("copy_to_ranks"),
    eval=lambda x, *, axis, mesh: _made(same_type("copy_to_ranks"), _copy, x, axis=axis, mesh=mesh),
    into=_copy,
    transpose=(lambda g, axis, mesh: all_reduce(g, axis=axis, mesh=mesh, ordered=True),),
    batch=BATCH,
    samples=_samples(),
    host=True,
)
"""``copy_to_ranks(x, axis, mesh)``: a replicated value as each rank's own; gradients of all are summed."""


def _share(g: Tensor, x: Tensor, out: Tensor, axis: str, mesh: str) -> Tensor:
    """The gradient of an extreme: it goes to the ranks that hold it, in equal shares."""
    holds = equal(x, out)
    count = all_reduce(cast(holds, dtype=g.dtype), axis=axis, mesh=mesh, ordered=True)
    return select(holds, copy_to_ranks(g / count, axis=axis, mesh=mesh), cast(holds, dtype=g.dtype) * 0)


def _extreme(name: str, fold: np.ufunc) -> Op:
    return primitive(
        name,
        type_rule=same_type(name, "biuf"),
        eval=_reducer(name, fold),
        into=_reducer_into(name, fold),
        vjp=(_share,),
        batch=BATCH,
        samples=_samples(more={"ordered": True}, complex=False),
        defaults={"ordered": True},
        **IN_STEP,
    )


all_reduce_max: Op = _extreme("all_reduce_max", np.maximum)
all_reduce_min: Op = _extreme("all_reduce_min", np.minimum)

all_gather: Op = linear(
    "all_gather",
    type_rule=_gather_type,
    eval=lambda x, *, axis, dim, mesh: _made(_gather_type, _gather, x, axis=axis, dim=dim, mesh=mesh),
    into=_gather,
    transpose=(lambda g, axis, dim, mesh: reduce_scatter(g, axis=axis, dim=dim, mesh=mesh, ordered=True),),
    batch=BATCH,
    samples=_samples(more={"dim": 1}),
    total=False,
    **IN_STEP,
)
"""``all_gather(x, axis, dim, mesh)``: the tensors of all ranks along an axis, joined along a dimension."""

reduce_scatter: Op = linear(
    "reduce_scatter",
    type_rule=_part_type("reduce_scatter"),
    eval=lambda x, *, axis, dim, mesh, ordered=True: _made(
        _part_type("reduce_scatter"), _reduce_scatter, x, axis=axis, dim=dim, mesh=mesh, ordered=ordered
    ),
    into=_reduce_scatter,
    transpose=(lambda g, axis, dim, mesh: all_gather(g, axis=axis, dim=dim, mesh=mesh),),
    batch=BATCH,
    samples=_samples(more={"dim": 0, "ordered": True}),
    defaults={"ordered": True},
    total=False,
    **IN_STEP,
)
"""``reduce_scatter(x, axis, dim, mesh, ordered)``: of the sum over ranks, each rank its part."""

all_to_all: Op = linear(
    "all_to_all",
    type_rule=_all_to_all_type,
    eval=lambda x, *, axis, split, join, mesh: _made(
        _all_to_all_type, _all_to_all, x, axis=axis, split=split, join=join, mesh=mesh
    ),
    into=_all_to_all,
    transpose=(
        lambda g, axis, split, join, mesh: all_to_all(g, axis=axis, split=join, join=split, mesh=mesh),
    ),
    batch=BATCH,
    samples=_samples(more={"split": 0, "join": 1}),
    total=False,
    **IN_STEP,
)
"""``all_to_all(x, axis, split, join, mesh)``: part j along one dimension goes to rank j, which joins what it
gets along another."""


def _backward_order(to: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([to.index(i) if i in to else NOBODY for i in range(len(to))])


permute_ranks: Op = linear(
    "permute_ranks",
    type_rule=_permute_type,
    eval=lambda x, *, axis, to, mesh: _made(_permute_type, _permute, x, axis=axis, to=to, mesh=mesh),
    into=_permute,
    transpose=(lambda g, axis, to, mesh: permute_ranks(g, axis=axis, to=_backward_order(to), mesh=mesh),),
    batch=BATCH,
    samples=_samples(more={"to": (0,)}),
    total=False,
    **IN_STEP,
)
"""``permute_ranks(x, axis, to, mesh)``: rank i sends to rank ``to[i]``; who gets nothing has zeros."""


def _at_root(g: Tensor, axis: str, root: int, mesh: str) -> Tensor:
    total = all_reduce(g, axis=axis, mesh=mesh, ordered=True)
    index = axis_index.on_tensors if isinstance(g, TensorLike) else axis_index
    return select(index(axis=axis, mesh=mesh) == root, total, total * 0)


broadcast: Op = linear(
    "broadcast",
    type_rule=_broadcast_type,
    eval=lambda x, *, axis, root, mesh: _made(
        _broadcast_type, _broadcast, x, axis=axis, root=root, mesh=mesh
    ),
    into=_broadcast,
    transpose=(_at_root,),
    batch=BATCH,
    samples=_samples(more={"root": 0}),
    total=False,
    **IN_STEP,
)
"""``broadcast(x, axis, root, mesh)``: what one rank along an axis holds, on all of them."""

OPEN = "?"  # of a dimension: a note leaves open how it is cut

shard: Op = linear(
    "shard",
    type_rule=lambda x, *, cut, mesh: _cut_type(x, cut, mesh),
    eval=lambda x, *, cut, mesh: x,
    transpose=(lambda g, cut, mesh: shard(g, cut=tuple([axes or OPEN for axes in cut]), mesh=mesh),),
    batch=batch_leading(lambda attrs, inputs: {**attrs, "cut": ("", *attrs["cut"])}),
    samples=lambda: [Sample((real_array((2, 3)),), {"cut": ("data", ""), "mesh": "data=1"})],
    view=lambda index, x, cut, mesh: index,
)
"""``shard(x, cut, mesh)``: x itself, with a note how it is to be cut over the ranks of a mesh.

A dimension that is "" is whole. Of one that is ``OPEN`` nothing is said: so are those of a gradient whose
tensor has them whole, since where ranks add up to it and need parts of it, each is to get its own.
"""


def _cut_type(x: TensorType, cut: tuple[str, ...], mesh: str) -> TensorType:
    if len(cut) != x.ndim:
        raise ShapeError("shard", f"there must be a cut for each dimension, got {cut} for {x}")
    for dim, axis in enumerate(cut):
        if axis != OPEN:
            stripes = prod(stripes_of(a)[0] for a in axis.split(","))
            divided("shard", x, dim, stripes * axis_size("shard", mesh, plain_axes(axis)), axis)
    return x


def _commit(*, mesh: str) -> tuple[Array, ...]:
    axes = ",".join(name for name, _ in mesh_axes(mesh))
    group = group_of("commit", mesh, axes)
    if group.size > 1:
        group.gather(Meeting("commit", axes, f"{group.size} ranks"), np.zeros(1, np.uint8))
    return ()


commit: Op = primitive(
    "commit",
    type_rule=lambda *, mesh: (),
    eval=_commit,
    vjp=no_gradient("has no result"),
    batch=None,
    samples=None,
    outputs=0,
    effect=True,
    host=True,
)
"""``commit(mesh)``: wait until all ranks are here, and none has failed; then state may be overwritten."""


# Several virtual shards on a rank: stacked along a first axis, each with its elements in order


def _stacked_type(x: TensorType, *, axis: str, dim: int, count: int, mesh: str) -> TensorType:
    part = divided("take_shards", x, dim, axis_size("take_shards", mesh, axis) * count, axis)
    return TensorType((count, *part.shape), part.dtype)


def _take_shards(out: Array, x: Array, *, axis: str, dim: int, count: int, mesh: str) -> None:
    part = _part_here(x, axis=axis, dim=dim, mesh=mesh)
    shape = (*part.shape[:dim], count, part.shape[dim] // count, *part.shape[dim + 1 :])
    np.moveaxis(out, 0, dim)[...] = part.reshape(shape)


def _joined_type(x: TensorType, *, axis: str, dim: int, mesh: str) -> TensorType:
    part = TensorType(x.shape[1:], x.dtype)
    _check_dim("gather_shards", part, dim)
    return _resized(part, dim, part.shape[dim] * x.shape[0] * axis_size("gather_shards", mesh, axis))


def _gather_shards(out: Array, x: Array, *, axis: str, dim: int, mesh: str) -> None:
    if not len(x):
        raise ShapeError("gather_shards", f"there must be a part to join, got shape {x.shape}")
    _gather(out, np.concatenate(list(x), axis=dim), axis=axis, dim=dim, mesh=mesh)


take_shards: Op = lowered(
    "take_shards",
    type_rule=_stacked_type,
    eval=lambda x, *, axis, dim, count, mesh: _made(
        _stacked_type, _take_shards, x, axis=axis, dim=dim, count=count, mesh=mesh
    ),
    into=_take_shards,
    samples=lambda: [Sample((real_array((2, 6)),), {**_ONE, "dim": 1, "count": 3})],
    host=True,
    ambient=True,
)
"""``take_shards(x, axis, dim, count, mesh)``: of a replicated value, this rank's parts, stacked."""

gather_shards: Op = lowered(
    "gather_shards",
    type_rule=_joined_type,
    eval=lambda x, *, axis, dim, mesh: _made(_joined_type, _gather_shards, x, axis=axis, dim=dim, mesh=mesh),
    into=_gather_shards,
    samples=lambda: [Sample((real_array((3, 2, 4)),), {**_ONE, "dim": 1})],
    **IN_STEP,
)
"""``gather_shards(x, axis, dim, mesh)``: the stacked parts of all ranks, joined along a dimension."""

shards_here: Op = primitive(
    "shards_here",
    type_rule=lambda *, count, mesh: TensorType((), int64),
    eval=lambda *, count, mesh: np.array(count, int64),
    vjp=no_gradient("a number of shards"),
    samples=lambda: [Sample((), {"count": 3, "mesh": "data=1"})],
    host=True,
    ambient=True,
)
"""``shards_here(count, mesh)``: how many virtual shards this rank stands for; only a run tells, so that loops
over them are compiled alike for every number."""


axis_index: Op = primitive(
    "axis_index",
    type_rule=lambda *, axis, mesh: TensorType((), int64) if axis_size("axis_index", mesh, axis) else None,
    eval=lambda *, axis, mesh: np.array(place_on("axis_index", mesh, axis), int64),
    vjp=no_gradient("a place in a mesh"),
    samples=lambda: [Sample((), _ONE)],
    host=True,
    ambient=True,
)
"""``axis_index(axis, mesh)``: the place of this rank along an axis."""

take_shard: Op = linear(
    "take_shard",
    type_rule=_part_type("take_shard"),
    eval=lambda x, *, axis, dim, mesh: _made(
        _part_type("take_shard"), _take_shard, x, axis=axis, dim=dim, mesh=mesh
    ),
    into=_take_shard,
    transpose=(lambda g, axis, dim, mesh: all_gather(g, axis=axis, dim=dim, mesh=mesh),),
    batch=BATCH,
    samples=_samples(more={"dim": 0}),
    host=True,
    ambient=True,
)
"""``take_shard(x, axis, dim, mesh)``: of a replicated value, this rank's part along a dimension."""

"""Distances between vectors, and losses that ask for a margin between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import int64
from weft.base.public import public
from weft.base.shapes import broadcast_shapes, normalize_axis
from weft.errors import DomainError, ShapeError
from weft.ops.activation import logsigmoid, relu, soft_rectify
from weft.ops.arithmetic import maximum, minimum
from weft.ops.classes import put_class, take_class
from weft.ops.compare import equal
from weft.ops.index import gather_nd
from weft.ops.loss.elements import paired, reduced
from weft.ops.op import Array, Sample, Tensor, composite, type_of
from weft.ops.public import example
from weft.ops.reduce import reduce_sum
from weft.ops.samples import call, joined, large_half, real_array
from weft.ops.scan import cumulative_sum
from weft.ops.select import cast, same_dtype, select
from weft.ops.size import filled
from weft.ops.vector_norm import vector_norm
from weft.ops.view.primitives import broadcast_to, reshape

# Distances


def _vectors(seed: int = 0) -> tuple[Array, Array]:
    return real_array((3, 4), seed=seed), real_array((3, 4), seed=seed + 1)


@composite(
    samples=lambda: [
        Sample(_vectors()),
        Sample((real_array((3, 4)), real_array((4,), seed=1)), {"axis": -1}),
        Sample((np.zeros((2, 3)), real_array((2, 3))), smooth=False),
        Sample((real_array((3, 4)), real_array((3, 1), seed=1))),
        Sample((real_array((1, 4)), real_array((3, 4), seed=1)), {"axis": 0}),
        Sample((real_array((4,)), real_array((3, 4), seed=1)), {"axis": 0}),
        Sample((large_half(4000, "float16"), large_half(4000, "float16") + 1), {"axis": 0}, smooth=False),
    ],
    precision="high",
    single=True,
)
@example("(weft.tensor([[1.0, 0.0]]), weft.tensor([[3.0, 4.0]])) -> tensor([0.6000])")
def cosine_similarity(x1: Tensor, x2: Tensor, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along an axis; lengths below ``eps`` count as ``eps``."""
    x1, x2 = same_dtype("cosine_similarity", x1, x2)
    rank = max(x1.ndim, x2.ndim)
    where = normalize_axis("cosine_similarity", axis, rank) - rank
    if min(x1.ndim, x2.ndim) < -where or x1.shape[where] != x2.shape[where]:
        shape = broadcast_shapes("cosine_similarity", [x1.shape, x2.shape], (type_of(x1), type_of(x2)))
        x1, x2 = broadcast_to(x1, shape=shape), broadcast_to(x2, shape=shape)
    product = (x1 * x2).sum(axis=where)
    lengths = [maximum(vector_norm(x, axis=where), np.asarray(eps, x.dtype)) for x in (x1, x2)]
    return product / lengths[0] / lengths[1]  # their product may overflow where neither does


@composite(
    samples=lambda: [
        Sample(_vectors()),
        Sample(_vectors(), {"p": 1.0, "keepdims": True}),
        Sample(_vectors(), {"p": 3.0}),
    ],
    precision="high",
    single=True,
)
@example("(weft.tensor([[0.0, 0.0]]), weft.tensor([[3.0, 4.0]])) -> tensor([5.0000])")
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False
) -> Tensor:
    """The p-norm of ``x1 - x2 + eps`` along the last axis."""
    x1, x2 = same_dtype("pairwise_distance", x1, x2)
    return vector_norm(x1 - x2 + eps, axis=-1, keepdims=keepdims, ord=p)


@composite(
    samples=lambda: [
        Sample((real_array((3, 4)), real_array((5, 4), seed=1))),
        Sample((real_array((2, 3, 4)), real_array((2, 5, 4), seed=1)), {"p": 1.0}),
        Sample((real_array((3, 4)), real_array((0, 4)))),
    ],
    precision="high",
    single=True,
)
@example("(weft.tensor([[0.0, 0.0]]), weft.tensor([[3.0, 4.0], [0.0, 1.0]])) -> tensor([[5., 1.]])")
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm distance of each row of x1 (..., P, M) to each row of x2 (..., R, M)."""
    x1, x2 = same_dtype("cdist", x1, x2)
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError("cdist", f"rows must be equally long, got {type_of(x1)} and {type_of(x2)}")
    rows = reshape(x1, shape=(*x1.shape[:-1], 1, x1.shape[-1]))
    columns = reshape(x2, shape=(*x2.shape[:-2], 1, *x2.shape[-2:]))
    return vector_norm(rows - columns, axis=-1, ord=p)


@composite(samples=joined(call((4, 3)), call((4, 3), p=1.0)), precision="high", single=True)
@example("(weft.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])) -> tensor([5.0000, 1.0000, 4.2426])")
def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm distance of each row of x (N, M) to each later one, in one vector."""
    if x.ndim != 2:
        raise ShapeError("pdist", f"needs (N, M), got {type_of(x)}")
    first, second = np.triu_indices(int(x.shape[0]), 1)
    return vector_norm(gather_nd(x, first) - gather_nd(x, second), axis=-1, ord=p)


# Margins between two inputs


def _signs(n: int) -> Array:
    return np.where(np.arange(n) % 2 == 0, 1, -1)


@composite(
    samples=lambda: [
        Sample((*_vectors(), _signs(3))),
        Sample((*_vectors(), _signs(3)), {"margin": -0.9, "reduction": "none"}),
    ],
    precision="high",
    single=True,
)
def cosine_embedding_loss(
    x1: Tensor, x2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """``1 - cos`` where the target is 1, and the cosine above ``margin`` where it is -1.

    >>> import weft
    >>> same = weft.tensor([[1.0, 0.0]])
    >>> weft.cosine_embedding_loss(same, same, weft.tensor([-1.0]), margin=0.25)
    tensor(0.7500)
    """
    cosine = cosine_similarity(x1, x2, axis=-1)
    losses = select(equal(target, np.ones((), target.dtype)), 1 - cosine, relu(cosine - margin))
    return reduced("cosine_embedding_loss", losses, reduction)


@composite(
    samples=lambda: [
        Sample((real_array((4,)), real_array((4,), seed=1), _signs(4))),
        Sample((real_array((4,)), real_array((4,), seed=1), _signs(4)), {"margin": 0.7, "reduction": "sum"}),
    ],
    precision="high",
    single=True,
)
@example("(weft.tensor([1.0]), weft.tensor([3.0]), weft.tensor([1.0]), margin=0.5) -> tensor(2.5000)")
def margin_ranking_loss(
    x1: Tensor, x2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """How far x1 is from being above x2 (target 1), or below it (target -1), by a margin."""
    return reduced("margin_ranking_loss", relu((x2 - x1) * target + margin), reduction)


@composite(
    samples=lambda: [
        Sample((*_vectors(), real_array((3, 4), seed=2))),
        Sample((*_vectors(), real_array((3, 4), seed=2)), {"margin": 3.0, "p": 1.0, "swap": True}),
    ],
    precision="high",
    single=True,
)
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """How far the negative is from being farther from the anchor than the positive by a margin.

    With ``swap`` the distance of positive and negative counts instead, where it is smaller.

    >>> import weft
    >>> a, p, n = weft.zeros((1, 2)), weft.zeros((1, 2)), weft.tensor([[0.0, 0.25]])
    >>> weft.triplet_margin_loss(a, p, n)
    tensor(0.7500)
    """

    def distance(x1: Tensor, x2: Tensor) -> Tensor:
        return pairwise_distance(x1, x2, p, eps)

    return triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=distance, margin=margin, swap=swap, reduction=reduction
    )


@public
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """``triplet_margin_loss`` with a distance of the user's.

    >>> import weft
    >>> a, p, n = weft.zeros((1, 2)), weft.zeros((1, 2)), weft.tensor([[0.0, 0.25]])
    >>> city = lambda x, y: abs(x - y).sum(axis=-1)
    >>> weft.triplet_margin_with_distance_loss(a, p, n, distance_function=city)
    tensor(0.7500)
    """
    if not margin > 0:
        raise DomainError("triplet_margin_loss", f"margin must be positive, got {margin}")
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced("triplet_margin_loss", relu(near - far + margin), reduction)


# Margins of one input


@composite(
    samples=lambda: [
        Sample((real_array((4,)), _signs(4))),
        Sample((real_array((4,)), _signs(4)), {"margin": 0.5}),
    ],
    precision="high",
    single=True,
)
def hinge_embedding_loss(x: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """x where the target is 1, and how far x is below ``margin`` where it is -1.

    >>> import weft
    >>> weft.hinge_embedding_loss(weft.tensor([0.25, 0.25]), weft.tensor([1.0, -1.0]), reduction="none")
    tensor([0.2500, 0.7500])
    """
    x, target = paired("hinge_embedding_loss", x, target)
    losses = select(equal(target, np.ones((), target.dtype)), x, relu(margin - x))
    return reduced("hinge_embedding_loss", losses, reduction)


@composite(
    samples=lambda: [
        Sample((real_array((4,)), _signs(4))),
        Sample((real_array((4,)) * 1000, _signs(4)), smooth=False),
    ],
    precision="high",
    single=True,
)
def soft_margin_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``log(1 + exp(-target * x))`` for targets 1 and -1.

    >>> import weft
    >>> weft.soft_margin_loss(weft.tensor([0.0, 1000.0]), weft.tensor([1.0, -1.0]), reduction="none")
    tensor([6.9315e-01, 1.0000e+03])
    """
    x, target = paired("soft_margin_loss", x, target)
    return reduced("soft_margin_loss", soft_rectify(-x * target), reduction)


@composite(
    samples=lambda: [
        Sample((real_array((4, 3)), np.array([0, 2, 1, 2]))),
        Sample(
            (real_array((4, 3)), np.array([0, 2, 1, 2]), real_array((3,), 0.5, 2.0, seed=1)),
            {"p": 2, "margin": 0.7},
        ),
    ],
    sampled=lambda x, t, w=None, *, p=1, margin=1.0: multi_margin_loss(x, t, p, margin, w),  # type: ignore[has-type]
    precision="high",
    single=True,
)
@example("(weft.tensor([[0.0, 0.5, 2.0]]), weft.tensor([2])) -> tensor(0.)")
def multi_margin_loss(
    x: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """How far the score of the target class is from being above every other by a margin, over x (N, C)."""
    if x.ndim not in (1, 2) or target.shape != x.shape[:-1]:
        raise ShapeError(
            "multi_margin_loss", f"needs (N, C) and (N,), got {type_of(x)} and {type_of(target)}"
        )
    if p not in (1, 2):
        raise DomainError("multi_margin_loss", f"p must be 1 or 2, got {p}")
    axis, classes = x.ndim - 1, x.shape[-1]
    own = take_class(x, target, axis=axis, ignore=-1)
    gaps = relu(x - reshape(own, shape=(*own.shape, 1)) + margin)
    itself = put_class(filled(own.shape, 1, x.dtype), target, classes=classes, axis=axis, ignore=-1)
    gaps = gaps * (1 - itself)
    losses = gaps if p == 1 else gaps * gaps
    if weight is not None:
        losses = losses * reshape(gather_nd(weight, target), shape=(*target.shape, 1))
    return reduced("multi_margin_loss", reduce_sum(losses, axes=(axis,), keepdims=False) / classes, reduction)


@composite(
    samples=lambda: [
        Sample((real_array((4, 3)), (real_array((4, 3), seed=1) > 0).astype(np.float64))),
        Sample(
            (real_array((4, 3)), (real_array((4, 3), seed=1) > 0) * 1.0, real_array((3,), 0.5, 2.0)),
            {"reduction": "none"},
        ),
    ],
    precision="high",
    single=True,
)
@example("(weft.zeros((1, 3)), weft.tensor([[1.0, 0.0, 1.0]])) -> tensor(0.6931)")
def multilabel_soft_margin_loss(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The mean over classes of the binary cross entropy of logits x (N, C) with labels 0 and 1."""
    x, target = paired("multilabel_soft_margin_loss", x, target)
    losses = -(target * logsigmoid(x) + (1 - target) * logsigmoid(-x))
    losses = losses if weight is None else losses * weight
    mean = reduce_sum(losses, axes=(x.ndim - 1,), keepdims=False) / x.shape[-1]
    return reduced("multilabel_soft_margin_loss", mean, reduction)


@composite(
    samples=lambda: [
        Sample((real_array((3, 4)), np.array([[3, 0, -1, 1], [-1, 0, 0, 0], [0, 1, 2, 3]]))),
        Sample((real_array((4,)), np.array([2, 1, -1, -1])), {"reduction": "sum"}),
    ],
    precision="high",
    single=True,
)
@example("(weft.tensor([[0.0, 0.5, 1.0]]), weft.tensor([[2, -1, 0]])) -> tensor(0.1667)")
def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """How far the scores of several target classes are from being above every other by 1, over x (N, C).

    A target (N, C) lists classes; the first -1 ends the list.
    """
    if x.ndim not in (1, 2) or target.shape != x.shape:
        raise ShapeError(
            "multilabel_margin_loss", f"needs (N, C) twice, got {type_of(x)} and {type_of(target)}"
        )
    rank, classes = x.ndim, x.shape[-1]
    ended = cumulative_sum(cast(target < 0, dtype=int64), axis=rank - 1) > 0
    chosen = select(ended, np.full((), -1, target.dtype), target)
    listed = cast(chosen >= 0, dtype=x.dtype)
    itself = put_class(listed, chosen, classes=classes, axis=rank, ignore=-1)  # (N, listed, C)
    scores = reshape(x, shape=(*x.shape[:-1], 1, classes))
    own = reduce_sum(itself * scores, axes=(rank,), keepdims=True)
    others = cast(reduce_sum(itself, axes=(rank - 1,), keepdims=True) < 0.5, dtype=x.dtype)
    gaps = relu(1 - own + scores) * others * reshape(listed, shape=(*listed.shape, 1))
    losses = reduce_sum(gaps, axes=(rank - 1, rank), keepdims=False) / classes
    return reduced("multilabel_margin_loss", losses, reduction)

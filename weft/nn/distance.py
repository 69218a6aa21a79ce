"""How far vectors are from each other, as modules."""

from __future__ import annotations

import weft
from weft import Tensor
from weft.nn.module import Module


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along an axis.

    Args:
        dim: the axis.
        eps: the least length of a vector that counts.

    >>> import weft
    >>> weft.nn.CosineSimilarity()(weft.tensor([[1.0, 0.0]]), weft.tensor([[3.0, 4.0]]))
    tensor([0.6000])
    """

    _shown = ("dim", "eps")

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The cosines."""
        return weft.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of the differences of vectors along the last axis.

    Args:
        p: of the norm.
        eps: added to each difference.
        keepdim: whether the last axis stays, with size 1.

    >>> import weft
    >>> weft.nn.PairwiseDistance()(weft.tensor([[0.0, 0.0]]), weft.tensor([[3.0, 4.0]]))
    tensor([5.0000])
    """

    _shown = ("p", "eps", "keepdim")

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.p = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The distances."""
        return weft.pairwise_distance(x1, x2, self.p, self.eps, self.keepdim)

"""Tables of vectors, looked up by number, one by one or as sums over bags."""

from __future__ import annotations

from typing import Any, Self

import weft
from weft import Tensor
from weft.base.device import DeviceLike
from weft.base.dtypes import DTypeLike
from weft.errors import ArgumentError, DomainError
from weft.nn import init
from weft.nn.module import Module
from weft.nn.parameter import Parameter, new_parameter


class _Table(Module):
    """What both kinds of tables share: the weight, and a row that stands for nothing."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            name, rows = type(self).__name__, f"{-num_embeddings}..{num_embeddings - 1}"
            raise DomainError(name, f"padding_idx must be in {rows}, got {padding_idx}")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.weight = new_parameter((num_embeddings, embedding_dim), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start again: a standard normal distribution, and zeros for padding."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with weft.no_grad():
                self.weight[self.padding_idx] = 0.0

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, **settings: Any) -> Self:
        """A table with given rows.

        Args:
            embeddings: (rows, features).
            freeze: whether the rows stay as they are.
            settings: of the constructor.

        >>> import weft
        >>> weft.nn.Embedding.from_pretrained(weft.eye(3))(weft.tensor([1]))
        tensor([[0., 1., 0.]])
        """
        embeddings = weft.as_tensor(embeddings)
        if embeddings.ndim != 2:
            raise ArgumentError("from_pretrained", f"must have two axes, got shape {embeddings.shape}")
        rows, features = embeddings.shape
        table = cls(rows, features, **settings)
        table.weight = Parameter(embeddings, requires_grad=not freeze)
        return table

    def extra_repr(self) -> str:
        """Its sizes, and settings that are not the default."""
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}, norm_type={self.norm_type}")
        return ", ".join(parts)


class Embedding(_Table):
    """A table of vectors, looked up by number.

    Args:
        num_embeddings: rows of the table.
        embedding_dim: size of a vector.
        padding_idx: a row that starts as zeros and gets no gradient.
        max_norm: rows that are looked up and are longer are scaled to this length, in the table itself.
        norm_type: of that length.
        device: of the table.
        dtype: of the table.

    >>> import weft
    >>> from weft import nn
    >>> nn.Embedding(10, 3)(weft.tensor([[1, 2], [4, 9]])).shape
    (2, 2, 3)
    """

    def forward(self, indices: Tensor) -> Tensor:
        """The rows at indices."""
        return weft.embedding(indices, self.weight, self.padding_idx, self.max_norm, self.norm_type)


class EmbeddingBag(_Table):
    """Sums, means or maxima of the rows in each bag, which are never made one by one.

    Args:
        num_embeddings: rows of the table.
        embedding_dim: size of a vector.
        max_norm: rows that are looked up and are longer are scaled to this length, in the table itself.
        norm_type: of that length.
        mode: "mean", "sum" or "max".
        include_last_offset: whether the offsets have one more number, the end of the last bag.
        padding_idx: a row that does not count.
        device: of the table.
        dtype: of the table.

    >>> import weft
    >>> from weft import nn
    >>> bags = nn.EmbeddingBag(10, 3, mode="sum")
    >>> bags(weft.tensor([1, 2, 4, 5, 9]), weft.tensor([0, 2])).shape
    (2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        mode: str = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, device, dtype)
        if mode not in ("mean", "sum", "max"):
            raise DomainError("EmbeddingBag", f"mode must be 'mean', 'sum' or 'max', got {mode!r}")
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(
        self, indices: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """One vector for each bag.

        Args:
            indices: (bags, length), or (all,) with offsets.
            offsets: where each bag begins in indices of one axis.
            per_sample_weights: factors of the rows, of the shape of indices; for sums only.
        """
        return weft.embedding_bag(
            indices,
            self.weight,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
            max_norm=self.max_norm,
            norm_type=self.norm_type,
        )

    def extra_repr(self) -> str:
        """Its sizes and its mode."""
        return f"{super().extra_repr()}, mode={self.mode!r}"

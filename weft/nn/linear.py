"""Linear maps, tables of vectors, and the module that does nothing."""

from __future__ import annotations

from math import sqrt
from typing import Any

import weft
from weft.nn import init
from weft.nn.module import Module
from weft.nn.parameter import Parameter


class Identity(Module):
    """Gives back what it is given; further arguments of the constructor are ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        """x itself."""
        return x


class Linear(Module):
    """``x @ weight.T + bias``, with a weight (out_features, in_features).

    Args:
        in_features: size of the last axis of x.
        out_features: size of the last axis of the result.
        bias: whether there is one.
        dtype: of the parameters.

    >>> import weft
    >>> from weft import nn
    >>> nn.Linear(4, 3)(weft.ones((2, 4))).shape
    (2, 3)
    """

    bias: Any

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = None) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(weft.empty((out_features, in_features), dtype=dtype))
        self.register_parameter("bias", Parameter(weft.empty(out_features, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start again: uniform in ±1/sqrt(in_features)."""
        init.kaiming_uniform_(self.weight, a=sqrt(5))
        if self.bias is not None:
            bound = 1 / sqrt(self.in_features) if self.in_features > 0 else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Any) -> Any:
        """x (..., in_features) to (..., out_features)."""
        return weft.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Its sizes."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        )


class Embedding(Module):
    """A table of vectors, looked up by number.

    Args:
        num_embeddings: rows of the table.
        embedding_dim: size of a vector.
        padding_idx: a row that starts as zeros and gets no gradient.
        dtype: of the table.

    >>> import weft
    >>> from weft import nn
    >>> nn.Embedding(10, 3)(weft.tensor([[1, 2], [4, 9]])).shape
    (2, 2, 3)
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.weight = Parameter(weft.empty((num_embeddings, embedding_dim), dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start again: a standard normal distribution."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with weft.no_grad():
                self.weight[self.padding_idx] = 0.0

    def forward(self, indices: Any) -> Any:
        """The rows at indices."""
        return weft.embedding(indices, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """Its sizes."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"

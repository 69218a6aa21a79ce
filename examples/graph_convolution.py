"""A network on a graph: who of a karate club goes with whom, from two members who have said so.

    python examples/graph_convolution.py [--steps 100]

T. Kipf and M. Welling, *Semi-supervised classification with graph convolutional networks*, 2016. The graph
is a sparse tensor; a layer is a product with it. Only the labels of the instructor and of the club's
president are known.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import weft
import weft.datasets
from weft import SparseTensor, Tensor, nn, optim


def normalised(edges: Tensor, count: int) -> SparseTensor:
    """Who is whose neighbour, and everybody their own, scaled by the roots of their numbers on both sides."""
    own = weft.arange(count)
    rows = weft.concat([edges[:, 0], edges[:, 1], own])
    columns = weft.concat([edges[:, 1], edges[:, 0], own])
    ones = weft.sparse_coo_tensor(weft.stack([rows, columns]), weft.ones(len(rows)), (count, count))
    scale = weft.rsqrt(ones @ weft.ones(count))
    return weft.sparse_coo_tensor(ones.indices, scale[rows] * scale[columns], (count, count)).coalesce()


class GraphConvolution(nn.Module):
    """Each member's features become a mixture of those of its neighbours."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)

    def forward(self, neighbours: SparseTensor, x: Tensor) -> Tensor:
        """A row for each member."""
        return neighbours @ self.linear(x)


class Network(nn.Module):
    """Two layers of convolution."""

    def __init__(self, members: int, hidden: int = 16) -> None:
        super().__init__()
        self.first, self.second = GraphConvolution(members, hidden), GraphConvolution(hidden, 2)

    def forward(self, neighbours: SparseTensor, x: Tensor) -> Tensor:
        """The logits of the two clubs for each member."""
        return self.second(neighbours, weft.tanh(self.first(neighbours, x)))


def main(arguments: Sequence[str] | None = None) -> float:
    """Train; the part of the members whose club is found."""
    parser = argparse.ArgumentParser(description="Find the two clubs")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args(arguments)
    weft.manual_seed(0)
    edges, clubs = weft.datasets.karate()
    count = len(clubs)
    neighbours, features = normalised(edges, count), weft.eye(count)
    known = weft.tensor([0, count - 1])
    model = Network(count)
    optimizer = optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)

    @weft.compile
    def step(neighbours: SparseTensor, features: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(neighbours, features)[known], clubs[known])
        loss.backward()
        optimizer.step()
        return loss

    for i in range(1, options.steps + 1):
        loss = step(neighbours, features)
        if i % max(1, options.steps // 5) == 0:
            with weft.no_grad():
                found = weft.argmax(model(neighbours, features), axis=1)
            right = (found == clubs).astype(weft.float32).mean().item()
            print(f"step {i:4}   loss {loss.item():.3f}   {right:.1%} of the members are where they went")
    return right


if __name__ == "__main__":
    main()

"""Datasets and samplers under the names people know: pieces of datasets, and orders of their items."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

import weft
from weft.data.loader import Dataset
from weft.errors import ArgumentError, DomainError, ShapeError


class TensorDataset(Dataset):
    """Rows of tensors, a tuple for each: ``TensorDataset(x, y)[i]`` is ``(x[i], y[i])``.

    >>> import weft
    >>> from weft import data
    >>> rows = data.TensorDataset(weft.arange(6).reshape(3, 2), weft.arange(3))
    >>> len(rows), rows[1]
    (3, (tensor([2, 3]), tensor(1)))
    """

    def __init__(self, *tensors: Any) -> None:
        self.tensors = tuple(t if isinstance(t, weft.Tensor) else weft.asarray(t) for t in tensors)
        counts = {len(t) for t in self.tensors}
        if len(counts) != 1:
            got = ", ".join(str(len(t)) for t in self.tensors) or "none"
            raise ShapeError("TensorDataset", f"tensors must have as many rows as each other, got {got}")

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, i: int) -> tuple[Any, ...]:
        return tuple(t[i] for t in self.tensors)


class Subset(Dataset):
    """Some items of a dataset, by their positions.

    >>> from weft import data
    >>> list(data.Subset(["a", "b", "c"], [2, 0]))
    ['c', 'a']
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = [int(i) for i in indices]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, i: int) -> Any:
        return self.dataset[self.indices[i]]


class ConcatDataset(Dataset):
    """Datasets one after the other, as one.

    >>> from weft import data
    >>> list(data.ConcatDataset([["a", "b"], ["c"]]))
    ['a', 'b', 'c']
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentError("ConcatDataset", "takes at least one dataset, got none")
        self.ends = [int(n) for n in np.cumsum([len(d) for d in self.datasets])]

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, i: int) -> Any:
        if i < -len(self) or i >= len(self):
            raise IndexError(f"the index must be in {-len(self)}..{len(self) - 1}, got {i}")
        i += len(self) if i < 0 else 0
        which = bisect_right(self.ends, i)
        return self.datasets[which][i - (self.ends[which - 1] if which else 0)]


def random_split(
    dataset: Any, lengths: Sequence[float], generator: weft.Generator | None = None
) -> list[Subset]:
    """A dataset in random parts that have no item in common, of lengths or of fractions that sum to 1.

    >>> from weft import data
    >>> train, test = data.random_split(list(range(10)), [0.8, 0.2])
    >>> len(train), len(test), sorted([*train, *test]) == list(range(10))
    (8, 2, True)
    """
    count = len(dataset)
    if abs(sum(lengths) - 1) < 1e-9 and any(isinstance(n, float) for n in lengths):
        parts = [int(n * count) for n in lengths]
        for i in range(count - sum(parts)):
            parts[i % len(parts)] += 1
    else:
        parts = [int(n) for n in lengths]
    if sum(parts) != count:
        raise DomainError(
            "random_split",
            f"lengths must sum to the {count} items, or fractions to 1, got {list(lengths)}",
        )
    order = weft.randperm(count, generator=generator).tolist()
    ends = [int(n) for n in np.cumsum(parts)]
    return [Subset(dataset, order[end - n : end]) for end, n in zip(ends, parts, strict=True)]


class Sampler:
    """Base of samplers: iterated over, gives positions of items; an epoch is one time through it."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")


class SequentialSampler(Sampler):
    """Positions of all items in order.

    >>> from weft import data
    >>> list(data.SequentialSampler(["a", "b"]))
    [0, 1]
    """

    def __init__(self, data_source: Any) -> None:
        self.count = len(data_source)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))

    def __len__(self) -> int:
        return self.count


class RandomSampler(Sampler):
    """Positions of items in random order, another one each time; with replacement some of them often.

    >>> from weft import data
    >>> sorted(data.RandomSampler(["a", "b", "c"]))
    [0, 1, 2]
    """

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: weft.Generator | None = None,
    ) -> None:
        self.count = len(data_source)
        self.replacement = replacement
        self.num_samples = self.count if num_samples is None else num_samples
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        if self.replacement:
            drawn = weft.randint(0, self.count, (self.num_samples,), generator=self.generator)
            return iter(drawn.tolist())
        rounds = -(-self.num_samples // max(self.count, 1))
        orders = [weft.randperm(self.count, generator=self.generator).tolist() for _ in range(rounds)]
        return iter([i for order in orders for i in order][: self.num_samples])

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Given positions in random order, another one each time.

    >>> from weft import data
    >>> sorted(data.SubsetRandomSampler([4, 2]))
    [2, 4]
    """

    def __init__(self, indices: Sequence[int], generator: weft.Generator | None = None) -> None:
        self.indices = list(indices)
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        order = weft.randperm(len(self.indices), generator=self.generator).tolist()
        return iter([self.indices[i] for i in order])

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Positions drawn with probabilities in proportion to weights.

    >>> from weft import data
    >>> list(data.WeightedRandomSampler([0.0, 0.0, 5.0], 2))
    [2, 2]
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: weft.Generator | None = None,
    ) -> None:
        self.weights = weft.asarray(weights, dtype=weft.float64)
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = weft.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of the positions that another sampler gives.

    >>> from weft import data
    >>> list(data.BatchSampler(range(5), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool = False) -> None:
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for i in self.sampler:
            batch.append(i)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

"""``DataLoader``: the loader with the arguments that people know, samplers among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from weft.data.collate import stack
from weft.data.loader import Loader, pipeline_of
from weft.data.pipeline import Pipeline
from weft.data.sampling import TensorDataset
from weft.data.source import arrays_pipeline, from_generator
from weft.data.stage import Element
from weft.errors import ArgumentError

Collate = Callable[[list[Any]], Any]


class DataLoader(Loader):
    """Batches of a dataset, as PyTorch's ``DataLoader`` gives them; tuples stay tuples. Itself a pipeline.

    Args:
        dataset: an object with ``__len__`` and ``__getitem__``, one that can be iterated over, or arrays.
        batch_size: items in a batch; None for items one by one.
        shuffle: whether they come in random order, another one in each epoch.
        sampler: positions of items in the order wanted, iterated over once in each epoch.
        batch_sampler: lists of positions, a list for each batch.
        num_workers: how many threads or processes make batches ahead of time.
        collate_fn: a function of your own, from a list of items to a batch.
        pin_memory: taken, and not needed: ``pipeline.to("cuda")`` copies ahead of time.
        drop_last: whether a last batch that is not full is left out.
        timeout: taken, and not needed.
        worker_init_fn: must be None; pipelines give each element a random key of its own.
        generator: whose seed decides the order.
        prefetch_factor: how many batches are made ahead for each worker.
        persistent_workers: taken, and always so within an epoch.

    >>> import weft
    >>> from weft import data
    >>> rows = data.TensorDataset(weft.arange(10).reshape(5, 2), weft.arange(5))
    >>> [(x.shape, y.tolist()) for x, y in data.DataLoader(rows, batch_size=2)]
    [((2, 2), [0, 1]), ((2, 2), [2, 3]), ((1, 2), [4])]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = False,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Collate | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        *,
        generator: Any = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
    ) -> None:
        if worker_init_fn is not None:
            hint = "pipelines give each element a random key of its own: see docs/data.md"
            raise ArgumentError("DataLoader", "worker_init_fn must be None, got a function", hint=hint)
        if (sampler is not None or batch_sampler is not None) and shuffle:
            raise ArgumentError("DataLoader", "takes a sampler or shuffle, got both")
        if batch_sampler is not None and (sampler is not None or batch_size not in (None, 1) or drop_last):
            raise ArgumentError(
                "DataLoader", "batch_sampler says what batches are, got sampler, batch_size or drop_last too"
            )
        ahead = 2 if prefetch_factor is None else prefetch_factor
        self.sampler, self.batch_sampler = sampler, batch_sampler
        if batch_sampler is not None or batch_size is None:
            found = _batches(dataset, batch_sampler, collate_fn) if batch_sampler is not None else None
            whole = found or _ordered(dataset, sampler)
            if shuffle:
                whole = whole.shuffle(seed=_seed(generator))
            if num_workers:
                whole = whole.prefetch(ahead * num_workers)
            Pipeline.__init__(self, whole.stage)
            self.dataset, self.batch_size = dataset, batch_size  # type: ignore[assignment]
            return
        super().__init__(
            _ordered(dataset, sampler),
            batch_size,
            bool(shuffle),
            seed=_seed(generator),
            num_workers=num_workers,
            drop_last=drop_last,
            collate_fn=collate_fn,
            prefetch_factor=ahead,
        )
        self.dataset, self.drop_last = dataset, drop_last

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        if self.sampler is not None and self.batch_size is not None:
            count: int = len(self.sampler)  # type: ignore[arg-type]
            return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
        return super().__len__()


def _seed(generator: Any) -> int:
    return 0 if generator is None else int(generator.initial_seed())


def _ordered(dataset: Any, sampler: Iterable[int] | None) -> Pipeline:
    """The items of a dataset, in the order of a sampler if there is one."""
    if sampler is not None:

        def items() -> Iterator[Element]:
            return (dataset[i] for i in sampler)

        return from_generator(items)
    if isinstance(dataset, TensorDataset):
        return arrays_pipeline("arrays", dataset.tensors)
    if not isinstance(dataset, Pipeline) and not hasattr(dataset, "__getitem__"):
        return from_generator(lambda: iter(dataset))
    return pipeline_of(dataset)


def _batches(dataset: Any, batch_sampler: Iterable[Any], collate_fn: Collate | None) -> Pipeline:
    """The batches that a sampler of batches asks for."""
    join = stack if collate_fn is None else collate_fn

    def batches() -> Iterator[Element]:
        return (join([dataset[i] for i in batch]) for batch in batch_sampler)

    return from_generator(batches)

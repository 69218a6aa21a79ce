"""What people know from elsewhere: a dataset with items, and a loader that makes batches of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.elsewhere import Missing
from weft.base.elsewhere_objects import DATASET
from weft.data import check
from weft.data.pipeline import Pipeline
from weft.data.source import from_arrays, from_dataset
from weft.data.stage import runs_user_code, stages_of


class Dataset:
    """Base of datasets: define ``__len__`` and ``__getitem__``. Any object that has both will do as well.

    >>> from weft import data
    >>> class Squares(data.Dataset):
    ...     def __len__(self):
    ...         return 4
    ...     def __getitem__(self, i):
    ...         return i, i * i
    >>> list(data.Loader(Squares(), batch_size=4))
    [(tensor([0, 1, 2, 3]), tensor([0, 1, 4, 9]))]
    """

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__")

    def __getitem__(self, i: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")


for _name, _hint in DATASET.items():
    setattr(Dataset, _name, Missing(_name, _hint))


class Loader(Pipeline):
    """Batches of a dataset, of arrays, or of a pipeline; itself a pipeline.

    Args:
        dataset: an object with ``__len__`` and ``__getitem__``, a tree of arrays, or a pipeline.
        batch_size: elements in a batch.
        shuffle: whether they come in random order, another one in each epoch.
        seed: of that order.
        num_workers: how many threads or processes make batches ahead of time; 0 makes them when asked for.
        drop_last: whether a last batch that is not full is left out.
        collate_fn: a function of your own, from a list of elements to a batch.
        prefetch_factor: how many batches are made ahead for each worker.
        mode: "thread" or "process"; processes if functions of the user run, threads if not.

    >>> import numpy as np
    >>> from weft import data
    >>> loader = data.Loader((np.zeros((10, 2)), np.arange(10)), batch_size=4, shuffle=True)
    >>> [labels.shape for _, labels in loader]
    [(4,), (4,), (2,)]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        seed: int = 0,
        num_workers: int = 0,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        prefetch_factor: int = 2,
        mode: str | None = None,
    ) -> None:
        check.count("Loader", num_workers, "num_workers")
        found = pipeline_of(dataset)
        if shuffle:
            found = found.shuffle(seed=seed)
        found = found.batch(batch_size, "drop" if drop_last else "keep", collate=collate_fn)
        if num_workers:
            mode = mode or ("process" if any(map(runs_user_code, stages_of(found.stage))) else "thread")
            found = found.prefetch(prefetch_factor * num_workers, workers=num_workers, mode=mode)
        super().__init__(found.stage)
        self.dataset = dataset
        self.batch_size = batch_size


def pipeline_of(dataset: Any) -> Pipeline:
    """The elements of a dataset, of arrays, or of a pipeline."""
    if isinstance(dataset, Pipeline):
        return dataset
    if isinstance(dataset, tuple):
        return from_arrays(*dataset)
    if isinstance(dataset, dict) or hasattr(dataset, "dtype"):
        return from_arrays(dataset)
    return from_dataset(dataset)

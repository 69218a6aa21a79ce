"""Data for training: pipelines of stages, run in step with training or ahead of it, with the same results.

>>> import numpy as np
>>> from weft import data
>>> images, labels = np.zeros((100, 8, 8), np.float32), np.zeros(100, np.int64)
>>> pipeline = data.from_arrays(images, labels).shuffle().augment(data.Flip()).batch(32).prefetch(2)
>>> for epoch in range(2):
...     for x, y in pipeline:
...         pass
>>> x.shape
(4, 8, 8)
"""

from typing import NoReturn as _NoReturn

from weft.base.public import name_constructor as _name_constructor
from weft.data.augment import Erase, Flip, Noise, RandomCrop, Rotate, Scale, Shift
from weft.data.collate import Padded
from weft.data.data_loader import DataLoader
from weft.data.epoch import Epoch
from weft.data.loader import Dataset, Loader
from weft.data.pipeline import Pipeline
from weft.data.sampling import (
    BatchSampler,
    ConcatDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)
from weft.data.source import from_arrays, from_dataset, from_files, from_generator, from_npy
from weft.data.table import from_csv, from_parquet

__all__ = [
    "BatchSampler",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "Epoch",
    "Erase",
    "Flip",
    "Loader",
    "Noise",
    "Padded",
    "Pipeline",
    "RandomCrop",
    "RandomSampler",
    "Rotate",
    "Sampler",
    "Scale",
    "SequentialSampler",
    "Shift",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "from_arrays",
    "from_csv",
    "from_dataset",
    "from_files",
    "from_generator",
    "from_npy",
    "from_parquet",
    "random_split",
]

for _name in __all__:
    if isinstance(globals()[_name], type):
        _name_constructor(globals()[_name])


def __getattr__(name: str) -> _NoReturn:
    from weft.base.elsewhere import unknown

    raise unknown(__name__, name, __all__)

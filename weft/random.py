"""Random numbers from keys: the same key gives the same numbers, everywhere.

>>> import weft
>>> import weft.random
>>> key = weft.random.key(0)
>>> weft.random.normal(key, (2,)).shape
(2,)
"""

from weft.tensor.random import (
    PRNGKey,
    bernoulli,
    bits,
    categorical,
    choice,
    exponential,
    fold_in,
    gumbel,
    key,
    normal,
    permutation,
    randint,
    split,
    truncated_normal,
    uniform,
)

__all__ = [
    "PRNGKey",
    "bernoulli",
    "bits",
    "categorical",
    "choice",
    "exponential",
    "fold_in",
    "gumbel",
    "key",
    "normal",
    "permutation",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
]

"""Random numbers from keys: the same key gives the same numbers, everywhere.

>>> import weft
>>> import weft.random
>>> key = weft.random.key(0)
>>> weft.random.normal(key, (2,)).shape
(2,)
"""

from typing import NoReturn

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
from weft.tensor.random_gamma import beta, dirichlet, gamma, loggamma

__all__ = [
    "PRNGKey",
    "bernoulli",
    "beta",
    "bits",
    "categorical",
    "choice",
    "dirichlet",
    "exponential",
    "fold_in",
    "gamma",
    "gumbel",
    "key",
    "loggamma",
    "normal",
    "permutation",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
]


def __getattr__(name: str) -> NoReturn:
    from weft.base.elsewhere import unknown

    raise unknown(__name__, name, __all__)

"""Special functions, by the names that they have in SciPy; with gradients.

SciPy's own functions of these names find them here when they are given tensors, see docs/array-api.md.

>>> import weft
>>> x = weft.tensor([-1.0, 0.0, 2.0], requires_grad=True)
>>> weft.special.log_ndtr(x).sum().backward()
>>> x.grad
tensor([1.5251, 0.7979, 0.0552])
"""

from typing import NoReturn

from weft.ops.activation import logsigmoid as log_expit
from weft.ops.incomplete_beta import betainc, betaincc
from weft.ops.incomplete_gamma import gammainc, gammaincc
from weft.ops.softmax import log_softmax, softmax
from weft.ops.special_functions import entr, log_ndtr, logit, ndtr, ndtri, sinc, xlog1py, xlogy
from weft.ops.statistics import logsumexp
from weft.tensor.functions import digamma, erf, erfc, erfinv, exp2, expm1, log1p
from weft.tensor.functions import digamma as psi
from weft.tensor.functions import lgamma as gammaln
from weft.tensor.functions import sigmoid as expit

__all__ = [
    "betainc",
    "betaincc",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammainc",
    "gammaincc",
    "gammaln",
    "log1p",
    "log_expit",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "ndtr",
    "ndtri",
    "psi",
    "sinc",
    "softmax",
    "xlog1py",
    "xlogy",
]


def __getattr__(name: str) -> NoReturn:
    from weft.base.elsewhere import unknown

    raise unknown(__name__, name, __all__)

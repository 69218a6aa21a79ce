"""What distributions share: shapes of batches and events, parameters, sampling with or without gradients."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

import weft
from weft import Tensor
from weft.base.elsewhere import unknown_of
from weft.errors import ArgumentError, DomainError, GradientError, ShapeError

Sizes = tuple[int, ...]


class Distribution:
    """Base of distributions.

    Attributes:
        batch_shape: how many distributions this is, by its parameters.
        event_shape: the shape of one draw of one of them.
        has_rsample: whether ``rsample`` lets gradients flow to the parameters.
    """

    has_rsample: ClassVar[bool] = False
    batch_shape: Sizes = ()
    event_shape: Sizes = ()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws of a shape, each of the shape of the batch and the event; no gradient flows through them."""
        with weft.no_grad():
            return self._draw(_sizes("sample", sample_shape)).detach()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws through which gradients flow to the parameters."""
        if not self.has_rsample:
            raise GradientError(
                "rsample",
                f"draws must depend smoothly on the parameters, got {type(self).__name__}",
                hint="use sample() and log_prob(), as policy gradients do",
            )
        return self._draw(_sizes("rsample", sample_shape))

    def _draw(self, sizes: Sizes) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define _draw")

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability, at values."""
        raise NotImplementedError(f"{type(self).__name__} must define log_prob")

    def prob(self, value: Any) -> Tensor:
        """The density, or the probability, at values."""
        return self.log_prob(value).exp()

    def entropy(self) -> Tensor:
        """The entropy of each distribution of the batch, in nats."""
        raise self._without("entropy")

    def cdf(self, value: Any) -> Tensor:
        """The probability of no more than values."""
        raise self._without("cdf")

    def icdf(self, value: Any) -> Tensor:
        """The values that draws exceed with a probability of 1 less the given one."""
        raise self._without("icdf")

    @property
    def mean(self) -> Tensor:
        """The mean of each distribution of the batch."""
        raise self._without("mean")

    @property
    def variance(self) -> Tensor:
        """The variance of each distribution of the batch."""
        raise self._without("variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation of each distribution of the batch."""
        return self.variance.sqrt()

    def _without(self, what: str) -> ArgumentError:
        return ArgumentError(what, f"{type(self).__name__} has no closed form of it")

    def __getattr__(self, name: str) -> NoReturn:
        raise unknown_of(name, self, "Distribution")

    def _shape(self, sizes: Sizes) -> Sizes:
        return (*sizes, *self.batch_shape, *self.event_shape)

    def __repr__(self) -> str:
        shown = {k: v for k, v in vars(self).items() if isinstance(v, Tensor) and not k.startswith("_")}
        texts = [f"{k}: {tuple(v.shape)}" if v.ndim else f"{k}: {v.item():g}" for k, v in shown.items()]
        return f"{type(self).__name__}({', '.join(texts)})"


def _sizes(op: str, shape: Any) -> Sizes:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(not isinstance(n, int) or n < 0 for n in sizes):
        raise ShapeError(op, f"sample_shape must be sizes, got {shape!r}")
    return sizes


def parameters(name: str, positive: tuple[str, ...] = (), **given: Any) -> list[Tensor]:
    """Parameters as floating tensors of one shape; those that must be positive are checked."""
    found = [as_float(v) for v in given.values()]
    dtypes = [f.dtype for f, v in zip(found, given.values(), strict=True) if isinstance(v, Tensor)]
    if dtypes:  # numbers take the dtype of the tensors beside them
        dtype = weft.result_type(*dtypes)
        found = [as_dtype(v, dtype) for v in given.values()]
    for key, tensor in zip(given, found, strict=True):
        if key in positive:
            check(name, key, "be positive", tensor, lambda t: t > 0)
    if len(found) == 1:
        return found
    return list(weft.broadcast_arrays(*found))


def as_float(value: Any) -> Tensor:
    """A value as a floating tensor."""
    tensor = value if isinstance(value, Tensor) else weft.asarray(value)
    return tensor if weft.isdtype(tensor.dtype, "real floating") else tensor.astype(weft.get_default_dtype())


def as_dtype(value: Any, dtype: Any) -> Tensor:
    """A value as a tensor of a dtype; a number of Python keeps the digits that fit."""
    return value.astype(dtype, copy=False) if isinstance(value, Tensor) else weft.asarray(value, dtype=dtype)


def check(name: str, key: str, must: str, tensor: Tensor, holds: Any) -> None:
    """Raise if a parameter is out of its domain; inside a capture values are not known, and not asked for."""
    if weft.jit.is_capturing() or not _is_plain(tensor):
        return
    if not bool(holds(tensor.detach()).all()):
        raise DomainError(name, f"{key} must {must}, got {tensor.detach()}")


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor holds numbers, rather than stand for them in a transform."""
    try:
        tensor.detach().numpy(force=True)
    except (weft.errors.WeftError, TypeError):
        return False
    return True


def uniform(sizes: Sizes, like: Tensor) -> Tensor:
    """Uniform draws in (0, 1), never 0 or 1."""
    tiny = float(weft.finfo(like.dtype).eps) / 4
    return weft.rand(sizes, dtype=like.dtype, device=like.device).clip(tiny, 1 - 2 * tiny)


def normal(sizes: Sizes, like: Tensor) -> Tensor:
    """Standard normal draws."""
    return weft.randn(sizes, dtype=like.dtype, device=like.device)


def sum_last(x: Tensor, count: int) -> Tensor:
    """The sum over the last axes."""
    return x.sum(axis=tuple(range(x.ndim - count, x.ndim))) if count else x


def log_beta(a: Tensor, b: Tensor) -> Tensor:
    """The logarithm of the beta function."""
    return a.lgamma() + b.lgamma() - (a + b).lgamma()

"""``weft.autocast``: products in half precision, sums and losses in single, whatever the tensors have.

Which is which, ops and composites declare themselves (``precision``). A composite that does is cast as a
whole: inside it, and in backward, dtypes are followed as they are. While no thread casts, ``casting`` is
empty, and an op with a precision asks no more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import get_ident
from types import TracebackType
from typing import Any

import numpy as np

from weft.base.dtypes import DType, DTypeLike, as_dtype, bfloat16, float16, float32, float64, kind
from weft.base.public import public
from weft.errors import ArgumentError, DtypeError
from weft.ops.op import Container, Tensor, TensorLike, casting
from weft.ops.select import cast
from weft.tensor.mode import Scope, leave, thread

_HALF = (bfloat16, float16)
_TENSORS: Any = (TensorLike, np.ndarray)


@public
class autocast(Scope):  # noqa: N801 - used as a function, spelled like one
    """Run code with products and convolutions in half precision: a context manager, and a decorator.

    Their results are in that dtype too, and are accumulated in float32. Sums, norms, softmax and losses take
    and give float32. Anything else follows the dtypes it is given; float64 stays as it is. Parameters keep
    their dtype, and their gradients have it. ``backward`` needs no autocast, but may run inside of one.

    Args:
        what: the dtype; or a kind of device, as PyTorch asks for it, which changes nothing.
        dtype: ``weft.bfloat16``, or ``weft.float16``, which wants a ``weft.optim.GradScaler``.
        enabled: False to switch it off inside another one.

    >>> import weft
    >>> x, w = weft.ones((2, 3)), weft.ones((3, 3), requires_grad=True)
    >>> with weft.autocast(weft.bfloat16):
    ...     y = x @ w
    ...     loss = y.square().mean()
    >>> y.dtype.name, loss.dtype.name
    ('bfloat16', 'float32')
    >>> loss.backward()
    >>> w.grad.dtype.name
    'float32'
    """

    def __init__(
        self,
        what: DTypeLike | None = None,
        dtype: DTypeLike | None = None,
        enabled: bool = True,
        cache_enabled: bool = True,
    ) -> None:
        if what is not None and not _is_device(what):
            if dtype is not None:
                raise ArgumentError("autocast", f"takes one dtype, got {what!r} and {dtype!r}")
            dtype = what
        self.dtype = bfloat16 if dtype is None else as_dtype(dtype)
        self.enabled = bool(enabled)
        if self.dtype not in _HALF:
            raise DtypeError("autocast", f"dtype must be bfloat16 or float16, got {self.dtype.name}")

    def __enter__(self) -> None:
        thread.casts.append((self, _set(self.dtype if self.enabled else None)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        open_scopes = len(thread.casts)
        before = leave(thread.casts, self)
        if len(thread.casts) < open_scopes:
            _set(before)


def _is_device(what: DTypeLike) -> bool:
    return isinstance(what, str) and what.partition(":")[0] in ("cpu", "cuda")


def _set(dtype: DType | None) -> DType | None:
    """Set what this thread casts to, None for nothing; gives what it was before."""
    ident = get_ident()
    before: DType | None = casting.pop(ident, None)
    if dtype is not None:
        casting[ident] = dtype
    return before


def autocast_dtype() -> DType | None:
    """What this thread casts products to, None if it does not."""
    return casting.get(get_ident()) if casting else None


@contextmanager
def casting_to(dtype: DType | None) -> Iterator[None]:
    """Let this thread cast to a dtype, or not at all, whatever scopes are open."""
    before = _set(dtype)
    try:
        yield
    finally:
        _set(before)


def not_casting() -> AbstractContextManager[None]:
    """Let this thread follow dtypes as they are."""
    return casting_to(None) if casting else _NOTHING


_NOTHING = nullcontext()


def in_precision(precision: str, inputs: Sequence[Any]) -> Sequence[Any]:
    """The inputs of an op as autocast wants them: of ``"low"`` or ``"high"`` precision."""
    dtype = autocast_dtype()
    return inputs if dtype is None else [_cast(x, target) for x, target in _targets(precision, dtype, inputs)]


def _targets(precision: str, low: DType, inputs: Sequence[Any]) -> list[tuple[Any, DType | None]]:
    """Each input with the dtype it is to have, None to leave it as it is."""
    floats = [x.dtype if _is_floating(x) else None for x in inputs]
    if precision == "high":
        return [(x, float32 if f in _HALF else None) for x, f in zip(inputs, floats, strict=True)]
    if any(f is float64 for f in floats):  # whoever computes in double precision means it; None == float64
        return [(x, None) for x in inputs]
    return [(x, None if f is None else low) for x, f in zip(inputs, floats, strict=True)]


def _is_floating(x: Tensor) -> bool:
    return isinstance(x, _TENSORS) and not isinstance(x, Container) and kind(x.dtype) == "f"


def _cast(x: Tensor, dtype: DType | None) -> Tensor:
    return x if dtype is None or x.dtype == dtype else cast(x, dtype=dtype)


def run_in_precision(
    precision: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a composite on arguments in its precision; inside it nothing is cast."""
    given = in_precision(precision, [*args, *kwargs.values()])
    with not_casting():
        return call(*given[: len(args)], **dict(zip(kwargs, given[len(args) :], strict=True)))

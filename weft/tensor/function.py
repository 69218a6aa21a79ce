"""``weft.Function``: a step of the graph with a gradient written by the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from weft.base.public import public
from weft.errors import ArgumentError
from weft.ops.op import intercepted
from weft.tensor.call import call
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])


class Function:
    """Derive from it to write a gradient by hand: ``forward`` and ``backward`` are static methods.

    ``forward(ctx, *args)`` gets the arguments of ``apply`` and returns tensors; nothing in it is recorded.
    ``backward(ctx, *grads)`` gets a gradient for each output and returns one for each argument, None for
    arguments that are no tensors. If it is written in weft's functions it can be differentiated again, and
    gives the forward-mode derivative too, unless ``jvp(ctx, *tangents)`` does. With a method
    ``setup_context(ctx, inputs, output)``, forward takes no context.

    >>> import weft
    >>> class Square(weft.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         (x,) = ctx.saved_tensors
    ...         return g * 2.0 * x
    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> Square.apply(x).backward()
    >>> x.grad
    tensor(6.)
    """

    forward: Callable[..., Any] | None = None
    backward: Callable[..., Any] | None = None
    jvp: Callable[..., Any] | None = None
    setup_context: Callable[..., Any] | None = None

    def __init__(self, *_: object, **__: object) -> None:
        name = type(self).__name__
        raise ArgumentError(name, "a Function is not made, but applied", hint=f"use {name}.apply(...)")

    @classmethod
    def apply(cls, *args: object, **kwargs: object) -> Any:
        """Run forward, and record that backward is its gradient."""
        if kwargs:
            raise ArgumentError(cls.__name__, f"apply takes no keywords, got {next(iter(kwargs))!r}")
        for a in args:
            if isinstance(a, tuple | list) and any(isinstance(x, Tensor) and x.requires_grad for x in a):
                raise ArgumentError(
                    cls.__name__,
                    f"tensors that require grad must be arguments themselves, got a {type(a).__name__}",
                    hint="pass them one by one: apply(*tensors)",
                )
        if intercepted.threads and thread.capture is not None:
            thread.capture.root.untold_gradient = True
        results, _ = call(cls, args)
        return results


@public
def once_differentiable(backward: F) -> F:
    """Mark a backward that is not written in weft's functions: differentiating it is an error, not a zero.

    >>> import weft
    >>> class Double(weft.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2.0
    ...     @staticmethod
    ...     @weft.autograd.once_differentiable
    ...     def backward(ctx, g):
    ...         return weft.tensor(g.numpy() * 2.0)
    >>> x = weft.tensor(1.0, requires_grad=True)
    >>> Double.apply(x).backward()
    >>> x.grad
    tensor(2.)
    """
    backward.once_differentiable = True  # type: ignore[attr-defined]
    return backward

"""Layers that are alike: what one has of its own is said where its class begins."""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc

from weft import Tensor
from weft.nn.module import Module
from weft.ops.public import example_text


class Variant(Module):
    """A layer that is one of many alike.

    >>> class Pad(Variant, rank=2, example="(1) -> Pad()"):
    ...     '''A border.'''
    >>> Pad.rank, Pad.__doc__.splitlines()
    (2, ['A border.', '', '>>> import weft', '>>> weft.nn.Pad(1)', 'Pad()'])
    """

    rank = 0  # the number of axes it works on

    def __init_subclass__(cls, example: str = "", **own: object) -> None:
        """Set what a class has of its own, and add an example of a call to its documentation."""
        super().__init_subclass__()
        for name, value in own.items():
            if not any(
                name in vars(base) or name in vars(base).get("__annotations__", ()) for base in cls.__mro__
            ):
                raise TypeError(f"{cls.__name__} has nothing called {name!r} to be set")
            setattr(cls, name, staticmethod(value) if callable(value) else value)
        if example:
            call = f"weft.nn.{cls.__name__}{example}"
            cls.__doc__ = cleandoc(cls.__doc__ or "") + example_text(call)


class Elementwise(Variant):
    """A function of each element, without settings."""

    function: Callable[[Tensor], Tensor]

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return self.function(x)

"""What modules do to all modules inside by plain Python, which captured code reads as it reads layers.

``weft.nn.module`` is called as it is, so that a capture would see nothing of the attributes that it sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

from weft.errors import ArgumentError


class Modes:
    """The part of a module that sets attributes of all modules inside."""

    training: bool

    def modules(self) -> Iterator[Any]:
        """This module and all inside, each once."""
        raise NotImplementedError

    def children(self) -> Iterator[Any]:
        """The modules directly inside, each once."""
        raise NotImplementedError

    def train(self, mode: bool = True) -> Self:
        """Set ``training`` of this module and all inside; returns the module."""
        for module in self.modules():
            module.training = bool(mode)
        return self

    def eval(self) -> Self:
        """The same as ``train(False)``."""
        return self.train(False)

    def apply(self, fn: Callable[[Any], Any], *args: object, **kwargs: object) -> Self:
        """Call a function with each module inside, then with this one; returns it.

        Parameters and inputs, as Flax gives them, are an error that tells what to call.
        """
        if args or kwargs or not callable(fn):
            hint = "a module holds its parameters: model.load_state_dict(state) sets them, model(x) calls it"
            raise ArgumentError("apply", "takes one function, which is called with modules", hint=hint)
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

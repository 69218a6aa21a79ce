"""What makes functions public: the text, example and names of an op, and examples of functions."""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc
from typing import Any, TypeVar

from weft.base.public import public
from weft.base.records import NamedTuple

F = TypeVar("F", bound=Callable[..., Any])


class Public(NamedTuple):
    """The public side of an elementwise op: ``weft.sin`` and the methods ``x.sin()`` and ``x.sin_()``.

    Attributes:
        text: what it gives, in a sentence.
        example: values of the inputs, an arrow, and the values that come out as they are printed.
        names: of the function; by default the op's own.
        is_method: whether tensors have it as a method too, in place also.
        ufunc: of NumPy, of the same meaning, where the op's kernel is not one.
        options: a function of the same tensors that takes further arguments, which calls with such go to.
    """

    text: str
    example: str
    names: tuple[str, ...] = ()
    is_method: bool = True
    options: Callable[..., Any] | None = None
    ufunc: Any = None

    def docstring(self, name: str) -> str:
        """The text, and the example as a doctest of a function."""
        given, _, gives = self.example.partition(" -> ")
        tensors = ", ".join([f"weft.tensor([{values}])" for values in given[1:-1].split("], [")])
        return f"{self.text}\n\n>>> import weft\n>>> weft.{name}({tensors})\ntensor({gives})\n"


def example_text(text: str) -> str:
    """An example ``weft.f(2) -> 4`` as a doctest, to be put behind what a docstring says."""
    call, _, gives = text.rpartition(" -> ")
    return f"\n\n>>> import weft\n>>> {call}\n{gives}\n"


def example(text: str) -> Callable[[F], F]:
    """Add an example to the docstring of a function: ``(2) -> 4`` is one of a call of ``weft.f``.

    >>> @example("(2) -> 4")
    ... def f(x):
    ...     '''Twice x.'''
    >>> f.__doc__.splitlines()
    ['Twice x.', '', '>>> import weft', '>>> weft.f(2)', '4']
    """

    def add(function: F) -> F:
        call = f"weft.{function.__name__}{text}" if text.startswith("(") else text
        function.__doc__ = cleandoc(function.__doc__ or "") + example_text(call)
        return function

    return add


def published(text: str) -> Callable[[F], F]:
    """Make a function public, with an example."""
    add = example(text)
    return lambda function: public(add(function))

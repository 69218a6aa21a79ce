"""How a program of the corpus is declared: a plain function, and the inputs it is run on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Program(NamedTuple):
    """A plain Python function, and what it is run on.

    Attributes:
        function: of tensors, to a tensor or a tree of them.
        inputs: argument lists; they take different ways through the function where it has several.
        differentiable: whether gradients are compared.
        abstract: whether it can be captured from types alone; else some value must be looked at.
        loops: loop nodes that the graph from source must have, where loops must stay loops; None: any number.
    """

    function: Callable[..., Any]
    inputs: tuple[tuple[Any, ...], ...]
    differentiable: bool
    abstract: bool
    loops: int | None


PROGRAMS: dict[str, Program] = {}


def array(x: Any) -> Any:
    """Numbers as float32, whole numbers as int64, truth as bool."""
    given = np.asarray(x)
    return given.astype(np.float32) if given.dtype.kind == "f" else given


def program(
    *inputs: Sequence[Any], differentiable: bool = True, abstract: bool = True, loops: int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function into the corpus, with one argument list for each run."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        assert name not in PROGRAMS, name
        runs = tuple(tuple(array(x) for x in run) for run in inputs)
        PROGRAMS[name] = Program(function, runs, differentiable, abstract, loops)
        return function

    return enter

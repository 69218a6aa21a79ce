"""Whether an argument is a leaf matters to code that asks, changes it in place, or stops its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft


def asks(x: Any) -> Any:
    return x.is_leaf, x * 1.0


def asks_for_a_node(x: Any) -> Any:
    return (0 if x.grad_fn is None else 1), x * 1.0


def changes(x: Any) -> Any:
    return x.add_(1.0)


def assigns(x: Any) -> Any:
    x[0] = 5.0
    return x.sum()


def changes_a_view(x: Any) -> Any:
    return x.view(-1).mul_(2.0)


def changes_without_recording(x: Any) -> Any:
    with weft.no_grad():
        x.add_(1.0)
    return x * 2.0


def stops(x: Any) -> Any:
    x.requires_grad_(False)
    return x * 2.0


PROGRAMS = [asks, asks_for_a_node, changes, assigns, changes_a_view, changes_without_recording, stops]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_leaf_and_what_is_computed_are_told_apart(program: Callable[..., Any]) -> None:
    for first in (True, False):
        f = weft.compile(program)
        for is_leaf in (first, not first, first, not first):
            assert _left(f, is_leaf) == _left(program, is_leaf), (first, is_leaf)


def test_function_that_does_not_ask_serves_both() -> None:
    f = weft.compile(lambda x: x * 2.0)
    w = weft.tensor([1.0], requires_grad=True)
    f(w), f(w * 1.0)
    assert len(f.versions) == 1


def _left(function: Callable[..., Any], is_leaf: bool) -> Any:
    """What a call gives or raises, and what its argument is after it."""
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    x = w if is_leaf else w * 1.0
    try:
        out = weft.tree_leaves(function(x))
    except weft.errors.GradientError as error:
        return type(error), x.tolist()
    seen = [(y.tolist(), y.requires_grad) if isinstance(y, weft.Tensor) else y for y in out]
    return seen, x.tolist(), x.requires_grad

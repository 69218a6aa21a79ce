"""``check_vmap``: a batch against a loop over its examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.trees import tree_flatten, tree_map, tree_unflatten
from weft.errors import ArgumentError
from weft.tensor.tensor import wrap
from weft.testing.compare import as_array, assert_close
from weft.transform.vmap import input_axes, vmap


def check_vmap(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    in_axes: Any = 0,
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Raise an AssertionError unless ``vmap(f, in_axes)(*args)`` equals f run on each example.

    >>> import weft
    >>> weft.testing.check_vmap(lambda x: x.sum(), (weft.tensor([[1.0, 2.0], [3.0, 4.0]]),))
    """
    if not isinstance(args, tuple):
        raise ArgumentError("check_vmap", f"args must be a tuple of arguments, got {type(args).__name__}")
    leaves, structure = tree_flatten(args)
    axes = input_axes(in_axes, args)
    batched = vmap(f, in_axes)(*args)
    size = next(x.shape[a] for x, a in zip(leaves, axes, strict=True) if a is not None)
    runs = []
    for i in range(size):
        example = [
            x if a is None else wrap(np.asarray(np.take(as_array(x), i, axis=a)))
            for x, a in zip(leaves, axes, strict=True)
        ]
        runs.append(f(*tree_unflatten(structure, example)))
    if runs:
        looped = tree_map(lambda *xs: np.stack([as_array(x) for x in xs]), *runs)
        assert_close(batched, looped, rtol=rtol, atol=atol)

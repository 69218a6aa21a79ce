"""``vmap``: from a function of one example to a function of a batch of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

import numpy as np

from weft.base.concrete import is_concrete
from weft.base.public import public
from weft.base.tracebacks import edge
from weft.base.trees import spread_prefix, tree_flatten, tree_unflatten
from weft.errors import ArgumentError, AxisError, DomainError, ShapeError
from weft.ops.batching import move_axis, to_front
from weft.ops.op import type_of
from weft.ops.view.primitives import concat
from weft.ops.view.slices import slice_axis
from weft.tensor.generator import current_key_rules, using_key_rules
from weft.tensor.mode import call_user
from weft.tensor.random import split
from weft.tensor.tensor import Tensor, wrap
from weft.transform import functions as _functions  # noqa: F401 - enters the rules of weft.Function
from weft.transform.arguments import Places, argument_names, check_function, flatten_outputs, to_tensor
from weft.transform.batch import Batched
from weft.transform.levels import new_level

P = ParamSpec("P")
R = TypeVar("R")

_RANDOMNESS = ("error", "same", "different")


@public
def vmap(
    f: Callable[P, R],
    in_axes: object = 0,
    out_axes: object = 0,
    randomness: str = "error",
    chunk_size: int | None = None,
) -> Callable[P, R]:
    """A function that runs f on every example of a batch at once.

    Args:
        f: from trees of tensors to a tree of tensors, of one example.
        in_axes: the axis of the examples in the arguments: an int, None for what is the same in all
            examples, or a tuple with one of these, or a tree of them, for each argument.
            Keyword arguments are the same in all examples.
        out_axes: the axis of the examples in the results: an int, or a tree of them.
        randomness: what a random draw in f does: "error", the "same" or a "different" one in each example.
        chunk_size: run at most so many examples at once.

    >>> import weft
    >>> weft.vmap(lambda x, y: (x * y).sum(), in_axes=(0, None))(
    ...     weft.tensor([[1.0, 2.0], [3.0, 4.0]]), weft.tensor([1.0, 10.0])
    ... )
    tensor([21., 43.])
    """
    check_function("vmap", f)
    if randomness not in _RANDOMNESS:
        raise DomainError("vmap", f"randomness must be one of {', '.join(_RANDOMNESS)}, got {randomness!r}")
    if chunk_size is not None and chunk_size < 1:
        raise DomainError("vmap", f"chunk_size must be at least 1, got {chunk_size}")

    @functools.wraps(f, updated=())
    def function(*args: object, **kwargs: object) -> Any:
        leaves, structure = tree_flatten(args)
        size, batched = _examples(leaves, input_axes(in_axes, args), args)

        def run(start: int, stop: int) -> _Outputs:
            with new_level() as level, _drawing(randomness, level, stop - start):
                inputs = list(leaves)
                for i, x in batched.items():
                    part = x if stop - start == size else slice_axis(x, 0, start, stop)
                    inputs[i] = wrap(Batched(level, part, 0))
                out = call_user(f, *tree_unflatten(structure, inputs), **kwargs)
                return _Outputs(level, stop - start, out, out_axes)

        if chunk_size is None or size <= chunk_size:
            return run(0, size).tree()
        return _joined([run(i, min(i + chunk_size, size)) for i in range(0, size, chunk_size)])

    return edge(function)


def _drawing(randomness: str, level: int, size: int) -> AbstractContextManager[None]:
    """What draws without a key of their own do inside."""

    def rule(key: Tensor) -> Tensor:
        if randomness == "error":
            message = "what a random draw does for each example must be said, got one with randomness='error'"
            hint = "pass randomness='same' or 'different' to vmap, or draw from a key that is an argument"
            raise DomainError("vmap", message, hint=hint)
        if randomness == "same":
            return key
        keys, data = split(key, size), key._data
        if is_concrete(data) or data.level < level:
            return wrap(Batched(level, keys, 0))
        return keys[wrap(Batched(level, wrap(np.arange(size)), 0))]  # a region inside holds no batches

    return using_key_rules((*current_key_rules(), rule))


class _Outputs:
    """What a function returned for one batch, with the examples along the axes that the caller asked for."""

    __slots__ = ("axes", "structure", "tensors")

    def __init__(self, level: int, size: int, out: object, out_axes: object) -> None:
        outputs, self.structure = flatten_outputs("vmap", out)
        wanted = spread_prefix("vmap", out_axes, out, "the result", _is_axis)
        places = Places([out], ["result"])
        self.axes = [
            _output_axis(o, a, places, i) for i, (o, a) in enumerate(zip(outputs, wanted, strict=True))
        ]
        self.tensors = [
            _unbatch(level, o, a, size, places, i)
            for i, (o, a) in enumerate(zip(outputs, self.axes, strict=True))
        ]

    def tree(self) -> Any:
        """The outputs as the function returned them."""
        return tree_unflatten(self.structure, self.tensors)


def _joined(chunks: list[_Outputs]) -> Any:
    first = chunks[0]
    columns = zip(*[c.tensors for c in chunks], strict=True)
    joined = [t[0] if a is None else concat(t, axis=a) for t, a in zip(columns, first.axes, strict=True)]
    return tree_unflatten(first.structure, joined)


def _is_axis(x: object) -> bool:
    return x is None or isinstance(x, int)


def input_axes(in_axes: object, args: tuple[Any, ...]) -> list[Any]:
    """The batch axis of each leaf of the arguments."""
    if isinstance(in_axes, tuple | list):
        if len(in_axes) != len(args):
            message = f"in_axes must have one item for each argument, got {len(in_axes)} for {len(args)}"
            raise ArgumentError("vmap", message)
        in_axes = tuple(in_axes)
    axes = spread_prefix("vmap", in_axes, args, "arguments", _is_axis)
    for axis in axes:
        if not _is_axis(axis) or isinstance(axis, bool):
            raise ArgumentError("vmap", f"in_axes must be made of ints and None, got {axis!r}")
    return axes


def _examples(leaves: Sequence[Any], axes: Sequence[Any], args: Any) -> tuple[int, dict[int, Tensor]]:
    """The number of examples, and by position the leaves that are batched, their examples along axis 0."""
    places = Places(args, argument_names(len(args)))
    size, first, out = -1, -1, {}
    for i, (leaf, axis) in enumerate(zip(leaves, axes, strict=True)):
        if axis is None:
            continue
        x = leaf if isinstance(leaf, Tensor) and leaf.ndim else _mappable(leaf, places[i])
        if not -x.ndim <= axis < x.ndim:
            raise AxisError("vmap", f"in_axes must name an axis of {places[i]}, got {axis} for {type_of(x)}")
        if size < 0:
            size, first = x.shape[axis], i
        elif x.shape[axis] != size:
            listed = [
                f"{leaves[k].shape[axes[k]]} in {places[k]} ({type_of(leaves[k])}, axis {axes[k]})"
                for k in (first, i)
            ]
            raise ShapeError("vmap", f"all arguments must have as many examples, got {' and '.join(listed)}")
        out[i] = move_axis(x, axis % x.ndim, 0)
    if size < 0:
        message = "there must be an argument with an axis of examples, got none"
        raise ArgumentError("vmap", message, hint="see in_axes")
    return size, out


def _mappable(x: object, place: str) -> Tensor:
    """x as a tensor with at least one axis, or an error that names its place."""
    tensor = to_tensor("vmap", x, place)
    if tensor.ndim == 0:
        message = f"{place} must have an axis of examples, got {type_of(tensor)}"
        hint = "give None for it in in_axes if it is the same for all examples"
        raise ShapeError("vmap", message, hint=hint)
    return tensor


def _output_axis(output: Tensor, axis: object, places: Places, i: int) -> int | None:
    """The non-negative axis for the examples in one output, or None."""
    if axis is None:
        return None
    rank = output.ndim + 1
    if isinstance(axis, bool) or not isinstance(axis, int) or not -rank <= axis < rank:
        raise AxisError(
            "vmap",
            f"out_axes must be in {-rank}..{rank - 1} for {places[i]} of {type_of(output)}, got {axis!r}",
        )
    return axis % rank


def _unbatch(level: int, output: Tensor, axis: int | None, size: int, places: Places, i: int) -> Tensor:
    """One output with its examples along an axis."""
    data = output._data
    batched = type(data) is Batched and data.level == level
    if axis is None:
        if batched:
            raise AxisError(
                "vmap",
                f"out_axes may be None only for what is the same in all examples, got it for {places[i]}",
            )
        return output
    if batched:
        return move_axis(data.value, data.axis, axis)
    return move_axis(to_front(output, None, size), 0, axis)

"""What the transforms share about arguments and results: trees of tensors, checked and named in errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import as_dtype, default_float, kind
from weft.base.trees import Structure, tree_flatten
from weft.errors import ArgumentError, DtypeError
from weft.ops.op import type_of
from weft.tensor.mode import call_user
from weft.tensor.tensor import Tensor, wrap


def to_tensor(op: str, x: object, place: str) -> Tensor:
    """x as a tensor, or an error that names its place."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, np.ndarray | np.generic):
        as_dtype(x.dtype)
        return wrap(np.asarray(x))
    if isinstance(x, bool | int | float | complex):
        dtype = default_float() if isinstance(x, float) else as_dtype(type(x))
        return wrap(np.asarray(x, dtype))
    raise ArgumentError(op, f"{place} must be a tensor, got {type(x).__name__}")


def differentiable(op: str, x: object, place: str) -> Tensor:
    """x as a tensor of a dtype that has gradients, or an error that names its place."""
    tensor = to_tensor(op, x, place)
    if kind(tensor.dtype) not in "fc":
        message = f"{place} must be floating or complex to be differentiated, got {type_of(tensor)}"
        hint = "cast it with .astype(weft.float32), or leave it out of the differentiated arguments"
        raise DtypeError(op, message, hint=hint)
    return tensor


class Places:
    """What each leaf of several named trees is called in errors, such as ``argument 0['w']``."""

    __slots__ = ("_names", "_trees")

    def __init__(self, trees: Sequence[Any], names: Sequence[str]) -> None:
        self._trees = trees
        self._names = names

    def __getitem__(self, i: int) -> str:
        listed = [
            name + path
            for tree, name in zip(self._trees, self._names, strict=True)
            for path in tree_flatten(tree)[1].paths()
        ]
        return listed[i]


def flatten_differentiable(
    op: str, trees: Sequence[Any], names: Sequence[str]
) -> tuple[list[Tensor], Structure]:
    """The tensors in several trees, each named in errors, and the structure of them all as one tuple."""
    leaves, structure = tree_flatten(tuple(trees))
    places = Places(trees, names)
    return [
        x if isinstance(x, Tensor) and kind(x.dtype) in "fc" else differentiable(op, x, places[i])
        for i, x in enumerate(leaves)
    ], structure


def argument_names(count: int) -> list[str]:
    """What the positional arguments are called in errors."""
    return [f"argument {i}" for i in range(count)]


def flatten_outputs(op: str, out: object) -> tuple[list[Tensor], Structure]:
    """The tensors that a function returned, or an error that names what is not one."""
    leaves, structure = tree_flatten(out)
    for i, leaf in enumerate(leaves):
        if not isinstance(leaf, Tensor):
            path = structure.paths()[i]
            raise ArgumentError(
                op,
                f"the function must return tensors, got {type(leaf).__name__}{f' at {path}' if path else ''}",
            )
    if out is None:
        raise ArgumentError(op, "the function must return tensors, got None", hint="is a return missing?")
    return leaves, structure


def split_aux(op: str, result: object, has_aux: bool) -> tuple[Any, Any]:
    """What a function returned, apart from its auxiliary result."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        message = f"the function must return (output, aux) with has_aux=True, got {type(result).__name__}"
        raise ArgumentError(op, message)
    return result


def check_function(op: str, f: object) -> None:
    """Raise if f cannot be called."""
    if not callable(f):
        raise ArgumentError(op, f"must be given a function, got {type(f).__name__}")


def normalize_argnums(op: str, argnums: object, count: int) -> tuple[int, ...]:
    """Non-negative positions of the arguments to differentiate."""
    listed = argnums if isinstance(argnums, tuple | list) else (argnums,)
    for i in listed:
        if isinstance(i, bool) or not isinstance(i, int):
            raise ArgumentError(op, f"argnums must be an int or a tuple of ints, got {argnums!r}")
        if not -count <= i < count:
            raise ArgumentError(op, f"argnums must name one of the {count} positional arguments, got {i}")
    out = tuple(i % count for i in listed)
    if len(set(out)) != len(out):
        raise ArgumentError(op, f"argnums must be distinct, got {argnums!r}")
    return out


def fixing_others(
    f: Callable[..., Any], positions: Sequence[int], args: Sequence[Any], kwargs: dict[str, Any]
) -> Callable[..., Any]:
    """f as a function of the arguments at positions alone; the others and the keywords are fixed."""

    def function(*chosen: object) -> Any:
        full = list(args)
        for i, x in zip(positions, chosen, strict=True):
            full[i] = x
        return call_user(f, *full, **kwargs)

    return function

"""What users pass to pipelines, checked where they pass it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.errors import ArgumentError, DomainError, ShapeError


def function(op: str, given: Any) -> Callable[..., Any]:
    """Something that can be called."""
    if not callable(given):
        raise ArgumentError(op, f"takes a function, got {type(given).__name__}")
    return given  # type: ignore[no-any-return]


def count(op: str, given: Any, name: str = "count") -> int:
    """A number that is not negative."""
    if not isinstance(given, int | np.integer) or isinstance(given, bool):
        raise ArgumentError(op, f"{name} must be an int, got {given!r}")
    if given < 0:
        raise DomainError(op, f"{name} must not be negative, got {given}")
    return int(given)


def positive(op: str, name: str, given: Any) -> int:
    """A number above 0."""
    if count(op, given, name) == 0:
        raise DomainError(op, f"{name} must be positive, got 0")
    return int(given)


def seed(op: str, given: Any) -> int:
    """A number of 64 bits."""
    if count(op, given, "seed") >= 2**64:
        raise DomainError(op, f"seed must be in 0..2**64 - 1, got {given}")
    return int(given)


def choice(op: str, name: str, given: Any, known: Sequence[str]) -> None:
    """One of some words."""
    if given not in known:
        raise DomainError(op, f"{name} must be one of {', '.join(map(repr, known))}, got {given!r}")


def sizes(op: str, given: Any) -> tuple[int, ...]:
    """One number, or one for each axis."""
    found = given if isinstance(given, Sequence) else (given,)
    return tuple(positive(op, "size", x) for x in found)


def numbers(op: str, name: str, given: Any) -> Any:
    """A number or an array of numbers."""
    array = np.asarray(given.numpy() if hasattr(given, "numpy") else given)
    if array.dtype.kind not in "iuf":
        raise ArgumentError(op, f"{name} must be numbers, got {given!r}")
    return array


def ragged(op: str, given: Any) -> Any:
    """True, False, "pad", or names of parts."""
    if isinstance(given, bool) or given == "pad":
        return given
    if isinstance(given, str | int):
        return (given,)
    if isinstance(given, Sequence) and given and all(isinstance(x, str | int) for x in given):
        return tuple(given)
    hint = 'ragged=True makes ragged tensors, ragged="pad" arrays and lengths, ragged=("tokens",) some parts'
    raise DomainError(op, f"ragged must be a bool, 'pad' or names of parts, got {given!r}", hint=hint)


def state(given: Any, version: int, stages: list[str]) -> None:
    """A state of a pipeline of the same stages."""
    op = "load_state_dict"
    wanted = {"version", "epoch", "position", "stages"}
    if not isinstance(given, dict) or set(given) != wanted:
        got = sorted(given) if isinstance(given, dict) else type(given).__name__
        raise ArgumentError(op, f"takes what state_dict returned, got {got}")
    if given["version"] != version:
        raise DomainError(op, f"the state must be of version {version}, got {given['version']}")
    if list(given["stages"]) != stages:
        theirs = list(given["stages"])
        pairs = zip(theirs, stages, strict=False)
        i = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(theirs), len(stages)))
        ours, other = ([*x, "nothing"][min(i, len(x))] for x in (stages, theirs))
        raise DomainError(
            op, f"the state must be of the same stages, got {other} where this pipeline has {ours}"
        )


def parts(elements: int, ranks: int) -> None:
    """Raise unless the elements of a batch can be shared out among ranks."""
    if elements % ranks:
        message = f"each batch must divide by the {ranks} ranks, got one of {elements} elements"
        hint = 'batch(n, last="pad", mask=True) fills the last one up, last="drop" leaves it out'
        raise ShapeError("shard", message, hint=hint)

"""Ops that do something besides giving values: ``print`` writes text, ``check`` stops a run.

Both hold their text as literal pieces with a place for an operand between each two. They are never left out,
merged or moved across each other, so a graph prints in the order in which the program did.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.base.dtypes import bool_
from weft.base.hooks import hooks
from weft.errors import CheckError, DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.families import primitive
from weft.ops.op import Array, no_gradient


class Place(NamedTuple):
    """How an operand is written: as a tensor, with notes after its elements, or as a number in a format.

    Attributes:
        style: "tensor" or "number".
        detail: the notes of a tensor, such as ``grad_fn=<MulBackward>``; the format of a number.
    """

    style: str
    detail: str = ""


def compose_text(pieces: Sequence[str], places: Sequence[Place], arrays: Sequence[Array]) -> str:
    """The pieces with what the arrays hold between them."""
    out = pieces[0]
    for piece, place, array in zip(pieces[1:], places, arrays, strict=True):
        out += _write(Place(*place), array) + piece
    return out


def _write(place: Place, array: Array) -> str:
    if place.style == "tensor":
        return hooks.tensor_text(array, place.detail)
    value = array.reshape(()).item()
    return format(float(value) if type(value).__name__ == "bfloat16" else value, place.detail)


def _print(*xs: Array, pieces: tuple[str, ...], places: tuple[Any, ...]) -> tuple[Array, ...]:
    sys.stdout.write(compose_text(pieces, places, xs))
    return ()


print_text = primitive(
    "print",
    type_rule=lambda *xs, pieces, places: (),
    eval=_print,
    vjp=no_gradient("has no result"),
    batch=None,
    samples=None,
    outputs=0,
    effect=True,
    host=True,
)


def _check_type(
    condition: TensorType, *xs: TensorType, pieces: tuple[str, ...], places: tuple[Any, ...]
) -> tuple[TensorType, ...]:
    if condition.dtype != bool_:
        raise DtypeError("assert", f"the condition must be bool, got {condition.dtype.name}")
    if condition.shape != ():
        raise ShapeError("assert", f"the condition must be 0-d, got {condition}", hint="use weft.all(x)")
    return ()


def _check(
    condition: Array, *xs: Array, pieces: tuple[str, ...], places: tuple[Any, ...]
) -> tuple[Array, ...]:
    if not condition:
        raise CheckError("assert", compose_text(pieces, places, xs) or "the condition must hold")
    return ()


check = primitive(
    "check",
    type_rule=_check_type,
    eval=_check,
    vjp=no_gradient("has no result"),
    batch=None,
    samples=None,
    outputs=0,
    effect=True,
)

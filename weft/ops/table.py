"""The whole table of ops by name, for text that is read before the modules of its ops were imported."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import weft.ops
from weft.base.public import parameters
from weft.ops.op import COMPOSITES, OPS, Composite, Op

_complete: list[bool] = []


def find_op(name: str) -> Op | Composite | None:
    """The op or composite with a name; None if there is none.

    >>> from weft.ops.table import find_op
    >>> find_op("matmul"), find_op("gelu").name, find_op("nothing")
    (<op matmul>, 'gelu', None)
    """
    found = OPS.get(name) or COMPOSITES.get(name)
    if found is None and not _complete:
        import_all()
        found = OPS.get(name) or COMPOSITES.get(name)
    return found


def import_all() -> None:
    """Import every module of ops, so that the table is complete."""
    for module in pkgutil.walk_packages(weft.ops.__path__, "weft.ops."):
        import_module(module.name)
    _complete[:] = [True]


def op_names() -> list[str]:
    """The names of all ops and composites."""
    if not _complete:
        import_all()
    return [*OPS, *COMPOSITES]


def argument_names(composite: str) -> tuple[tuple[str, ...], int]:
    """The names of the positional parameters of a composite, and how many of them have no default."""
    function = COMPOSITES[composite].function
    plain = getattr(function, "__wrapped__", function)
    names = parameters(plain)[0]
    return names, len(names) - len(plain.__defaults__ or ())

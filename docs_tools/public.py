"""The public names: modules of weft, and what each of them offers."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

import weft
from weft.base.names import MODULES as LISTED

_WITHOUT = frozenset({"weft.functional"})  # all of whose names are names of weft, and of weft.nn.functional


@cache
def modules() -> list[str]:
    """The modules that have public names, weft itself first."""
    found = ["weft", *(name for name in LISTED.split() if name not in _WITHOUT)]
    return [found[0], *sorted({*found[1:], *_found_in(found[1:])})]


def _found_in(names: list[str]) -> list[str]:
    """Modules among the names of modules."""
    found = []
    for name in names:
        space = import_module(name)
        for own in names_of(name):
            value = getattr(space, own)
            if isinstance(value, ModuleType) and value.__name__.startswith(f"{name}."):
                found += [value.__name__, *_found_in([value.__name__])]
    return found


@cache
def names_of(module: str) -> list[str]:
    """The public names of a module: those it lists, or else those it defines.

    >>> names_of("weft.special")[:3]
    ['betainc', 'betaincc', 'digamma']
    """
    if module == "weft":
        return sorted({*weft.__all__, "float", "int"})
    space = import_module(module)
    listed = getattr(space, "__all__", None)
    if listed is not None:
        return sorted(listed)
    names = [name for name in dir(space) if not name.startswith("_")]
    return [n for n in names if _is_of(getattr(space, n), module)]


def _is_of(value: object, module: str) -> bool:
    own = str(getattr(value, "__module__", ""))
    if isinstance(value, ModuleType):
        return value.__name__.startswith(f"{module}.")
    return callable(value) and (own == module or own.startswith(f"{module}."))

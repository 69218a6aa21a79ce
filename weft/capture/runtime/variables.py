"""Variables that nested functions assign, by ``nonlocal``, where only a run decides whether they do.

An ``if`` or a loop knows what its blocks assign. An expression (``g(x) if c else y``, ``c and g(x)``) calls
functions, as ``weft.cond`` does, and these may assign variables around them, which are Python's own. So they
are put back after each way, and Python decides, by the value.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from weft.capture.program.slots import MISSING
from weft.tensor.mode import thread
from weft.transform.staging import Unstaged

Cells = dict[int, tuple[str, types.CellType, Any]]

_FUNCTIONS = (types.FunctionType, types.MethodType, partial, property, classmethod, staticmethod)
_MOST = 64  # items of a container that functions are looked for in


def cells_around(roots: Iterable[Any], own: Iterable[str] = ()) -> Cells:
    """The variables around functions and those that these may call, by id: names, cells, what they hold.

    Args:
        roots: what has the functions.
        own: names of variables that are none of those.
    """
    found: Cells = {}
    waiting, seen, without = [*roots], set[int](), {*own}
    while waiting:
        x = waiting.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        waiting += _parts(x)
        if isinstance(x, types.FunctionType) and x.__closure__:
            for name, cell in zip(x.__code__.co_freevars, x.__closure__, strict=True):
                if id(cell) not in found and name not in without:
                    found[id(cell)] = name, cell, _content(cell)
                    waiting.append(_content(cell))
    return found


def _parts(x: Any) -> list[Any]:
    """Where else functions may be."""
    if isinstance(x, partial):
        return [x.func, *x.args, *x.keywords.values()]
    if isinstance(x, types.MethodType):
        return [x.__func__, x.__self__]
    if isinstance(x, property):
        return [x.fget, x.fset, x.fdel]
    if isinstance(x, classmethod | staticmethod):
        return [x.__func__]
    if type(x) in (list, tuple):
        return list(x) if len(x) <= _MOST else []
    if type(x) is dict:
        return list(x.values()) if len(x) <= _MOST else []
    kind = x if isinstance(x, type) else type(x)
    if kind.__flags__ & _HEAP_TYPE and kind.__module__.partition(".")[0] != "weft":
        own = [] if x is kind else getattr(x, "__dict__", {}).values()
        classes = [c for c in kind.__mro__ if c.__flags__ & _HEAP_TYPE]
        return [v for values in (own, *[vars(c).values() for c in classes]) for v in values if _may_call(v)]
    return []


_HEAP_TYPE = 1 << 9  # of classes that code has made


def _may_call(x: Any) -> bool:
    return isinstance(x, _FUNCTIONS)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return MISSING


@contextmanager
def putting_back(*functions: Any) -> Iterator[None]:
    """While functions run of which only a run tells whether they do.

    Raises:
        Unstaged: they assign variables around them, which hold again what they did.
    """
    before, changed = cells_around(functions), list[str]()
    try:
        yield
    finally:
        for name, cell, content in before.values():
            if _content(cell) is not content:
                changed.append(name)
                if content is MISSING:
                    del cell.cell_contents
                else:
                    cell.cell_contents = content
    if changed:
        told = f"{changed[0]} must not be assigned by a function that only a run tells whether it is called"
        hint = "return the value, and assign it where the function is called, under an `if`"
        raise Unstaged("nonlocal", told, hint=hint)


def without_assigning(run: Callable[..., Any]) -> Callable[..., Any]:
    """A function that may assign variables around it where Python calls it, but in no branch or loop."""
    around = thread.capture

    def called(*args: Any) -> Any:
        if thread.capture is around:
            return run(*args)
        with putting_back(run):
            return run(*args)

    return called

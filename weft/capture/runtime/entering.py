"""The start and the end of a converted function: what it reads of its globals and variables around it."""

from __future__ import annotations

import functools
import types
from typing import Any

from weft.capture.program.slots import MISSING, CellSlot
from weft.capture.runtime.owners import is_made_inside, note_outside
from weft.capture.runtime.undefined import Undefined
from weft.tensor.mode import thread

_FUNCTIONS = (types.FunctionType, types.MethodType)


def returned(value: Any) -> Any:
    """What a function gives at its end: None if it was never set."""
    if type(value) is Undefined:
        if value.why:
            raise value.error()
        return None
    return value


def enter(function: Any, converted: Any, args: Any = ()) -> None:
    """Note what a converted function reads of its globals and of the functions around it."""
    capture = thread.capture
    if capture is None or not capture.root.guards_reads:
        return
    plain = _plain_function(function)
    if plain is None:
        return
    if not isinstance(function, _FUNCTIONS):
        capture.root.read_attr(type(function), "__call__", plain)
    for value in (*(plain.__defaults__ or ()), *(plain.__kwdefaults__ or {}).values()):
        if not is_made_inside(value):
            note_outside(value)
    root, scope = capture.root, plain.__globals__
    globals_read, cells_read = _names_read(plain.__code__)
    for name in globals_read:
        root.read_global(scope, name, scope.get(name, MISSING))
        note_outside(scope.get(name))
    cells = dict(zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True))
    for name in cells_read:
        content = CellSlot(cells[name]).get()
        if not is_made_inside(content):
            root.read_cell(cells[name], name, content)
            note_outside(content)


@functools.lru_cache(maxsize=4096)
def _names_read(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The globals and free variables that code, and the functions made in it, read."""
    import dis

    found: dict[str, None] = {}
    waiting = [code]
    while waiting:
        at = waiting.pop()
        found |= {
            i.argval: None for i in dis.get_instructions(at) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        }
        waiting += [c for c in at.co_consts if isinstance(c, types.CodeType)]
    return tuple(found), code.co_freevars


def _plain_function(function: Any) -> types.FunctionType | None:
    """The function behind a method or a callable object."""
    if not isinstance(function, _FUNCTIONS):
        function = type(function).__call__ if callable(function) else None
    function = function.__func__ if isinstance(function, types.MethodType) else function
    return function if isinstance(function, types.FunctionType) else None

"""Converted functions: a user's function, rewritten so that what may meet a tensor goes through the runtime.

The result has the file, lines and columns of the original, its defaults, its globals and the very cells of
its closure. Conversion is cached by code object. What has no source, or nothing to gain, is not converted.
"""

from __future__ import annotations

import ast
import linecache
import weakref
from collections.abc import Callable
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from weft.base.records import dataclass
from weft.capture.convert.build import function as function_node
from weft.capture.convert.build import rebuilt
from weft.capture.convert.code import all_codes, compile_function
from weft.capture.convert.flow import UnsupportedSyntax
from weft.capture.convert.names import body_of, identifiers, walk
from weft.capture.convert.source import Found, find_block, find_source, is_library
from weft.capture.convert.statements import converter_for
from weft.capture.convert.unit import Unit

_COROUTINES = 0x80 | 0x100 | 0x200  # CO_COROUTINE and its kin
_LOOK_AT_LOCALS = frozenset({"locals", "vars", "dir", "eval", "exec"})


@dataclass(frozen=True, slots=True)
class Converted:
    """What conversion makes of a code object, for all functions that have it.

    Attributes:
        code: the converted code.
        tree: the converted definition.
        given: variables the code gets besides the free variables of the original, with what they hold.
        cells: variables that hold the cell of a free variable, with the name of that.
    """

    code: CodeType
    tree: ast.FunctionDef
    given: dict[str, str]
    cells: dict[str, str]


_cache: dict[int, tuple[weakref.ref[CodeType], Converted | None]] = {}
_made: weakref.WeakValueDictionary[int, CodeType] = weakref.WeakValueDictionary()


def convert(function: Any) -> Any:
    """The converted function, or None where there is no source or nothing to gain.

    >>> from weft.capture.convert.functions import convert
    >>> convert(len) is None
    True
    """
    plain, owner = function_of(function)
    if plain is None or is_library(plain.__code__.co_filename):
        return None
    if is_converted(plain):
        return function
    from weft.capture.runtime import interface as runtime

    made = convert_function(plain, runtime)
    return made if made is None or owner is None else MethodType(made, owner)


def function_of(function: Any) -> tuple[FunctionType | None, Any]:
    """The plain function behind a function, a method or a callable object, and the object it is bound to."""
    owner = None
    if not isinstance(function, FunctionType | MethodType | type):
        function, owner = getattr(type(function), "__call__", None), function  # noqa: B004 (it is looked at)
    if isinstance(function, MethodType):
        function, owner = function.__func__, function.__self__
    return (function, owner) if isinstance(function, FunctionType) else (None, None)


def is_converted(function: Any) -> bool:
    """Whether a function came out of conversion, by itself or inside another one."""
    code = getattr(function, "__code__", None)
    return code is not None and _made.get(id(code)) is code


def convert_function(function: FunctionType, runtime: Any) -> FunctionType | None:
    """A function converted to use a runtime, wherever it comes from; None if that cannot be done."""
    converted = converted_code(function)
    if converted is None:
        return None
    values = {"runtime": runtime, "slice": slice, "set": set, "globals": function.__globals__}
    values["BaseException"] = BaseException
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    given = {name: CellType(values[what]) for name, what in converted.given.items()}
    held = {name: CellType(cells[of]) for name, of in converted.cells.items()}
    closure = tuple((cells | given | held)[name] for name in converted.code.co_freevars)
    made = FunctionType(
        converted.code, function.__globals__, function.__name__, function.__defaults__, closure
    )
    return _dressed(made, function)


def _dressed(made: FunctionType, function: FunctionType) -> FunctionType:
    """Give a function what tools look at."""
    made.__defaults__ = function.__defaults__
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__ = function.__qualname__
    made.__doc__ = function.__doc__
    made.__module__ = function.__module__
    made.__annotations__ = function.__annotations__
    made.__dict__.update(function.__dict__)
    if hasattr(function, "__type_params__"):
        made.__type_params__ = function.__type_params__  # type: ignore[attr-defined, unused-ignore]
    return made


def _forgetting(key: int) -> Callable[[Any], None]:
    """What is called when a code object is gone, also while Python shuts down."""
    pop = _cache.pop

    def forget(_: Any) -> None:
        pop(key, None)

    return forget


def converted_code(function: FunctionType) -> Converted | None:
    """What conversion makes of the code of a function; worked out once for each code object."""
    code = function.__code__
    key = id(code)
    known = _cache.get(key)
    if known is not None and known[0]() is code:
        return known[1]
    converted = None if code.co_flags & _COROUTINES else _convert_code(code, function.__globals__)
    _cache[key] = (weakref.ref(code, _forgetting(key)), converted)
    if converted is not None:
        _made.update({id(c): c for c in all_codes(converted.code)})
    return converted


def _convert_code(code: CodeType, globals: dict[str, Any]) -> Converted | None:
    found = _current_source(code, globals)
    if found is None or _looks_at_locals(found.node):
        return None
    node = _bare(found, code.co_firstlineno)
    unit = Unit(identifiers(node) | set(code.co_freevars), found.class_name, "__class__" in code.co_freevars)
    try:
        tree: ast.FunctionDef = rebuilt(node, body=converter_for(node)(unit, node).convert_body())
        made = compile_function(tree, code, found.class_name, unit.free(code.co_freevars), unit.made)
    except (UnsupportedSyntax, RecursionError):
        return None
    return Converted(made, tree, unit.given, {held: of for of, held in unit.cells.items()})


def _current_source(code: CodeType, globals: dict[str, Any]) -> Found | None:
    """The definition of a function, unless the file has changed since it was compiled."""
    for again, find in ((False, find_block), (False, find_source), (True, find_source)):
        if again:
            linecache.checkcache(code.co_filename)
        found = find(code, globals)
        if found is not None and _is_current(found, code):
            return found
    return None


def _is_current(found: Found, code: CodeType) -> bool:
    """Whether a definition compiles to the code: to the same names, in the same places."""
    if any(name.startswith("@py") for name in code.co_names):
        return True  # pytest has rewritten its asserts
    made = compile_function(_bare(found, code.co_firstlineno), code, found.class_name, code.co_freevars, {})
    return (
        made.co_names == code.co_names
        and made.co_varnames == code.co_varnames
        and set(code.co_positions()) <= set(made.co_positions())
    )


def _looks_at_locals(node: ast.AST) -> bool:
    """Whether a function calls what shows its variables as a dict, which conversion would change."""
    return any(
        isinstance(child, ast.Call)
        and isinstance(child.func, ast.Name)
        and child.func.id in _LOOK_AT_LOCALS
        and (not child.args or child.func.id in ("eval", "exec"))
        for child in walk(node)
    )


def _bare(found: Found, line: int) -> ast.FunctionDef:
    """The definition, from a line on, without what the function object has: decorators, defaults, types."""
    node, arguments = found.node, found.node.args

    def plain(a: ast.arg | None) -> Any:
        return a and rebuilt(a, annotation=None)

    bare = ast.arguments(
        posonlyargs=[plain(a) for a in arguments.posonlyargs],
        args=[plain(a) for a in arguments.args],
        vararg=plain(arguments.vararg),
        kwonlyargs=[plain(a) for a in arguments.kwonlyargs],
        kw_defaults=[None for _ in arguments.kwonlyargs],
        kwarg=plain(arguments.kwarg),
        defaults=[],
    )
    name = node.name if isinstance(node, ast.FunctionDef) else "<lambda>"
    made = function_node(name, bare, body_of(node), node)
    made.lineno = line
    return made


def converted_source(function: Any) -> str | None:
    """The text of the converted function, to look at; None if it is not converted.

    >>> from weft.capture.convert.functions import converted_source
    >>> converted_source(len) is None
    True
    """
    plain, _ = function_of(function)
    if plain is None or is_library(plain.__code__.co_filename):
        return None
    converted = converted_code(plain)
    return None if converted is None else ast.unparse(converted.tree)

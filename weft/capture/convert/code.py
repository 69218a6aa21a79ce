"""From a converted syntax tree to code: names and qualified names are those of the user's functions again."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any

from weft.capture.convert.build import function, no_arguments, rebuilt

_FACTORY = "_factory"
_FUTURES = 0x1FF0000  # CO_FUTURE_*: what `from __future__ import` has switched on
_NEW_LOCALS = 0x02  # CO_NEWLOCALS: a function, not the body of a class


def compile_function(
    node: ast.FunctionDef, original: CodeType, class_name: str, free: Sequence[str], made: dict[str, str]
) -> CodeType:
    """The code of a function that stands in a class and has free variables, as the original one.

    Args:
        node: the definition.
        original: the code whose file, flags and name it takes.
        class_name: the class whose body it stands in, for ``__class__`` and names such as ``__x``; or "".
        free: names of its free variables.
        made: functions that conversion added, with the name a traceback shows; "" for that of the one around.
    """
    tree = _in_factory(node, class_name, free)
    flags = original.co_flags & _FUTURES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the original has given them
        code = compile(tree, original.co_filename, "exec", flags, dont_inherit=True)
    for _ in range(3 if class_name else 2):
        code = next(c for c in code.co_consts if isinstance(c, CodeType))
    return _renamed(code, original.co_name, original.co_qualname, made)


def _in_factory(node: ast.FunctionDef, class_name: str, free: Sequence[str]) -> ast.Module:
    body: list[ast.stmt] = [rebuilt(node, name="<converted>")]  # which nothing in it can mean
    if class_name:
        class_ = ast.ClassDef(class_name, [], [], body, [])
        if "type_params" in ast.ClassDef._fields:
            class_.type_params = []  # type: ignore[attr-defined, unused-ignore]
        body = [class_] if class_name in free else [ast.Global([class_name]), class_]
    arguments = no_arguments()
    arguments.args += [ast.arg(name) for name in free if name != "__class__" or not class_name]
    like = ast.Pass(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)
    tree = ast.Module([function(_FACTORY, arguments, body, like)], [])
    for outer in (*arguments.args, *(body if class_name else ())):
        ast.copy_location(outer, like)
    return tree


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code objects inside one, the nearest first."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    yield from inner
    for c in inner:
        yield from _codes(c)


def _renamed(code: CodeType, name: str, qualname: str, made: dict[str, str]) -> CodeType:
    """Code with its own name, and with the names of the code inside as they were before conversion."""
    consts: list[Any] = []
    for const in code.co_consts:
        if isinstance(const, CodeType):
            shown = made.get(const.co_name)
            if shown == "":
                const = _renamed(const, name, qualname, made)
            else:
                inner = shown or const.co_name
                const = _renamed(const, inner, _qualified(code, qualname, inner), made)
        elif not code.co_flags & _NEW_LOCALS and const == code.co_qualname:
            const = qualname  # what the body of a class stores as its __qualname__
        consts.append(const)
    return code.replace(co_name=name, co_qualname=qualname, co_consts=tuple(consts))


def _qualified(code: CodeType, qualname: str, name: str) -> str:
    return f"{qualname}.<locals>.{name}" if code.co_flags & _NEW_LOCALS else f"{qualname}.{name}"


def all_codes(code: CodeType) -> list[CodeType]:
    """A code object and all inside it."""
    return [code, *_codes(code)]

"""Making syntax trees: nodes that take the place of another node have its line and columns."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any


def place(like: ast.AST) -> dict[str, Any]:
    """Line and columns of a node, as keywords for a new one."""
    return {
        "lineno": like.lineno,  # type: ignore[attr-defined]
        "col_offset": like.col_offset,  # type: ignore[attr-defined]
        "end_lineno": like.end_lineno,  # type: ignore[attr-defined]
        "end_col_offset": like.end_col_offset,  # type: ignore[attr-defined]
    }


def load(name: str, like: ast.AST) -> ast.Name:
    """A variable that is read."""
    return ast.Name(name, ast.Load(), **place(like))


def store(name: str, like: ast.AST) -> ast.Name:
    """A variable that is assigned."""
    return ast.Name(name, ast.Store(), **place(like))


def constant(value: object, like: ast.AST) -> ast.Constant:
    """A literal."""
    return ast.Constant(value, **place(like))  # type: ignore[arg-type]


def assign(name: str, value: ast.expr, like: ast.AST) -> ast.Assign:
    """``name = value``."""
    return ast.Assign([store(name, like)], value, **place(like))


def expression(value: ast.expr, like: ast.AST) -> ast.Expr:
    """A statement that is an expression."""
    return ast.Expr(value, **place(like))


def negate(value: ast.expr, like: ast.AST) -> ast.UnaryOp:
    """``not value``."""
    return ast.UnaryOp(ast.Not(), value, **place(like))


def call(function: ast.expr, arguments: Sequence[ast.expr], like: ast.AST) -> ast.Call:
    """``function(*arguments)``."""
    return ast.Call(function, list(arguments), [], **place(like))


def attribute(value: ast.expr, name: str, like: ast.AST) -> ast.Attribute:
    """``value.name``."""
    return ast.Attribute(value, name, ast.Load(), **place(like))


def tuple_of(elements: Iterable[ast.expr], like: ast.AST) -> ast.Tuple:
    """A tuple that is read."""
    return ast.Tuple(list(elements), ast.Load(), **place(like))


def names_stored(names: Sequence[str], like: ast.AST) -> ast.Tuple:
    """``(a, b)`` as a target."""
    return ast.Tuple([store(n, like) for n in names], ast.Store(), **place(like))


def no_arguments() -> ast.arguments:
    """The parameters of a function that has none."""
    return ast.arguments([], [], None, [], [], None, [])


def thunk(body: ast.expr, like: ast.AST) -> ast.Lambda:
    """``lambda: body``."""
    return ast.Lambda(no_arguments(), body, **place(like))


def function(name: str, arguments: ast.arguments, body: list[ast.stmt], like: ast.AST) -> ast.FunctionDef:
    """``def name(arguments): body``."""
    made = ast.FunctionDef(name, arguments, body, [], None, None, **place(like))
    if "type_params" in ast.FunctionDef._fields:
        made.type_params = []  # type: ignore[attr-defined, unused-ignore]
    return made


def rebuilt(node: Any, **changes: Any) -> Any:
    """A copy of a node with some fields changed; the other fields are shared."""
    fields = {name: getattr(node, name) for name in node._fields if hasattr(node, name)}
    fields.update(changes)
    return type(node)(**fields, **(place(node) if hasattr(node, "lineno") else {}))

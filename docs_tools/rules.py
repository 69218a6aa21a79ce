"""The source of rules: what a lambda of a declaration says, as an expression."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

_LONGEST = 72


def rule_text(rule: Callable[..., Any]) -> str:
    """The expression of a lambda; "" of what is more than one, or has no source.

    >>> from weft.ops.trigonometric import cos
    >>> rule_text(cos.partials[0])
    '-sin(x)'
    """
    code = getattr(rule, "__code__", None)
    if code is None or code.co_name != "<lambda>":
        return ""
    places = [p for p in code.co_positions() if p[0] is not None and p[2] is not None]
    begins = {(p[0], p[2]) for p in places}
    for node in _lambdas(code.co_filename):
        inside = any(
            (n.lineno, n.col_offset) in begins for n in ast.walk(node.body) if isinstance(n, ast.expr)
        )
        if node.lineno <= code.co_firstlineno <= (node.end_lineno or 0) and inside:
            text = ast.unparse(node.body)
            return text if len(text) <= _LONGEST else ""
    return ""


@cache
def _lambdas(path: str) -> list[ast.Lambda]:
    """All lambdas of a file, the inner ones first."""
    try:
        with open(path) as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError):
        return []
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    return sorted(found, key=lambda n: (n.end_lineno or 0) - n.lineno + len(ast.unparse(n)) / 1e6)


def source_line(value: object) -> str:
    """The file of a function or class below the repository, such as ``weft/ops/reduce.py``; "" if none."""
    try:
        path = inspect.getsourcefile(inspect.unwrap(value)) or ""  # type: ignore[arg-type]
    except TypeError:
        return ""
    return path[path.index("weft/") :] if "weft/" in path else ""

"""Runs the cells of a page one after the other, as a notebook would, and keeps the pictures they draw."""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import re
from collections.abc import Iterable
from typing import Any

from tests.course.pages import Cell
from weft.viewer.picture import Picture
from weft.viewer.svg import draw_svg


def run_cells(cells: Iterable[Cell]) -> dict[str, str]:
    """The pictures that cells draw, as SVG by name; a cell that does not do what it is to is an error."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    drawn: dict[str, str] = {}
    for number, cell in enumerate((c for c in cells if c.kind == "code"), 1):
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                value = _run(cell.source, f"cell {number}", scope)
        except Exception as error:
            if not cell.raises:
                raise AssertionError(f"cell {number} must run:\n{cell.source}") from error
            continue
        assert not cell.raises, f"cell {number} must raise an error, it gave {value!r}:\n{cell.source}"
        if cell.picture is not None:
            drawn[cell.picture] = _tidy(_svg(value))
    return drawn


def _run(source: str, name: str, scope: dict[str, Any]) -> Any:
    """What a cell gives: the value of its last statement, if that is an expression."""
    lines = [line + "\n" for line in source.splitlines()]
    linecache.cache[name] = (len(source), None, lines, name)  # where Python and weft look for the source
    tree = ast.parse(source, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), scope)  # noqa: S102 - pages of this repository
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), name, "eval"), scope)  # noqa: S307 - likewise


def _svg(value: Any) -> str:
    """A picture as text, the same one with Graphviz and without."""
    text: str = draw_svg(value.diagram) if isinstance(value, Picture) else value._repr_svg_()
    return text


def _tidy(svg: str) -> str:
    """A picture that does not change when cells before it do."""
    return re.sub(r"cell \d+:(\d+)", r"line \1", svg)

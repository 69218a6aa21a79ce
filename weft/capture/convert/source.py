"""Finding the syntax tree of a function in the text of the file it came from.

The text is what ``linecache`` knows, so functions typed at a prompt, in a notebook or in a doctest have one
too. A function is found by its first line and its name, a lambda by the columns of its instructions.
"""

from __future__ import annotations

import ast
import linecache
import os
import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from types import CodeType
from typing import Any

from weft import errors
from weft.base.records import NamedTuple

_FILES_KEPT = 32
_trees: dict[str, tuple[list[str], ast.Module | None]] = {}


class Found(NamedTuple):
    """A function in its file.

    Attributes:
        node: its definition; not to be changed, since the tree of the file is kept.
        class_name: the class whose body it stands in, directly or not, for names such as ``self.__x``; or "".
    """

    node: ast.FunctionDef | ast.Lambda
    class_name: str


def find_block(code: CodeType, globals: dict[str, Any]) -> Found | None:
    """The definition as the lines alone tell it that belong to it by their indentation; None if they do not.

    It is found soon, but whoever asks must check it: ``find_source`` looks at the whole file.
    """
    lines = _lines_of(code.co_filename, globals)
    block = _block(lines, code.co_firstlineno - 1)
    before = code.co_firstlineno - 1
    if not block or code.co_name == "<lambda>" or (block[0][0].isspace() and not before):
        return None
    head = "\n" * (before - 1) + "if 1:\n" if block[0][0].isspace() else "\n" * before
    tree = _parsed(head + "".join(block), code.co_filename)
    found = () if tree is None else _at_line(tree, code.co_firstlineno, _class_of(code.co_qualname))
    return next((f for f in found if _could_be(f.node, code)), None)


def _block(lines: Sequence[str], first: int) -> Sequence[str]:
    """The lines of the definition that begins on one, with its decorators; none if they cannot be told."""
    if first >= len(lines):
        return ()
    margin = len(lines[first]) - len(lines[first].lstrip())
    inside = False
    for i in range(first, len(lines)):
        text = lines[i].lstrip()
        if not text or text[0] in "#)]}" or len(lines[i]) - len(text) > margin:
            continue
        if inside:
            return lines[first:i]
        inside = text.startswith("def ")
    return lines[first:] if inside else ()


def _class_of(qualname: str) -> str:
    """The class whose body a function stands in, directly or not; or ""."""
    around = qualname.split(".")[:-1]
    classes = [a for a, b in pairwise([*around, ""]) if "<locals>" not in (a, b)]
    return classes[-1] if classes else ""


def find_source(code: CodeType, globals: dict[str, Any]) -> Found | None:
    """The definition that a code object was compiled from, if its text can be had."""
    tree = _tree_of(code.co_filename, globals)
    if tree is None:
        return None
    found = [f for f in _at_line(tree, code.co_firstlineno, "") if _could_be(f.node, code)]
    if len(found) > 1:
        found = [f for f in found if isinstance(f.node, ast.Lambda) and _covers(f.node, code)]
    return found[-1] if found else None  # the innermost one


def is_library(filename: str) -> bool:
    """Whether a file belongs to weft, to Python itself or to NumPy: code that is called as it is.

    Layers and schedules are weft's too, but are written as users write theirs, and are read: their settings
    are guarded, and their counts go on. So are the methods that abstract classes of Python give to classes of
    users, such as ``items`` of a ``Mapping``.
    """
    if filename in _ABSTRACT:
        return False
    if filename.startswith(_OWN):
        return not filename.startswith(_READ) or filename in _AS_THEY_ARE
    return filename.startswith(_LIBRARY) and not filename.startswith(_INSTALLED)


def _numpy() -> tuple[str, ...]:
    import ml_dtypes
    import numpy

    return tuple(os.path.dirname(os.path.abspath(str(m.__file__))) + os.sep for m in (numpy, ml_dtypes))


_OWN = (os.path.dirname(os.path.abspath(errors.__file__)) + os.sep, "<frozen", *_numpy())
_LAYERS, _SCHEDULES = _READ = tuple(
    os.path.join(os.path.dirname(os.path.abspath(errors.__file__)), *names) + os.sep
    for names in (("nn",), ("optim", "lr_scheduler"))
)
_AS_THEY_ARE = tuple(os.path.join(_LAYERS, name) for name in ("module.py", "summary.py"))
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_ABSTRACT = ("<frozen _collections_abc>", _LIBRARY + "_collections_abc.py")
_INSTALLED = (
    os.path.join(_LIBRARY, "site-packages") + os.sep,
    os.path.join(_LIBRARY, "dist-packages") + os.sep,
)


def _lines_of(filename: str, globals: dict[str, Any]) -> list[str]:
    """The lines of a file; of a module that is built into Python, of the file that it was made from."""
    if filename.startswith("<frozen"):
        filename = globals.get("__file__", filename)
    return linecache.getlines(filename, globals)


def _tree_of(filename: str, globals: dict[str, Any]) -> ast.Module | None:
    lines = _lines_of(filename, globals)
    known = _trees.get(filename)
    if known is not None and (known[0] is lines or known[0] == lines):
        return known[1]
    tree = _parsed("".join(lines), filename) if lines else None
    while len(_trees) >= _FILES_KEPT:
        del _trees[next(iter(_trees))]
    _trees[filename] = (lines, tree)
    return tree


def _parsed(text: str, filename: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the file were given when it was compiled
            return ast.parse(text, filename)
    except (SyntaxError, ValueError):
        return None


def _first_line(node: Any) -> int:
    """The line a node begins on, its decorators included, as code objects have it."""
    decorators = getattr(node, "decorator_list", None)
    return int(decorators[0].lineno if decorators else node.lineno)


def _at_line(node: ast.AST, line: int, class_name: str) -> Iterator[Found]:
    """The functions that begin on a line, looking only into what reaches over it."""
    for child in ast.iter_child_nodes(node):
        if hasattr(child, "lineno") and not _first_line(child) <= line <= (child.end_lineno or line):  # type: ignore[attr-defined]
            continue
        if isinstance(child, ast.FunctionDef | ast.Lambda) and _first_line(child) == line:
            yield Found(child, class_name)
        inner = child.name if isinstance(child, ast.ClassDef) else class_name
        yield from _at_line(child, line, inner)


def _could_be(node: ast.FunctionDef | ast.Lambda, code: CodeType) -> bool:
    """Whether the name and the parameters of a definition are those of a code object."""
    arguments = node.args
    named = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    count = code.co_argcount + code.co_kwonlyargcount
    name = node.name if isinstance(node, ast.FunctionDef) else "<lambda>"
    return (
        name == code.co_name
        and len(named) == count
        and all(a == b or b.endswith(a) for a, b in zip(named, code.co_varnames, strict=False))
        and bool(arguments.vararg) == bool(code.co_flags & 0x04)
        and bool(arguments.kwarg) == bool(code.co_flags & 0x08)
    )


def _covers(node: ast.Lambda, code: CodeType) -> bool:
    """Whether the instructions of a code object lie in the body of a lambda."""
    body = node.body
    first, last = (body.lineno, body.col_offset), (body.end_lineno or 0, body.end_col_offset or 0)
    for line, end_line, column, end_column in code.co_positions():
        known = line and end_line and column is not None and end_column
        if known and ((line, column) < first or (end_line, end_column) > last):
            return False
    return True

"""What tensors are called in the line of the user where an error arose: ``x``, ``self.w``, ``parts[0].bias``.

Nothing is noted while code runs. When an error is shown, the expression that failed is read again, and what
it names is looked up in the frame of the traceback, without running any code of the user.
"""

from __future__ import annotations

import ast
import linecache
from itertools import islice
from types import FrameType, TracebackType
from typing import Any

from weft.base.dtypes import short_name

_MOST = 6  # tensors that are named in one error
_MISSING: Any = object()


def named_tensors(trace: TracebackType | None, location: tuple[str, int]) -> tuple[tuple[str, str], ...]:
    """Names and types of the tensors in the expression of a line that a traceback goes through.

    >>> import weft
    >>> from weft.base.naming import named_tensors
    >>> named_tensors(None, ("model.py", 3))
    ()
    """
    found = None
    while trace is not None:
        if (trace.tb_frame.f_code.co_filename, trace.tb_lineno) == location:
            found = trace
        trace = trace.tb_next
    if found is None:
        return ()
    names: dict[str, str] = {}
    for node in _operands(_expression(found)):
        name, value = _look_up(node, found.tb_frame)
        if value is not _MISSING:
            names.setdefault(name, type_text(value))
    return tuple(islice(names.items(), _MOST))


def type_text(tensor: Any) -> str:
    """The type of a tensor in words: ``f32[2,3]``."""
    data = tensor._data
    text = f"{short_name(data.dtype)}[{','.join(map(str, data.shape))}]"
    return text if str(getattr(data, "device", "cpu")) == "cpu" else f"{text} on {data.device}"


def _expression(entry: TracebackType) -> ast.AST | None:
    """The syntax tree of what ran when the frame of an entry was left."""
    code = entry.tb_frame.f_code
    place = next(islice(code.co_positions(), entry.tb_lasti // 2, None), None)
    if place is None or None in place:
        return None
    first, last, start, end = place
    lines = [linecache.getline(code.co_filename, n).encode() for n in range(first, last + 1)]  # type: ignore[arg-type, operator]
    if not all(lines):
        return None
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        return ast.parse(b"(" + b"".join(lines) + b"\n)", mode="eval")
    except SyntaxError:
        return None


def _operands(tree: ast.AST | None) -> list[ast.AST]:
    """The names in an expression with what is taken from each, ``self.layers[0].w``, in order."""
    if tree is None:
        return []
    if isinstance(tree, ast.Name | ast.Attribute | ast.Subscript):
        inner = _operands(tree.slice) if isinstance(tree, ast.Subscript) else []
        base = _operands(tree.value) if isinstance(tree, ast.Attribute | ast.Subscript) else []
        return [tree, *base, *inner]
    if isinstance(tree, ast.Lambda):
        return []
    return [node for child in ast.iter_child_nodes(tree) for node in _operands(child)]


def _look_up(node: ast.AST, frame: FrameType) -> tuple[str, Any]:
    """The name of a tensor, and the tensor; ``_MISSING`` where the expression is none."""
    value = _value(node, frame)
    return (ast.unparse(node), value) if _is_tensor(value) else ("", _MISSING)


def _value(node: ast.AST, frame: FrameType) -> Any:
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id, _MISSING))
    if isinstance(node, ast.Attribute):
        return _own_attribute(_value(node.value, frame), node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return _own_item(_value(node.value, frame), node.slice.value)
    return _MISSING


def _own_attribute(value: object, name: str) -> Any:
    """An attribute that is merely stored: properties are code, and do not run."""
    own = getattr(value, "__dict__", None)
    return own.get(name, _MISSING) if type(own) is dict else _MISSING


def _own_item(value: Any, key: Any) -> Any:
    try:
        return value[key] if type(value) in (list, tuple, dict) else _MISSING
    except (LookupError, TypeError):
        return _MISSING


def _is_tensor(value: object) -> bool:
    return hasattr(type(value), "_data") and hasattr(getattr(value, "_data", None), "dtype")

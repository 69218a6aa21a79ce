"""Where in a PyTorch program a node comes from, and the sizes of its tensors."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from weft.base.sizes import named_size
from weft.errors import CaptureError
from weft.ir.location import Location

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)')


def location_of(node: Any, package: str) -> Location | None:
    """The innermost line of the user's code that a node was traced from; if there is none, of PyTorch's.

    Args:
        node: of a graph of PyTorch.
        package: the folder of PyTorch, whose lines count only where there are no others.
    """
    trace = node.meta.get("stack_trace") or ""
    frames = [(m["file"], int(m["line"]), m["function"].strip()) for m in _FRAME.finditer(trace)]
    frames = [f for f in frames if not f[0].startswith(("torch/", "<eval_with_key>"))]
    own = [f for f in frames if not f[0].startswith(package)] or frames
    return Location(*own[-1], _module_of(node)) if own else None


def _module_of(node: Any) -> str:
    """The path of the module that was running."""
    entries = list((node.meta.get("nn_module_stack") or {}).values())
    path = entries[-1][0] if entries else ""
    return (
        re.sub(r"\.?L__self__\.?|\[(?P<index>[^]]*)\]", r".\g<index>", path).strip(".")
        if _plain(path)
        else ""
    )


def _plain(path: Any) -> bool:
    return isinstance(path, str) and not path.startswith("_empty")


def package_folder(torch: Any) -> str:
    """The folder that PyTorch is installed in."""
    return os.path.dirname(os.path.abspath(str(torch.__file__))) + os.sep


# Sizes


def size_names(program: Any) -> dict[str, str]:
    """By symbol the name that the user gave a size, where the program still knows it."""
    for node in program.graph.nodes:
        for size in getattr(node.meta.get("val"), "shape", ()):
            env = getattr(getattr(size, "node", None), "shape_env", None)
            if env is not None:
                return _names_of(env)
    return {}


def _names_of(env: Any) -> dict[str, str]:
    told = getattr(env, "source_name_to_debug_name", {})
    found: dict[str, str] = {}
    for symbol, sources in getattr(env, "var_to_sources", {}).items():
        for source in sources:
            name = source.name if isinstance(source.name, str) else source.name()
            own = told.get(name, getattr(source, "source_name", ""))
            if isinstance(own, str) and own.isidentifier():
                found.setdefault(str(symbol), own)
    return found


def as_size(size: Any, names: Mapping[str, str]) -> Any:
    """A size of PyTorch as an int or a named size."""
    if isinstance(size, int):
        return size
    return _evaluated(size.node.expr, names)


def _evaluated(expression: Any, names: Mapping[str, str]) -> Any:
    """An expression of symbols as a named size."""
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol:
        if str(expression).startswith("u"):
            raise _data_dependent(expression)
        return named_size(names.get(str(expression), str(expression)))
    parts = [_evaluated(part, names) for part in expression.args]
    kind = type(expression).__name__
    if kind in _OPERATIONS and (kind != "Pow" or (isinstance(parts[1], int) and parts[1] >= 0)):
        return reduce(_OPERATIONS[kind], parts)
    raise CaptureError("import_program", f"sizes must be made of + - * // %, got {expression}")


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Pow": operator.pow,
    **dict.fromkeys(("FloorDiv", "CleanDiv", "IntTrueDiv"), operator.floordiv),
    **dict.fromkeys(("Mod", "PythonMod"), operator.mod),
}


def _data_dependent(symbol: Any) -> CaptureError:
    return CaptureError(
        "import_program",
        f"shapes must follow from those of the arguments, got {symbol}, which values of a tensor decide",
        hint="use torch.where with a mask of fixed shape",
    )

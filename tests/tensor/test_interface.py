"""What editors and type checkers are told of Tensor is what it has."""

from __future__ import annotations

import ast
from pathlib import Path

from weft.tensor import interface, recorded
from weft.tensor import tensor as tensor_module
from weft.tensor.recorded import Recorded
from weft.tensor.tensor import Tensor

NOT_METHODS = {"__array_function__", "__array_priority__", "__array_ufunc__", "__hash__"}


def methods_in(module: object) -> set[str]:
    """Names of all functions in the classes of a module's source, or of its stub if it has one."""
    path = Path(str(module.__file__))  # type: ignore[attr-defined]
    stub = path.with_suffix(".pyi")
    source = (stub if stub.exists() else path).read_text()
    classes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ClassDef)]
    return {f.name for c in classes for f in ast.walk(c) if isinstance(f, ast.FunctionDef)}


class _Empty:
    pass


def attached() -> set[str]:
    """What Tensor has that its own source does not define."""
    slots = {name for kind in (Recorded, Tensor) for name in kind.__annotations__} | {"__weakref__"}
    special = set(vars(_Empty)) | {"__slots__", "__annotations__"}
    have = {name for kind in (Recorded, Tensor) for name in vars(kind)}
    return have - slots - special - NOT_METHODS - methods_in(tensor_module) - methods_in(recorded)


def test_interface_names_exactly_what_is_attached() -> None:
    assert methods_in(interface) - {"__eq__", "__ne__"} == attached() - {"__eq__", "__ne__"}


def test_attached_class_is_empty_at_run_time() -> None:
    assert not [name for name in vars(interface.Attached) if not name.startswith("__")]

"""The layers of weft: a module imports from its own layer or from lower ones, inside functions too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parent.parent / "weft"

# From the lowest to the highest; the first part of a module's name below weft decides its layer.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "config", "base"),
    ("ir",),
    ("ops",),
    ("tensor", "linalg", "fft", "special", "autograd", "functional"),  # but for the first: public names alone
    ("transform", "loop", "testing"),
    ("passes",),
    ("capture", "schedule"),
    ("backends",),
    ("compile", "jit"),
    ("parallel", "nn", "optim", "data", "datasets", "io", "library", "onnx", "interop", "viewer", "profiler"),
    ("train",),
    ("serve",),
    ("cli",),
)
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
FORWARD = {("weft.ops.op", "weft.tensor.tensor")}  # only type checkers follow it: what ops give is a Tensor
PUBLIC = RANK["nn"]  # from this layer on, code stands on the public names of weft itself


class Import(NamedTuple):
    line: int
    target: str
    inside_function: bool


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
LAYERED = [name for name in MODULES if name != "weft"]


def imports_of(tree: ast.AST, modules: frozenset[str], inside: bool = False) -> Iterator[Import]:
    """Every weft module that a syntax tree imports, wherever the statement stands."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.expr):
            continue  # holds no statement
        function = inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        function = function or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"line {child.lineno}: relative imports hide their layer"
            full = [f"{child.module}.{alias.name}" for alias in child.names]
            names = [name if name in modules else str(child.module) for name in full]
        else:
            names = []
        yield from (Import(child.lineno, n, inside) for n in names if n.split(".")[0] == "weft")  # type: ignore[attr-defined]
        yield from imports_of(child, modules, function)


def rank_of(module: str) -> int:
    part = module.split(".")[1]
    assert part in RANK, f"{module} belongs to no layer; say in LAYERS where it stands"
    return RANK[part]


def violations(module: str, source: str, modules: frozenset[str]) -> list[str]:
    rank = rank_of(module)
    found = []
    for line, target, inside in imports_of(ast.parse(source), modules):
        if target == "weft":
            if rank < PUBLIC and module.split(".")[1] != "testing":
                found.append(f"line {line}: {module} imports weft itself, which imports {module}")
        elif rank_of(target) > rank and not (inside and (module, target) in FORWARD):
            found.append(f"line {line}: {module} imports {target} from a higher layer")
    return found


@pytest.mark.parametrize("module", LAYERED)
def test_module_imports_only_from_its_layer_or_below(module: str) -> None:
    found = violations(module, MODULES[module].read_text(), frozenset(MODULES))
    assert not found, "\n".join(found)


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    edges = {
        name: {
            target
            for _, target, inside in imports_of(ast.parse(path.read_text()), frozenset(MODULES))
            if not inside and target in MODULES
        }
        for name, path in MODULES.items()
    }
    while free := {name for name, targets in edges.items() if not targets & edges.keys()}:
        edges = {name: targets for name, targets in edges.items() if name not in free}
    assert not edges, f"modules on or above a circle of imports: {sorted(edges)}"


KNOWN = frozenset(
    {"weft", "weft.ops", "weft.ops.view.primitives", "weft.tensor", "weft.tensor.tensor", "weft.nn"}
)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("weft.ops.view.primitives", "from weft.tensor.tensor import Tensor"),
        ("weft.ops.view.primitives", "def f():\n    import weft.tensor.tensor"),
        ("weft.ops.view.primitives", "def f():\n    def g():\n        from weft.tensor import tensor"),
        ("weft.ops.view.primitives", "if True:\n    from weft import tensor"),
        ("weft.ops.view.primitives", "import weft"),
        ("weft.ops.view.primitives", "class A:\n    import weft.nn"),
    ],
)
def test_import_from_a_higher_layer_is_found(module: str, source: str) -> None:
    assert len(violations(module, source, KNOWN)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("weft.tensor.tensor", "from weft.ops import view"),
        ("weft.nn", "import weft"),
        ("weft.ops.view.primitives", "import numpy, os.path"),
    ],
)
def test_import_from_a_lower_layer_is_allowed(module: str, source: str) -> None:
    assert violations(module, source, KNOWN) == []

"""The layers of weft: a module imports from its own layer or from lower ones, inside functions too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from weft.base.hooks import GRAPH_METHODS, Hooks, if_loaded, late

PACKAGE = Path(__file__).parent.parent / "weft"

# From the lowest to the highest; the first part of a module's name below weft decides its layer.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "config", "base"),
    ("ir",),
    ("ops",),
    (
        "tensor",
        "linalg",
        "fft",
        "special",
        "random",
        "autograd",
        "functional",
    ),  # but for the first: public names alone
    ("transform", "loop", "testing"),
    ("passes",),
    ("capture", "schedule"),
    ("backends",),
    ("compile", "jit", "cuda"),
    (
        "parallel",
        "nn",
        "optim",
        "data",
        "distributions",
        "datasets",
        "io",
        "library",
        "onnx",
        "interop",
        "viewer",
        "profiler",
    ),
    ("train",),
    ("serve",),
    ("cli", "__main__"),
)
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
HOOKS = "weft.base.hooks"  # the one table of what lower layers ask of higher ones
BY_TABLE = {  # modules that import what a table names: modules of their own layer, or none of weft
    "weft.base.names": "public names, which packages at the top ask for at first use",
    "weft.tensor.methods": "methods of Tensor at first use",
    "weft.backends": "backends at first use",
    "weft.io": "names of its own package",
    "weft.interop.optional": "other frameworks",
    "weft.ops.table": "all modules of ops",
    "weft.onnx.loading": "all operators",
    "weft.onnx.writers.registry": "all writers",
    "weft.schedule.target": "targets and their lowerings",
    "weft.schedule.pointwise.rules": "all rules",
}
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


@cache
def parsed(source: str) -> ast.AST:
    """The syntax tree of a text."""
    return ast.parse(source)


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


@cache
def own_imports(module: str) -> tuple[Import, ...]:
    """What a module of weft imports."""
    return tuple(imports_of(parsed(MODULES[module].read_text()), frozenset(MODULES)))


def imported_by_name(tree: ast.AST, module: str) -> Iterator[Import]:
    """Every weft module that a call of ``import_module`` names; what is no text of its own is told as "?"."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if (getattr(node.func, "attr", None) or getattr(node.func, "id", None)) != "import_module":
            continue
        named = node.args[0]
        if isinstance(named, ast.JoinedStr) and isinstance(named.values[0], ast.Constant):
            name = str(named.values[0].value).rstrip(".")  # f"weft.interop.{name}": of that package
        elif isinstance(named, ast.Constant):
            name = str(named.value)
        else:
            name = "?"
        if name == "?" or name.split(".")[0] == "weft":
            yield Import(node.lineno, name, inside_function=True)


def rank_of(module: str) -> int:
    part = module.split(".")[1]
    assert part in RANK, f"{module} belongs to no layer; say in LAYERS where it stands"
    return RANK[part]


def violations(module: str, source: str, modules: frozenset[str]) -> list[str]:
    rank = rank_of(module)
    found = []
    tree = parsed(source)
    named = imported_by_name(tree, module) if "import_module" in source else ()
    for line, target, inside in (*imports_of(tree, modules), *named):
        if module == HOOKS and inside:
            continue
        if target == "?":
            if module not in BY_TABLE:
                found.append(f"line {line}: {module} imports what no text names; ask {HOOKS}")
        elif target == "weft":
            if rank < PUBLIC and module.split(".")[1] != "testing":
                found.append(f"line {line}: {module} imports weft itself, which imports {module}")
        elif rank_of(target) > rank and not (inside and (module, target) in FORWARD):
            found.append(f"line {line}: {module} imports {target} from a higher layer")
    return found


@pytest.mark.parametrize("part", sorted({name.split(".")[1] for name in LAYERED}))
def test_modules_import_only_from_their_layer_or_below(part: str) -> None:
    found = [
        text
        for module in LAYERED
        if module.split(".")[1] == part
        for text in violations(module, MODULES[module].read_text(), frozenset(MODULES))
    ]
    assert not found, "\n".join(found)


# The wings of capture, each standing on those before it.
WINGS = ("convert", "program", "runtime", "record", "static", "call")
NAMES_OF_CONVERTED_CODE = ("weft.capture.convert.functions", "weft.capture.runtime.interface")


def test_wings_of_capture_stand_on_those_before_them() -> None:
    found = [
        f"{name}, line {line}: {target}"
        for name in MODULES
        if name.startswith("weft.capture.")
        for line, target, inside in own_imports(name)
        if target.startswith("weft.capture.") and wing_of(target) > wing_of(name)
        if not (
            inside and name == NAMES_OF_CONVERTED_CODE[0] and target.startswith(NAMES_OF_CONVERTED_CODE[1])
        )
    ]
    assert not found, "\n".join(found)


def wing_of(module: str) -> int:
    return WINGS.index(module.split(".")[2])


LLVM = "weft.backends.llvm"


def test_only_the_llvm_backend_imports_from_itself() -> None:
    """Everybody else asks the backend object; the CUDA one stands on the same writer and the same cache."""
    found = [
        f"{name}, line {line}: {target}"
        for name in MODULES
        if not f"{name}.".startswith((f"{LLVM}.", "weft.backends.cuda."))
        for line, target, _ in own_imports(name)
        if f"{target}.".startswith(f"{LLVM}.")
    ]
    assert not found, "\n".join(found)


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    edges = {
        name: {target for _, target, inside in own_imports(name) if not inside and target in MODULES}
        for name in MODULES
    }
    while free := {name for name, targets in edges.items() if not targets & edges.keys()}:
        edges = {name: targets for name, targets in edges.items() if name not in free}
    assert not edges, f"modules on or above a circle of imports: {sorted(edges)}"


KNOWN = frozenset(
    {"weft", "weft.ops", "weft.ops.view.primitives", "weft.tensor", "weft.tensor.tensor", "weft.nn"}
)


def test_hooks_name_functions_that_are_there() -> None:
    places = {name: hook.place for name, hook in vars(Hooks).items() if isinstance(hook, late | if_loaded)}
    places |= {name: f"{module}:{name}" for name, module in GRAPH_METHODS.items()}
    for name, place in places.items():
        module, _, function = place.partition(":")
        assert callable(getattr(import_module(module), function)), f"{name} is at {place}"


def test_every_hook_is_asked_by_a_lower_layer() -> None:
    asked = "\n".join(path.read_text() for name, path in MODULES.items() if name != HOOKS)
    hooks = [name for name, hook in vars(Hooks).items() if isinstance(hook, late | if_loaded)]
    assert [name for name in hooks if f"hooks.{name}" not in asked] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("weft.ops.view.primitives", "from weft.tensor.tensor import Tensor"),
        ("weft.ops.view.primitives", "def f():\n    import_module('weft.tensor.tensor')"),
        ("weft.ops.view.primitives", "f = lambda: importlib.import_module('weft.nn').Linear"),
        ("weft.ops.view.primitives", "import_module(f'weft.tensor.{name}')"),
        ("weft.ops.view.primitives", "import_module(TABLE[name])"),
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
        ("weft.ops.view.primitives", "import_module('numpy')"),
        ("weft.tensor.tensor", "import_module(f'weft.ops.{name}')"),
    ],
)
def test_import_from_a_lower_layer_is_allowed(module: str, source: str) -> None:
    assert violations(module, source, KNOWN) == []

"""What ``import weft`` costs."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import weft

ROOT = Path(__file__).parent.parent
ROUNDS = 15
LIMIT = 1.5

# Modules that cost milliseconds and that making a tensor does not need.
HEAVY = (
    "scipy",
    "numpy.random",
    "numpy.testing",
    "numpy.fft",
    "numpy.polynomial",
    "numpy.ma",
    "asyncio",
    "ctypes",
    "difflib",
    "inspect",
    "logging",
    "unittest",
)

# Time of the processor, which other programs disturb least; an import does nothing but compute.
# How many times as long as NumPy's import, which is a part of it, that of weft takes; both in one process, so
# that they meet the same machine.
RATIO = """
import time
start = time.process_time()
import numpy
middle = time.process_time()
import weft
print((time.process_time() - start) / (middle - start))
"""

# Modules that are there after `import weft` and were not after importing its dependencies.
ADDED = """
import json, sys
import numpy, ml_dtypes
before = set(sys.modules)
import weft
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def run_python(code: str, **settings: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return result.stdout


def test_import_takes_at_most_half_longer_than_numpy(tmp_path: Path) -> None:
    cache = {"PYTHONPYCACHEPREFIX": str(tmp_path)}  # as installed: both packages have their bytecode
    run_python("import numpy, weft", **cache)
    ratio = median([float(run_python(RATIO, **cache)) for _ in range(ROUNDS)])
    assert ratio <= LIMIT, f"import weft takes {ratio:.2f} times as long as NumPy's"


def test_import_loads_no_heavy_module() -> None:
    added = json.loads(run_python(ADDED))
    heavy = [m for m in added if any(m == h or m.startswith(h + ".") for h in HEAVY)]
    assert heavy == []


def test_import_loads_nothing_but_weft_its_dependencies_and_the_standard_library() -> None:
    added = json.loads(run_python(ADDED))
    foreign = {m.split(".")[0] for m in added} - {"weft"} - set(sys.stdlib_module_names)
    assert foreign == set()


def lazy_imports() -> dict[str, str]:
    """The names that a type checker is told of under TYPE_CHECKING, each with its module."""
    tree = ast.parse((ROOT / "weft" / "__init__.py").read_text())
    block = next(n for n in tree.body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test))
    found = [n for n in block.body if isinstance(n, ast.ImportFrom)]
    return {a.name: f"{n.module}.{a.name}" if n.module in ("weft", "weft.tensor") else str(n.module)
            for n in found for a in n.names}  # fmt: skip


def test_type_checkers_are_told_of_what_is_imported_at_first_use() -> None:
    assert lazy_imports() == {**weft._MODULES, **weft._HOME}  # type: ignore[attr-defined]


def test_every_public_name_is_there() -> None:
    assert [name for name in weft.__all__ if not hasattr(weft, name)] == []
    assert set(weft.__all__) <= set(dir(weft))


def test_import_leaves_the_garbage_collector_as_it_was() -> None:
    assert run_python("import gc, weft; print(gc.isenabled())").strip() == "True"
    assert run_python("import gc; gc.disable(); import weft; print(gc.isenabled())").strip() == "False"

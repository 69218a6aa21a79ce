"""What ``import weft`` costs."""

from __future__ import annotations

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
    "dataclasses",
    "difflib",
    "heapq",
    "inspect",
    "logging",
    "unittest",
    "weft.backends",
    "weft.capture",
    "weft.ops.scan",
    "weft.ops.sort",
    "weft.ops.statistics",
    "weft.ops.view.joining",
    "weft.ops.view.padding",
    "weft.passes",
    "weft.schedule",
    "weft.tensor.anomaly",
    "weft.tensor.engine",
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

METHODS = """
import weft
x = weft.tensor([2.0, 1.0])
print(x.argsort().tolist())
print(x.mean().item())
print(vars(weft.Tensor)["argsort"] is weft.argsort, weft.Tensor.cumsum is weft.cumsum)
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
    ratios: list[float] = []
    for turn in range(4 * ROUNDS):  # more where the machine is busy
        ratios.append(float(run_python(RATIO, **cache)))
        if turn >= ROUNDS // 2 and median(ratios) <= LIMIT:
            break
    assert median(ratios) <= LIMIT, f"import weft takes {median(ratios):.2f} times as long as NumPy's"


def test_import_loads_no_heavy_module() -> None:
    added = json.loads(run_python(ADDED))
    heavy = [m for m in added if any(m == h or m.startswith(h + ".") for h in HEAVY)]
    assert heavy == []


def test_compiling_an_elementwise_function_loads_no_module_that_it_does_not_need() -> None:
    code = "import sys, weft\nweft.compile(lambda x: x * 2)(weft.ones(3))\n"
    code += "print([m for m in ('difflib', 'hashlib') if m in sys.modules])"
    assert run_python(code, WEFT_CACHE_DIR="").strip() == "[]"


def test_methods_of_modules_that_are_imported_at_first_use_are_the_functions_themselves() -> None:
    order, mean, same = run_python(METHODS).split("\n")[:3]
    assert (order, mean, same) == ("[1, 0]", "1.5", "True True")


def test_import_loads_nothing_but_weft_its_dependencies_and_the_standard_library() -> None:
    added = json.loads(run_python(ADDED))
    foreign = {m.split(".")[0] for m in added} - {"weft"} - set(sys.stdlib_module_names)
    assert foreign == set()


def test_every_public_name_is_there() -> None:
    assert [name for name in weft.__all__ if not hasattr(weft, name)] == []
    assert set(weft.__all__) <= set(dir(weft))


def test_import_leaves_the_garbage_collector_as_it_was() -> None:
    assert run_python("import gc, weft; print(gc.isenabled())").strip() == "True"
    assert run_python("import gc; gc.disable(); import weft; print(gc.isenabled())").strip() == "False"

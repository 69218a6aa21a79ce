"""The stubs of modules whose names are bound by tables: generated, and checked by ``tests/test_stubs.py``.

``python -m tests.stubs --write`` writes those that are not up to date; without the flag it names them. A stub
tells where a name comes from, so that its signature and documentation stand at its definition alone.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from textwrap import wrap

import weft
from weft.base.elsewhere import Missing
from weft.base.names import LAYERS, MODULES, NETWORK, OTHERS, Home, homes
from weft.ops.op import OPS
from weft.tensor.casts import _SHORT
from weft.tensor.methods import _ALSO, _AT_FIRST_USE
from weft.tensor.operators import _UNARY
from weft.tensor.published import FUNCTIONS
from weft.tensor.recorded import Recorded

WIDTH = 110
HEAD = '"""Written by ``python -m tests.stubs --write``."""\n\n# ruff: noqa\n# fmt: off\n'
OPERAND = "Operand = Tensor | np.ndarray[Any, Any] | np.generic | complex\n"
NOT_METHODS = {"__array_function__", "__array_priority__", "__array_ufunc__", "__hash__"}
UNARY = {f"__{name}__" for name in _UNARY} | {*_SHORT, "conj", "zero_"}
OPERATORS = """from typing import Any

from weft.tensor.functions import Operand
from weft.tensor.selection import Key
from weft.tensor.tensor import Tensor

class Attached:
    def __eq__(self, other: object) -> Tensor: ...  # type: ignore[override]
    def __ne__(self, other: object) -> Tensor: ...  # type: ignore[override]
    def __getitem__(self, key: Key) -> Tensor: ...
"""


def public_names() -> dict[str, Home]:
    """Every name of weft, with its home: what the tables list, and the ops that are declared public."""
    functions = {name: Home("weft.tensor.functions", name) for name in FUNCTIONS}
    return homes(NETWORK, OTHERS, modules=MODULES) | functions


def weft_stub() -> str:
    """``weft/__init__.pyi``."""
    versions = "__version__: str\n__array_api_version__: str\n"
    return f"{HEAD}{re_exports(public_names())}{listed(weft.__all__)}{versions}"


def functional_stub() -> str:
    """``weft/functional.pyi``: all of it is in weft, too."""
    found = {name: Home("weft", name) for name in homes(NETWORK)}
    return HEAD + re_exports(found) + listed(found)


def layers_stub() -> str:
    """``weft/nn/__init__.pyi``."""
    return HEAD + re_exports(homes(LAYERS, modules="weft.nn.functional weft.nn.init weft.nn.utils"))


def layer_functions_stub() -> str:
    """``weft/nn/functional.pyi``."""
    return f"{HEAD}from weft.functional import *\nfrom weft.nn.ctc import ctc_loss as ctc_loss\n"


def functions_stub() -> str:
    """``weft/tensor/functions.pyi``: the functions that ops are by their declaration."""
    imports = "from typing import Any\n\nimport numpy as np\n\nfrom weft.tensor.tensor import Tensor\n\n"
    takes = {1: "x: Operand, /", 2: "x1: Operand, x2: Operand, /"}
    lines = [
        f"def {name}({takes[_arity(name)]}{_options(name)}) -> Tensor: ...\n" for name in sorted(FUNCTIONS)
    ]
    return f"{HEAD}{imports}{OPERAND}\n{''.join(lines)}"


def interface_stub() -> str:
    """``weft/tensor/interface.pyi``: methods as other names of the functions that they are.

    Operators and elementwise methods are written out: rules of ops use them while modules are read, before a
    type checker has inferred the type of an assignment.
    """
    found, have = _method_homes(), attached()
    modules = {home.module: f"_{home.module.rpartition('.')[2]}" for home in found.values()}
    assert len(set(modules.values())) == len(modules), "modules of one name need longer ones here"
    aliases = [f"{name} = {modules[home.module]}.{home.name}" for name, home in found.items()]
    properties = [name for name, value in have.items() if isinstance(value, property)]
    rest = [n for n in have if n not in found and n not in properties and f"def {n}(" not in OPERATORS]
    takes = {name: ", other: Operand, /" * (_arity(name) - 1) + _untyped(_options(name)) for name in rest}
    return (
        HEAD
        + "".join(f"from {m.rpartition('.')[0]} import {a[1:]} as {a}\n" for m, a in sorted(modules.items()))
        + OPERATORS
        + "".join(f"    @property\n    def {name}(self) -> Tensor: ...\n" for name in properties)
        + "".join(f"    def {name}(self{more}) -> Tensor: ...\n" for name, more in takes.items())
        + f"{packed(aliases, '; ')}\n"
    )


def re_exports(found: Mapping[str, Home]) -> str:
    """Import statements that make names public: ``from weft.ops.reduce import all as all, ...``."""
    by_module: dict[str, list[str]] = {}
    others = ""
    for name, home in sorted(found.items()):
        module, own = (home.module, home.name) if home.name else home.module.rsplit(".", 1)
        if own != name:  # an import under another name stays private
            others += f"{name} = {own}\n"
        if own == name or own not in found:
            by_module.setdefault(module, []).append(f"{own} as {own}" if own == name else own)
    return "".join(_import(module, items) for module, items in sorted(by_module.items())) + others


def listed(names: Iterable[str]) -> str:
    """The names that ``import *`` gives."""
    return f"\n__all__ = [\n{packed([repr(name) for name in names], ', ')}\n]\n"


def _import(module: str, items: list[str]) -> str:
    line = f"from {module} import {', '.join(items)}"
    return f"{line}\n" if len(line) <= WIDTH else f"from {module} import (\n{packed(items, ', ')},\n)\n"


def packed(items: Iterable[str], separator: str) -> str:
    """Items on as few indented lines as they fit on, which break between items alone."""
    joined = separator.join(item.replace(" ", "\0") for item in items)
    lines = wrap(joined, WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(line.removesuffix(";") for line in lines).replace("\0", " ")


def attached() -> dict[str, object]:
    """What Tensor has that its own source does not define, by name."""
    kinds = (Recorded, weft.Tensor)
    slots = {name for kind in kinds for name in kind.__annotations__} | {"__weakref__"}
    special = {*vars(type("Plain", (), {})), "__slots__", "__annotations__"}
    have = {name: value for kind in kinds for name, value in vars(kind).items()}
    own = {n for n, v in have.items() if getattr(_function(v), "__qualname__", "").startswith(("Rec", "Ten"))}
    hints = {n for n, v in have.items() if isinstance(v, Missing)}
    return {name: have[name] for name in sorted(have.keys() - slots - special - NOT_METHODS - own - hints)}


def _method_homes() -> dict[str, Home]:
    """The functions that methods of Tensor are; one in place takes what its name without ``_`` takes."""
    late = {n: Home(module, n) for module, names in _AT_FIRST_USE.items() for n in names.split()}
    late |= {name: Home(module, own) for name, (module, own) in _ALSO.items()}
    have, found = attached(), {}
    for name, value in have.items():
        plain = name if name.endswith("__") else name.removesuffix("_")
        function = have.get(plain, value)
        if function is FUNCTIONS.get(plain):
            if name != plain:
                found[name] = Home("weft.tensor.functions", plain)
        elif plain in late:
            found[name] = late[plain]
        elif not isinstance(value, property) and (home := _home_of(function)) is not None:
            found[name] = home
    return {name: home for name, home in found.items() if name not in ("__getitem__", "__matmul__", "conj")}


def _arity(name: str) -> int:
    """How many tensors an operator or a function of elements takes."""
    found = {n: len(op.inputs) for op in OPS.values() if op.public for n in op.public.names or (op.name,)}
    return found.get(name, 1 if name in UNARY else 2)


def _options(name: str) -> str:
    """The further parameters of a function of elements, as its declaration has them."""
    ops = [op for op in OPS.values() if op.public and name in (op.public.names or (op.name,))]
    options = ops[0].public.options if ops and ops[0].public else None
    if options is None:
        return ""
    more = list(inspect.signature(options).parameters.values())[len(ops[0].inputs) :]
    star = ", *" if more[0].kind is inspect.Parameter.KEYWORD_ONLY else ""
    return star + "".join(f", {p}" for p in more).replace("'", "")


def _untyped(parameters: str) -> str:
    """Parameters in a class that has methods by the names of their types."""
    return re.sub(r": [^=,]+ =", ": Any =", parameters)


def _home_of(value: object) -> Home | None:
    """Where a method is found as a function of a module; None of what has a home in no module."""
    function = _function(value)
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    found = getattr(sys.modules.get(module), name, None)
    return Home(module, name) if found is not None and (found is function or found is value) else None


def _function(value: object) -> object:
    function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    return inspect.unwrap(function) if callable(function) else function


STUBS: dict[str, Callable[[], str]] = {
    "__init__.pyi": weft_stub,
    "functional.pyi": functional_stub,
    "nn/__init__.pyi": layers_stub,
    "nn/functional.pyi": layer_functions_stub,
    "tensor/functions.pyi": functions_stub,
    "tensor/interface.pyi": interface_stub,
}


def stub_path(name: str) -> Path:
    """Where a stub of the package lies."""
    return Path(weft.__file__).parent / name


def main(arguments: list[str]) -> int:
    """Write the stubs that are not up to date, or name them."""
    old = [name for name, generate in STUBS.items() if not _is_up_to_date(name, generate())]
    for name in old:
        sys.stdout.write(f"weft/{name}\n")
        if "--write" in arguments:
            stub_path(name).write_text(STUBS[name]())
    return 0 if "--write" in arguments else len(old)


def _is_up_to_date(name: str, text: str) -> bool:
    return stub_path(name).exists() and stub_path(name).read_text() == text


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

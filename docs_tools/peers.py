"""What functions are called in PyTorch and JAX.

Three tables tell: the rules by which ``weft.interop`` imports their graphs (``lax.logistic`` is ``sigmoid``),
the other public names that weft has for one function (``permute`` of ``permute_dims``), and ``peers.toml``,
which has the names of weft that are names of theirs too. It is written from the packages themselves:

    python -m docs_tools.peers --write     in the environment of make test-interop

and ``tests/interop/test_peers.py`` asks them whether it is right.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from textwrap import fill
from typing import Any

import weft
from docs_tools.public import names_of
from weft.base.names import NETWORK, homes
from weft.tensor.published import FUNCTIONS

TABLE = Path(__file__).with_name("peers.toml")
_HEAD = "# Names of weft that PyTorch and JAX have too: written by `python -m docs_tools.peers --write`\n"

# For each module of weft the modules elsewhere where a name of it would be, the likeliest first.
TORCH = {
    "weft": "torch torch.func torch.nn.functional torch.linalg torch.special torch.Tensor "
    "torch.utils.checkpoint",
    "weft.autograd": "torch.autograd torch.utils.checkpoint torch torch.autograd.function",
    "weft.cuda": "torch.cuda",
    "weft.data": "torch.utils.data",
    "weft.distributions": "torch.distributions torch.distributions.kl",
    "weft.fft": "torch.fft",
    "weft.functional": "torch.nn.functional torch",
    "weft.jit": "torch.jit",
    "weft.linalg": "torch.linalg torch",
    "weft.nn": "torch.nn",
    "weft.nn.functional": "torch.nn.functional torch",
    "weft.nn.init": "torch.nn.init",
    "weft.nn.utils": "torch.nn.utils torch.nn.utils.rnn",
    "weft.nn.utils.rnn": "torch.nn.utils.rnn",
    "weft.onnx": "torch.onnx",
    "weft.optim": "torch.optim torch.amp torch.nn.utils",
    "weft.optim.lr_scheduler": "torch.optim.lr_scheduler",
    "weft.special": "torch.special",
    "weft.testing": "torch.testing torch.autograd",
}
JAX = {
    "weft": "jax jax.numpy jax.nn jax.scipy.special jax.tree_util",
    "weft.fft": "jax.numpy.fft",
    "weft.functional": "jax.nn jax.numpy",
    "weft.linalg": "jax.numpy.linalg jax.scipy.linalg jax.numpy",
    "weft.nn.functional": "jax.nn jax.numpy",
    "weft.random": "jax.random",
    "weft.special": "jax.scipy.special jax.nn",
}
OTHERWISE = frozenset({"jax.numpy.load", "jax.numpy.save"})  # of arrays of NumPy: not what ours are
CONTROL = "weft.transform.control"  # whose functions are those of jax.lax


@cache
def table() -> dict[str, dict[str, frozenset[str]]]:
    """For each peer, and each of its modules, the names that weft has too."""
    found = tomllib.loads(TABLE.read_text())
    return {
        peer: {module: frozenset(names.split()) for module, names in found[peer]["names"].items()}
        for peer in ("torch", "jax")
    }


def versions() -> dict[str, str]:
    """The versions of the packages that the table was written from."""
    found = tomllib.loads(TABLE.read_text())
    return {peer: found[peer]["version"] for peer in ("torch", "jax")}


def called(module: str, name: str) -> dict[str, str]:
    """What a name of a module of weft is called elsewhere: "PyTorch" and "JAX", where they have it.

    >>> called("weft", "sigmoid")
    {'PyTorch': 'torch.sigmoid', 'JAX': 'jax.nn.sigmoid'}
    """
    if module == "weft" and name in names_of("weft.linalg") and called("weft.linalg", name):
        return called("weft.linalg", name)  # whose results are like those of modules of that name
    same = [name, *(other for other in _others(module, name) if other != name)]
    theirs = {"PyTorch": _torch(module, same), "JAX": _jax(module, same)}
    return {peer: found for peer, found in theirs.items() if found}


def _torch(module: str, names: list[str]) -> str:
    places = TORCH.get(module, "").split()
    if module == "weft" and names[0] in homes(NETWORK) and names[0] not in FUNCTIONS:
        places = ["torch.nn.functional", *places]
    return _first("torch", places, names) or _by_rule("torch", names)


def _jax(module: str, names: list[str]) -> str:
    places = JAX.get(module, "").split()
    value = getattr(weft, names[0], None) if module == "weft" else None
    if str(getattr(value, "__module__", "")).startswith(CONTROL):
        places = ["jax.lax"]
    return _first("jax", places, names) or (_by_rule("jax", names) if module == "weft" else "")


def _first(peer: str, places: Iterable[str], names: list[str]) -> str:
    have = table()[peer]
    found = (f"{p}.{n}" for p in places for n in names if n in have.get(p, ()))
    return next((path for path in found if path not in OTHERWISE), "")


def _others(module: str, name: str) -> list[str]:
    """The other public names of the same function in a module."""
    space = import_module(module)
    value = getattr(space, name)
    return [n for n in names_of(module) if getattr(space, n) is value] if callable(value) else []


# Rules of the importers


@cache
def _rules() -> dict[str, dict[int, str]]:
    """By peer, and the identity of a function of weft: the operator that is that function alone."""
    from weft.interop.jax import jaxpr  # noqa: F401 - fills the table
    from weft.interop.jax.calls import lax
    from weft.interop.torch import nodes  # noqa: F401 - likewise
    from weft.interop.torch.calls import aten

    found: dict[str, dict[int, str]] = {"jax": {}, "torch": {}}
    for peer, before, rules in (("jax", "lax.", lax), ("torch", "aten::", aten)):
        for key, rule in rules.items():
            for function in _closed_over(rule):
                found[peer].setdefault(id(function), before + key.partition(".")[0])
    return found


def _closed_over(rule: Callable[..., Any]) -> list[Any]:
    """The functions that a rule was made of."""
    cells = getattr(rule, "__closure__", None) or ()
    return [cell.cell_contents for cell in cells if callable(cell.cell_contents)]


def _by_rule(peer: str, names: list[str]) -> str:
    values = [getattr(weft, name, None) for name in names]
    return next((_rules()[peer][id(v)] for v in values if id(v) in _rules()[peer]), "")


# The table


def written() -> str:
    """The text of ``peers.toml``, from the packages that are installed."""
    text = _HEAD
    for peer, places in (("torch", TORCH), ("jax", JAX)):
        version = str(import_module(peer).__version__).partition("+")[0]
        text += f'\n[{peer}]\nversion = "{version}"\n\n[{peer}.names]\n'
        wanted: dict[str, set[str]] = {}
        for module, others in places.items():
            for other in [*others.split(), *(["jax.lax"] if module == "weft" and peer == "jax" else [])]:
                wanted.setdefault(other, set()).update(names_of(module))
        for other, names in sorted(wanted.items()):
            space = resolved(other)
            have = sorted(n for n in names if hasattr(space, n) and not n.startswith("__"))
            lines = fill(" ".join(have), 110, break_long_words=False, break_on_hyphens=False)
            text += f'"{other}" = """\n{lines}"""\n' if have else ""
    return text


def resolved(path: str) -> Any:
    """The module or class that a path names."""
    try:
        return import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(resolved(module), name)


if __name__ == "__main__":
    if "--write" in sys.argv:
        TABLE.write_text(written())
    else:
        sys.stdout.write(written())

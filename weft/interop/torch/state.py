"""State dicts of PyTorch, in files of safetensors: ``load_state_dict``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from weft.base.public import public
from weft.errors import ArgumentError, FileError
from weft.io.files import load
from weft.tensor.tensor import Tensor

Path = str | os.PathLike[str]

_WRAPPERS = ("_orig_mod.", "module.")  # what wrappers that compile or copy a model put before each name
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"


@public
def load_state_dict(
    path: Path | Sequence[Path],
    *,
    strip: str | None = None,
    add: str = "",
    rename: Callable[[str], str | None] | None = None,
    mmap: bool = False,
) -> dict[str, Tensor]:
    """The tensors of a state dict of PyTorch that was saved as safetensors, for ``module.load_state_dict``.

    Layers of ``weft.nn`` have the names and layouts of PyTorch's, so most state dicts fit as they are.
    Prefixes of wrappers (``module.``, ``_orig_mod.``), where all names have one, are taken off.

    Args:
        path: of a file, of the ``.index.json`` of several, or a list of files.
        strip: a prefix to take off; only names that have it are kept.
        add: a prefix to put before each name.
        rename: from a name to another one, or None for a tensor that is not wanted.
        mmap: map the files into memory instead of reading them.

    >>> import os, tempfile, weft
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> weft.save({"module.weight": weft.ones((1, 2)), "module.bias": weft.zeros(1)}, path)
    >>> state = weft.interop.torch.load_state_dict(path)
    >>> list(state)
    ['weight', 'bias']
    >>> weft.nn.Linear(2, 1).load_state_dict(state)
    KeyDifference(missing_keys=[], unexpected_keys=[])
    """
    found: dict[str, Tensor] = {}
    for file in _files(path):
        found |= _tensors(file, mmap)
    for wrapper in _WRAPPERS:
        if found and all(name.startswith(wrapper) for name in found):
            found = {name.removeprefix(wrapper): x for name, x in found.items()}
    if strip is not None:
        found = _stripped(found, strip)
    renamed = {(name if rename is None else rename(name)): x for name, x in found.items()}
    return {f"{add}{name}": x for name, x in renamed.items() if name is not None}


def _files(path: Any) -> list[str]:
    """The files that hold the tensors."""
    if isinstance(path, list | tuple):
        return [os.fspath(p) for p in path]
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError("load_state_dict", f"must be given a path, got {type(path).__name__}")
    name = os.fspath(path)
    if not name.endswith(".json"):
        return [name]
    with open(name, encoding="utf-8") as file:
        index = json.load(file)
    if not isinstance(index, dict) or not isinstance(index.get("weight_map"), dict):
        raise FileError("load_state_dict", f"{os.path.basename(name)}: must have a weight_map, got none")
    files = dict.fromkeys(index["weight_map"].values())
    return [os.path.join(os.path.dirname(name), os.path.basename(str(f))) for f in files]


def _tensors(path: str, mmap: bool) -> dict[str, Tensor]:
    _check_not_pickled(path)
    tree = load(path, mmap=mmap)
    if not isinstance(tree, dict) or not all(isinstance(x, Tensor) for x in tree.values()):
        raise FileError(
            "load_state_dict", f"{os.path.basename(path)}: must hold tensors by name, got something else"
        )
    return tree


def _check_not_pickled(path: str) -> None:
    """Raise for a file that ``torch.save`` wrote: it could run code, and is never opened."""
    with open(path, "rb") as file:
        start = file.read(9)
    if start.startswith((_ZIP, _PICKLE)) and not start.endswith(b"{"):  # which follows the length of a header
        name = os.path.basename(path)
        base = name.rpartition(".")[0] or name
        raise FileError(
            "load_state_dict",
            f"{name}: must be a safetensors file, got a pickled one, which could run code",
            hint=f"convert it where it can be trusted: from safetensors.torch import save_file; "
            f'save_file(torch.load("{name}", weights_only=True), "{base}.safetensors")',
        )


def _stripped(found: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    kept = {name.removeprefix(prefix): x for name, x in found.items() if name.startswith(prefix)}
    if not kept:
        names = ", ".join(list(found)[:3]) or "none"
        raise ArgumentError("load_state_dict", f"some names must begin with {prefix!r}, got {names}")
    return kept

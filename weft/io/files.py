"""``weft.save`` and ``weft.load``: trees of tensors and plain values in one file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from weft.base.device import DeviceLike
from weft.base.public import public
from weft.io.atomic import file_path
from weft.io.layout import Contents, Problem, parse_json, read_file, write_file
from weft.io.slices import Place, Slices, save_slices
from weft.io.trees import Decoder, Encoder
from weft.tensor.moving import moved
from weft.tensor.tensor import Tensor, wrap

Path = str | os.PathLike[str]


@public
def save(tree: Any, path: Path) -> None:
    """Write a tree of tensors and plain values to a file.

    The file is written beside, brought to the disk and renamed, so that at no moment is there half a file; it
    holds checksums, and nothing in it can run code. Its layout is that of safetensors. Where ranks of a mesh
    hold parts of tensors, all of them save together: each writes its slices beside, and the file comes last.

    Args:
        tree: dicts, lists, tuples, None, bools, numbers, strings, bytes, dtypes, tensors and NumPy arrays.
            What is in it twice is one object again after loading.
        path: of the file; one that is there is replaced.

    >>> import weft, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "state.safetensors")
    >>> weft.save({"w": weft.ones(2), "step": 3}, path)
    >>> weft.load(path)
    {'w': tensor([1., 1.]), 'step': 3}
    """
    target, encoder, metadata = _encoded(tree, path)
    if encoder.placed:
        save_slices(target, encoder.arrays, encoder.placed, metadata)
    else:
        write_file(target, encoder.arrays, "tree", metadata)


def _encoded(tree: Any, path: Path) -> tuple[str, Encoder, dict[str, str]]:
    target = file_path("save", path)
    encoder = Encoder("save")
    return target, encoder, {"weft.tree": json.dumps(encoder.encode(tree), separators=(",", ":"))}


def save_together(tree: Any, path: Path) -> None:
    """Write a tree that all ranks of this world have, of which they may hold parts: all of them call it."""
    target, encoder, metadata = _encoded(tree, path)
    save_slices(target, encoder.arrays, encoder.placed, metadata)


@public
def load(
    path: Path, *, mmap: bool = False, verify: bool | None = None, device: DeviceLike | None = None
) -> Any:
    """The tree that a file holds; of a safetensors file from elsewhere a dict of its tensors.

    Files that ``torch.save`` wrote are read, too, if they hold tensors and plain values: nothing in them is
    run. Of weights in several files, the index (``model.safetensors.index.json``) is loaded as one. A file
    that is damaged, or made to do harm, is a ``FileError`` that says what is wrong.

    Args:
        path: of the file.
        mmap: map the file into memory instead of reading it: at once, and shared by processes.
        verify: compare the checksums of all data; by default unless the file is mapped.
        device: where the tensors go, whichever they were saved from; by default where new ones go.

    >>> import weft, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "state.safetensors")
    >>> weft.save([weft.arange(3), ("a", None)], path)
    >>> weft.load(path, mmap=True)
    [tensor([0, 1, 2]), ('a', None)]
    """
    source = file_path("load", path)
    if source.endswith(".index.json"):
        return _sharded(source, mmap, verify, device)
    if (foreign := _foreign(source)) is not None:
        return foreign(device)
    contents = read_file("load", source, mmap=mmap, verify=not mmap if verify is None else verify)
    return tree_of(contents, Problem("load", source), device)


_BY_NUMPY = "weft.asarray(np.load(path)); of .npz, each of np.load(path)[name]"


def _foreign(source: str) -> Callable[[DeviceLike | None], Any] | None:
    """How a file that PyTorch wrote is read; None for any other."""
    with open(source, "rb") as file:
        start = file.read(16)
    if start.startswith(b"\x93NUMPY"):
        raise Problem("load", source)("must be written by weft or PyTorch, got NumPy's", _BY_NUMPY)
    if not start.startswith((b"PK\x03\x04", b"\x80\x02")):
        return None
    from weft.io.pytorch import MAGIC, read_pytorch  # imported at first use

    problem = Problem("load", source)
    if not start.startswith(MAGIC):
        hint = "load it in PyTorch, and save it again: torch.save writes an archive since version 1.6"
        raise problem("must be an archive, got a bare pickle, which could run code", hint)
    return lambda device: read_pytorch(source, problem, device)


def _sharded(source: str, mmap: bool, verify: bool | None, device: DeviceLike | None) -> dict[str, Tensor]:
    """The tensors of several safetensors files, which an index names."""
    problem = Problem("load", source)
    with open(source, "rb") as file:
        index = parse_json(file.read(), "the index", problem)
    names = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(names, dict) or not all(isinstance(f, str) for f in names.values()):
        raise problem("the index must have a weight_map of names and files, got none")
    found: dict[str, Tensor] = {}
    for shard in sorted(set(names.values())):
        if os.path.basename(shard) != shard or shard in ("", ".", ".."):
            raise problem(f"files must lie beside the index, got {shard!r}")
        whole = load(os.path.join(os.path.dirname(source), shard), mmap=mmap, verify=verify, device=device)
        for name in [n for n, f in names.items() if f == shard]:
            if not isinstance(whole, dict) or name not in whole:
                raise problem(f"{shard} must hold {name!r}, as the index says; it does not")
            found[name] = whole[name]
    return {name: found[name] for name in names}


def tree_of(
    contents: Contents, problem: Problem, device: DeviceLike | None, place: Place | None = None
) -> Any:
    """The tree of what is in a file; ``place`` says which part to take of tensors that ranks wrote."""
    arrays, metadata, kind = contents
    if not kind:
        return {name: moved(wrap(arrays[name]), device) for name in sorted(arrays)}
    if kind != "tree" or "weft.tree" not in metadata:
        hint = "load it with weft.load_graph" if kind == "graph" else None
        raise problem(f"the file must hold a tree, got a {kind}", hint)
    extra = {"sliced": Slices(metadata, problem, device, place).tensor} if "weft.slices" in metadata else {}
    structure = parse_json(metadata["weft.tree"], "the structure", problem)
    return Decoder(arrays, problem, extra, device=device).decode(structure)

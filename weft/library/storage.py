"""The data of a library, its weights and constants: inside, as data that nobody writes, or in a file beside.

Data inside is mapped with the library when it is loaded, read when it is used, and shared by processes. The
file beside is one that ``weft.load`` reads too; the library takes it only if its header, checksums and all,
is the one that was written with the library.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.backends.library import Storage
from weft.errors import DomainError
from weft.io.layout import Array, write_file
from weft.io.trees import Encoder
from weft.library.data_object import write_data_object

INSIDE_LIMIT = 1 << 30  # bytes: code reaches data by offsets of 31 bits
DATA = "weft_data"


def choose_place(weights: str, arrays: Sequence[Array]) -> str:
    """Whether the data is to be "inside" or "beside"."""
    if weights not in ("auto", "inside", "beside"):
        message = f'weights must be "auto", "inside" or "beside", got {weights!r}'
        raise DomainError("export_library", message)
    total = sum(a.nbytes for a in arrays)
    if weights == "inside" and total > INSIDE_LIMIT:
        message = f"weights inside a library must take at most {INSIDE_LIMIT} bytes, got {total}"
        raise DomainError("export_library", message, hint='use weights="beside"')
    return weights if weights != "auto" else "inside" if total <= INSIDE_LIMIT else "beside"


def store_inside(arrays: Sequence[Array], path: Path, *, arm: bool) -> Storage:
    """Write the data as an object file for the linker, if there is any."""
    size = sum(array.nbytes for array in arrays)
    offsets = write_data_object(path, DATA, arrays, arm=arm)
    return Storage(offsets, DATA if size else None, None, size)


def store_beside(weights: Mapping[str, Array], constants: Sequence[Array], path: Path) -> Storage:
    """Write the data to a file that stays beside the library."""
    encoder = Encoder("export_library")
    tree = encoder.encode({"weights": dict(weights), "constants": list(constants)})
    notes = [*tree["dict"]["weights"]["dict"].values(), *tree["dict"]["constants"]]
    write_file(
        os.fspath(path), encoder.arrays, "tree", {"weft.tree": json.dumps(tree, separators=(",", ":"))}
    )
    with open(path, "rb") as file:
        length = file.read(8)
        header = length + file.read(int.from_bytes(length, "little"))
    entries = json.loads(header[8:])
    names = [note.get("data", note["array"]) for note in notes]
    offsets = [len(header) + entries[name]["data_offsets"][0] for name in names]
    return Storage(tuple(offsets), None, header, os.path.getsize(path))

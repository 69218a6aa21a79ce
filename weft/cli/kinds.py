"""What kind of file one is, by how it begins: for commands that are given another kind than they take."""

from __future__ import annotations

import os

KINDS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "an archive, as torch.save and NumPy's savez write them"),
    (b"\x93NUMPY", "an array of NumPy"),
    (b"\x80\x02", "a pickle"),
    (b"\x89HDF", "an HDF5 file, as Keras writes it"),
    (b"\x7fELF", "a program or a library"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GGUF", "a GGUF file"),
    (b"<", "a page"),
    (b"\x08", "an ONNX model, whose name must end in .onnx"),
)


def kind_of(path: str) -> str:
    """What a file looks like; "" if like one of weft's, or like nothing that is known."""
    if os.path.isdir(path):
        return "a folder"
    try:
        with open(path, "rb") as file:
            start = file.read(512)
    except OSError:
        return ""
    if not start:
        return "an empty file"
    if len(start) > 9 and start[8:9] == b"{":
        return ""  # of safetensors' layout
    found = next((told for magic, told in KINDS if start.startswith(magic)), "")
    if not found and all(byte >= 32 or byte in b"\t\n\r\f" for byte in start):
        return "a text"
    return found


def weights_in(path: str) -> dict[str, str] | None:
    """The tensors of a file that holds no graph, by name, with their types; None of any other file."""
    from weft.ir.types import TensorType

    if not os.path.isfile(path):
        return None
    if path.endswith((".index.json", ".pt", ".pth", ".bin")):
        import weft

        loaded = weft.load(path)
        leaves = weft.tree_leaves(loaded)
        named = loaded if isinstance(loaded, dict) else {str(i): leaf for i, leaf in enumerate(leaves)}
        return {k: str(TensorType(v.shape, v.dtype)) for k, v in named.items() if isinstance(v, weft.Tensor)}
    if kind_of(path) or path.endswith(".onnx"):
        return None
    from weft.io.layout import read_file

    contents = read_file("info", path, mmap=True, verify=False)
    if contents.kind == "graph":
        return None
    return {name: str(TensorType(a.shape, a.dtype)) for name, a in sorted(contents.arrays.items())}

"""Writes files as ``torch.save`` does, without PyTorch: an archive of a pickle, and of data of tensors."""

from __future__ import annotations

import io
import pickle
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

STORAGES = {
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
}


class Saved:
    """A tensor as PyTorch would save it: strides in elements, and an offset."""

    def __init__(self, data: Any, size: Any, stride: Any, offset: int = 0, grad: bool = False) -> None:
        self.data, self.size, self.stride, self.offset, self.grad = data, size, stride, offset, grad


def saved(array: Any, **more: Any) -> Saved:
    """An array as a tensor that lies in one piece, or turned if the array does."""
    base = array if array.base is None else array.base
    return Saved(np.ravel(base), array.shape, [s // array.itemsize for s in array.strides], **more)


def _fake_modules() -> dict[str, ModuleType]:
    torch, utils = ModuleType("torch"), ModuleType("torch._utils")
    torch._utils = utils  # type: ignore[attr-defined]
    for name in (*STORAGES.values(), "Size"):
        kind = type(name, (), {"__module__": "torch"})
        setattr(torch, name, kind)

    def _rebuild_tensor_v2(*args: Any) -> None: ...
    def _rebuild_parameter(*args: Any) -> None: ...

    for function in (_rebuild_tensor_v2, _rebuild_parameter):
        function.__module__, function.__qualname__ = "torch._utils", function.__name__
        setattr(utils, function.__name__, function)
    return {"torch": torch, "torch._utils": utils}


def write(path: Path, tree: Any, byteorder: str = "little", protocol: int = 2) -> None:
    """Write a tree of arrays, ``Saved`` tensors and plain values."""
    modules = _fake_modules()
    torch, blobs = modules["torch"], []

    class Pickler(pickle.Pickler):
        def persistent_id(self, x: Any) -> Any:
            if isinstance(x, np.ndarray):
                blobs.append(x)
                kind = getattr(torch, STORAGES[x.dtype.name])
                return ("storage", kind, str(len(blobs) - 1), "cpu", x.size)
            return None

        def reducer_override(self, x: Any) -> Any:
            if isinstance(x, Saved):
                rebuild = modules["torch._utils"]._rebuild_tensor_v2
                return rebuild, (x.data, x.offset, tuple(x.size), tuple(x.stride), x.grad, OrderedDict())
            return NotImplemented

    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        buffer = io.BytesIO()
        Pickler(buffer, protocol).dump(tree)
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", buffer.getvalue())
        archive.writestr("archive/byteorder", byteorder)
        for i, blob in enumerate(blobs):
            swapped = blob.byteswap() if byteorder == "big" else blob
            archive.writestr(f"archive/data/{i}", swapped.tobytes())
        archive.writestr("archive/version", "3\n")

"""Libraries as a program without weft sees them: by ctypes, and by the example program."""

from __future__ import annotations

import ctypes
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - bfloat16 by name
import numpy as np

import weft

FLAGS = ("-Wall", "-Wextra", "-Werror", "-pedantic")
OK, BAD_ARGUMENT, OUT_OF_MEMORY, FAILED, NO_WEIGHTS, BAD_PROCESSOR = range(6)


def exported(function: Any, folder: Path, *examples: Any, name: str = "model", **options: Any) -> Library:
    weft.export_library(function, folder, *examples, name=name, **options)
    return Library(folder, name)


class Library:
    """A library in a folder, called by ctypes alone."""

    def __init__(self, folder: Path, name: str = "model") -> None:
        self.folder = folder
        self.name = name
        self.signature = json.loads((folder / f"{name}.json").read_text())
        self.c = ctypes.CDLL(str(folder / f"lib{name}.so"))
        self.function("error").restype = ctypes.c_char_p
        self.function("status").restype = ctypes.c_char_p
        for which in ("input_bytes", "output_bytes"):
            self.function(which).restype = ctypes.c_int64

    def function(self, name: str) -> Any:
        return getattr(self.c, f"{self.name}_{name}")

    def create(self) -> Handle:
        handle = ctypes.c_void_p()
        status = self.function("create")(None, ctypes.byref(handle))
        assert status == OK, self.function("status")(status)
        return Handle(self, handle)

    def __call__(self, *arrays: Any, **sizes: int) -> list[Any]:
        """The outputs of one run."""
        with self.create() as handle:
            return handle(*arrays, **sizes)


class Handle:
    def __init__(self, library: Library, handle: ctypes.c_void_p) -> None:
        self.library = library
        self.handle = handle

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *error: object) -> None:
        self.library.function("free")(self.handle)

    def run(self, arrays: Sequence[Any], sizes: Mapping[str, int]) -> tuple[int, list[Any]]:
        signature = self.library.signature
        words = (ctypes.c_int64 * (len(sizes) + 1))(*[sizes[name] for name in signature["sizes"]])
        outputs = [self._empty(i, words) for i in range(len(signature["outputs"]))]
        inputs = [np.ascontiguousarray(a) for a in arrays]
        tables = [(ctypes.c_void_p * (len(t) + 1))(*[a.ctypes.data for a in t]) for t in (inputs, outputs)]
        return self.library.function("run")(self.handle, words, *tables), outputs

    def _empty(self, number: int, words: Any) -> Any:
        described = self.library.signature["outputs"][number]
        shape = (ctypes.c_int64 * (len(described["shape"]) + 1))()
        assert self.library.function("output_shape")(words, number, shape) == OK
        array = np.empty(tuple(shape)[:-1], np.dtype(described["dtype"]))
        assert self.library.function("output_bytes")(words, number) == array.nbytes
        return array

    def __call__(self, *arrays: Any, **sizes: int) -> list[Any]:
        status, outputs = self.run(arrays, sizes)
        assert status == OK, self.error
        return outputs

    @property
    def error(self) -> str:
        return str(self.library.function("error")(self.handle).decode())

    def weight(self, name: str, like: Any) -> Any:
        out = np.empty_like(like)
        size = ctypes.c_size_t(out.nbytes)
        data = ctypes.c_void_p(out.ctypes.data)
        assert self.library.function("get_weight")(self.handle, name.encode(), data, size) == OK, self.error
        return out

    def set_weight(self, name: str, array: Any) -> int:
        array = np.ascontiguousarray(array)
        size, data = ctypes.c_size_t(array.nbytes), ctypes.c_void_p(array.ctypes.data)
        return int(self.library.function("set_weight")(self.handle, name.encode(), data, size))


def build(folder: Path, source: Path, *flags: str, compiler: str = "cc", name: str = "model") -> Path:
    """A program that uses the library of a folder."""
    program = source.with_suffix("")
    rest = ["-I", folder, "-L", folder, f"-l{name}", f"-Wl,-rpath,{folder}", "-lpthread"]
    command = [compiler, *FLAGS, *flags, "-o", program, source, *rest]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def run_example(folder: Path, arrays: Sequence[Any], name: str = "model", **words: int) -> list[bytes]:
    """The bytes of the outputs that the example program writes."""
    signature = json.loads((folder / f"{name}.json").read_text())
    program = build(folder, folder / "example.c", "-std=c99", name=name)
    arguments = [f"{word}={value}" for word, value in words.items()]
    for i, (described, array) in enumerate(zip(signature["inputs"], arrays, strict=True)):
        np.ascontiguousarray(array).tofile(folder / f"{i}.in")
        arguments.append(f"{described['name']}={folder / f'{i}.in'}")
    outputs = [folder / f"{i}.out" for i in range(len(signature["outputs"]))]
    arguments += [f"{d['name']}={path}" for d, path in zip(signature["outputs"], outputs, strict=True)]
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return [path.read_bytes() for path in outputs]


def data(x: Any) -> Any:
    """The array of a tensor or of a number that Python has for it."""
    return x.detach().numpy() if isinstance(x, weft.Tensor) else np.asarray(x)


def same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Whether all arrays agree in every bit."""
    wanted = [np.ascontiguousarray(data(x)) for x in expected]
    raw = [x if isinstance(x, bytes) else np.ascontiguousarray(x).tobytes() for x in found]
    return raw == [w.tobytes() for w in wanted]

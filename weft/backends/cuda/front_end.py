"""The front end of cuDNN (the package nvidia-cudnn-frontend) without all that its package imports.

Its ``__init__`` imports PyTorch where that is installed, which takes seconds and is of no use here. So its
compiled module is loaded by itself, under its own name: who imports the package later gets the same one.
A package that is not laid out as expected is imported as it is.
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
import sys
import sysconfig
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import SimpleNamespace
from typing import Any

_PACKAGE, _COMPILED = "cudnn", "_compiled_module"
_VERSION = re.compile(r"^__version__ = \"([^\"]+)\"$", re.MULTILINE)
_NAMES = ("backend_version", "create_handle", "set_stream", "data_type", "heur_mode", "pygraph")
_LIBRARIES = ("nvidia/cudnn/lib/libcudnn.so.*[0-9]", "nvidia/cudnn_jit/lib/libcudnn.so.*[0-9]")
_OF_SYSTEM = ("libcudnn.so.9", "libcudnn.so")


def load_front_end() -> Any:
    """What has the functions of the front end: the package, or its compiled module alone."""
    found = None if _PACKAGE in sys.modules else _compiled_alone()
    return import_module("cudnn") if found is None else found


def _compiled_alone() -> Any:
    """The compiled module, ready to be used; None where something is not as expected."""
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None or os.path.basename(spec.origin) != "__init__.py":
        return None
    version = _version(spec.origin)
    folder = os.path.dirname(spec.origin)
    paths = [os.path.join(folder, _COMPILED + suffix) for suffix in EXTENSION_SUFFIXES]
    path = next(filter(os.path.isfile, paths), None)
    if version is None or path is None:
        return None
    try:
        module = _loaded(path)
        names = {name: getattr(module, name) for name in _NAMES}
        _complete(module)
        library = _library()
        if library is not None:
            module._set_dlhandle_cudnn(ctypes.cast(library._handle, ctypes.c_void_p).value)
    except (ImportError, AttributeError, TypeError, OSError):
        return None
    return SimpleNamespace(__version__=version, **names)


def _version(origin: str) -> str | None:
    with open(origin, encoding="utf-8", errors="replace") as file:
        found = _VERSION.search(file.read())
    return None if found is None else found[1]


def _loaded(path: str) -> Any:
    """The compiled module; its classes can be made once in a process, so it is the one that others get."""
    name = f"{_PACKAGE}.{_COMPILED}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _complete(module: Any) -> None:
    """Give classes the methods that the package adds; it replaces them by its own when it is imported."""
    graph, tensor = module.pygraph, module.tensor
    plain = graph._execute

    def execute(self: Any, places: dict[int, int], workspace: int, handle: int | None = None) -> None:
        plain(self, places, workspace, handle)

    graph.tensor, graph.execute = graph._make_tensor, execute
    tensor.set_data_type = tensor._set_data_type


def _library() -> Any:
    """cuDNN itself, where the package would find it; None if that finds none, either."""
    packages = sysconfig.get_path("purelib")
    found = [path for pattern in _LIBRARIES for path in glob.glob(os.path.join(packages, pattern))]
    for path in (*found[:1], *_OF_SYSTEM):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None

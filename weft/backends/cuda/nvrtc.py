"""CUDA C++ to PTX, by NVIDIA's library NVRTC where it is there. weft's own kernels do not need it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from typing import Any

from weft.backends.cuda.cublaslt import find_library
from weft.backends.llvm.cache import default_cache
from weft.errors import DeviceError, DomainError

INSTALL = "pip install nvidia-cuda-nvrtc, or give the kernel as PTX"


@cache
def _library() -> Any:
    path = find_library("nvrtc")
    if path is None:
        raise DeviceError("cuda.kernel", "NVRTC must be there to compile CUDA C++, got none", hint=INSTALL)
    return ctypes.CDLL(path)


def compile_source(source: str, architecture: str, options: Sequence[str] = ()) -> str:
    """The PTX of CUDA C++ for cards of an architecture, such as ``sm_90``; kept on disk."""
    library = _library()
    version = c_int(), c_int()
    library.nvrtcVersion(byref(version[0]), byref(version[1]))
    key = ("nvrtc", f"{version[0].value}.{version[1].value}", architecture, *options, source)
    cache = default_cache()
    known = cache.get(key)
    if known is None:
        known = _compiled(library, source, architecture, options)
        cache.put(key, known)
    return known.decode()


def _compiled(library: Any, source: str, architecture: str, options: Sequence[str]) -> bytes:
    program = c_void_p()
    target = architecture.replace("sm_", "compute_")
    asked = [o.encode() for o in (f"--gpu-architecture={target}", "--std=c++17", *options)]
    _check(library, library.nvrtcCreateProgram(byref(program), source.encode(), b"kernel.cu", 0, None, None))
    try:
        if library.nvrtcCompileProgram(program, len(asked), (c_char_p * len(asked))(*asked)):
            said = _text(library, program, "ProgramLog").decode(errors="replace").strip()
            raise DomainError("cuda.kernel", f"the source must compile, got:\n{said}")
        return _text(library, program, "PTX")
    finally:
        library.nvrtcDestroyProgram(byref(program))


def _text(library: Any, program: c_void_p, what: str) -> bytes:
    """What a function of the library writes, of the size that another one tells."""
    size = c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.value


def _check(library: Any, code: int) -> None:
    if code:
        library.nvrtcGetErrorString.restype = c_char_p
        said = library.nvrtcGetErrorString(code).decode()
        raise DeviceError("cuda.kernel", f"NVRTC must succeed, got error {code}: {said}")

"""The frameworks: which environment each label runs in, its settings, and how it is made ready.

A label is the name of a framework and, after a space, a way to use it: ``torch``, ``torch compile``,
``jax loops``, ``onnxruntime bound``.
"""

from __future__ import annotations

import importlib.metadata
import os
from typing import Any

from bench import native

THREADS = 2

# from a framework to what pip installs in its environment
PACKAGES = {
    "torch": ["torch==2.13.0", "numpy"],
    "jax": ["jax", "numpy"],
    "onnxruntime": ["onnxruntime", "onnx", "numpy"],
    "openvino": ["openvino", "onnx", "numpy"],
    "numba": ["numba", "scipy", "numpy"],
    "fastapi": ["fastapi", "uvicorn[standard]", "onnxruntime", "onnx", "numpy"],
}


def framework(label: str) -> str:
    """The framework of a label; hand-written C is called from where weft runs."""
    return label.split()[0]


def environment_of(label: str) -> str:
    """The virtual environment that a label runs in."""
    return framework(label) if framework(label) in PACKAGES else "weft"


def settings(label: str, scratch: str, cached: bool = False) -> dict[str, str]:
    """Environment variables of a worker: 2 threads, and no results of earlier runs."""
    found = {name: str(THREADS) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    found["WEFT_CACHE_DIR"] = scratch if cached else ""
    found["JAX_PLATFORMS"] = "cpu"
    found["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    found["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads={THREADS}"
    found["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    found["TORCHINDUCTOR_CACHE_DIR"] = scratch
    return found


def prepare(label: str) -> None:
    """Import the framework, on the first two of the processors that there are."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    name = framework(label)
    if name == "weft":
        import weft

        if hasattr(weft, "set_num_threads"):
            weft.set_num_threads(THREADS)
    elif name == "torch":
        import torch

        torch.set_num_threads(THREADS)
    elif name == "jax":
        import jax  # noqa: F401
    elif name == "onnxruntime":
        import onnxruntime  # noqa: F401
    elif name == "openvino":
        import openvino  # noqa: F401


def version(label: str) -> str:
    """The version that is installed; that of the compiler for C."""
    name = framework(label)
    if name == "c":
        return native.compiler_version()
    if name == "weft":
        import weft

        return weft.__version__
    return importlib.metadata.version(name)


def warm(label: str) -> None:
    """Compile and run the smallest program."""
    name = framework(label)
    if name == "weft":
        import weft

        weft_compile(lambda x: x + 1.0)(weft.ones(3))
    elif name == "torch":
        import torch

        x = torch.ones(3, requires_grad=True)
        function = torch.compile(_plus_one) if label == "torch compile" else _plus_one
        function(x).sum().backward()
    elif name == "jax":
        import jax

        jax.jit(_plus_one)(jax.numpy.ones(3)).block_until_ready()


def _plus_one(x: Any) -> Any:
    return x + 1.0


def weft_compile(function: Any) -> Any:
    """``weft.compile``, by the backend that ``BENCH_BACKEND`` names, or by the usual one."""
    import weft

    backend = os.environ.get("BENCH_BACKEND")
    return weft.compile(function, backend=backend) if backend else weft.compile(function)

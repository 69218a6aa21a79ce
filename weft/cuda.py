"""GPUs of NVIDIA: whether there are any, their memory, streams and events.

Tensors go there by ``x.to("cuda")``, ``x.cuda()`` and ``device="cuda"``. Where a driver, a package or a GPU
is missing, ``is_available()`` is False, and whatever needs one says what is missing and how to get it.
docs/gpu.md tells what runs there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from weft.backends.cuda.captured import CapturedGraph
from weft.backends.cuda.card import Card, card, cards
from weft.backends.cuda.card import device_count as _count
from weft.backends.cuda.compiling import has_compiler
from weft.backends.cuda.cublaslt import find_library
from weft.backends.cuda.cudnn import has_cudnn
from weft.backends.cuda.driver import INSTALL, the_driver, why_unavailable
from weft.backends.cuda.kernels import Counting, Kernel
from weft.backends.cuda.nccl import describe_nccl
from weft.backends.cuda.streams import Event, Stream
from weft.backends.cuda.uploads import Uploads, forget_rings
from weft.base.device import DeviceLike, index_of
from weft.base.public import public

__all__ = [
    "Event",
    "Stream",
    "current_stream",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "graph",
    "is_available",
    "is_current_stream_capturing",
    "kernel",
    "max_memory_allocated",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "reset_peak_memory_stats",
    "stream",
    "synchronize",
    "why_not",
]

_Which = DeviceLike | int | None


def _card(op: str, device: _Which) -> Card:
    return card(index_of(op, device), op)


@public
def is_available() -> bool:
    """Whether tensors can be on a GPU here; ``why_not()`` tells what is missing.

    >>> import weft
    >>> weft.cuda.is_available() == (weft.cuda.why_not() == "")
    True
    """
    return why_unavailable() is None and _count("is_available") > 0


@public
def why_not() -> str:
    """What is missing for a GPU, and what helps; "" where nothing is."""
    missing = why_unavailable()
    if missing is None:
        return "" if _count("why_not") else "the driver finds no GPU"
    what, hint = missing
    return f"{what}; {hint}" if hint else what


def describe() -> Iterator[tuple[str, str]]:
    """The driver, each GPU and each library that is used, in words, for ``weft doctor``."""
    version = int(the_driver("doctor").cuDriverGetVersion())
    yield "driver", f"for CUDA {version // 1000}.{version % 1000 // 10}"
    for number in range(device_count()):
        found = card(number, "doctor")
        free, total = found.pool.info()
        text = f"{found.name}, {found.architecture}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
        yield str(found.device), text
    yield "cublasLt", find_library("cublasLt") or f"not found: {INSTALL}"
    yield "cuDNN", "used" if has_cudnn() else "not found, with its front end: pip install 'weft[cudnn]'"
    yield "NCCL", describe_nccl()
    yield "kernels", "compiled for the GPU" if has_compiler() else "none: ops are computed on the host"


@public
def device_count() -> int:
    """How many GPUs there are; 0 where something is missing for any.

    >>> import weft
    >>> weft.cuda.device_count() >= 0
    True
    """
    return 0 if why_unavailable() else _count("device_count")


@public
def get_device_name(device: _Which = None) -> str:
    """What the maker calls a GPU."""
    return _card("get_device_name", device).name


@public
def get_device_capability(device: _Which = None) -> tuple[int, int]:
    """The two numbers that tell what a GPU can do: (9, 0) of an H200."""
    return _card("get_device_capability", device).capability


@public
def synchronize(device: _Which = None) -> None:
    """Wait until all that was asked of a GPU is done."""
    _card("synchronize", device).synchronize()


def uploads(device: _Which, slots: int) -> Uploads:
    """What sends arrays to a GPU ahead of their use, for ``weft.data``."""
    return Uploads(_card("to", device), slots)


# Memory


@public
def memory_allocated(device: _Which = None) -> int:
    """Bytes that tensors hold, each rounded up to 512."""
    return _card("memory_allocated", device).pool.allocated


@public
def max_memory_allocated(device: _Which = None) -> int:
    """The most bytes that tensors held at a time, since the start or ``reset_peak_memory_stats()``."""
    return _card("max_memory_allocated", device).pool.peak


@public
def memory_reserved(device: _Which = None) -> int:
    """Bytes that this process has from the GPU, held by tensors or kept for the next ones."""
    return _card("memory_reserved", device).pool.reserved()


@public
def reset_peak_memory_stats(device: _Which = None) -> None:
    """Count ``max_memory_allocated`` anew, from what is held now."""
    pool = _card("reset_peak_memory_stats", device).pool
    pool.peak = pool.allocated


@public
def mem_get_info(device: _Which = None) -> tuple[int, int]:
    """Bytes that a GPU has left for anybody, and bytes that it has."""
    return _card("mem_get_info", device).pool.info()


@public
def empty_cache() -> None:
    """Give memory that no tensor holds back, so that other processes can have it."""
    forget_rings()
    for each in cards():
        each.pool.empty()


# Streams


@public
def current_stream(device: _Which = None) -> Stream:
    """The stream that work of this thread goes to."""
    return _card("current_stream", device).current()


@public
def stream(stream: Stream) -> Stream:
    """Let work of this thread go to a stream, in a ``with`` block: ``with weft.cuda.stream(s):``."""
    return stream


# Graphs


@public
def is_current_stream_capturing(device: _Which = None) -> bool:
    """Whether work of this thread is noted for a graph, and not done; see ``graph``."""
    return _card("is_current_stream_capturing", device).current().capture is not None


@public
def graph(device: _Which = None) -> CapturedGraph:
    """Capture eager work in a ``with`` block as one CUDA graph, which ``replay()`` does again.

    Nothing is computed in the block. New input comes by ``copy_`` to the tensors that it read::

        with weft.cuda.graph() as g:
            y = f(x)
        x.copy_(batch)
        g.replay()  # y has the new results
    """
    return CapturedGraph(_card("cuda.graph", device))


# Kernels


@public
def kernel(
    source: str,
    name: str,
    *,
    out: Callable[..., Any] | None = None,
    arguments: Callable[..., Any] | None = None,
    grid: Counting | None = None,
    block: int | tuple[int, ...] = 256,
    shared: int | Callable[..., int] = 0,
    options: Sequence[str] = (),
) -> Kernel:
    """A kernel of your own, as PTX or as CUDA C++ (which NVRTC compiles), to be called with tensors of a GPU.

    It gives new tensors, and is an op like any other: compiled functions and graphs have it in them. With a
    gradient, and for tensors of the host, pass it as ``cuda=`` to ``weft.custom_op``. Functions given here
    take the inputs, then the outputs (each has ``shape``, ``size`` and ``dtype``), and attributes by name.

    Args:
        source: the text; in CUDA C++ the kernel is ``extern "C" __global__``.
        name: of the kernel in it.
        out: the types of the results, from those of the inputs and attributes: ``lambda x, *, factor: x``.
        arguments: what the kernel is passed, arrays and numbers, in its order; by default the inputs, the
            attributes, the outputs.
        grid: blocks, one to three numbers or a function; by default enough for a thread to each element of
            the first result.
        block: threads of a block, one to three numbers.
        shared: bytes of shared memory that a block asks for, a number or a function.
        options: for NVRTC.
    """
    return Kernel(
        source, name, out=out, arguments=arguments, grid=grid, block=block, shared=shared, options=options
    )


def __getattr__(name: str) -> NoReturn:
    from weft.base.elsewhere import unknown

    raise unknown(__name__, name, __all__)

"""Graph files: ``fn.save(path)``, ``weft.save_graph`` and ``weft.load_graph``.

Such a file holds the text of a graph, its weights, and how it is called. It runs where the code that it was
captured from does not exist, on any backend; what it computes is in its graph alone. What compiles graphs is
imported when one has to be: a graph that was compiled on this machine before is run as it was kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.base.device import CPU, DeviceLike, as_device
from weft.base.public import public
from weft.base.tracebacks import hide_weft
from weft.errors import ArgumentError
from weft.io.atomic import file_path
from weft.io.layout import Problem, Reading
from weft.io.program_cache import MISS, CachedProgram, find_cached
from weft.tensor.moving import move

if TYPE_CHECKING:
    import inspect

    from weft.capture.call.version import Version
    from weft.io.calls import Opened
    from weft.io.saved import Saved
    from weft.ir.graph import Graph
    from weft.tensor.tensor import Tensor

Path = str | os.PathLike[str]


# Writing


def save_version(function: Callable[..., Any], version: Version, path: Path) -> None:
    """Write a version of a captured function; ``fn.save`` calls it."""
    from weft.io.graph_files import write_saved
    from weft.io.saved import saved_version

    write_saved(saved_version(function, version), file_path("save", path))


@public
def save_graph(graph: Graph, path: Path) -> None:
    """Write a graph with the values its parameters have now.

    Args:
        graph: from ``weft.make_graph``, or written in a block.
        path: of the file; one that is there is replaced.

    >>> import os, tempfile, weft
    >>> path = os.path.join(tempfile.mkdtemp(), "double.weft")
    >>> graph = weft.make_graph(lambda x: x * 2.0, name="double")(weft.TensorType(("n",), weft.float32))
    >>> weft.save_graph(graph, path)
    >>> weft.load_graph(path)(weft.ones(3))
    tensor([2., 2., 2.])
    """
    from weft.io.graph_files import write_saved
    from weft.io.saved import saved_graph
    from weft.ir.graph import Graph

    if not isinstance(graph, Graph):
        raise ArgumentError("save_graph", f"must be given a graph, got {type(graph).__name__}")
    write_saved(saved_graph(graph), file_path("save_graph", path))


# Reading


@public
def load_graph(
    path: Path,
    *,
    backend: Any = None,
    mmap: bool = False,
    verify: bool | None = None,
    device: DeviceLike | None = None,
    precision: Any = None,
) -> Any:
    """The graph that a file holds, as a function with the signature of the one it was saved from.

    Args:
        path: of the file.
        backend: the name of what runs the graph; the default is the fastest there is.
        mmap: map the file into memory instead of reading it: at once, and shared by processes.
        verify: compare the checksums of all data; by default unless the file is mapped.
        device: where the graph runs: its weights and arguments go there. By default the cpu.
        precision: "bf16" or "f16", to compute products and convolutions of float32 in half precision, as
            ``weft.compile(precision=...)`` does; weights that nothing else reads are held in it, too.

    >>> import os, tempfile, weft
    >>> path = os.path.join(tempfile.mkdtemp(), "model.weft")
    >>> model = weft.nn.Linear(3, 2)
    >>> weft.jit.trace(model, weft.ones((1, 3))).save(path)
    >>> loaded = weft.load_graph(path)
    >>> bool((loaded(weft.ones((1, 3))) == model(weft.ones((1, 3)))).all())
    True
    >>> loaded
    <loaded graph Linear(x: f32[1,3]): 1 nodes, 2 weights>
    """
    source = file_path("load_graph", path)
    problem = Problem("load_graph", source)
    reading = Reading("load_graph", source, mmap=mmap, verify=not mmap if verify is None else verify)
    away = device is not None and as_device(device) is not CPU
    half = None
    if precision is not None:
        from weft.passes.half_products import as_half

        half = as_half("load_graph", precision)
    cached = None if away or half is not None else find_cached(reading, backend)
    contents = reading.contents()

    def read() -> Saved:
        from weft.io.graph_files import read_saved

        return read_saved(contents, problem)

    if cached is not None and cached.prepare(contents):
        return LoadedGraph._of_cached(cached, read, backend)
    from weft.io.saved import freeze_weights

    saved = read()
    if half is not None:
        from weft.io.halving import in_half

        saved = in_half(saved, half)
    freeze_weights(saved)
    loaded = LoadedGraph(saved, backend)
    loaded._cached = cached
    return loaded.to(device) if away else loaded


class LoadedGraph:
    """A graph from a file, called like the function that it was made from.

    Attributes:
        weights: tensors by name: what the graph reads besides its arguments, and what it changes.
        signature: how it is called.
    """

    weights: dict[str, Tensor]
    _read: Callable[[], Saved]
    _backend: Any

    def __init__(self, saved: Saved, backend: Any = None) -> None:
        from weft.io.calls import Opened

        self._cached: CachedProgram | None = None
        self._opened: Opened | None = Opened(saved, backend)
        self.weights = self._opened.weights
        self.__name__ = saved.graph.name

    @classmethod
    def _of_cached(cls, cached: CachedProgram, read: Callable[[], Saved], backend: Any) -> LoadedGraph:
        """One whose program was kept; the rest is read from the file when it is asked for."""
        made = cls.__new__(cls)
        made._cached, made._opened = cached, None
        made._read, made._backend = read, backend
        made.weights, made.__name__ = cached.weights, cached.name
        return made

    def _open(self) -> Opened:
        """All of it."""
        if self._opened is None:
            from weft.io.calls import Opened

            self._opened = Opened(self._read(), self._backend, self.weights)
        return self._opened

    @property
    def _saved(self) -> Saved:
        return self._open().saved

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._saved.graph

    @property
    def signature(self) -> inspect.Signature:
        """How it is called."""
        return self._saved.signature

    __signature__ = signature

    @property
    def text(self) -> str:
        """The text of the graph."""
        return str(self.graph)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph; it is compiled at the first call."""
        cached = self._cached
        if cached is not None and not kwargs and (found := cached.call(args)) is not MISS:
            return found
        try:
            opened = self._open()
            found = opened.call(args, kwargs)
        except Exception as error:
            hide_weft(error)
            raise
        if cached is not None:
            cached.keep(opened)
        return found

    def to(self, device: DeviceLike | None) -> LoadedGraph:
        """Have the graph run on a device: its weights go there, and so do the arguments of calls."""
        opened = self._open()
        opened.device, self._cached = as_device(device), None
        for weight in self.weights.values():
            weight._data, weight._form = move(weight.detach(), opened.device)._data, None
        return self

    def save(self, path: Path) -> None:
        """Write the graph with the weights it has now."""
        from weft.io.graph_files import write_saved
        from weft.io.saved import with_weights

        write_saved(with_weights(self._saved, self.weights), file_path("save", path))

    def export_library(self, folder: Path, **options: Any) -> None:
        """Write the graph with the weights it has now as a shared library; see ``weft.export_library``."""
        from weft.library.export import export_library

        export_library(self, folder, **options)

    def __repr__(self) -> str:
        marks = zip(self._saved.sources, self.graph.inputs, strict=True)
        shown = ", ".join(f"{v.name}: {v.type}" for mark, v in marks if mark.word == "input")
        count = f"{len(self.graph.nodes)} nodes, {len(self.weights)} weights"
        return f"<loaded graph {self.__name__}({shown}): {count}>"

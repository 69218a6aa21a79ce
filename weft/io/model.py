"""Graph files: ``fn.save(path)``, ``weft.save_graph`` and ``weft.load_graph``.

Such a file holds the text of a graph, its weights, and how it is called. It runs where the code that it was
captured from does not exist, on any backend; what it computes is in its graph alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.backends import builder
from weft.base.public import public
from weft.base.tracebacks import hide_weft
from weft.capture.version import Version
from weft.errors import ArgumentError
from weft.io.atomic import checked_path
from weft.io.calls import Binder, program_of
from weft.io.layout import Problem, read_file
from weft.io.reading import read_saved
from weft.io.saved import Saved, saved_graph, saved_version, tensors_of, with_weights
from weft.io.writing import write_saved
from weft.ir.graph import Graph
from weft.passes.pipeline import optimize
from weft.tensor.dispatch import recording
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor

Path = str | os.PathLike[str]


# Writing


def save_version(function: Callable[..., Any], version: Version, path: Path) -> None:
    """Write a version of a captured function; ``fn.save`` calls it."""
    write_saved(saved_version(function, version), checked_path("save", path))


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
    if not isinstance(graph, Graph):
        raise ArgumentError("save_graph", f"must be given a graph, got {type(graph).__name__}")
    write_saved(saved_graph(graph), checked_path("save_graph", path))


# Reading


@public
def load_graph(path: Path, *, backend: Any = None, mmap: bool = False, verify: bool | None = None) -> Any:
    """The graph that a file holds, as a function with the signature of the one it was saved from.

    Args:
        path: of the file.
        backend: the name of what runs the graph; the default is the fastest there is.
        mmap: map the file into memory instead of reading it: at once, and shared by processes.
        verify: compare the checksums of all data; by default unless the file is mapped.

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
    source = checked_path("load_graph", path)
    problem = Problem("load_graph", source)
    contents = read_file("load_graph", source, mmap=mmap, verify=not mmap if verify is None else verify)
    return LoadedGraph(read_saved(contents, problem), backend)


class LoadedGraph:
    """A graph from a file, called like the function that it was made from.

    Attributes:
        weights: tensors by name: what the graph reads besides its arguments, and what it changes.
        signature: how it is called.
    """

    def __init__(self, saved: Saved, backend: Any = None) -> None:
        self._saved = saved
        build = builder("load_graph", backend)
        self._build = lambda graph: build(optimize(graph))
        self.weights: dict[str, Tensor] = tensors_of(saved)
        self.signature = saved.signature
        self.__name__ = saved.graph.name
        self.__signature__ = saved.signature
        self._binder = Binder(self.__name__, saved)
        self._program = program_of(saved, self.weights)
        self._version: Version | None = None

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._saved.graph

    @property
    def text(self) -> str:
        """The text of the graph."""
        return str(self.graph)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph; it is compiled at the first call."""
        try:
            tensors = self._binder.tensors(args, kwargs)
            if self._version is None:
                self._version = Version(self._program, self._build)
            if thread.capture is not None or any(map(_is_followed, (*tensors, *self.weights.values()))):
                return self._version.replay(tensors)
            return self._version(tensors)
        except Exception as error:
            hide_weft(error)
            raise

    def save(self, path: Path) -> None:
        """Write the graph with the weights it has now."""
        write_saved(with_weights(self._saved, self.weights), checked_path("save", path))

    def __repr__(self) -> str:
        marks = zip(self._saved.sources, self.graph.inputs, strict=True)
        shown = ", ".join(f"{v.name}: {v.type}" for mark, v in marks if mark.word == "input")
        count = f"{len(self.graph.nodes)} nodes, {len(self.weights)} weights"
        return f"<loaded graph {self.__name__}({shown}): {count}>"


def _is_followed(x: Tensor) -> bool:
    """Whether something follows what is computed from a tensor: the tape, or a transform."""
    return type(x._data) is not np.ndarray or (x._node is not None and recording())

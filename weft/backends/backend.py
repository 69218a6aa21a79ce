"""What a backend is (``Backend``), and what it makes of a graph (``Executable``).

A backend must build. Everything else is a capability that it may have: programs kept on disk, times of the
parts of a call, libraries for C. One that lacks what it is asked for says so by name.
"""

from __future__ import annotations

import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from weft.errors import DeviceError

if TYPE_CHECKING:
    from weft.backends.capabilities import ProgramStore, Tuner, Watcher
    from weft.backends.library import Exporter
    from weft.base.dtypes import DType
    from weft.ir.graph import Graph
    from weft.loop.ir import Program

Array = np.ndarray[Any, Any]
Arrays = Sequence[Array]
Run = Callable[[Arrays], Arrays]
Option = bool | str


class Executable(ABC):
    """A graph that can be run: a function from the arrays of its inputs to those of its results.

    Attributes:
        graph: what it runs.
        donated: pairs (input, result) by number, where the result may be written over the input.
    """

    __slots__ = ()

    graph: Graph
    donated: Sequence[tuple[int, int]] = ()

    @abstractmethod
    def __call__(self, arrays: Arrays) -> Arrays:
        """Run on arrays. A run that fails leaves all of them as they were."""

    def donating(self, arrays: Arrays, flags: Sequence[bool]) -> Arrays:
        """Run on arrays; flags tell of each whether it may be overwritten.

        The result of a pair in ``donated`` whose input may be is that very array.
        """
        return self(arrays)

    def explain(self, arrays: Arrays | None = None) -> object:
        """What it does, as text or as an object with a text; on arrays also how long that takes."""
        return str(self.graph)

    @property
    def loops(self) -> Program | None:
        """The program of loops that it runs; None if it runs another one."""
        return None


class Placement(threading.local):
    """Where a thread builds for: None for the host, or what makes executables for a device.

    That takes a graph, options, and a function that builds it for the host, for calls with arrays there.
    """

    make: Callable[[Graph, Mapping[str, Option], Callable[[], Executable]], Executable] | None = None


placement = Placement()


@contextmanager
def placed_by(
    make: Callable[[Graph, Mapping[str, Option], Callable[[], Executable]], Executable] | None,
) -> Iterator[None]:
    """Let this thread build by a function inside a block; None for the host."""
    before, placement.make = placement.make, make
    try:
        yield
    finally:
        placement.make = before


class Backend(ABC):
    """Makes executables of graphs.

    Attributes:
        name: that it is asked for by.
        options: that ``build`` takes, see ``weft.backends.builder``.
        needs: packages that it cannot do without.
        runs_eager: whether it is to run single ops on large arrays outside of graphs, too.

    >>> import numpy as np, weft
    >>> from weft.backends import Backend, backend_named, register_backend
    >>> class Loud(Backend):
    ...     name = "loud"
    ...     def build(self, graph):
    ...         print(f"building {len(graph.nodes)} nodes")
    ...         return backend_named("interpret").build(graph)
    >>> weft.compile(lambda x: x * 2.0, backend=Loud())(weft.ones(2))
    building 1 nodes
    tensor([2., 2.])
    """

    name: str
    options: frozenset[str] = frozenset()
    needs: tuple[str, ...] = ()
    runs_eager: bool = False

    @abstractmethod
    def build(self, graph: Graph, **options: Option) -> Executable:
        """What runs a graph."""

    def __call__(self, graph: Graph, **options: Option) -> Executable:
        """The same as ``build``."""
        return self.build(graph, **options)

    def takes(self, option: str) -> bool:
        """Whether ``build`` takes an option."""
        return option in self.options

    def missing(self) -> list[str]:
        """The packages that it needs and that are not installed."""
        return [package for package in self.needs if find_spec(package) is None]

    def prepare(self) -> None:  # noqa: B027 - most have nothing to begin with
        """Begin with what the first graph will need, and return at once."""

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """Memory for an array outside of graphs, in which anything may be."""
        return np.empty(shape, dtype)

    @property
    def programs(self) -> ProgramStore | None:
        """What keeps compiled programs on disk; None if nothing does."""
        return None

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Tell of each build and each call, for a profile; gives what ends that."""
        self._lacks("profile", "take down times")

    def exporter(self, cpu: str, *, fast_math: bool = False, check_nan: Option = False) -> Exporter:
        """What makes libraries for C programs, for a processor."""
        self._lacks("export_library", "export libraries")

    def tuner(self) -> Tuner:
        """What measures which choices pay on this machine."""
        self._lacks("tune", "have figures to tune")

    def _lacks(self, op: str, what: str) -> NoReturn:
        raise DeviceError(op, f"the backend must {what}, got {self.name}, which does not")


class FunctionBackend(Backend):
    """A function from a graph to a function of arrays, as a backend; it takes the options that it names.

    What the function gives may have ``explain``, ``donated`` and ``donating``, as an ``Executable`` has.
    """

    def __init__(self, build: Callable[..., Run], name: str | None = None) -> None:
        self.name = name or str(getattr(build, "__name__", type(build).__name__))
        self._build = build
        self._parameters = inspect.signature(build).parameters

    def build(self, graph: Graph, **options: Option) -> Executable:
        """What the function makes of a graph."""
        run = self._build(graph, **options)
        return run if isinstance(run, Executable) else _Function(graph, run)

    def takes(self, option: str) -> bool:
        """Whether the function has a parameter of that name, or takes any."""
        several = any(p.kind is p.VAR_KEYWORD for p in self._parameters.values())
        return several or option in self._parameters


class _Function(Executable):
    """A function of arrays as an executable."""

    __slots__ = ("_run", "donated", "graph")

    def __init__(self, graph: Graph, run: Any) -> None:
        self.graph = graph
        self.donated: Sequence[tuple[int, int]] = getattr(run, "donated", ())
        self._run = run

    def __call__(self, arrays: Arrays) -> Arrays:
        found: Arrays = self._run(arrays)
        return found

    def donating(self, arrays: Arrays, flags: Sequence[bool]) -> Arrays:
        found: Arrays = self._run.donating(arrays, flags) if self.donated else self._run(arrays)
        return found

    def explain(self, arrays: Arrays | None = None) -> object:
        own: Callable[..., object] | None = getattr(self._run, "explain", None)
        if own is None:
            return super().explain()
        return own() if arrays is None else own(arrays)

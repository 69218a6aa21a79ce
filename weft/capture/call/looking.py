"""What users ask of a function that has become graphs: what is in it, what runs, how it differs; its files.

Most of it is done by higher layers, which are asked by way of hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.hooks import hooks
from weft.base.tracebacks import edge
from weft.capture.call.replaying import input_tensors
from weft.capture.call.version import Version, run_graph
from weft.capture.call.versions import Versions
from weft.errors import ArgumentError, CaptureError
from weft.ir.graph import Graph
from weft.ir.interpret import solve_sizes


class Looking:
    """The side of a ``GraphFunction`` that shows and saves it."""

    __name__: str
    _function: Callable[..., Any]
    _kept: Versions

    def _version_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Version, Sequence[Any]]:
        raise NotImplementedError

    def _version_to_save(self, examples: tuple[Any, ...], keywords: dict[str, Any]) -> Version:
        raise NotImplementedError

    @property
    def versions(self) -> list[Version]:
        """The versions there are, the one used last first."""
        return list(self._kept.recent)

    @property
    @edge
    def graph(self) -> Graph:
        """The graph, that of the newest version if there are several."""
        if self._kept.newest is None:
            raise self._no_graph()
        return self._kept.newest.graph

    @property
    @edge
    def lowered(self) -> Graph:
        """The graph that runs, of the newest version: after all passes, which its ``history()`` tells.

        >>> import weft
        >>> f = weft.compile(lambda x: weft.softmax(x * 1.0))
        >>> _ = f(weft.ones(3))
        >>> [record.name for record in f.lowered.history()]
        ['simplify', 'decompose']
        """
        if self._kept.newest is None:
            raise self._no_graph()
        return run_graph(self._kept.newest.run, self._kept.newest.graph)

    @property
    def text(self) -> str:
        """The text of the graph."""
        return str(self.graph)

    @edge
    def explain(self, *args: Any, accuracy: bool = False, **kwargs: Any) -> tuple[Any, ...]:
        """Print what runs: of a compiling backend the kernels, what is in each, and how long each takes.

        Args:
            args, kwargs: of a call, to explain the version for it and take the times on them, without any of
                its changes; with none the newest version, on made-up numbers.
            accuracy: whether to tell, too, how far the results of the call are from those of the graph as it
                was captured, op by op in its own dtypes: what ``weft.compile(precision=...)`` costs.

        Returns:
            What was printed, as objects: for the graph, and for its backward graph if there is one; at the
            end the accuracy.

        >>> import weft
        >>> f = weft.compile(lambda x, w: x @ w, precision="bf16")
        >>> x, w = weft.rand(64, 64), weft.rand(64, 64)
        >>> *_, accuracy = f.explain(x, w, accuracy=True)  # doctest: +ELLIPSIS
        <lambda>: ...
        >>> 1e-5 < accuracy.losses[0] < 1e-2
        True
        """
        version, tensors = self._kept.newest, None
        if args or kwargs:
            version, tensors = self._version_for(args, kwargs)
        if version is None:
            raise self._no_graph()
        parts = version.explain(tensors)
        if accuracy:
            if tensors is None:
                raise ArgumentError("explain", "accuracy is that of a call: its arguments must be given")
            parts = (*parts, version.accuracy(tensors))
        print("\n\n".join(map(str, parts)))  # noqa: T201 - that is what it is for
        return parts

    @edge
    def memory(self, *args: Any, **kwargs: Any) -> Any:
        """The memory plan of what runs, on the processor or a device: what lies where, for how long.

        Args:
            args, kwargs: of a call, to report on the version for it; with none the newest version, in which
                bytes are expressions where sizes have names.

        Returns:
            The report, as ``weft.Graph.memory`` gives it of a graph for the processor.

        >>> import weft
        >>> f = weft.compile(lambda x, w: weft.softmax(x @ w, axis=1) @ w.mT)
        >>> report = f.memory(weft.ones(256, 64), weft.ones(64, 32))
        >>> report.inputs, report.outputs, report.peak <= report.arena
        (73728, 65536, True)
        """
        from weft.schedule.memory_report import report_memory

        version, arrays = self._kept.newest, None
        if args or kwargs:
            version, tensors = self._version_for(args, kwargs)
            arrays = [t._data for t in input_tensors(version.program, tensors)]
        if version is None:
            raise self._no_graph()
        program, graph = getattr(version.run, "loops", None), getattr(version.run, "graph", version.graph)
        if program is None:
            raise CaptureError("memory", "the function must be compiled to loops, which its backend does not")
        return report_memory(graph, program, {} if arrays is None else solve_sizes(graph, arrays))

    @edge
    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph of a call node by node, without any of its changes; see ``weft.Graph.step``.

        >>> import weft
        >>> run = weft.compile(lambda x: weft.exp(x * 2.0)).step(weft.zeros(2))
        >>> run.run_to(node="exp"), run["%0"]
        (True, tensor([0., 0.]))
        """
        return hooks.step_call(self, args, kwargs)

    @edge
    def diff(
        self, other: Any, *args: Any, rtol: float | None = None, atol: float | None = None, **kwargs: Any
    ) -> Any:
        """The first node whose values in a call differ from those of another function, or on another backend.

        Args:
            other: a compiled function with as many results, or a backend: ``"interpret"`` is the reference.
            args, kwargs: of the call; it has no effects.
            rtol, atol: the difference that is allowed, see ``weft.Graph.diff``.

        Returns:
            The difference, or None.

        >>> import weft
        >>> weft.compile(lambda x: weft.exp(x) * 2.0).diff("interpret", weft.ones(3)) is None
        True
        """
        return hooks.diff_calls(self, other, args, kwargs, rtol, atol)

    @edge
    def plan(
        self,
        *args: Any,
        mesh: Any = None,
        cluster: Any = None,
        zero: int | None = None,
        reproducible: bool | None = None,
        measure: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """What a call takes on a mesh of any size: time, bytes by link and memory of a rank; nothing changes.

        It is for functions that were compiled with a mesh. The ranks need not be there (docs/parallel.md).

        Args:
            args, kwargs: of the call; with none the newest version is planned, on zeros.
            mesh: with the axes that it was compiled with, such as ``"data=64,model=8"``; by default the same.
            cluster: a name (``weft plan --clusters`` lists them), or the path of a file; by default
                processes of this machine.
            zero, reproducible: as in ``weft.compile``; by default as it was compiled.
            measure: take the time of what a rank computes on this machine, or by what the device can do; by
                default measured for clusters whose ranks share processors.

        Returns:
            A plan, which prints, with ``trace`` and ``page`` to write.

        >>> import weft
        >>> from weft import parallel as par
        >>> f = weft.compile(lambda x: (par.shard(x, "data") * 2.0).sum(), mesh=par.mesh(data=1))
        >>> plan = f.plan(weft.ones(64, 8), mesh="data=4", cluster="dgx-a100")
        >>> plan.ranks, [row.what for row in plan.traffic]
        (4, ['agree', 'all_reduce over data'])
        """
        chosen = {"zero": zero, "reproducible": reproducible, "measure": measure}
        return hooks.plan_call(self, args, kwargs, mesh=mesh, cluster=cluster, **chosen)

    @property
    def code(self) -> str:
        """The text of the graph."""
        return self.text

    # Saving

    @edge
    def save(self, path: Any, *examples: Any, **keywords: Any) -> None:
        """Write the graph and its weights to a file that ``weft.load_graph`` makes a function of again.

        Args:
            path: of the file, usually ending in ``.weft``.
            examples, keywords: arguments, to save the version for them; a type such as
                ``weft.TensorType(("batch", 3), weft.float32)`` leaves sizes open. With none, the newest one.

        >>> import os, tempfile, weft
        >>> path = os.path.join(tempfile.mkdtemp(), "double.weft")
        >>> weft.compile(lambda x: x * 2.0).save(path, weft.TensorType(("n",), weft.float32))
        >>> weft.load_graph(path)(weft.ones(3))
        tensor([2., 2., 2.])
        """
        version = self._version_to_save(examples, keywords)
        hooks.save_version(self._function, version, path)

    @edge
    def export_library(self, folder: Any, *examples: Any, **options: Any) -> None:
        """Write the graph and its weights as a shared library for C programs, which need no Python.

        Args:
            folder: that the files go to.
            examples: arguments, to export the version for them, as ``save`` takes them.
            options: ``name``, ``cpu``, ``weights``, ``fast_math``, ``check_nan`` and ``linker`` are those of
                ``weft.export_library``; others are examples by name.

        >>> import os, tempfile, weft
        >>> folder = tempfile.mkdtemp()
        >>> twice = weft.compile(lambda x: x * 2.0)
        >>> twice.export_library(folder, weft.TensorType(("n",), weft.float32), name="twice")
        >>> "libtwice.so" in os.listdir(folder)
        True
        """
        hooks.export_function(self, folder, examples, options)

    def _no_graph(self) -> CaptureError:
        hint = "call it, or pass examples to weft.jit.trace or weft.make_graph"
        return CaptureError(self.__name__, "has a graph from its first call on, got none yet", hint=hint)

    def __repr__(self) -> str:
        count = len(self.versions)
        return f"<graph function {self.__name__}: {count} version{'' if count == 1 else 's'}>"

    def _repr_html_(self) -> str:
        return hooks.function_html(self)

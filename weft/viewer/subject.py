"""What a page is about: the graphs from capture to kernels, the program, and arrays to play with."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft import nn
from weft.base.concrete import any_on_device, on_host
from weft.capture.call.function import GraphFunction
from weft.capture.call.replaying import input_tensors
from weft.capture.call.version import Version, run_graph
from weft.errors import ArgumentError, WeftError
from weft.ir.graph import Graph
from weft.ir.interpret import solve_sizes
from weft.passes.pipeline import lower
from weft.schedule.explanation import ExplainedStep, Explanation
from weft.schedule.program import lower_graph
from weft.viewer.costs import steps_without_times

Args = Sequence[Any] | Mapping[str, Any] | None  # of a call, by position or by name


@dataclass
class Subject:
    """What a page shows.

    Attributes:
        name: of the function.
        graphs: with the name of what made each of them: first "captured", then passes; the last one again
            as "kernels", where there are some.
        optimized: the graph that was given to the backend.
        program: its loops; None where there is none.
        steps: of the program.
        seconds: that a call takes, where it was measured.
        device: that it runs on, in words; "" for the processor.
        arrays: of the inputs of the first graph, to play with; None for no example.
        note: on what is not known.
        modules: by path of a module, the name of its class.
        backward: the same for the graph of its gradient, where that is another one.
    """

    name: str
    graphs: list[tuple[str, Graph]]
    optimized: Graph
    program: Any = None
    steps: Sequence[ExplainedStep] = ()
    seconds: float | None = None
    device: str = ""
    arrays: Sequence[Any] | None = None
    note: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)
    backward: Subject | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """The values of named sizes, as far as the example tells them."""
        return {} if self.arrays is None else solve_sizes(self.graphs[0][1], self.arrays)


def subject_of(shown: Any, args: Args) -> Subject:
    """What a page about a graph, or about a function that has one, shows."""
    if isinstance(shown, str | Path):
        shown = weft.load_graph(shown)
    if isinstance(shown, Graph):
        return _of_graph(shown, args)
    if not isinstance(shown, GraphFunction) and args is not None and callable(shown):
        shown = weft.compile(shown)
    if isinstance(shown, GraphFunction):
        return _of_function(shown, args)
    graph = getattr(shown, "graph", None)
    if isinstance(graph, Graph):
        return _of_graph(graph, args)
    raise ArgumentError(
        "view",
        f"must be a tensor, a graph, a file of one or a captured function, got {type(shown).__name__}",
        hint="give the arguments of a call: weft.view(function, args=(x, y))",
    )


def _of_graph(graph: Graph, args: Args) -> Subject:
    datas = None if args is None else _datas(graph, args)
    arrays = None if datas is None else [np.asarray(on_host(data)) for data in datas]
    optimized = graph if graph.history() else graph.optimize()
    run = _where(None, optimized, datas or ())
    if run is not None:
        subject = Subject(
            graph.name, steps_to(run_graph(run, optimized)), optimized, run.loops, arrays=arrays
        )
        quiet = any(node.op.effect for node in graph.walk())  # nothing is printed twice
        _add_costs(subject, run.explain(None if quiet else datas))
        return subject
    lowered = lower(optimized)
    subject = Subject(graph.name, steps_to(lowered), optimized, arrays=arrays)
    try:
        subject.program = lower_graph(lowered)
    except WeftError as error:
        subject.note = f"no kernels: {error}"
        return subject
    subject.steps = steps_without_times(subject.program)
    _add_kernels(subject)
    return subject


def _datas(graph: Graph, args: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
    given = [args[v.name] for v in graph.inputs] if isinstance(args, Mapping) else list(args)
    if len(given) != len(graph.inputs):
        names = ", ".join(v.name or "?" for v in graph.inputs)
        raise ArgumentError("view", f"args must be one for each input ({names}), got {len(given)}")
    tensors = [weft.as_tensor(x) for x in given]
    return [t.astype(v.type.dtype, copy=False)._data for t, v in zip(tensors, graph.inputs, strict=True)]


def steps_to(graph: Graph) -> list[tuple[str, Graph]]:
    """The graphs that passes made on the way to an optimised one."""
    records = graph.history()
    if not records:
        return [("captured", graph)]
    return [("captured", records[0].before), *[(r.name, r.after) for r in records]]


def _of_function(function: GraphFunction[..., Any], args: Args) -> Subject:
    if args is None:
        _ = function.graph  # an error that says what to do, where there is none yet
        version, tensors = function.versions[0], None
    else:
        keywords = dict(args) if isinstance(args, Mapping) else {}
        version, tensors = function._version_for(() if keywords else tuple(args), keywords)
    subject = _of_run(function.__name__, version.run, version.graph, tensors, version)
    subject.modules = _module_names(function._function)
    if version.program.derivative is not None:
        subject.backward = _of_backward(version)
        subject.backward.modules = subject.modules
    return subject


def _of_run(name: str, run: Any, captured: Graph, tensors: Sequence[Any] | None, version: Version) -> Subject:
    """What a backend made of a graph, with the times of its kernels."""
    optimized = getattr(run, "graph", captured)
    if tensors is not None:
        run = _where(run, optimized, [t._data for t in input_tensors(version.program, tensors)])
    graphs = steps_to(run_graph(run, captured))
    if graphs[0][1] is not captured:
        graphs = [("captured", captured), ("split", graphs[0][1]), *graphs[1:]]
    subject = Subject(name, graphs, optimized)
    if tensors is not None or not version.program.arguments:
        subject.arrays = [np.asarray(on_host(t._data)) for t in input_tensors(version.program, tensors or ())]
    subject.program = getattr(run, "loops", None)
    if subject.program is not None:
        quiet = tensors is None or any(node.op.effect for node in captured.walk())  # nothing is printed twice
        _add_costs(subject, version.explain(None if quiet else tensors)[0])
    return subject


def _where(run: Any, graph: Graph, datas: Sequence[Any]) -> Any:
    """What runs a graph where its data is: that on a device is run there by a program for it, if any is."""
    if not any_on_device(datas) or hasattr(run, "card"):
        return run
    from weft.backends.cuda.calls import program_for

    found = program_for(graph, datas)
    return found if hasattr(found, "card") else run


def _of_backward(version: Version) -> Subject:
    """The graph of the gradient, which a backend has built if it was needed."""
    graph, gradient = version.program.derivative.backward, version._gradient
    run = None if gradient is None else gradient.pull
    if getattr(run, "loops", None) is None:
        return _of_graph(graph, None)
    subject = Subject(f"backward of {version.graph.name}", steps_to(run_graph(run, graph)), run.graph)  # type: ignore[union-attr]
    subject.program = run.loops  # type: ignore[union-attr]
    _add_costs(subject, run.explain())  # type: ignore[union-attr]
    return subject


def _add_costs(subject: Subject, explained: Explanation) -> None:
    subject.steps, subject.seconds, subject.note = explained.steps, explained.seconds, explained.note
    subject.device = explained.device
    _add_kernels(subject)


def _module_names(function: Any) -> dict[str, str]:
    """The classes of the modules that a function can see, by their paths."""
    seen = [function, getattr(function, "__self__", None)]
    if inspect.isfunction(plain := getattr(function, "__func__", function)):
        around = inspect.getclosurevars(plain)
        seen += [*around.nonlocals.values(), *around.globals.values()]
    found: dict[str, str] = {}
    for module in seen:
        if isinstance(module, nn.Module):
            for path, inner in module.named_modules():
                found.setdefault(path, type(inner).__name__)
    return found


def _add_kernels(subject: Subject) -> None:
    graph = subject.program.origins.graph
    if graph is not None:
        subject.graphs.append(("kernels", graph))

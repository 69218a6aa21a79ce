"""The pipeline: which passes run, in which order, and what each of them did.

``PIPELINE`` is what ``graph.optimize()`` runs, again and again until nothing changes. ``LOWERING`` is what a
backend that makes kernels runs after it, once; programs for GPUs have ``weft.passes.GPU_LOWERING``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any
from weakref import WeakKeyDictionary

from weft.base.records import NamedTuple
from weft.errors import ArgumentError, GraphError
from weft.ir.graph import Graph
from weft.ir.verify import as_error, problems
from weft.passes.base import Pass
from weft.passes.cse import cse
from weft.passes.dce import dce
from weft.passes.fold import fold
from weft.passes.inline import inline
from weft.passes.licm import licm
from weft.passes.lowering import LOWERING
from weft.passes.rules import RewriteRule, rules_pass
from weft.passes.share_loops import share_loops
from weft.passes.simplify import simplify
from weft.passes.unroll import unroll

PIPELINE: list[Pass] = [inline, unroll.using(limit=1), fold, simplify, cse, share_loops, dce, licm]
_BUILTIN: dict[str, Pass] = {p.name: p for p in (*PIPELINE, unroll, *LOWERING)}
_pipeline: list[Pass] = list(PIPELINE)  # with what was registered
_ROUNDS = 10
Step = Pass | RewriteRule | str | Callable[[Graph], Graph]


class Record(NamedTuple):
    """What a pass did: its name, the graph before and the graph after it."""

    name: str
    before: Graph
    after: Graph


class _Steps(NamedTuple):
    """The steps to a graph; the last leads to the graph itself, which the table must not keep alive."""

    names: tuple[str, ...]
    graphs: tuple[Graph, ...]


_history: WeakKeyDictionary[Graph, _Steps] = WeakKeyDictionary()


def optimize(
    graph: Graph,
    passes: Sequence[Step] | None = None,
    *,
    disable: Iterable[str] = (),
    fast_math: bool = False,
    debug: bool = False,
    rounds: int = _ROUNDS,
) -> Graph:
    """The graph after passes, run in order and again until none changes it; the same object if none does.

    Passes of ``weft.passes.LOWERING`` in the list run once, after those before them have settled.

    Args:
        graph: to optimise.
        passes: in order: passes, their names, rewrite rules, or functions from a graph to a graph. By default
            those of ``weft.passes.PIPELINE`` and what ``weft.passes.register`` added.
        disable: names of passes to leave out.
        fast_math: whether results may differ in rounding, signs of zeros, and for infinities and NaN.
        debug: whether to verify the graph after each pass.
        rounds: how often to go through the list at most.

    >>> import weft
    >>> graph = weft.make_graph(lambda x: weft.exp(x * 1.0) + weft.exp(x), name="f")(weft.ones(3))
    >>> [node.op.name for node in graph.optimize().nodes]
    ['exp', 'add']
    >>> [node.op.name for node in graph.optimize(passes=["simplify"]).nodes]
    ['exp', 'exp', 'add']
    """
    records = optimize_in_steps(
        graph, passes, disable=disable, fast_math=fast_math, debug=debug, rounds=rounds
    )
    return _noted(graph, records)


def lower(
    graph: Graph, passes: Sequence[Step] | None = None, *, disable: Collection[str] = (), debug: bool = False
) -> Graph:
    """The graph as kernels are made of it: after the passes of ``LOWERING``, or others, each once.

    Its history begins with that of the graph. ``disable`` may name other things than passes, too.

    >>> import weft
    >>> graph = weft.make_graph(lambda x: weft.softmax(x * 1.0))(weft.ones(3)).optimize()
    >>> [record.name for record in weft.passes.lower(graph).history()]
    ['simplify', 'decompose']
    """
    chosen = [p for p in map(as_pass, LOWERING if passes is None else passes) if p.name not in disable]
    return _noted(graph, optimize_in_steps(graph, chosen, debug=debug))


def note_step(name: str, before: Graph, after: Graph) -> Graph:
    """A graph that was made of another one by something else than a pass, with that in its history."""
    return _noted(before, [Record(name, before, after)])


def _noted(graph: Graph, records: Iterable[Record]) -> Graph:
    """The graph after all records, with its history."""
    before = history(graph)
    found = [*before, *records]
    if len(found) == len(before):
        return graph
    last = found[-1].after
    _history[last] = _Steps(tuple(r.name for r in found), tuple(r.before for r in found))
    return last


def optimize_in_steps(
    graph: Graph,
    passes: Sequence[Step] | None = None,
    *,
    disable: Iterable[str] = (),
    fast_math: bool = False,
    debug: bool = False,
    rounds: int = _ROUNDS,
) -> Iterator[Record]:
    """What ``optimize`` does, pass by pass; passes that change nothing are left out."""
    chosen = _chosen(_pipeline if passes is None else passes, disable)
    for once, part in groupby(chosen, key=lambda p: p.once):
        for record in _settle(graph, list(part), fast_math, debug, 1 if once else rounds):
            yield record
            graph = record.after


def _settle(graph: Graph, passes: list[Pass], fast_math: bool, debug: bool, rounds: int) -> Iterator[Record]:
    """Run passes in order, and again until none changes the graph."""
    settled = 0  # passes in a row that left the graph as it is
    for step in passes * rounds:
        options = {"fast_math": True} if fast_math and "fast_math" in step.options else {}
        after = step(graph, **options)
        settled = settled + 1 if after is graph else 0
        if after is not graph:
            if debug:
                _verified(step.name, graph, after)
            yield Record(step.name, graph, after)
            graph = after
        if settled == len(passes):
            return


def history(graph: Graph) -> list[Record]:
    """What each pass that changed something did, on the way to an optimised graph.

    >>> import weft
    >>> graph = weft.make_graph(lambda x: x * 1.0 + x)(weft.ones(3)).optimize()
    >>> [(name, len(before.nodes), len(after.nodes)) for name, before, after in graph.history()]
    [('simplify', 2, 1)]
    """
    steps = _history.get(graph)
    if steps is None:
        return []
    afters = (*steps.graphs[1:], graph)
    return [Record(*step) for step in zip(steps.names, steps.graphs, afters, strict=True)]


def register(step: Step, *, before: str | None = None) -> Any:
    """Add a pass or a rewrite rule to the pipeline of ``graph.optimize()``: at the end, or before another
    pass.

    It gives the pass or rule back, so it is a decorator too. A name that was registered before is replaced;
    ``weft.passes.unregister`` takes it out.

    >>> import weft
    >>> @weft.passes.register
    ... @weft.passes.rewrite
    ... def sine_of_negated(x):
    ...     return weft.sin(-x), -weft.sin(x)
    >>> graph = weft.make_graph(lambda x: weft.sin(-x))(weft.ones(3)).optimize()
    >>> [node.op.name for node in graph.nodes]
    ['sin', 'neg']
    >>> weft.passes.unregister("sine_of_negated")
    """
    made = as_pass(step)
    if made.name in builtin_passes():
        raise ArgumentError("register", f"the name must not be that of a pass of weft, got {made.name!r}")
    places = [i for i, p in enumerate(_pipeline) if p.name == before]
    if before is not None and not places:
        raise ArgumentError("register", f"before must name a pass of the pipeline, got {before!r}")
    _pipeline[:] = [p for p in _pipeline if p.name != made.name]
    _pipeline.insert(places[0] if places else len(_pipeline), made)
    return step


def unregister(name: str) -> None:
    """Take a pass or rule that was registered out of the pipeline.

    >>> import weft
    >>> _ = weft.passes.register(weft.passes.graph_pass(lambda graph: graph))
    >>> weft.passes.unregister("<lambda>")
    """
    if name in builtin_passes() or all(p.name != name for p in _pipeline):
        raise ArgumentError("unregister", f"the name must be of a registered pass, got {name!r}")
    _pipeline[:] = [p for p in _pipeline if p.name != name]


def as_pass(step: Step) -> Pass:
    """What stands in a list of passes as a pass: one, its name, a rewrite rule, or a function."""
    if isinstance(step, Pass):
        return step
    if isinstance(step, RewriteRule):
        return rules_pass([step], step.name)
    if isinstance(step, str):
        known = _known()
        if step not in known:
            raise ArgumentError("optimize", f"passes must be among {', '.join(known)}, got {step!r}")
        return known[step]
    if callable(step):
        return Pass(step)
    raise ArgumentError("optimize", f"a pass must be a function of a graph, got {type(step).__name__}")


def builtin_passes() -> dict[str, Pass]:
    """weft's own passes by name, those for GPUs after the others.

    >>> from weft.passes.pipeline import builtin_passes
    >>> list(builtin_passes())[:3]
    ['inline', 'unroll', 'fold']
    """
    from weft.passes.lowering.gpu import GPU_LOWERING  # at first use: programs for processors do without

    return _BUILTIN | {p.name: p for p in GPU_LOWERING if p.name not in _BUILTIN}


def _known() -> dict[str, Pass]:
    own = builtin_passes()
    return own | {p.name: p for p in _pipeline if p.name not in own}


def pass_names() -> list[str]:
    """The names of all passes: weft's own, and those that were registered."""
    return list(_known())


def _chosen(passes: Sequence[Step], disable: Iterable[str]) -> list[Pass]:
    chosen = [as_pass(step) for step in passes]
    left_out = {disable} if isinstance(disable, str) else set(disable)
    if not left_out:
        return chosen
    known = dict.fromkeys([*pass_names(), *[p.name for p in chosen]])
    for name in sorted(left_out - known.keys()):
        raise ArgumentError("optimize", f"disable must be among {', '.join(known)}, got {name!r}")
    return [p for p in chosen if p.name not in left_out]


def _verified(name: str, before: Graph, after: Graph) -> None:
    """Raise if something is wrong with the graph after a pass that was not before."""
    if not isinstance(after, Graph):
        raise ArgumentError(name, f"a pass must give a graph, got {type(after).__name__}")
    known: set[str] | None = None
    for problem in problems(after):
        if known is None:
            known = {p.message for p in problems(before)}
        if problem.message not in known:
            error = as_error(after, problem)
            what = f"the graph after the pass must be well formed: {error.message}"
            raise GraphError(name, what) from error

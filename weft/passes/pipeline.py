"""The pipeline: which passes ``graph.optimize()`` runs, in which order, and what each of them did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from weft.errors import ArgumentError, GraphError
from weft.ir.graph import Graph
from weft.ir.verify import verify
from weft.passes.base import Pass
from weft.passes.cse import cse
from weft.passes.dce import dce
from weft.passes.fold import fold
from weft.passes.inline import inline
from weft.passes.licm import licm
from weft.passes.rules import RewriteRule, rules_pass
from weft.passes.share_loops import share_loops
from weft.passes.simplify import simplify
from weft.passes.unroll import unroll

PIPELINE: list[Pass] = [
    inline,
    unroll.using(limit=1),
    fold,
    simplify,
    cse,
    share_loops,
    dce,
    licm,
]
BUILTIN: dict[str, Pass] = {p.name: p for p in (inline, unroll, fold, simplify, cse, share_loops, dce, licm)}
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
    records = list(
        optimize_in_steps(graph, passes, disable=disable, fast_math=fast_math, debug=debug, rounds=rounds)
    )
    if not records:
        return graph
    last = records[-1].after
    _history[last] = _Steps(tuple(r.name for r in records), tuple(r.before for r in records))
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
    settled = 0  # passes in a row that left the graph as it is
    for step in chosen * rounds:
        options = {"fast_math": True} if fast_math and "fast_math" in step.options else {}
        after = step(graph, **options)
        settled = settled + 1 if after is graph else 0
        if after is not graph:
            if debug:
                _verified(step.name, after)
            yield Record(step.name, graph, after)
            graph = after
        if settled == len(chosen):
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
    if made.name in BUILTIN:
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
    if name in BUILTIN or all(p.name != name for p in _pipeline):
        raise ArgumentError("unregister", f"the name must be of a registered pass, got {name!r}")
    _pipeline[:] = [p for p in _pipeline if p.name != name]


def as_pass(step: Step) -> Pass:
    """What stands in a list of passes as a pass: one, its name, a rewrite rule, or a function."""
    if isinstance(step, Pass):
        return step
    if isinstance(step, RewriteRule):
        return rules_pass([step], step.name)
    if isinstance(step, str):
        known = BUILTIN | {p.name: p for p in _pipeline if p.name not in BUILTIN}
        if step not in known:
            raise ArgumentError("optimize", f"passes must be among {', '.join(known)}, got {step!r}")
        return known[step]
    if callable(step):
        return Pass(step)
    raise ArgumentError("optimize", f"a pass must be a function of a graph, got {type(step).__name__}")


def _chosen(passes: Sequence[Step], disable: Iterable[str]) -> list[Pass]:
    chosen = [as_pass(step) for step in passes]
    left_out = {disable} if isinstance(disable, str) else set(disable)
    if unknown := left_out - {p.name for p in chosen} - BUILTIN.keys():
        raise ArgumentError("optimize", f"disable must name passes, got {sorted(unknown)[0]!r}")
    return [p for p in chosen if p.name not in left_out]


def _verified(name: str, graph: Graph) -> None:
    if not isinstance(graph, Graph):
        raise ArgumentError(name, f"a pass must give a graph, got {type(graph).__name__}")
    try:
        verify(graph)
    except GraphError as error:
        raise GraphError(name, f"the graph after the pass must be well formed: {error.message}") from error

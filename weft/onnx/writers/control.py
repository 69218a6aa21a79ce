"""Writers of control flow: branches as If, loops as Loop and Scan. Bodies see what is around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import bool_, int64
from weft.base.sizes import Size
from weft.ir.graph import Graph
from weft.ir.types import TensorType
from weft.onnx.writers.graphs import body_graph, write_graph
from weft.onnx.writers.registry import writer
from weft.onnx.writers.view import flipped
from weft.onnx.writers.writer import Ref, Sheet, Writer

_COUNT = TensorType((), int64)
_TRUTH = TensorType((), bool_)


# Branches


@writer("cond")
def write_cond(w: Writer, predicate: Ref, *xs: Ref, branches: tuple[Graph, ...]) -> list[Ref]:
    """One of two bodies."""
    return _choose(w, predicate, [lambda s, b=b: write_graph(s, b, xs) for b in branches], branches)


@writer("switch")
def write_switch(w: Writer, index: Ref, *xs: Ref, branches: tuple[Graph, ...]) -> list[Ref]:
    """One of several bodies: the first, or one of the others."""
    number = w.cast(index, int64)

    def from_branch(i: int) -> Any:
        def write(sheet: Sheet) -> list[Ref]:
            if i == len(branches) - 1:
                return write_graph(sheet, branches[i], xs)
            inner = Writer(sheet, w.node)
            here = inner.emit("LessOrEqual", number, i)
            parts = [lambda s: write_graph(s, branches[i], xs), from_branch(i + 1)]
            return _choose(inner, here, parts, branches[i : i + 2])

        return write

    refs: list[Ref] = from_branch(0)(w.sheet)
    return refs


def _choose(w: Writer, predicate: Ref, parts: Sequence[Any], graphs: Sequence[Graph]) -> list[Ref]:
    types = [v.type for v in graphs[0].outputs]
    if not types:
        return []
    bodies = []
    for part, graph in zip(parts, graphs, strict=True):
        sheet = Sheet(w.sheet.book, w.sheet)
        refs = part(sheet)
        bodies.append(body_graph(w, graph.name, [], sheet, list(zip(refs, types, strict=True))))
    return _several(w, "If", [predicate], types, then_branch=bodies[0], else_branch=bodies[1])


def _several(
    w: Writer, operator: str, inputs: Sequence[Any], types: Sequence[TensorType], **attrs: Any
) -> list[Ref]:
    """A node whose outputs have types of their own."""
    names = [w.sheet.book.unique(operator.lower()) for _ in types]
    w.add(operator, ["" if x is None else x.name for x in inputs], names, attrs)
    return [Ref(name, t.dtype, t.shape) for name, t in zip(names, types, strict=True)]


# Loops


@writer("while_loop")
def write_while(
    w: Writer, *xs: Ref, test: Graph, body: Graph, carries: int, trips: Any, checkpoint_every: int | None
) -> list[Ref]:
    """A loop until a test fails; what is collected comes out stacked, and then how often it ran."""
    fixed = xs[carries:]
    (first,) = write_graph(w.sheet, test, xs)
    counts = [] if trips is None else [w.constant(0, int64)]
    loop = _Loop(w, [*xs[:carries], *counts])
    outs = write_graph(loop.sheet, body, [*loop.state[:carries], *fixed])
    (again,) = write_graph(loop.sheet, test, [*outs[:carries], *fixed])
    types = [v.type for v in body.outputs]
    more = [] if trips is None else [loop.inner.emit("Add", loop.number, 1)]
    state = [*zip(outs[:carries], types[:carries], strict=True), *[(m, _COUNT) for m in more]]
    collected = list(zip(outs[carries:], types[carries:], strict=True))
    found = loop.end(None, first, again, state, collected, trips)
    return [*found[:carries], *found[len(state) :], *found[carries : len(state)]]


@writer("scan")
def write_scan(
    w: Writer,
    *xs: Ref,
    body: Graph,
    carries: int,
    mapped: int,
    length: Any,
    reverse: bool,
    counted: bool,
    checkpoint_every: int | None,
) -> list[Ref]:
    """A loop along the first axis of arrays, as Scan where there are any and it goes over all rows."""
    steps, xs = (xs[0], xs[1:]) if counted else (None, xs)
    state, along, fixed = xs[:carries], xs[carries : carries + mapped], xs[carries + mapped :]
    types = [v.type for v in body.outputs]
    if along and steps is None:
        return _scanned(w, body, state, along, fixed, reverse)
    trips = w.scalar_size(length) if steps is None else w.cast(steps, int64)
    loop = _Loop(w, state)
    place = loop.number
    if reverse:
        place = loop.inner.emit("Sub", loop.inner.emit("Sub", trips, 1), place)
    rows = [loop.inner.emit("Gather", x, place, axis=0)._replace(shape=x.shape[1:]) for x in along]
    outs = write_graph(loop.sheet, body, [*loop.state, *rows, *fixed])
    pairs = list(zip(outs, types, strict=True))
    found = loop.end(trips, None, loop.proceed, pairs[:carries], pairs[carries:], length)
    stacks = [_placed(w, x, length, trips, reverse, steps) for x in found[carries:]]
    return [*found[:carries], *stacks]


def _placed(w: Writer, x: Ref, length: Any, trips: Ref, reverse: bool, steps: Ref | None) -> Ref:
    """What a loop collected, in the order of the rows, and with zeros for rows that it left out."""
    out = flipped(w, x, 0)._replace(shape=x.shape) if reverse else x
    if steps is None or (isinstance(length, Size) and w.sheet.owner(str(length)) is None):
        return out
    missing = w.emit("Sub", w.size(length), w.unsqueeze(trips, 0))
    after = [w.ints((0,) * (x.ndim - 1))] if x.ndim > 1 else []
    pads = w.emit("Concat", w.ints((0,) * x.ndim), missing, *after, axis=0)
    kept: Ref = w.emit("Pad", out, pads)
    return kept._replace(shape=x.shape)


def _scanned(
    w: Writer, body: Graph, state: Sequence[Ref], along: Sequence[Ref], fixed: Sequence[Ref], reverse: bool
) -> list[Ref]:
    sheet = Sheet(w.sheet.book, w.sheet)
    inputs = [_input(w, x, "state") for x in state]
    inputs += [_input(w, x._replace(shape=x.shape[1:]), "row") for x in along]
    refs = write_graph(sheet, body, [*inputs, *fixed])
    pairs = [(r, v.type) for r, v in zip(refs, body.outputs, strict=True)]
    graph = body_graph(w, body.name, inputs, sheet, pairs)
    collected = len(pairs) - len(state)
    back = {"scan_input_directions": [1] * len(along), "scan_output_directions": [1] * collected}
    if not collected:
        back.pop("scan_output_directions")
    assert w.node is not None
    types = [v.type for v in w.node.outputs]
    directions = back if reverse else {}
    attrs = {"body": graph, "num_scan_inputs": len(along), **directions}
    return _several(w, "Scan", [*state, *along], types, **attrs)


def _input(w: Writer, like: Ref, name: str) -> Ref:
    return Ref(w.sheet.book.unique(name), like.dtype, like.shape)


class _Loop:
    """The body of a Loop while it is written.

    Attributes:
        sheet: of the body.
        inner: writes on it.
        number: how many iterations came before.
        proceed: whether the loop was to go on.
        state: carries as the body sees them.
    """

    def __init__(self, w: Writer, state: Sequence[Ref]) -> None:
        self.w = w
        self.given = state
        self.sheet = Sheet(w.sheet.book, w.sheet)
        self.inner = Writer(self.sheet, w.node)
        self.number = Ref(w.sheet.book.unique("iteration"), int64, ())
        self.proceed = Ref(w.sheet.book.unique("proceed"), bool_, ())
        self.state = [_input(w, x, "state") for x in state]

    def end(
        self,
        trips: Ref | None,
        first: Ref | None,
        again: Ref,
        state: Sequence[tuple[Ref, TensorType]],
        collected: Sequence[tuple[Ref, TensorType]],
        length: Any,
    ) -> list[Ref]:
        """Write the Loop; gives its carries, then what it collected."""
        inputs = [self.number, self.proceed, *self.state]
        graph = body_graph(self.w, "body", inputs, self.sheet, [(again, _TRUTH), *state, *collected])
        stacks = [TensorType((length, *t.shape), t.dtype) for _, t in collected]
        types = [*[t for _, t in state], *stacks]
        return _several(self.w, "Loop", [trips, first, *self.given], types, body=graph)

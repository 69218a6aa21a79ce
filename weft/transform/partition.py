"""Where to cut a joint graph: which values the forward graph saves, so that they take the fewest bytes.

It is a minimum cut. Each value is an edge that costs its bytes, between what only the forward pass can give
(results of ops that are not run twice, and inputs) and what gradients need. What is cut is saved. Ops that
work element by element or only move elements are cheap: the backward graph may run them again, but chains of
them only up to a limit. So are products that are much larger than their factors, and ops that say so, such as
softmax: the weights of attention on a long sequence are not saved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf, prod
from types import MappingProxyType

from weft.base.records import NamedTuple
from weft.base.sizes import Size, bind, size_names
from weft.ir.graph import Array, Node, Value
from weft.ir.order import first_definitions, sizes_defined, sizes_of, sizes_used
from weft.ops.affine import matmul_add
from weft.ops.contract import matrix_multiply as matmul
from weft.transform.maxflow import Network

LONGEST_CHAIN = 16  # of ops that are run again one after another
GROWTH = 4  # bytes of a product for each of its factors, from which on it is rather computed again
_NEVER = 1 << 40  # times the bytes of what is not kept if there is another way
_TYPICAL_SIZE = 64  # stands for a named size, where bytes are compared


class Parts(NamedTuple):
    """How a joint graph is cut.

    Attributes:
        residuals: values that the forward graph saves for the backward graph, in the order they are made.
        kept: positions of the inputs that the backward graph reads.
        nodes: of the backward graph; what it runs again stands before the first use.
    """

    residuals: tuple[Value, ...]
    kept: tuple[int, ...]
    nodes: tuple[Node, ...]


def split_joint(
    nodes: Sequence[Node],
    forward: int,
    *,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    seeds: Sequence[Value],
    results: Sequence[Value],
    constants: Mapping[Value, Array],
    free: Collection[Value] = (),
    recompute: bool = False,
    checkpointed: Mapping[Node, int] = MappingProxyType({}),
) -> Parts:
    """Choose what the backward graph gets.

    Args:
        nodes: of the joint graph.
        forward: how many of them, the first ones, compute the outputs of the forward graph.
        inputs: of the forward graph.
        outputs: of the forward graph.
        seeds: inputs that only the backward graph has: gradients of outputs.
        results: of the backward graph.
        constants: which both graphs may have.
        free: inputs that cost nothing to keep, because they live on anyhow.
        recompute: run everything again, but what has an effect; all inputs are free then.
        checkpointed: nodes in checkpoints, each with the place behind the last of them: they run again, and
            what only they use is not kept.
    """
    late = depending_on(nodes, seeds)
    needed = _needed(nodes, late, results)
    made = {v: i for i, n in enumerate(nodes) if n not in late for v in n.outputs}
    available = set(constants).union(inputs if recompute else free)
    effects = (n for n in nodes[:forward] if not n.is_pure)
    barriers = set(effects) if recompute else _barriers(nodes, forward)
    barriers.difference_update(n for n in checkpointed if n.is_pure)
    inner = _inner(nodes[:forward], outputs, checkpointed)
    # What is run again may need sizes that only a loop knows; an array that tells them changes the cut.
    loops, tellers = first_definitions(nodes), list[Value]()
    while True:
        wanted = [v for v in (*needed, *tellers) if v not in available and v not in seeds]
        saved = _cut(nodes, made, set(inputs) - available, barriers, wanted, set(outputs), inner)
        again = _scheduled(nodes, late, made, saved, tellers, results)
        asked = {name for n in again for name in sizes_used(n) if name in loops} if loops else set()
        unknown = sorted(asked - sizes_of((*saved, *tellers, *inputs, *seeds)))
        if not unknown:
            break
        tellers += [_teller(nodes, name) for name in unknown]
    used = {v for n in again for v in n.inputs}.union(results)
    kept = tuple(i for i, v in enumerate(inputs) if v in used)
    places = {
        v: i for i, v in enumerate(v for n in nodes for v in n.outputs)
    }  # of a loop, those of each result
    return Parts(tuple(sorted(saved - set(inputs), key=places.__getitem__)), kept, again)


def bytes_of(value: Value) -> int:
    """How many bytes a value takes; a named size counts as a typical one."""
    shape = value.type.shape
    if any(isinstance(s, Size) for s in shape):
        shape = bind(shape, dict.fromkeys(size_names(shape), _TYPICAL_SIZE))
    return int(prod(shape)) * int(value.type.dtype.itemsize)


def is_cheap(node: Node) -> bool:
    """Whether running a node twice costs less than keeping what it gives."""
    op = node.op
    return bool(op.accepts or op.scalar or op.moves or op.cheap_again) or _grows(node)


def _grows(node: Node) -> bool:
    """Whether a node is a product that takes much more memory than its factors."""
    if node.op not in (matmul, matmul_add):
        return False
    return bytes_of(node.outputs[0]) >= GROWTH * sum(map(bytes_of, node.inputs))


def depending_on(nodes: Iterable[Node], values: Iterable[Value]) -> dict[Node, None]:
    """The nodes that use one of values, directly or not, in order."""
    reached = set(values)
    found: dict[Node, None] = {}
    for node in nodes:
        if not reached.isdisjoint(node.inputs):
            found[node] = None
            reached.update(node.outputs)
    return found


def _teller(nodes: Sequence[Node], name: str) -> Value:
    """The smallest value whose array tells a size that only a run of a loop knows."""
    stacks = [v for n in nodes if name in sizes_defined(n) for v in n.outputs if name in sizes_of([v])]
    return min(stacks, key=bytes_of)


def _needed(nodes: Sequence[Node], late: Collection[Node], results: Sequence[Value]) -> dict[Value, None]:
    """What the nodes that depend on gradients use and do not make, and results that depend on none."""
    wanted, own = set(results), {v for n in late for v in n.outputs}
    needed = dict.fromkeys(v for v in results if v not in own)
    for node in reversed(nodes):
        if node in late and not wanted.isdisjoint(node.outputs):
            wanted.update(node.inputs)
            needed.update(dict.fromkeys(v for v in node.inputs if v not in own))
    return needed


def _barriers(nodes: Sequence[Node], forward: int) -> set[Node]:
    """The nodes that must not run twice: those that are not cheap, and those where chains get too long.

    A gradient of control flow runs it again to collect what it needs. That is part of the forward graph,
    where a pass makes it one with the first run.
    """
    depth: dict[Value, int] = {}
    found = {n for n in nodes[forward:] if n.regions}
    for node in nodes[:forward]:
        length = 1 + max((depth.get(v, 0) for v in node.inputs), default=0)
        if not is_cheap(node) or length > LONGEST_CHAIN:
            found.add(node)
            length = 0
        for v in node.outputs:
            depth[v] = length
    return found


def _inner(nodes: Sequence[Node], outputs: Sequence[Value], again: Mapping[Node, int]) -> Collection[Value]:
    """What nodes in checkpoints give and only others of the same one use."""
    if not again:
        return ()
    last = {v: i for i, n in enumerate(nodes) for v in n.inputs} | dict.fromkeys(outputs, len(nodes))
    return {v for n, stop in again.items() for v in n.outputs if last.get(v, -1) < stop}


def _cut(
    nodes: Sequence[Node],
    made: Mapping[Value, int],
    inputs: Collection[Value],
    barriers: Collection[Node],
    wanted: Sequence[Value],
    outputs: Collection[Value],
    inner: Collection[Value],
) -> set[Value]:
    """The inputs and made values to save, so that the wanted ones follow and no barrier runs again."""

    def fixed(v: Value) -> bool:
        return v in inputs or nodes[made[v]] in barriers

    saved = {v for v in wanted if fixed(v)}  # there is no choice
    network = Network()
    source, sink = network.vertex(), network.vertex()
    before: dict[Value, int] = {}  # the vertex before the edge that stands for a value; the next is behind it

    def enter(v: Value) -> None:
        before[v] = network.vertex()
        cost = _cost(v, nodes[made[v]] if v in made else None, outputs)
        network.edge(before[v], network.vertex(), cost * _NEVER if v in inner else cost)

    waiting = [v for v in wanted if v not in saved]
    for value in waiting:
        enter(value)
        # An endless edge is never cut: only the bytes of values can be.
        network.edge(before[value] + 1, sink, inf)
    while waiting:
        value = waiting.pop()
        if fixed(value):
            network.edge(source, before[value], inf)
            continue
        for v in dict.fromkeys(nodes[made[value]].inputs):
            if v in saved or (v not in inputs and v not in made):
                continue
            if v not in before:
                enter(v)
                waiting.append(v)
            # To run an op again all of its inputs must be there, so each of them leads to the value.
            network.edge(before[v] + 1, before[value], inf)
    network.push(source, sink)
    # Of cuts that cost the same this is the last, where the fewest ops run again.
    near = network.leading_to(sink)
    return saved | {v for v, at in before.items() if at not in near and at + 1 in near}


def _cost(value: Value, node: Node | None, outputs: Collection[Value]) -> int:
    """Bytes, in fine units: of equals an output is best, then an input, and what is merely moved is last.

    One value and its parts cost the same, and of such equals the last ones are saved: what is computed of
    parts, as the gates of a cell, is then not computed again.
    """
    rank = 0 if value in outputs else 1 if node is None else 3 if node.op.moves else 2
    return max(bytes_of(value), 1) * ((1 << 20) + rank)


def _scheduled(
    nodes: Sequence[Node],
    late: Iterable[Node],
    made: Mapping[Value, int],
    saved: Collection[Value],
    tellers: Sequence[Value],
    results: Sequence[Value],
) -> tuple[Node, ...]:
    """The nodes of the backward graph: its own, and before the first use of each what is run again.

    What tells sizes comes first, as nodes that need to know them may use no value of it.
    """
    wanted = set(results)
    own = []
    for node in reversed(list(late)):
        if not wanted.isdisjoint(node.outputs):
            wanted.update(node.inputs)
            own.append(node)
    order: dict[Node, None] = {}

    def require(values: Iterable[Value]) -> None:
        missing = set()
        waiting = [v for v in values if v in made and v not in saved]
        while waiting:
            i = made[waiting.pop()]
            if i not in missing and nodes[i] not in order:
                missing.add(i)
                waiting += [v for v in nodes[i].inputs if v in made and v not in saved]
        order.update(dict.fromkeys(nodes[i] for i in sorted(missing)))

    require(tellers)
    for node in reversed(own):
        require(node.inputs)
        order[node] = None
    require(results)
    return tuple(order)

"""The parts of a training step: which nodes of a graph are forward, which backward, which the optimizer's.

What a gradient added says so itself; the optimizer is what comes after it and only changes state, and what
serves nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from weft.ir.graph import Graph, Node, Value

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"


def find_parts(graph: Graph) -> dict[Node, str]:
    """By node, the part it belongs to; empty for a graph without gradients.

    >>> import weft
    >>> graph = weft.make_graph(weft.grad(lambda x: weft.tanh(x).sum()))(weft.ones(3))
    >>> sorted(set(find_parts(graph).values()))
    ['backward', 'forward']
    """
    backward = {n for n in graph.nodes if n.location is not None and n.location.phase == BACKWARD}
    if not backward:
        return {}
    after = _reached(graph, backward)
    parts = {n: BACKWARD if n in backward or n in after else FORWARD for n in graph.nodes}
    if graph.updates:
        _mark_optimizer(graph, parts, after - backward - _leading_to(graph, backward))
    return parts


def users_of(graph: Graph) -> dict[Value, list[Node]]:
    """By value, the nodes that take it."""
    users: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in dict.fromkeys(node.inputs):
            users.setdefault(value, []).append(node)
    return users


def _reached(graph: Graph, start: set[Node]) -> set[Node]:
    """The nodes that depend on others."""
    values = {v for n in start for v in n.outputs}
    found: set[Node] = set()
    for node in graph.nodes:
        if not values.isdisjoint(node.inputs):
            found.add(node)
            values.update(node.outputs)
    return found


def _leading_to(graph: Graph, ends: set[Node]) -> set[Node]:
    """The nodes that others depend on."""
    values = {v for n in ends for v in n.inputs}
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        if not values.isdisjoint(node.outputs):
            found.add(node)
            values.update(node.inputs)
    return found


def _mark_optimizer(graph: Graph, parts: dict[Node, str], sure: set[Node]) -> None:
    """Mark what comes after the gradients, and what serves nothing else."""
    users, new = users_of(graph), {v for _, v in graph.updates}
    results = set(graph.outputs)
    for node in reversed(graph.nodes):
        served = [u for v in node.outputs for u in users.get(v, ())]
        alone = bool(served) and all(parts[u] == OPTIMIZER for u in served)
        alone = alone and results.isdisjoint(node.outputs) and parts[node] == FORWARD
        module = "" if node.location is None else node.location.module
        counts = not served and not module and not new.isdisjoint(node.outputs)
        if node in sure or alone or (counts and parts[node] == FORWARD):
            parts[node] = OPTIMIZER


def parameters_served(graph: Graph, parts: Mapping[Node, str]) -> dict[Node, str]:
    """By node of the optimizer, the parameter whose new value or state it computes; "" for several."""
    users = users_of(graph)
    named: dict[Value, list[str]] = {}
    for old, value in graph.updates:
        named.setdefault(value, []).append(old.name)
    found: dict[Node, str] = {}
    for node in reversed(graph.nodes):
        if parts.get(node) != OPTIMIZER:
            continue
        names = [name for v in node.outputs for name in named.get(v, ())]
        names += [found[u] for v in node.outputs for u in users.get(v, ()) if u in found]
        found[node] = common_path(names)
    return found


def common_path(names: Iterable[str]) -> str:
    """The beginning that dotted names share, in whole words.

    >>> common_path(["net.0.weight", "net.0.weight.mean"])
    'net.0.weight'
    """
    return ".".join(common_start([name.split(".") for name in names]))


def common_start(paths: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The words that all paths begin with.

    >>> common_start([("a", "b", "c"), ("a", "b")])
    ('a', 'b')
    """
    same = takewhile(lambda words: len(set(words)) == 1, zip(*paths, strict=False))
    return tuple(words[0] for words in same)

"""The backward engine: one reverse sweep for eager, higher-order and captured gradients.

Nodes run in the order of their topological numbers, highest first. A consumer's number is higher than
its producers', so when a node comes up every gradient it waits for has arrived. There is no recursion
and no state outside the call: several threads may run backward at once.

Gradients are plain arrays, unless a graph of the gradient is wanted or the data are not arrays; then
the same rules run on tensors.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any

import numpy as np

from weft.errors import FreedGraphError
from weft.tensor.anomaly import check_gradients
from weft.tensor.dispatch import wrap
from weft.tensor.mode import set_recording
from weft.tensor.node import FREED, Instrumented, Leaf, Node, Output
from weft.tensor.rules import REST

ndarray = np.ndarray
_accumulate_lock = threading.Lock()
_by_number = attrgetter("nr")


def node_of(edge: Any) -> Any:
    """The node an edge leaves from: itself, or the owner of one of several outputs."""
    return edge.node if type(edge) is Output else edge


def run_backward(
    roots: Sequence[tuple[Any, Any]],
    *,
    retain_graph: bool,
    create_graph: bool,
    targets: Sequence[Any] | None = None,
) -> list[Any]:
    """Run the graph backward from roots, each an edge with the tensor that is its gradient.

    Without targets, gradients accumulate into the leaves. With targets (edges), nothing accumulates:
    their gradients are returned in order, as tensors, None where a target is not reached; only the
    nodes that lead to a target run.
    """
    on_tensors = create_graph or any(type(g._data) is not ndarray for _, g in roots)
    before = set_recording(True) if on_tensors else None
    try:
        sweep = _Sweep(on_tensors=on_tensors, free=not retain_graph, targets=targets)
        sweep.run([(edge, g if on_tensors else g._data) for edge, g in roots])
    finally:
        if before is not None:
            set_recording(before)
    if targets is None:
        sweep.accumulate(create_graph)
        return []
    return sweep.results(create_graph)


def useful_nodes(roots: Iterable[Any], targets: set[tuple[Any, int]]) -> set[Any]:
    """The nodes reachable from roots that lead to a target."""
    wanted = {node for node, _ in targets}
    seen = set()
    stack = [node_of(edge) for edge in roots]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if type(node) is Node:
            stack.extend(node_of(e) for e in node.edges if e is not None)
    useful = set()
    for node in sorted(seen, key=_by_number):
        if node in wanted or (type(node) is Node and any(node_of(e) in useful for e in node.edges)):
            useful.add(node)
    return useful


def _output_number(edge: Any) -> int:
    return edge.index if type(edge) is Output else 0


class _Sweep:
    """The state of one backward call."""

    __slots__ = ("count", "found", "free", "heap", "leaves", "on_tensors", "pending", "targets", "useful")

    def __init__(self, *, on_tensors: bool, free: bool, targets: Sequence[Any] | None) -> None:
        self.on_tensors = on_tensors
        self.free = free
        self.targets = None if targets is None else [(node_of(e), _output_number(e)) for e in targets]
        self.useful: set[Any] | None = None
        self.found: dict[tuple[Any, int], Any] = {}
        self.leaves: dict[Leaf, Any] = {}
        self.pending: dict[Node, Any] = {}
        self.heap: list[tuple[int, int, Node]] = []
        self.count = 0

    def run(self, roots: list[tuple[Any, Any]]) -> None:
        """Sweep from the roots to the leaves."""
        if self.targets is not None:
            self.useful = useful_nodes([edge for edge, _ in roots], set(self.targets))
            roots = [(edge, g) for edge, g in roots if node_of(edge) in self.useful]
        for edge, g in roots:
            self.deliver(edge, g)
        heap, pending, deliver = self.heap, self.pending, self.deliver
        step, free, useful = self.step, self.free, self.useful
        plain = not self.on_tensors and useful is None
        while heap:
            node = heappop(heap)[2]
            g = pending.pop(node)
            rule = node.rule
            if not plain or rule.outputs != 1 or type(rule) is Instrumented:
                step(node, g)
                continue
            saved = node.saved
            if saved is FREED:
                raise _freed(node)
            edges = node.edges
            grads = rule.run(g, saved, edges)
            if free:
                node.saved = FREED
            for edge, grad in zip(edges, grads):  # noqa: B905 - the lengths agree; the keyword costs 5 %
                if edge is not None and grad is not None:
                    if type(edge) is Node and edge not in pending:
                        pending[edge] = grad
                        self.count += 1
                        heappush(heap, (-edge.nr, self.count, edge))
                    else:
                        deliver(edge, grad)

    def deliver(self, edge: Any, grad: Any) -> None:
        """Add a gradient to what waits at an edge."""
        if type(edge) is Leaf:
            leaves = self.leaves
            leaves[edge] = leaves[edge] + grad if edge in leaves else grad
            return
        node, pending = node_of(edge), self.pending
        if node not in pending:
            self.count += 1
            heappush(self.heap, (-node.nr, self.count, node))
            pending[node] = grad if node.rule.outputs == 1 else [None] * node.rule.outputs
        elif node.rule.outputs == 1:
            pending[node] = pending[node] + grad
        if node.rule.outputs > 1:
            waiting, k = pending[node], _output_number(edge)
            waiting[k] = grad if waiting[k] is None else waiting[k] + grad

    def step(self, node: Node, g: Any) -> None:
        """Run one node with everything that may be attached to it."""
        rule, saved, edges = node.rule, node.saved, node.edges
        grads_out = g if rule.outputs > 1 else [g]
        if type(rule) is Instrumented:
            self._before(rule, grads_out)
        if self.targets is not None:
            for k, grad in enumerate(grads_out):
                if (node, k) in self.targets:
                    self.found[node, k] = grad
            assert self.useful is not None
            edges = tuple(e if node_of(e) in self.useful else None for e in edges)
            if all(e is None for e in edges):
                return
        if saved is FREED:
            raise _freed(node)
        if rule.outputs > 1:
            grads_out = [self._zeros(t) if o is None else o for o, t in zip(grads_out, saved[-1], strict=True)]
        if self.on_tensors:
            saved = self._as_tensors(node, saved)
        grads = rule.run(grads_out if rule.outputs > 1 else grads_out[0], saved, edges)
        if type(rule) is Instrumented:
            grads = self._after(rule, grads, grads_out)
        if self.free:
            node.saved = FREED
        for edge, grad in zip(edges, grads, strict=True):
            if edge is not None and grad is not None:
                self.deliver(edge, grad)

    def _zeros(self, kind: Any) -> Any:
        zeros = np.zeros(kind.shape, kind.dtype)
        return wrap(zeros) if self.on_tensors else zeros

    def _as_tensors(self, node: Node, saved: tuple[Any, ...]) -> tuple[Any, ...]:
        """Saved data as tensors that hang in the graph where they hung when the op ran."""
        edges, outputs = node.edges, node.rule.outputs

        def output(data: Any, k: int) -> Any:
            return wrap(data, node if outputs == 1 else Output(node, k))

        out = []
        for data, slot in zip(saved, node.rule.slots, strict=False):
            if slot is None or data is None:
                out.append(data)
            elif slot == REST:
                first = len(edges) - len(data)
                out.append(tuple(wrap(d, edges[first + i]) for i, d in enumerate(data)))
            elif slot == "outs":
                out.append(tuple(output(d, k) for k, d in enumerate(data)))
            else:
                out.append(wrap(data, edges[slot]) if slot >= 0 else output(data, ~slot))
        return tuple(out)

    def _tensor(self, grad: Any) -> Any:
        return grad if self.on_tensors or grad is None else wrap(np.asarray(grad))

    def _data(self, tensor: Any) -> Any:
        return tensor if self.on_tensors or tensor is None else tensor._data

    def _before(self, rule: Instrumented, grads_out: list[Any]) -> None:
        """Hooks on the outputs' tensors and on the node, then retained gradients, in place."""
        for k, hooks in rule.tensor_hooks.items():
            for hook in list(hooks.values()):
                if grads_out[k] is not None:
                    changed = hook(self._tensor(grads_out[k]))
                    grads_out[k] = grads_out[k] if changed is None else self._data(changed)
        for hook in list(rule.node_prehooks.values()):
            changed = hook(tuple(map(self._tensor, grads_out)))
            if changed is not None:
                grads_out[:] = map(self._data, changed)
        for k in rule.retained:
            grad = self._tensor(grads_out[k])
            if grad is not None:
                old = rule.retained[k]
                rule.retained[k] = grad if old is None else old + grad

    def _after(self, rule: Instrumented, grads: Sequence[Any], grads_out: list[Any]) -> Sequence[Any]:
        check_gradients(rule, grads)
        for hook in list(rule.node_hooks.values()):
            changed = hook(tuple(map(self._tensor, grads)), tuple(map(self._tensor, grads_out)))
            if changed is not None:
                grads = [self._data(c) for c in changed]
        return grads

    def _leaf_gradient(self, leaf: Leaf, grad: Any) -> Any:
        tensor = self._tensor(grad)
        for hook in list((leaf.hooks or {}).values()):
            changed = hook(tensor)
            tensor = tensor if changed is None else changed
        return tensor

    def accumulate(self, create_graph: bool) -> None:
        """Add what arrived at the leaves to their gradients."""
        for leaf, grad in self.leaves.items():
            tensor = self._leaf_gradient(leaf, grad)
            if not create_graph:
                tensor = wrap(tensor._data)
            with _accumulate_lock:
                leaf.grad = tensor if leaf.grad is None else leaf.grad + tensor
            for hook in list((leaf.post_hooks or {}).values()):
                hook(leaf.variable)

    def results(self, create_graph: bool) -> list[Any]:
        """The gradients of the targets, in their order."""
        assert self.targets is not None
        for leaf, grad in self.leaves.items():
            self.found[leaf, 0] = self._data(self._leaf_gradient(leaf, grad))
        out = []
        for target in self.targets:
            tensor = self._tensor(self.found.get(target))
            out.append(tensor if tensor is None or create_graph else wrap(tensor._data))
        return out


def _freed(node: Node) -> FreedGraphError:
    return FreedGraphError(
        "backward",
        f"the graph must not be freed, got a second backward through {node.rule.name}",
        hint="pass retain_graph=True to the first backward()",
    )

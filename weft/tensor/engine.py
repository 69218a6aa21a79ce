"""The backward engine: one reverse sweep for eager, higher-order and captured gradients.

Nodes run in the order of their topological numbers, highest first. A consumer's number is higher than
its producers', so when a node comes up every gradient it waits for has arrived. There is no recursion
and no state outside the call: several threads may run backward at once.

Gradients are plain arrays, unless a graph of the gradient is wanted or the data are not arrays; then
the same rules run on tensors. Nothing outside the sweep changes before it has ended, but that saved
values are freed on the way; the gradients of tensors are then set all at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial, reduce
from heapq import heappop, heappush, heappushpop
from itertools import count
from operator import attrgetter
from typing import Any

import numpy as np

from weft.base.concrete import CONCRETE, any_on_device, is_concrete, is_on_device
from weft.base.device import CPU
from weft.base.hooks import hooks
from weft.errors import FreedGraphError
from weft.ops.arithmetic import add
from weft.ops.op import Operand, Tensor, Typed, intercepted, type_of
from weft.tensor.accumulate import add_to_gradients
from weft.tensor.anomaly import check_seed, explain, is_watching, run_rule
from weft.tensor.autocast import not_casting
from weft.tensor.choices import Truth, either
from weft.tensor.dispatch import filled_like, wrap
from weft.tensor.hooks import Hooks, where
from weft.tensor.large import LARGE, evaluate_large
from weft.tensor.mode import set_recording, thread
from weft.tensor.moving import move
from weft.tensor.node import FREED, Instrumented, Leaf, Node, Output
from weft.tensor.pieces import Pieces
from weft.tensor.rules import REST, Backward

ndarray = np.ndarray
_by_number = attrgetter("nr")


def node_of(edge: object) -> Any:
    """The node an edge leaves from: itself, or the owner of one of several outputs."""
    return edge.node if type(edge) is Output else edge


def run_backward(
    roots: Sequence[tuple[Any, Any]],
    *,
    retain_graph: bool,
    create_graph: bool,
    targets: Sequence[Any] | None = None,
    ways: Any = None,
) -> Any:
    """Run the graph backward from roots, each an edge with the tensor that is its gradient.

    Without targets, gradients accumulate into the leaves and into tensors that retain theirs. With targets
    (edges), nothing accumulates: their gradients are returned in order, as tensors, None where a target
    is not reached; only the nodes that lead to a target run. Who asks for ``ways`` (``weft.tensor.ways``) is
    told there which nodes ran, and so which of these gradients a run has.
    """
    staged = bool(intercepted.threads) and thread.capture is not None
    on_tensors = create_graph or staged or any(type(g._data) not in CONCRETE for _, g in roots)
    before = thread.recording
    try:
        if create_graph:
            set_recording(True)
        sweep = _Sweep(on_tensors=on_tensors, hang=create_graph, free=not retain_graph, targets=targets)
        sweep.before_free = thread.capture.before_free if staged else None
        sweep.devices = len(CONCRETE) > 1 and not on_tensors
        sweep.ways = _ways() if staged and ways is None else ways
        back = thread.capture.going_back() if staged else nullcontext()
        with np.errstate(all="ignore"), back, not_casting():
            sweep.run([(edge, g if on_tensors else g._data) for edge, g in roots])
            if targets is not None:
                return sweep.results()
            sweep.accumulate()
    finally:
        set_recording(before)
    sweep.hooks.after_accumulation(sweep.told or dict.fromkeys(sweep.leaves, True))
    return []


def _ways() -> Any:
    from weft.tensor.ways import Ways  # captures alone ask

    return Ways()


def useful_edges(roots: Iterable[Any], targets: set[Any]) -> dict[Any, tuple[Any, ...]] | None:
    """The nodes on the way from roots to targets, each with its edges, None for those that lead to none.

    None instead if all ways from the roots lead to targets, which is common and needs no bookkeeping.
    """
    lowest = min((node.nr for node in targets), default=0)  # what lies below leads to no target
    seen = set()
    complete = True
    stack = [node_of(edge) for edge in roots]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.nr > lowest and type(node) is Node:
            stack += [e.node if type(e) is Output else e for e in node.edges if e is not None]
        elif complete:
            complete = node in targets
    return None if complete else _leading_to(targets, seen)


def _leading_to(targets: set[Any], nodes: Iterable[Any]) -> dict[Any, tuple[Any, ...]]:
    """Those of nodes that lead to a target, each with its edges, None for those that do not."""
    useful: dict[Any, tuple[Any, ...]] = {}
    for node in sorted(nodes, key=_by_number):
        edges = node.edges if type(node) is Node else ()
        kept = tuple([e if e is not None and node_of(e) in useful else None for e in edges])
        if node in targets or any(e is not None for e in kept):
            useful[node] = kept
    return useful


def _output_number(edge: object) -> int:
    return edge.index if type(edge) is Output else 0


def total(x: Tensor, y: Operand) -> Tensor:
    """The sum of two gradients that are arrays, or pieces of one."""
    return evaluate_large(add, (x, y), {}) if type(x) is type(y) is ndarray and x.size >= LARGE else x + y


def _reaches_device(saved: Iterable[Any]) -> bool:
    """Whether some of what a node saved is on a device."""
    return any(_reaches_device(x) if type(x) is tuple else is_on_device(x) for x in saved)


def _beside(grads_out: Sequence[Any], grads: Sequence[Any]) -> list[Any]:
    """Gradients of inputs where those of the outputs are; rules may have made some of what the host had."""
    device = next((g.device for g in grads_out if g is not None), CPU)
    return [g if g is None or not is_concrete(g._data) else move(g, device) for g in grads]


def zeros_beside(kind: Typed, beside: Sequence[Any], *, on_tensors: bool) -> Any:
    """A gradient of zeros, where the others are that came."""
    if on_tensors:
        return filled_like(kind, 0)
    there = next(filter(is_on_device, beside), None) if len(CONCRETE) > 1 else None
    if there is not None:
        return hooks.new_filled(kind.shape, 0, kind.dtype, there.device)
    return np.zeros(kind.shape, kind.dtype)


def saved_as_tensors(node: Node, saved: Any = None) -> tuple[Tensor, ...]:
    """What a node saved, as constants; of one that is freed it may be given."""
    sweep = _Sweep(on_tensors=True, hang=False, free=False, targets=None)
    return sweep._as_tensors(node, sweep.saved_of(node) if type(saved) is not tuple else saved)


class _Sweep:
    """The state of one backward call."""

    __slots__ = (
        "before_free",
        "devices",
        "found",
        "free",
        "hang",
        "heap",
        "hooks",
        "leaves",
        "lowest",
        "masked",
        "on_tensors",
        "owned",
        "pending",
        "recomputed",
        "retained",
        "roots",
        "special",
        "stops",
        "targets",
        "tick",
        "told",
        "useful",
        "ways",
    )

    def __init__(self, *, on_tensors: bool, hang: bool, free: bool, targets: Sequence[Any] | None) -> None:
        self.on_tensors = on_tensors
        self.before_free: Any = None  # what a capture is told before nodes are freed
        self.devices = False  # whether gradients may be arrays of devices
        self.ways: Any = None  # where a capture is told which gradients a run has
        self.roots: list[Any] = []  # the edges that the sweep starts from
        self.told: dict[Leaf, Any] = {}  # where a capture asks: whether a gradient comes to each leaf
        self.hang = hang
        self.free = free
        self.hooks = Hooks(on_tensors, hang)
        self.targets: list[tuple[Any, int]] | None = None
        self.stops: set[Any] = set()
        self.masked: set[Any] = set()  # nodes to which zeros came that mean: this was not chosen
        self.special: set[Any] = set()  # nodes that take the general path
        self.lowest = 0  # below no target lies
        if targets is not None:
            self.targets = [(node_of(e), _output_number(e)) for e in targets]
            self.stops.update(node for node, _ in self.targets if type(node) is Node)
            self.special.update(self.stops)
            self.lowest = min((node.nr for node, _ in self.targets), default=0)
        self.useful: dict[Any, tuple[Any, ...]] | None = None
        self.found: dict[tuple[Any, int], Any] = {}
        self.leaves: dict[Leaf, Any] = {}
        self.retained: list[tuple[Any, Any, Any]] = []  # tensors that keep theirs, edges, what arrived
        self.pending: dict[Node, Any] = {}
        self.owned: set[Any] = set()  # nodes and leaves whose sum nobody else holds: it may grow in place
        self.heap: list[tuple[int, int, Node]] = []
        self.tick = count().__next__  # orders nodes of equal number, so that sums are the same in each run
        self.recomputed: dict[Any, dict[int, Any]] = {}  # what checkpoints computed again

    def run(self, roots: list[tuple[Any, Any]]) -> None:
        """Sweep from the roots to the leaves."""
        if self.targets is not None:
            self.useful = useful_edges([edge for edge, _ in roots], {node for node, _ in self.targets})
            if self.useful is not None:
                roots = [(edge, g) for edge, g in roots if node_of(edge) in self.useful]
        self.roots = [edge for edge, _ in roots]
        for edge, g in roots:
            check_seed(g)
            self.deliver(edge, g)
        self.run_pending(plain=not self.on_tensors and not is_watching())

    def run_pending(self, *, plain: bool) -> None:
        """Run nodes until none has a gradient waiting."""
        heap, pending, leaves, owned, tick = self.heap, self.pending, self.leaves, self.owned, self.tick
        deliver, step, free, useful, special = self.deliver, self.step, self.free, self.useful, self.special
        in_place, devices, before_free = not self.on_tensors, self.devices, self.before_free
        node: Any = None
        ready: Any = None  # the first node that the last one woke: in a chain it is next, and skips the heap
        try:
            while True:
                if ready is None:
                    if not heap:
                        return
                    node = heappop(heap)[2]
                elif heap:
                    node = heappushpop(heap, (-ready.nr, tick(), ready))[2]
                else:
                    node = ready
                ready = None
                g = pending.pop(node)
                rule = node.rule
                edges = node.left if useful is None else useful[node]
                if type(edges) is not tuple:
                    edges = (edges, node.right)
                if plain and rule.plain and node not in special:
                    saved = node.saved
                    if type(saved) is not tuple:
                        saved = self.saved_of(node)
                    if not devices:
                        grads = rule.run(g, saved, edges)
                    elif rule.pull is None or (grads := rule.pull(g, saved)) is None:
                        grads = self.pull(node, g, saved, edges)
                else:
                    grads = step(node, g, edges)
                    if grads is None:
                        continue
                if free:
                    if before_free is not None:
                        before_free(node)
                    node.saved = FREED
                for edge, grad in zip(edges, grads):  # noqa: B905 - the lengths agree; the keyword costs 5 %
                    if edge is None or grad is None:
                        continue
                    if type(edge) is Node:
                        if edge not in pending:
                            pending[edge] = grad
                            if ready is None:
                                ready = edge
                            else:
                                heappush(heap, (-edge.nr, tick(), edge))
                        elif edge in owned:
                            pending[edge] += grad
                        elif in_place:
                            pending[edge] = total(pending[edge], grad)
                            owned.add(edge)
                        else:
                            pending[edge] = pending[edge] + grad
                    elif type(edge) is Leaf and edge in owned:
                        leaves[edge] += grad
                    else:
                        deliver(edge, grad)
                saved = grads = grad = g = None  # nothing of this node stays alive while the next runs
        except Exception as error:
            explain(error, node)
            raise

    def deliver(self, edge: Any, grad: Any) -> None:
        """Add a gradient to what waits at an edge."""
        if type(edge) is Leaf:
            self._add(self.leaves, edge, grad)
            return
        node, pending = node_of(edge), self.pending
        several = node.rule.outputs > 1
        if node not in pending:
            heappush(self.heap, (-node.nr, self.tick(), node))
            pending[node] = [None] * node.rule.outputs if several else grad
        elif not several:
            self._add(pending, node, grad)
        if several:
            waiting, k = pending[node], _output_number(edge)
            waiting[k] = grad if waiting[k] is None else waiting[k] + grad

    def _add(self, sums: dict[Any, Any], key: object, grad: Tensor) -> None:
        if key not in sums:
            sums[key] = grad
        elif key in self.owned:
            sums[key] += grad
        elif not self.on_tensors:
            sums[key] = total(sums[key], grad)
            self.owned.add(key)
        else:
            sums[key] = sums[key] + grad

    def saved_of(self, node: Node) -> tuple[Tensor, ...]:
        """What a node saved, computed again if it lies in a checkpoint."""
        saved = node.saved
        while type(saved) is not tuple:
            if saved is FREED:
                raise FreedGraphError(
                    "backward",
                    f"the graph must not be freed, got a second backward through {node.rule.name}",
                    hint="pass retain_graph=True to the first backward()",
                )
            saved = saved.take(self.recomputed)
        return saved

    def step(self, node: Node, g: Any, edges: tuple[Any, ...]) -> Sequence[Any] | None:
        """Run one node with everything that may be attached to it; None if nothing asks for its inputs."""
        rule, hooks = node.rule, self.hooks
        if type(g) is Pieces:
            g = g.array()
        grads_out = g if rule.outputs > 1 else [g]
        runs_users = rule.is_users or type(rule) is Instrumented
        truths, truth = self._comes_to(node) if runs_users else ((), True)
        if type(rule) is Instrumented:
            hooks.on_tensors_of(rule, grads_out, truths)
            self._retain(node, rule, grads_out)
        if node in self.stops:
            self.found |= {(node, k): grad for k, grad in enumerate(grads_out)}
            if node.nr == self.lowest or all(e is None for e in edges):
                return None
        saved = self.saved_of(node)
        if rule.outputs > 1 and rule.materialize:
            grads_out = [
                zeros_beside(t, grads_out, on_tensors=self.on_tensors) if o is None else o
                for o, t in zip(grads_out, saved[-1], strict=True)
            ]
        if type(rule) is Instrumented:
            grads_out = hooks.before_node(rule, grads_out, truth)
        values = self._as_tensors(node, saved) if self.on_tensors else saved
        given = grads_out if rule.outputs > 1 else grads_out[0]
        careful = node in self.masked
        if rule.piece is not None and not careful and (piece := self._piece(rule, given, values, edges)):
            return [piece]
        if rule.masks or (careful and rule.keeps_zeros):
            before = [node_of(e) for e in edges if e is not None]
            self.masked.update(before)
            self.special.update(before)
        if self.devices:
            pull = partial(self.pull, node, careful=careful)
            grads = run_rule(rule, given, values, edges, run=pull)
        elif intercepted.threads and thread.capture is not None:
            with thread.capture.differentiating(node):
                grads = self._run_where(truth, node, given, values, edges, careful=careful)
            if self.ways is not None:
                self.ways.note(node, values, edges, grads)
        else:
            grads = run_rule(rule, given, values, edges, careful=careful)
        if self.on_tensors and len(CONCRETE) > 1 and rule.keeps_device:
            grads = _beside(grads_out, grads)
        return hooks.after_node(rule, grads, grads_out, truth) if type(rule) is Instrumented else grads

    def _comes_to(self, node: Node) -> tuple[Sequence[Any], Any]:
        """Whether a gradient comes to each output of a node with code of the user, and to any of them."""
        count = max(node.rule.outputs, 1)
        if self.ways is None:
            return [True] * count, True
        truths = self.ways.truths(self.roots, [Output(node, k) for k in range(count)])
        return truths, reduce(either, truths)

    def _run_where(
        self,
        truth: Truth,
        node: Node,
        given: Any,
        values: tuple[Any, ...],
        edges: tuple[Any, ...],
        *,
        careful: bool,
    ) -> Sequence[Any]:
        """Run the rule of a node; one of the user where a gradient comes, and elsewhere there are zeros."""
        rule, kinds = node.rule, list[Any]()
        if truth is True or not rule.is_users:
            return run_rule(rule, given, values, edges, careful=careful)

        def run() -> tuple[Any, ...]:
            grads = tuple(run_rule(rule, given, values, edges, careful=careful))
            kinds[:] = [None if g is None else type_of(g) for g in grads]
            return grads

        def nothing() -> tuple[Any, ...]:
            return tuple([None if t is None else filled_like(t, 0) for t in kinds or [None] * len(edges)])

        found: Sequence[Any] = where(truth, run, nothing)
        return found

    def pull(
        self, node: Node, g: Any, saved: tuple[Any, ...], edges: tuple[Any, ...], *, careful: bool = False
    ) -> Sequence[Any]:
        """Run a rule on arrays that may be on devices; where it does not take those, on tensors."""
        rule = node.rule
        if rule.pull is not None and not careful and (found := rule.pull(g, saved)) is not None:
            return found
        if not careful and rule.keeps_device and is_on_device(g):
            found = hooks.pull_on_device(rule, g, saved, edges)
            if found is not None:
                return found
        outs = g if type(g) is list else [g]
        run = rule.careful if careful and rule.careful is not None else rule.run
        if rule.keeps_device and not any_on_device(outs) and not _reaches_device(saved):
            return run(g, saved, edges)
        if rule.keeps_device and run is rule.run and type(g) is list:
            found = hooks.pull_on_device(rule, g, saved, edges)
            if found is not None:
                return found
        given = [None if x is None else wrap(x) for x in outs]
        values = self._as_tensors(node, saved)
        grads = run(given if rule.outputs > 1 else given[0], values, edges)
        grads = _beside(given, grads) if rule.keeps_device else grads
        return [None if x is None else x._data for x in grads]

    def _piece(self, rule: Backward, g: object, saved: tuple[Any, ...], edges: tuple[Any, ...]) -> Any:
        """The gradient of a slice as a piece, if it goes to a node, which then puts all pieces together."""
        plain = (
            not self.on_tensors and not self.devices and type(rule) is not Instrumented and not is_watching()
        )
        if not plain or type(edges[0]) is not Node or rule.piece is None:
            return None
        self.special.add(edges[0])
        return rule.piece(g, saved)

    def _retain(self, node: Node, rule: Instrumented, grads_out: list[Any]) -> None:
        if self.targets is None:
            for k, owner in rule.retaining.items():
                if grads_out[k] is not None:
                    edge = node if rule.outputs == 1 else Output(node, k)
                    gradient = self.hooks.settled(self.hooks.tensor(grads_out[k]))
                    self.retained.append((owner, edge, gradient))

    def _as_tensors(self, node: Node, saved: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """Saved data as tensors, which hang in the graph where they hung when the op ran if one is wanted."""
        outputs = node.rule.outputs
        edges = node.edges if self.hang else (None,) * len(node.edges)

        def output(data: object, k: int) -> Any:
            if not self.hang:
                return wrap(data)
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

    def accumulate(self) -> None:
        """Add what arrived to the ``grad`` of leaves and of tensors that retain theirs, all at once."""
        arrived = [(leaf.owner(), leaf, grad) for leaf, grad in self._left_by_hooks()]
        found = [row for row in arrived if row[0] is not None and row[0]._node is row[1]]
        found += [(tensor, edge, g) for owner, edge, g in self.retained if (tensor := owner()) is not None]
        pairs = [(tensor, grad) for tensor, _, grad in found]
        truths = None
        if self.ways is not None:
            truths = self.ways.truths(self.roots, [edge for _, edge, _ in found])
            thread.capture.rely_on_leaves([*self.told.values()])
        add_to_gradients(pairs, create_graph=self.hang, truths=truths)

    def _left_by_hooks(self) -> list[tuple[Leaf, Any]]:
        """The leaves that gradients came to, with these as hooks leave them."""
        if self.ways is not None:
            self.told = dict(zip(self.leaves, self.ways.truths(self.roots, [*self.leaves]), strict=True))
        return [
            (leaf, self.hooks.on_leaf(leaf, grad, self.told.get(leaf, True)))
            for leaf, grad in self.leaves.items()
        ]

    def results(self) -> list[Tensor]:
        """The gradients of the targets, in their order."""
        assert self.targets is not None
        found: dict[tuple[Any, int], Any] = {k: self.hooks.tensor(g) for k, g in self.found.items()}
        found |= {(leaf, 0): grad for leaf, grad in self._left_by_hooks()}
        return [self.hooks.settled(found.get(target)) for target in self.targets]

"""The nodes of the dynamic graph.

An edge of the graph is one of: ``Node``, the only output of an operation; ``Output``, one of several
outputs of an operation; ``Leaf``, a tensor the user made, where gradients accumulate; None, nothing to
differentiate. Nodes hold data, never tensors, so a tensor can be rebound or freed while its graph lives;
gradients are held by tensors, never by nodes, so a graph of gradients makes no reference cycle.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from weft.base.switch import switch
from weft.errors import ArgumentError
from weft.ops.op import Tensor
from weft.tensor.mode import thread
from weft.tensor.rules import Backward

Hook = Callable[..., Any]


class _Freed:
    """Takes the place of ``Node.saved`` once backward has used it."""

    def __repr__(self) -> str:
        return "FREED"


FREED: Any = _Freed()


class HookHandle:
    """Returned by ``register_hook``; ``remove()``, or the end of a ``with``, takes the hook off again."""

    _ids = itertools.count()

    def __init__(self, hooks: dict[int, Hook], made_in: weakref.ref[Any] | None = None) -> None:
        self._hooks = hooks
        self._id = next(self._ids)
        self._made_in = made_in  # the capture that made what the hook is on

    def remove(self) -> None:
        """Take the hook off; doing it twice is harmless."""
        if self._id in self._hooks:
            capture = thread.capture
            if capture is not None:
                is_own = self._made_in is not None and self._made_in() is capture
                capture.before_hooks_write(self._hooks, is_own=is_own)
            del self._hooks[self._id]

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def add_hook(edge: Node | Leaf, hooks: dict[int, Hook], hook: Hook) -> HookHandle:
    """Enter a hook among those of an edge, return its handle; hooks run in the order they were added."""
    if not callable(hook):
        raise ArgumentError("register_hook", f"a hook must be callable, got {type(hook).__name__}")
    capture = thread.capture
    is_own = capture is not None and capture.has_made(edge)
    if capture is not None:
        capture.before_hooks_write(hooks, is_own=is_own)
    handle = HookHandle(hooks, weakref.ref(capture) if is_own else None)
    hooks[handle._id] = hook
    return handle


class Instrumented(Backward):
    """A rule of one node that also carries hooks, tensors that keep their gradient, or a watch for anomalies.

    Only nodes that need one get one, so other nodes pay nothing for hooks.
    """

    __slots__ = ("node_hooks", "node_prehooks", "retaining", "tensor_hooks", "watch")

    def __init__(self, rule: Backward) -> None:
        super().__init__(**rule.parts())
        self.plain = False
        self.pull = rule.pull
        self.watch: Any = None  # set while anomalies are looked for
        # Both by the number of an output: the tensor that keeps its gradient, and the hooks on the tensor.
        self.retaining: dict[int, weakref.ref[Any]] = {}
        self.tensor_hooks: dict[int, dict[int, Hook]] = {}
        self.node_hooks: dict[int, Hook] = {}
        self.node_prehooks: dict[int, Hook] = {}


class Node:
    """One operation of the dynamic graph, with what its gradient needs.

    >>> import weft
    >>> x = weft.tensor(2.0, requires_grad=True)
    >>> y = x * x + x
    >>> y.grad_fn
    <AddBackward>
    >>> y.grad_fn.topological_nr, [f for f, _ in y.grad_fn.next_functions]
    (2, [<MulBackward>, <AccumulateGrad>])

    Made by ``make_node``; it has no constructor, so that the hot path can fill the slots itself. Two edges
    are kept apart as ``left`` and ``right``, which saves it a tuple; any other number is a tuple in ``left``.
    """

    __slots__ = ("left", "nr", "right", "rule", "saved")

    rule: Backward
    left: Any
    right: Any
    saved: Any
    nr: int

    @property
    def edges(self) -> tuple[Any, ...]:
        """Where each input came from, None for what is not differentiated."""
        left = self.left
        return left if type(left) is tuple else (left, self.right)

    @property
    def name(self) -> str:
        """``MulBackward`` for a mul."""
        space, colons, last = self.rule.name.rpartition("::")
        return space + colons + "".join(part[:1].upper() + part[1:] for part in last.split("_")) + "Backward"

    @property
    def topological_nr(self) -> int:
        """Length of the longest path to a leaf; the engine runs from high numbers to low ones."""
        return self.nr

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes that this one passes gradients to, each with the number of the output it came from."""
        return tuple((e.node, e.index) if type(e) is Output else (e, 0) for e in self.edges)

    def instrument(self) -> Instrumented:
        """This node's own rule, able to carry hooks."""
        if not isinstance(self.rule, Instrumented):
            self.rule = Instrumented(self.rule)
        return self.rule

    def register_hook(self, hook: Hook) -> HookHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after this node ran; it may return new grad_inputs."""
        return add_hook(self, self.instrument().node_hooks, hook)

    def register_prehook(self, hook: Hook) -> HookHandle:
        """Call ``hook(grad_outputs)`` before this node runs; it may return new grad_outputs."""
        return add_hook(self, self.instrument().node_prehooks, hook)

    def __repr__(self) -> str:
        return f"<{self.name}>"


def make_node(rule: Backward, edges: tuple[Any, ...], saved: object) -> Node:
    """A node of its parts, shown to the observer of this thread if there is one."""
    node = Node()
    node.rule = rule
    node.left = edges
    node.saved = saved
    nr = -1
    for edge in edges:
        if edge is not None and edge.nr > nr:
            nr = edge.nr
    node.nr = nr + 1
    if switch.off and thread.observer is not None:
        thread.observer(node)
    return node


class Output:
    """One output of a node that has several."""

    __slots__ = ("index", "node", "nr")

    def __init__(self, node: Node, index: int) -> None:
        self.node = node
        self.index = index
        self.nr = node.nr


class Leaf:
    """Where gradients of a tensor made by the user accumulate; shown as ``AccumulateGrad``."""

    __slots__ = ("hooks", "nr", "owner", "post_hooks")

    def __init__(self, owner: Any) -> None:
        self.nr = 0
        self.hooks: dict[int, Hook] = {}
        self.post_hooks: dict[int, Hook] = {}
        self.owner = weakref.ref(owner)

    name = "AccumulateGrad"
    topological_nr = 0

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """Empty: the graph ends here."""
        return ()

    @property
    def variable(self) -> Tensor | None:
        """The tensor whose gradient accumulates here, if it is still alive."""
        return self.owner()

    def register_hook(self, hook: Hook) -> HookHandle:
        """Call ``hook((), (gradient,))`` after backward added to the tensor's ``grad``."""
        return add_hook(self, self.post_hooks, lambda tensor: hook((), (tensor.grad,)))

    def __repr__(self) -> str:
        return "<AccumulateGrad>"


Edge = Node | Output | Leaf | None

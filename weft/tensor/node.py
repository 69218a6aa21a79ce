"""The nodes of the dynamic graph.

An edge of the graph is one of: ``Node``, the only output of an operation; ``Output``, one of several
outputs of an operation; ``Leaf``, a tensor the user made, where gradients accumulate; None, nothing to
differentiate. Nodes hold data, never tensors, so a tensor can be rebound or freed while its graph lives.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from weft.tensor.rules import Backward

FREED: Any = ("freed",)  # takes the place of Node.saved once backward has used it

Hook = Callable[..., Any]


class HookHandle:
    """Returned by ``register_hook``; ``remove()`` takes the hook off again."""

    _ids = itertools.count()

    def __init__(self, hooks: dict[int, Hook]) -> None:
        self._hooks = hooks
        self._id = next(self._ids)

    def remove(self) -> None:
        """Take the hook off; doing it twice is harmless."""
        self._hooks.pop(self._id, None)


def add_hook(hooks: dict[int, Hook], hook: Hook) -> HookHandle:
    """Enter a hook and return its handle."""
    handle = HookHandle(hooks)
    hooks[handle._id] = hook
    return handle


class Instrumented(Backward):
    """A rule of one node that also carries hooks, a retained gradient, or where the forward op stood.

    Only nodes that need one get one, so other nodes pay nothing for hooks.
    """

    __slots__ = ("location", "node_hooks", "node_prehooks", "retained", "tensor_hooks")

    def __init__(self, rule: Backward) -> None:
        super().__init__(rule.name, rule.run, rule.slots, rule.outputs)
        self.location: tuple[str, int] | None = None
        self.retained: dict[int, Any] = {}  # number of an output -> its gradient, once it arrived
        self.tensor_hooks: dict[int, dict[int, Hook]] = {}  # number of an output -> hooks on that tensor
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
    """

    __slots__ = ("edges", "nr", "rule", "saved")

    def __init__(self, rule: Backward, edges: tuple[Any, ...], saved: tuple[Any, ...]) -> None:
        self.rule = rule
        self.edges = edges
        self.saved = saved
        self.nr = 1 + max(e.nr for e in edges if e is not None)

    @property
    def name(self) -> str:
        """``MulBackward`` for a mul."""
        return "".join(part.capitalize() for part in self.rule.name.split("_")) + "Backward"

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
        return add_hook(self.instrument().node_hooks, hook)

    def register_prehook(self, hook: Hook) -> HookHandle:
        """Call ``hook(grad_outputs)`` before this node runs; it may return new grad_outputs."""
        return add_hook(self.instrument().node_prehooks, hook)

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Output:
    """One output of a node that has several."""

    __slots__ = ("index", "node", "nr")

    def __init__(self, node: Node, index: int) -> None:
        self.node = node
        self.index = index
        self.nr = node.nr


class Leaf:
    """Where gradients of a tensor made by the user accumulate; shown as ``AccumulateGrad``."""

    __slots__ = ("grad", "hooks", "nr", "owner", "post_hooks")

    def __init__(self, owner: Any) -> None:
        self.nr = 0
        self.grad: Any = None
        self.hooks: dict[int, Hook] | None = None
        self.post_hooks: dict[int, Hook] | None = None
        self.owner = weakref.ref(owner)

    name = "AccumulateGrad"
    topological_nr = 0

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """Empty: the graph ends here."""
        return ()

    @property
    def variable(self) -> Any:
        """The tensor whose gradient accumulates here, if it is still alive."""
        return self.owner()

    def __repr__(self) -> str:
        return "<AccumulateGrad>"


Edge = Node | Output | Leaf | None

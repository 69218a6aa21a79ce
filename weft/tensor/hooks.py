"""Hooks as the engine calls them: on tensors, on nodes, and after accumulation.

A hook sees the complete gradient as a tensor, once in each backward. What it returns replaces the gradient,
and must be of the same type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft.base.concrete import is_concrete
from weft.errors import ArgumentError, ShapeError
from weft.ops.op import Tensor, TensorLike, intercepted, type_of
from weft.tensor.dispatch import wrap
from weft.tensor.mode import call_user, set_recording, thread
from weft.tensor.node import Instrumented, Leaf


class Hooks:
    """Calls the hooks of one backward, whose gradients are arrays or tensors."""

    __slots__ = ("create_graph", "on_tensors")

    def __init__(self, on_tensors: bool, create_graph: bool) -> None:
        self.on_tensors = on_tensors
        self.create_graph = create_graph

    def tensor(self, grad: Tensor) -> Tensor:
        """A gradient as a tensor; None stays None."""
        if self.on_tensors or grad is None:
            return grad
        return wrap(grad if is_concrete(grad) else np.asarray(grad))

    def settled(self, tensor: Any) -> Any:
        """A gradient as it leaves the engine: in a graph only if one is wanted."""
        return tensor if tensor is None or self.create_graph or tensor._node is None else wrap(tensor._data)

    def _data(self, tensor: Tensor | None) -> Any:
        return tensor if self.on_tensors or tensor is None else tensor._data

    def _call(self, hook: Callable[..., Any], *args: object) -> Any:
        """Call a hook, which records only if the gradient is to have a graph."""
        before = thread.recording
        try:
            set_recording(self.create_graph or (self.on_tensors and before))
            if intercepted.threads and thread.capture is not None:
                thread.capture.root.read_function(hook)
            return call_user(hook, *args)
        finally:
            set_recording(before)

    def on_leaf(self, leaf: Leaf, grad: Tensor) -> Any:
        """The gradient of a leaf, as its hooks leave it."""
        tensor = self.tensor(grad)
        if intercepted.threads and thread.capture is not None:
            thread.capture.root.read_hooks(leaf)
        if leaf.hooks:
            for hook in list(leaf.hooks.values()):
                tensor = _replaced("register_hook", tensor, self._call(hook, tensor))
        return self.settled(tensor)

    def on_tensors_of(self, rule: Instrumented, grads_out: list[Any]) -> None:
        """Run the hooks on the tensors that a node made; what they return takes its place in the list."""
        for k, hooks in list(rule.tensor_hooks.items()):
            for hook in list(hooks.values()):
                if grads_out[k] is not None:
                    tensor = self.tensor(grads_out[k])
                    grads_out[k] = self._data(_replaced("register_hook", tensor, self._call(hook, tensor)))

    def before_node(self, rule: Instrumented, grads_out: list[Any]) -> list[Tensor]:
        """The gradients of a node's outputs, as its prehooks leave them."""
        for hook in list(rule.node_prehooks.values()):
            tensors = tuple(map(self.tensor, grads_out))
            changed = self._call(hook, tensors)
            grads_out = [self._data(t) for t in _all_replaced("register_prehook", tensors, changed)]
        return grads_out

    def after_node(self, rule: Instrumented, grads: Sequence[Any], grads_out: list[Any]) -> Sequence[Any]:
        """The gradients of a node's inputs, as its hooks leave them."""
        for hook in list(rule.node_hooks.values()):
            tensors = tuple(map(self.tensor, grads))
            changed = self._call(hook, tensors, tuple(map(self.tensor, grads_out)))
            grads = [self._data(t) for t in _all_replaced("register_hook", tensors, changed)]
        return grads

    def after_accumulation(self, leaves: Iterable[Leaf]) -> None:
        """Tell the tensors whose ``grad`` grew."""
        for leaf in leaves:
            for hook in list(leaf.post_hooks.values()) if leaf.post_hooks else ():
                if (tensor := leaf.owner()) is not None:
                    self._call(hook, tensor)


def _replaced(op: str, old: Tensor, new: Tensor) -> Any:
    """The gradient after a hook, which returned None to keep it, or a new one."""
    if new is None:
        return old
    if not isinstance(new, TensorLike):
        raise ArgumentError(op, f"the hook must return a tensor or None, got {type(new).__name__}")
    if type_of(new) != type_of(old):
        raise ShapeError(op, f"the hook must return a gradient of type {type_of(old)}, got {type_of(new)}")
    return new


def _all_replaced(op: str, old: tuple[Any, ...], new: object) -> list[Tensor | None]:
    """The gradients after a hook on a node, which returned None or one item for each."""
    if new is None:
        return list(old)
    if isinstance(new, TensorLike) and len(old) == 1:
        new = (new,)
    if not isinstance(new, tuple | list):
        raise ArgumentError(
            op, f"the hook must return a tuple of gradients or None, got {type(new).__name__}"
        )
    if len(new) != len(old):
        raise ArgumentError(op, f"the hook must return {len(old)} gradients, got {len(new)}")
    return [None if o is None else _replaced(op, o, n) for o, n in zip(old, new, strict=True)]

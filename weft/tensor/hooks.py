"""Hooks as the engine calls them: on tensors, on nodes, and after accumulation.

A hook sees the complete gradient as a tensor, once in each backward. What it returns replaces the gradient,
and must be of the same type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from weft.base.concrete import is_concrete
from weft.base.hooks import hooks
from weft.errors import ArgumentError, ShapeError
from weft.ops.op import Tensor, TensorLike, intercepted, type_of
from weft.tensor.choices import Truth
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
                thread.capture.root.ran_hooks = True
            return call_user(hook, *args)
        finally:
            set_recording(before)

    def on_leaf(self, leaf: Leaf, grad: Tensor, truth: Truth = True) -> Any:
        """The gradient of a leaf, as its hooks leave it where one comes."""
        tensor = self.tensor(grad)
        if intercepted.threads and thread.capture is not None:
            thread.capture.root.read_hooks(leaf)
        for hook in list(leaf.hooks.values()) if leaf.hooks else ():
            tensor = self._changed(hook, tensor, truth)
        return self.settled(tensor)

    def _changed(self, hook: Callable[..., Any], tensor: Tensor, truth: Truth) -> Tensor:
        """A gradient as a hook leaves it where one comes."""

        def run() -> object:
            return _replaced("register_hook", tensor, self._call(hook, tensor))

        found: Tensor = where(truth, run, lambda: tensor)
        return found

    def on_tensors_of(self, rule: Instrumented, grads_out: list[Any], truths: Sequence[Any]) -> None:
        """Run the hooks on the tensors that a node made; what they return takes its place in the list.

        Args:
            rule: of the node.
            grads_out: gradients of its outputs.
            truths: whether one comes to each output.
        """
        for k, on_output in list(rule.tensor_hooks.items()):
            for hook in list(on_output.values()):
                if grads_out[k] is not None:
                    grads_out[k] = self._data(self._changed(hook, self.tensor(grads_out[k]), truths[k]))

    def before_node(self, rule: Instrumented, grads_out: list[Any], truth: Truth) -> list[Tensor]:
        """The gradients of a node's outputs, as its prehooks leave them where some come."""
        for hook in list(rule.node_prehooks.values()):
            grads_out = self._all_changed("register_prehook", hook, grads_out, truth)
        return grads_out

    def after_node(
        self, rule: Instrumented, grads: Sequence[Any], grads_out: list[Any], truth: Truth
    ) -> Sequence[Any]:
        """The gradients of a node's inputs, as its hooks leave them where some come."""
        for hook in list(rule.node_hooks.values()):
            grads = self._all_changed("register_hook", hook, grads, truth, tuple(map(self.tensor, grads_out)))
        return grads

    def _all_changed(
        self, op: str, hook: Callable[..., Any], grads: Sequence[Any], truth: Truth, *more: Any
    ) -> list[Any]:
        """Gradients as a hook on a node leaves them where some come."""
        tensors = tuple(map(self.tensor, grads))

        def run() -> tuple[Any, ...]:
            return tuple(_all_replaced(op, tensors, self._call(hook, tensors, *more)))

        return [self._data(t) for t in where(truth, run, lambda: tensors)]

    def after_accumulation(self, leaves: Mapping[Leaf, Any]) -> None:
        """Tell the tensors whose ``grad`` grew, each where a truth value holds."""
        for leaf, truth in leaves.items():
            for hook in list(leaf.post_hooks.values()) if leaf.post_hooks else ():
                if (tensor := leaf.owner()) is not None:
                    where(truth, partial(self._after, hook, tensor, truth), lambda: None)

    def _after(self, hook: Callable[..., Any], tensor: Tensor, truth: Truth) -> None:
        if truth is not True:
            thread.capture.settle_presence(tensor)
        self._call(hook, tensor)


def where(truth: Truth, action: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """What an action gives where a gradient comes, which a truth value of the run may tell, else another."""
    if truth is True:
        return action()
    return otherwise() if truth is False else hooks.run_where(truth, action, otherwise)


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

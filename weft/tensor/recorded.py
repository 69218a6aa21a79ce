"""The side of a tensor that faces the graph: requires_grad, its gradient, hooks, backward, in-place changes.

A tensor is a value with a place in a graph. An in-place change (``x += y``, ``x[i] = v``) gives it another
value and another place; what the graph saved of the old value stays as it was.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from weft.base.concrete import CONCRETE, is_concrete
from weft.base.dtypes import kind
from weft.base.parts import Parts, placed_like
from weft.base.public import public
from weft.errors import ArgumentError, DeviceError, DtypeError, GradientError, ShapeError
from weft.ops.op import Tensor, TensorLike, intercepted, type_of
from weft.tensor.accumulate import gradient_of, set_gradient
from weft.tensor.alias import base_of, change, check_ways_up, detached, take_over
from weft.tensor.autograd import no_graph, seed_gradient, start_backward
from weft.tensor.dispatch import recording, stage, wrap
from weft.tensor.mode import thread
from weft.tensor.moving import move
from weft.tensor.node import HookHandle, Instrumented, Leaf, Node, Output, add_hook

ndarray = np.ndarray


class Recorded(TensorLike):
    """Data with a place in the dynamic graph."""

    __slots__ = ("__weakref__", "_data", "_form", "_grad", "_link", "_node", "_views")

    _data: Any
    _node: Any
    _form: Any  # shape and dtype of a plain array as one object, see weft.tensor.form; None if not known
    _grad: Any  # unset until there is a gradient, so that making a tensor costs nothing for it
    _link: Any  # of a view: its parent, the step and its arguments, see weft.ops.alias; else unset
    _views: Any  # weak references to the views that were taken from it; unset before the first

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to or through this tensor."""
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @public
    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Ask for gradients of this leaf, or stop asking; returns the tensor itself.

        >>> import weft
        >>> weft.ones(2).requires_grad_().requires_grad
        True
        """
        if bool(requires_grad) is self.requires_grad:
            return self
        if not requires_grad:
            if not self.is_leaf:
                raise GradientError(
                    "requires_grad_",
                    "the tensor must be a leaf, got the result of an op",
                    hint="use .detach()",
                )
            self._before_leaf_write()
            self._node = None
        elif kind(self._data.dtype) not in "fc":
            raise DtypeError(
                "requires_grad_",
                f"dtype must be floating or complex to have a gradient, got {self._data.dtype.name}",
                hint="cast with .astype(weft.float32) first",
            )
        else:
            self._before_leaf_write()
            self._node = leaf = Leaf(self)
            if intercepted.threads and thread.capture is not None:
                thread.capture.note_leaf(leaf)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether the user made this tensor, rather than an op that records."""
        return self._node is None or type(self._node) is Leaf

    @property
    def grad_fn(self) -> Node | None:
        """The node of the dynamic graph that made this tensor; None for a leaf."""
        node = self._node
        if type(node) is Output:
            return node.node
        return node if type(node) is Node else None

    @property
    def output_nr(self) -> int:
        """Which output of ``grad_fn`` this tensor is."""
        return self._node.index if type(self._node) is Output else 0

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward left here: of a leaf, or of a tensor with ``retain_grad()``; else None.

        Backward adds to it by setting a new tensor, so a gradient that was read before does not change.
        """
        gradient: Tensor | None = gradient_of(self)
        return gradient

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, TensorLike):
                raise ArgumentError("grad", f"must be a tensor or None, got {type(value).__name__}")
            if kind(self._data.dtype) not in "fc":
                raise DtypeError("grad", f"dtype must be floating or complex, got {self._data.dtype.name}")
            if type_of(value) != type_of(self):
                raise ShapeError("grad", f"must be of type {type_of(self)}, got {type_of(value)}")
            place: Any = self
            known = is_concrete(self._data) and is_concrete(getattr(value, "_data", None))
            if known and value.device != place.device:  # what a graph gives is where it runs
                raise DeviceError("grad", f"must be on {place.device}, as the tensor is, got {value.device}")
            if value is self:
                raise GradientError("grad", "a tensor must not be its own gradient")
        set_gradient(self, value)

    @grad.deleter
    def grad(self) -> None:
        set_gradient(self, None)

    @public
    def zero_grad(self) -> None:
        """Forget the gradient, so that the next backward starts from none.

        >>> import weft
        >>> x = weft.tensor(3.0, requires_grad=True)
        >>> (x * x).backward()
        >>> x.zero_grad()
        >>> print(x.grad)
        None
        """
        set_gradient(self, None)

    @property
    def retains_grad(self) -> bool:
        """Whether this is not a leaf and keeps its gradient."""
        node = self.grad_fn
        if node is None or type(node.rule) is not Instrumented:
            return False
        owner = node.rule.retaining.get(self.output_nr)
        return owner is not None and owner() is self

    @public
    def retain_grad(self) -> None:
        """Keep the gradient of this tensor, though it is not a leaf.

        >>> import weft
        >>> x = weft.tensor(3.0, requires_grad=True)
        >>> y = x * x
        >>> y.retain_grad()
        >>> (y * 2.0).backward()
        >>> y.grad
        tensor(2.)
        """
        if self._node is None:
            raise GradientError("retain_grad", "the tensor must require grad, got one that does not")
        node = self.grad_fn
        if node is not None and intercepted.threads and thread.capture is not None:
            thread.capture.root.before_retaining(self)
        if node is not None:
            node.instrument().retaining[self.output_nr] = weakref.ref(self)

    @public
    def register_hook(self, hook: Callable[[Any], Any]) -> HookHandle:
        """Call ``hook(gradient)`` when the gradient of this tensor is complete; what it returns replaces it.

        >>> import weft
        >>> x = weft.tensor(3.0, requires_grad=True)
        >>> handle = x.register_hook(lambda g: g * 10)
        >>> (x * x).backward()
        >>> x.grad
        tensor(60.)
        """
        node = self._node
        if node is None:
            raise GradientError("register_hook", "the tensor must require grad, got one that does not")
        if type(node) is Leaf:
            return add_hook(node, node.hooks, hook)
        made: Any = self.grad_fn
        return add_hook(made, made.instrument().tensor_hooks.setdefault(self.output_nr, {}), hook)

    @public
    def register_post_accumulate_grad_hook(self, hook: Callable[[Any], None]) -> HookHandle:
        """Call ``hook(tensor)`` after backward added to this leaf's ``grad``."""
        node = self._node
        if type(node) is not Leaf:
            raise GradientError(
                "register_post_accumulate_grad_hook",
                "the tensor must be a leaf that requires grad, got one that is not",
            )
        return add_hook(node, node.post_hooks, hook)

    @public
    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: object = None,
    ) -> None:
        """Compute gradients of this tensor and add them to the ``grad`` of the leaves.

        Args:
            gradient: of some result by this tensor; may be left out for a tensor of one element.
            retain_graph: keep what the graph saved, so that backward can run again; by default only
                if ``create_graph``.
            create_graph: record the backward too, so that gradients can be differentiated.
            inputs: add to the ``grad`` of these tensors only.

        >>> import weft
        >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([2., 4.])
        """
        if self._node is None:
            raise no_graph("backward")
        roots = [(self._node, seed_gradient("backward", self, gradient))]
        start_backward(roots, retain_graph, create_graph, inputs)

    @public
    def detach(self) -> Self:
        """The same elements, cut from the graph, and constant to every transform around.

        A change of either tensor in place shows in the other.

        >>> import weft
        >>> x = weft.tensor(3.0, requires_grad=True)
        >>> (x * x.detach()).backward()
        >>> x.grad
        tensor(3.)
        """
        if intercepted.threads:
            stage(self)
        out: Self = detached(self)  # type: ignore[assignment, arg-type]
        return out

    def _value(self) -> Self:
        """The values as they are now, cut from the graph: later changes of this tensor do not reach them."""
        if intercepted.threads:
            stage(self)
        data = self._data
        out: Self = wrap(data if is_concrete(data) else data.detached())  # type: ignore[assignment]
        return out

    @property
    def is_view(self) -> bool:
        """Whether this tensor shows elements of another one, so that a change of either shows in the other.

        >>> import weft
        >>> x = weft.zeros(3)
        >>> x[1:].is_view, (x + 1).is_view
        (True, False)
        """
        return base_of(self) is not None  # type: ignore[arg-type]

    def _is_view(self) -> bool:
        """``is_view`` as PyTorch spells it."""
        return self.is_view

    @property
    def _base(self) -> Tensor | None:
        """The tensor whose elements this view shows; None of a tensor that is no view."""
        base: Tensor | None = base_of(self)  # type: ignore[arg-type]
        return base

    @public
    def detach_(self) -> Self:
        """Cut this tensor itself from the graph; returns it."""
        cut = self._value()._data
        (self._before_leaf_write if type(self._node) is Leaf else self._before_write)()
        self._data, self._node, self._form = cut, None, None
        return self

    @property
    def data(self) -> Self:
        """The same elements, cut from the graph; assigning lets this tensor show those of another one."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, TensorLike):
            raise ArgumentError("data", f"must be a tensor, got {type(value).__name__}")
        if type_of(value) != type_of(self):
            raise ShapeError("data", f"must be a tensor of type {type_of(self)}, got {type_of(value)}")
        if intercepted.threads:
            stage(value)
            stage(self)
        if value is not self:
            take_over(self, value)  # type: ignore[arg-type]

    def _before_write(self) -> None:
        """Tell a capture of this thread that the value is about to change."""
        if intercepted.threads and stage(self):
            thread.capture.before_data_write(self)

    def _before_leaf_write(self) -> None:
        """Tell a capture of this thread that this becomes a leaf that gradients are asked for, or none."""
        if intercepted.threads and stage(self):
            thread.capture.before_leaf_write(self)

    def _rebind(self, op: str, value: Any) -> Self:
        """Make this tensor the result of a change, as ``x += y`` and ``x[i] = v`` do; its views see it."""
        if type(self._node) is Leaf:
            self._check_changeable(op)
        if intercepted.threads:
            stage(value)
        if hasattr(self, "_link") or hasattr(self, "_views"):
            check_ways_up(self, op, value)  # type: ignore[arg-type]
            change(self, value, history=recording())  # type: ignore[arg-type]
        else:
            self._assign(value, history=recording())
        return self

    def _set(self, value: Any) -> None:
        """Give this tensor other values in place, which its views see; its place in the graph stays."""
        value = self._beside(value)
        if hasattr(self, "_link") or hasattr(self, "_views"):
            change(self, value)  # type: ignore[arg-type]
        else:
            self._assign(value, history=False)

    def _beside(self, value: Any) -> Any:
        """A value that this tensor is to take on, where this tensor is: a change does not move it."""
        if intercepted.threads:
            stage(value)
        if len(CONCRETE) > 1 and is_concrete(self._data) and is_concrete(value._data):
            value = move(value, self.device)  # type: ignore[attr-defined]
        return value

    def _assign(self, value: Any, *, history: bool) -> None:
        """Take on the data of a tensor, and with ``history`` its place in the graph, too."""
        self._before_write()
        if not history or type(self._node) is Leaf:
            data, form = self._kept_place(value), value._form
            self._data, self._form = data, form if type(data) is not Parts else None
            return
        if intercepted.threads and thread.capture is not None:
            thread.capture.root.took_graphs.add(id(self))
        retains = self.retains_grad
        if retains:
            self.grad_fn.rule.retaining.pop(self.output_nr)  # type: ignore[union-attr]
        self._data, self._node, self._form = value._data, value._node, value._form
        if retains and self._node is not None:
            self.retain_grad()

    def _kept_place(self, value: Any) -> Any:
        """The data of a value that this tensor takes on without its place in the graph."""
        capture = thread.capture if intercepted.threads else None
        if capture is not None:
            return capture.held_by(self, value)
        data = value._data
        return placed_like(data, self._data) if len(CONCRETE) > 1 and is_concrete(data) else data

    def _check_changeable(self, op: str) -> None:
        """Raise if this is a leaf whose gradient an in-place change would make meaningless."""
        if type(self._node) is Leaf and thread.recording:
            raise GradientError(
                op,
                "a leaf that requires grad must not be changed in place while recording",
                hint="change it under weft.no_grad(), or use the result of an op",
            )

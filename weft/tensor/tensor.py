"""The Tensor: what users hold.

Its data is a concrete array, or something that stands for one (a value of a graph being captured, a
dual number, a batch); the methods here do not care which. Operators and methods that are ops are
attached in ``weft.tensor.methods``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.base.device import CPU, Device, as_device
from weft.base.dtypes import as_dtype, kind
from weft.errors import ArgumentError, DtypeError, GradientError, ShapeError
from weft.ops.op import TensorLike, type_of
from weft.tensor import dispatch
from weft.tensor.engine import run_backward
from weft.tensor.mode import thread
from weft.tensor.node import HookHandle, Leaf, Node, Output, add_hook

ndarray = np.ndarray


class Tensor(TensorLike):
    """An array of numbers that knows how it was computed.

    >>> import weft
    >>> w = weft.tensor([1.0], requires_grad=True)
    >>> x = weft.tensor([2.0], requires_grad=True)
    >>> y = (x + w) * (w + 1)
    >>> y.backward()
    >>> w.grad
    tensor([5.])
    """

    __slots__ = ("__weakref__", "_data", "_node")

    _data: Any
    _node: Any

    def __init__(self, *_: object, **__: object) -> None:
        raise ArgumentError("Tensor", "tensors are not made by calling the class", hint="use weft.tensor(...)")

    # What a tensor is

    @property
    def shape(self) -> tuple[int, ...]:
        """The size along each axis."""
        shape: tuple[int, ...] = self._data.shape
        return shape

    @property
    def dtype(self) -> Any:
        """The dtype, such as ``weft.float32``."""
        return self._data.dtype

    @property
    def ndim(self) -> int:
        """The rank: the number of axes."""
        return len(self._data.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        size: int = self._data.size
        return size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        itemsize: int = self._data.dtype.itemsize
        return itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def device(self) -> Device:
        """Where the data lives."""
        return CPU

    def numel(self) -> int:
        """The number of elements."""
        return self.size

    def dim(self) -> int:
        """The rank: the number of axes."""
        return self.ndim

    # Gradient state

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to or through this tensor."""
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for gradients of this leaf, or stop asking; returns the tensor itself."""
        if bool(requires_grad) is self.requires_grad:
            return self
        if not requires_grad:
            if not self.is_leaf:
                raise GradientError(
                    "requires_grad_", "the tensor must be a leaf, got the result of an op", hint="use .detach()"
                )
            self._node = None
        elif kind(self.dtype) not in "fc":
            raise DtypeError(
                "requires_grad_",
                f"dtype must be floating or complex to have a gradient, got {self.dtype.name}",
                hint="cast with .astype(weft.float32) first",
            )
        else:
            self._node = Leaf(self)
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
        """The gradient that backward left here: of a leaf, or of a tensor with ``retain_grad()``."""
        node = self._node
        if type(node) is Leaf:
            grad: Tensor | None = node.grad
            return grad
        if node is None:
            return None
        return getattr(self.grad_fn.rule, "retained", {}).get(self.output_nr)  # type: ignore[union-attr]

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        node = self._node
        if type(node) is not Leaf:
            if value is None and node is None:
                return
            raise GradientError("grad", "only a leaf that requires grad has a gradient to set")
        if value is not None:
            if not isinstance(value, Tensor):
                raise ArgumentError("grad", f"must be a tensor or None, got {type(value).__name__}")
            if value.shape != self.shape or value.dtype != self.dtype:
                raise ShapeError("grad", f"must be of type {type_of(self)}, got {type_of(value)}")
        node.grad = value

    @property
    def retains_grad(self) -> bool:
        """Whether this is not a leaf and keeps its gradient."""
        return not self.is_leaf and self.output_nr in getattr(self.grad_fn.rule, "retained", {})  # type: ignore[union-attr]

    def retain_grad(self) -> None:
        """Keep the gradient of this tensor, though it is not a leaf."""
        if self._node is None:
            raise GradientError("retain_grad", "the tensor must require grad, got one that does not")
        if not self.is_leaf:
            self.grad_fn.instrument().retained.setdefault(self.output_nr, None)  # type: ignore[union-attr]

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
        """Call ``hook(gradient)`` when this tensor's gradient is known; what it returns replaces the gradient.

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
            node.hooks = {} if node.hooks is None else node.hooks
            return add_hook(node.hooks, hook)
        hooks = self.grad_fn.instrument().tensor_hooks  # type: ignore[union-attr]
        return add_hook(hooks.setdefault(self.output_nr, {}), hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> HookHandle:
        """Call ``hook(tensor)`` after backward added to this leaf's ``grad``."""
        node = self._node
        if type(node) is not Leaf:
            raise GradientError("register_post_accumulate_grad_hook", "the tensor must be a leaf that requires grad")
        node.post_hooks = {} if node.post_hooks is None else node.post_hooks
        return add_hook(node.post_hooks, hook)

    def backward(
        self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False
    ) -> None:
        """Compute gradients of this tensor and add them to the ``grad`` of the leaves.

        Args:
            gradient: of some result by this tensor; may be left out for a tensor of one element.
            retain_graph: keep what the graph saved, so that backward can run again.
            create_graph: record the backward too, so that gradients can be differentiated.
        """
        if self._node is None:
            raise GradientError(
                "backward",
                "the tensor must have a graph, got one that does not require grad",
                hint="make a leaf with requires_grad=True, and mind no_grad() and detach()",
            )
        run_backward(
            [(self._node, seed_gradient("backward", self, gradient))],
            retain_graph=create_graph if retain_graph is None else retain_graph,
            create_graph=create_graph,
        )

    def detach(self) -> Tensor:
        """The same values, cut from the graph."""
        return wrap(self._data)

    @property
    def data(self) -> Tensor:
        """The same values, cut from the graph; assigning replaces the values of this tensor."""
        return wrap(self._data)

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor) or type_of(value) != type_of(self):
            got = type_of(value) if isinstance(value, Tensor) else type(value).__name__
            raise ShapeError("data", f"must be a tensor of type {type_of(self)}, got {got}")
        self._data = value._data

    # To Python

    def _array(self, op: str) -> Any:
        """The concrete array, or an error if there is none while a transform or capture runs."""
        data = self._data
        if type(data) is not ndarray:
            raise GradientError(
                op,
                f"needs a concrete tensor, got one inside {data.place}",
                hint="use tensor operations, such as weft.where, instead of Python values",
            )
        return data

    def item(self) -> Any:
        """The one element as a Python number."""
        array = self._array("item")
        if array.size != 1:
            raise ShapeError("item", f"the tensor must have one element, got {type_of(self)}")
        value = array.item()
        return float(value) if type(value).__name__ == "bfloat16" else value

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        array = self._array("tolist")
        return array.astype(np.float32).tolist() if array.dtype.kind == "V" else array.tolist()

    def numpy(self) -> Any:
        """The data as a read-only NumPy array that shares memory with the tensor."""
        if self._node is not None and thread.recording:
            raise GradientError(
                "numpy", "the tensor must not require grad, got one that does", hint="use .detach().numpy()"
            )
        view = self._array("numpy").view()
        view.flags.writeable = False
        return view

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError("a copy is needed to change the dtype")
            return array.astype(dtype)
        return array.copy() if copy else array

    def _scalar(self, op: str) -> Any:
        array = self._array(op)
        if array.ndim != 0 and array.size != 1:
            raise ShapeError(op, f"the tensor must have one element, got {type_of(self)}")
        return array.reshape(())[()]

    def __bool__(self) -> bool:
        if self._data.size != 1:
            raise ShapeError(
                "bool",
                f"the truth of a tensor needs one element, got {type_of(self)}",
                hint="use weft.any(x) or weft.all(x)",
            )
        return bool(self._scalar("bool"))

    def __int__(self) -> int:
        return int(self._python_real("int"))

    def __float__(self) -> float:
        return float(self._python_real("float"))

    def _python_real(self, op: str) -> Any:
        if kind(self.dtype) == "c":
            raise DtypeError(op, f"dtype must be real, got {self.dtype.name}", hint="use .real")
        return self._scalar(op)

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __index__(self) -> int:
        if kind(self.dtype) not in "iu" or self.ndim != 0:
            raise DtypeError("index", f"must be a 0-d integer tensor, got {type_of(self)}")
        return int(self._scalar("index"))

    def __len__(self) -> int:
        if self.ndim == 0:
            raise ArgumentError("len", "a 0-d tensor has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if self.ndim == 0:
            raise ArgumentError("iter", "a 0-d tensor cannot be iterated over")
        return (self[i] for i in range(self.shape[0]))

    def __hash__(self) -> int:
        return id(self)

    def __format__(self, spec: str) -> str:
        if self.ndim == 0 and type(self._data) is ndarray:
            return format(self.item(), spec)
        if spec:
            raise ArgumentError("format", f"a format applies to a 0-d tensor, got {type_of(self)}")
        return str(self)

    def __repr__(self) -> str:
        from weft.tensor.printing import format_tensor

        return format_tensor(self)

    # Copies and changes

    def clone(self) -> Tensor:
        """A copy that the graph knows of: gradients flow through it."""
        return self.astype(self.dtype, copy=True)  # type: ignore[attr-defined,no-any-return]

    def __copy__(self) -> Tensor:
        return wrap(self._data, self._node)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise GradientError(
                "deepcopy", "the tensor must be a leaf, got the result of an op", hint="use .detach() or .clone()"
            )
        out = wrap(self._array("deepcopy").copy())
        memo[id(self)] = out
        return out.requires_grad_(self.requires_grad)

    def __reduce__(self) -> Any:
        if not self.is_leaf:
            raise GradientError("pickle", "the tensor must be a leaf, got the result of an op", hint="use .detach()")
        return _rebuild, (self._array("pickle"), self.requires_grad)

    def to(self, *target: Any, device: Any = None, dtype: Any = None, copy: bool = False) -> Tensor:
        """The tensor on another device or with another dtype: ``x.to("cpu")``, ``x.to(weft.float64)``."""
        for t in target:
            if isinstance(t, Device) or (isinstance(t, str) and t.partition(":")[0] in ("cpu", "cuda")):
                device = t
            else:
                dtype = t
        if device is not None:
            as_device(device)
        if dtype is None and not copy:
            return self
        return self.astype(self.dtype if dtype is None else as_dtype(dtype), copy=copy)  # type: ignore[attr-defined,no-any-return]

    def _rebind(self, op: str, value: Tensor) -> Tensor:
        """Make this tensor the result of a change, as ``x += y`` and ``x[i] = v`` do."""
        if type(self._node) is Leaf:
            if thread.recording:
                raise GradientError(
                    op,
                    "a leaf that requires grad must not be changed in place while recording",
                    hint="change it under weft.no_grad(), or use the result of an op",
                )
            self._data = value._data
            return self
        self._data, self._node = value._data, value._node
        return self

    def _is_unshared(self) -> bool:
        """Whether this tensor is the only holder of its array, so that it may be written in place."""
        return sys.getrefcount(self._data) <= UNSHARED_COUNT and self._data.base is None


wrap = dispatch.wrap
dispatch.TENSOR = Tensor


def _rebuild(array: Any, requires_grad: bool) -> Tensor:
    tensor: Tensor = wrap(array)
    return tensor.requires_grad_(requires_grad)


def seed_gradient(op: str, output: Tensor, gradient: Any) -> Tensor:
    """The gradient that backward starts from, checked against its output."""
    if gradient is None:
        if output.size != 1:
            raise GradientError(
                op,
                f"a gradient must be given for a tensor of more than one element, got {type_of(output)}",
                hint="reduce it first (y.sum().backward()), or pass gradient=",
            )
        if kind(output.dtype) == "c":
            raise GradientError(op, "a gradient must be given for a complex tensor", hint="pass gradient=")
        return wrap(np.ones(output.shape, output.dtype))  # type: ignore[no-any-return]
    if not isinstance(gradient, Tensor):
        gradient = wrap(np.asarray(gradient, output.dtype))
    if gradient.shape != output.shape:
        raise ShapeError(op, f"the gradient must be of type {type_of(output)}, got {type_of(gradient)}")
    if gradient.dtype != output.dtype:
        gradient = gradient.astype(output.dtype)
    return gradient  # type: ignore[no-any-return]


def _unshared_count() -> int:
    """What getrefcount says of an array that one tensor holds; it differs between Python versions."""
    probe = wrap(np.empty(1))
    return sys.getrefcount(probe._data)


UNSHARED_COUNT = _unshared_count()

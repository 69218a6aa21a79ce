"""The Tensor: what users hold.

Its data is a concrete array, or something that stands for one (a value of a graph being captured, a
dual number, a batch); the methods here do not care which. Its place in the dynamic graph is in
``weft.tensor.recorded``; operators and methods that are ops are attached in ``operators`` and ``methods``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.concrete import is_concrete, is_on_device
from weft.base.counted import COUNTS, counted
from weft.base.device import CPU, Device, DeviceLike, as_device
from weft.base.dtypes import DType, DTypeLike, as_dtype, kind
from weft.base.hooks import hooks
from weft.base.parts import Parts
from weft.base.public import public
from weft.errors import ArgumentError, DeviceError, DtypeError, GradientError, GraphError, ShapeError
from weft.ops.op import Array, intercepted, type_of
from weft.tensor import dispatch
from weft.tensor.autograd import seed_gradient as seed_gradient
from weft.tensor.interface import Attached
from weft.tensor.mode import thread
from weft.tensor.moving import move
from weft.tensor.node import Leaf
from weft.tensor.recorded import Recorded

if TYPE_CHECKING:
    from weft.tensor.at import At

ndarray = np.ndarray


class _NotCalled(type):
    """Lets only subclasses be called; the hot path allocates tensors and fills the slots itself."""

    def __call__(cls, *args: object, **kwargs: object) -> Any:
        if cls is Tensor:
            hint = "use weft.tensor(...)"
            raise ArgumentError("Tensor", "tensors are not made by calling the class", hint=hint)
        return super().__call__(*args, **kwargs)


class Tensor(Recorded, Attached, metaclass=_NotCalled):
    """An array of numbers that knows how it was computed.

    >>> import weft
    >>> w = weft.tensor([1.0], requires_grad=True)
    >>> x = weft.tensor([2.0], requires_grad=True)
    >>> y = (x + w) * (w + 1)
    >>> y.backward()
    >>> w.grad
    tensor([5.])
    """

    __slots__ = ()

    # What a tensor is

    @property
    def shape(self) -> tuple[int, ...]:
        """The size along each axis."""
        shape: tuple[int, ...] = self._data.shape
        return shape

    @property
    def dtype(self) -> DType:
        """The dtype, such as ``weft.float32``."""
        dtype: DType = self._data.dtype
        return dtype

    @property
    def ndim(self) -> int:
        """The rank: the number of axes."""
        return len(self._data.shape)

    @property
    def size(self) -> int:
        """The number of elements; called, the shape or a size of it: ``x.size()``, ``x.size(0)``."""
        shape = self._data.shape
        size: int = COUNTS.get(shape)  # type: ignore[assignment]
        return counted(self._data.size, shape) if size is None else size

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
        data = self._data
        return CPU if type(data) is ndarray else getattr(data, "device", CPU)

    @property
    def is_cuda(self) -> bool:
        """Whether the data lives on a GPU."""
        return self.device != CPU

    @property
    def at(self) -> At:
        """Places to change in a copy, as JAX writes it: ``x.at[i].set(v)``, ``.add``, ``.max``, ...

        >>> import weft
        >>> weft.zeros(3).at[1].set(5.0)
        tensor([0., 5., 0.])
        """
        from weft.tensor.at import At  # which builds on this module

        return At(self)

    @property
    def name(self) -> str:
        """What a tensor of a graph is called there, "" without a name; it can be set in the graph's block."""
        name: str = getattr(self._data, "name", "")
        return name

    @name.setter
    def name(self, name: str) -> None:
        if intercepted.threads:
            dispatch.stage(self)
        if not hasattr(self._data, "rename"):
            raise GraphError("name", "must be set in the block of a graph, got a tensor that is in none")
        self._data.rename(name)

    @public
    def numel(self) -> int:
        """The number of elements."""
        return self.size

    @public
    def dim(self) -> int:
        """The rank: the number of axes."""
        return self.ndim

    # To Python

    def _array(self, op: str) -> Array:
        """The concrete array, or an error if there is none while a transform or capture runs."""
        if intercepted.threads:
            dispatch.stage(self)  # a value that is read in a capture is guarded there
        data = self._data
        if type(data) is ndarray:
            return data
        array: Array = data.to_host() if is_concrete(data) else data.concrete(op)
        return array

    @public
    def full(self) -> Tensor:
        """The whole of a tensor of which each rank of a mesh holds a part, for all of them; else itself.

        All ranks ask for it together: see ``weft.parallel.place``.

        >>> import weft
        >>> from weft import parallel as par
        >>> def program():
        ...     x = par.place(weft.arange(4), par.P("data"), par.mesh(data=2))
        ...     return x, x.full()
        >>> par.simulate(program, 2)[0]
        (tensor(<i64[4@data] on mesh(data=2)>), tensor([0, 1, 2, 3]))
        """
        return self if type(self._data) is not Parts else wrap(hooks.whole_array(self._data))

    @public
    def item(self) -> Any:
        """The one element as a Python number."""
        array = self._array("item")
        if array.size != 1:
            raise ShapeError("item", f"the tensor must have one element, got {type_of(self)}")
        value = array.item()
        return float(value) if type(value).__name__ == "bfloat16" else value

    @public
    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        array = self._array("tolist")
        return array.astype(np.float32).tolist() if array.dtype.kind == "V" else array.tolist()

    @public
    def numpy(self, *, force: bool = False) -> Array:
        """The data as a read-only NumPy array that shares memory with the tensor.

        With ``force`` a tensor of a graph or of a device is detached and copied first.
        """
        if force:
            return self.detach().to("cpu").numpy()
        if is_on_device(self._data):
            raise DeviceError(
                "numpy",
                f"the tensor must be on the cpu, got one on {self.device}",
                hint="use x.cpu().numpy()",
            )
        if self._node is not None and thread.recording:
            raise GradientError(
                "numpy", "the tensor must not require grad, got one that does", hint="use .detach().numpy()"
            )
        view = self._array("numpy").view()
        view.flags.writeable = False
        return view

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
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

    def __divmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return self // other, self % other

    def __round__(self, ndigits: int = 0) -> Tensor:
        rounded: Tensor = self.round(decimals=ndigits)
        return rounded

    def __contains__(self, value: object) -> bool:
        equal: Any = self == value
        return bool(equal.any())

    def __hash__(self) -> int:
        if intercepted.threads and thread.capture is not None and dispatch.IDENTIFY is not None:
            dispatch.IDENTIFY(self)  # it is looked up in a dict or set
        return id(self)

    def __format__(self, spec: str) -> str:
        if intercepted.threads and thread.capture is not None and dispatch.FORMAT is not None:
            return dispatch.FORMAT(self, spec)  # type: ignore[no-any-return]
        if self.ndim == 0 and is_concrete(self._data):
            return format(self.item(), spec)
        if spec:
            raise ArgumentError("format", f"a format applies to a 0-d tensor, got {type_of(self)}")
        return str(self)

    def __repr__(self) -> str:
        if intercepted.threads and thread.capture is not None and dispatch.FORMAT is not None:
            return dispatch.FORMAT(self, None)  # type: ignore[no-any-return]
        from weft.tensor.printing import format_tensor

        return format_tensor(self)

    # Copies and changes

    @public
    def clone(self) -> Tensor:
        """A copy that the graph knows of: gradients flow through it."""
        return self.astype(self.dtype, copy=True)

    @public
    def copy(self) -> Tensor:
        """A copy, as NumPy spells it; ``clone`` is the same."""
        return self.clone()

    def __copy__(self) -> Tensor:
        if type(self._node) is Leaf:
            return self.detach().requires_grad_()
        if intercepted.threads:
            dispatch.stage(self)
        return wrap(self._data, self._node)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise GradientError(
                "deepcopy",
                "the tensor must be a leaf, got the result of an op",
                hint="use .detach() or .clone()",
            )
        out: Tensor
        if intercepted.threads and dispatch.stage(self):
            out = self.detach().clone()
        else:
            data: Any = self._data if is_concrete(self._data) else self._array("deepcopy")
            out = wrap(data.copy())
        memo[id(self)] = out
        if self.grad is not None:
            out.grad = self.grad.detach().__deepcopy__(memo)
        return out.requires_grad_(self.requires_grad)

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.is_leaf:
            raise GradientError(
                "pickle", "the tensor must be a leaf, got the result of an op", hint="use .detach()"
            )
        device = self.device
        place = () if device is CPU else (str(device),)
        return _rebuild, (self._array("pickle"), self.requires_grad, *place)

    @public
    def to(
        self,
        *target: Any,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        copy: bool = False,
        non_blocking: bool = False,
    ) -> Tensor:
        """The tensor on another device or with another dtype: ``x.to("cpu")``, ``x.to(weft.float64)``.

        ``x.to(y)`` takes both from another tensor. ``non_blocking`` is always so where it is possible.

        A tensor that is there already is given back as it is; gradients flow back to where it was.
        """
        for t in target:
            if isinstance(t, Device) or (isinstance(t, str) and t.partition(":")[0] in ("cpu", "cuda")):
                device = t
            elif isinstance(t, Tensor):
                device, dtype = t.device, t.dtype
            else:
                dtype = t
        moved: Tensor = self if device is None else move(self, as_device(device))
        if dtype is None and (not copy or moved is not self):
            return moved
        return moved.astype(self.dtype if dtype is None else as_dtype(dtype), copy=copy and moved is self)

    def _is_unshared(self) -> bool:
        """Whether this tensor is the only holder of its array, so that it may be written in place."""
        return sys.getrefcount(self._data) <= UNSHARED_COUNT and self._data.base is None


def tensor_text(array: Array, device: str, note: str) -> str:
    """An array as a tensor of a device prints, with a note."""
    from weft.tensor.printing import device_note, format_array

    return format_array(array, (device_note(device),), (note,))


wrap = dispatch.wrap
dispatch.TENSOR = Tensor


def _rebuild(array: Array, requires_grad: bool, device: str = "cpu") -> Tensor:
    tensor: Tensor = wrap(array.view(as_dtype(array.dtype)))  # unpickling makes a dtype object of its own
    return move(tensor, as_device(device)).requires_grad_(requires_grad)


def _unshared_count() -> int:
    """What getrefcount says of an array that one tensor holds; it differs between Python versions."""
    probe = wrap(np.empty(1))
    return sys.getrefcount(probe._data)


UNSHARED_COUNT = _unshared_count()

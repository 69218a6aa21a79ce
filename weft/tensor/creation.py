"""Functions that make tensors from data and by filling; those that count are in ``weft.tensor.ranges``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.concrete import CONCRETE
from weft.base.device import BLOCKS, CPU, Device, DeviceLike, as_device
from weft.base.dtypes import DType, DTypeLike, as_dtype, default_float
from weft.base.hooks import hooks
from weft.base.parts import Parts
from weft.base.public import public
from weft.base.shapes import Shape, ShapeLike, normalize_shape
from weft.base.sizes import is_known
from weft.errors import ArgumentError, DomainError, ShapeError, WeftError
from weft.ops.op import Array, Number, Operand, intercepted, type_of
from weft.ops.select import cast
from weft.ops.size import filled
from weft.ops.view.primitives import broadcast_to, stack
from weft.tensor.casts import astype
from weft.tensor.convert import (
    fill_array,
    from_ndarray,
    from_python,
    infer_dtype,
    leaf_types,
    number,
    number_dtype,
)
from weft.tensor.interop import from_dlpack
from weft.tensor.mode import thread
from weft.tensor.moving import move, moved, moved_like
from weft.tensor.tensor import Tensor, wrap


def leaf(array: Array, requires_grad: bool = False) -> Tensor:
    """A tensor of an array, made by no op."""
    out: Tensor = wrap(array)
    if intercepted.threads and thread.capture is not None:
        out._data = thread.capture.constant(array)  # made in a capture: its value cannot change
    return out.requires_grad_(True) if requires_grad else out


# From data


@public
def tensor(
    data: object,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A new tensor, a leaf, with a copy of numbers, nested lists, arrays or tensors.

    Python floats take the default dtype, float32; arrays and tensors keep theirs.

    >>> import weft
    >>> weft.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    >>> weft.tensor([1.0, 2.0], requires_grad=True)
    tensor([1., 2.], requires_grad=True)
    """
    out: Tensor = _convert("tensor", data, dtype, device, True)
    return out._value().requires_grad_(requires_grad)


@public
def asarray(
    obj: object,
    /,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    copy: bool | None = None,
) -> Tensor:
    """A tensor of data; a tensor is returned as it is, and tensors in lists keep their gradients.

    Args:
        obj: numbers, nested lists, tensors, NumPy arrays, objects with DLPack or the buffer protocol.
        dtype: of the result; by default it follows the data.
        device: where the data lives.
        copy: False shares the memory of an array, so that changes of the array show in the tensor, or is
            an error where that cannot be; True and, for anything that is not a tensor, None copy.

    >>> import weft
    >>> weft.asarray([1, 2.5])
    tensor([1.0000, 2.5000])
    """
    out: Tensor = _convert("asarray", obj, dtype, device, copy)
    return out


@public
def as_tensor(data: object, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """A tensor of data, as by ``asarray``.

    >>> import weft
    >>> x = weft.ones(2)
    >>> weft.as_tensor(x) is x
    True
    """
    out: Tensor = _convert("as_tensor", data, dtype, device, None)
    return out


@public
def from_numpy(array: Array, /) -> Tensor:
    """A tensor that shares the memory of a NumPy array: changes of the array show in the tensor.

    Changes of the tensor do not show in the array: a tensor that is changed gets memory of its own.

    >>> import numpy as np, weft
    >>> weft.from_numpy(np.array([1, 2, 3]))
    tensor([1, 2, 3])
    """
    if not isinstance(array, np.ndarray):
        raise ArgumentError("from_numpy", f"must be a NumPy array, got {type(array).__name__}")
    return leaf(from_ndarray("from_numpy", array, None, False))


def _convert(
    op: str, data: object, dtype: DTypeLike | None, device: DeviceLike | None, copy: bool | None
) -> Any:
    target = None if dtype is None else as_dtype(dtype)
    if not isinstance(data, Tensor):
        if hasattr(data, "__dlpack__") and not isinstance(data, np.ndarray):
            data = from_dlpack(data, copy=copy is not False)
            copy = None if copy else copy
        elif hasattr(data, "__cuda_array_interface__"):
            data, copy = wrap(hooks.import_from_device(data, copy is not False)), None if copy else copy
        else:
            array = from_python(op, data, target, copy)
            if array is None:
                return _assemble(op, data, target)
            return leaf(array) if device is None and not BLOCKS else moved(leaf(array), device)
    if device is not None and (there := move(data, as_device(device))) is not data:
        data, copy = there, None
    if target is None or target == data.dtype:
        return data.clone() if copy else data
    if copy is False:
        raise DomainError(
            op, f"copy must not be False to change the dtype, got {data.dtype.name} to {target.name}"
        )
    return astype(data, target)


def _assemble(op: str, data: Any, dtype: DTypeLike | None) -> Tensor:
    """Nested lists that hold tensors, as one tensor to which gradients flow back."""
    common = infer_dtype(op, data, leaf_types(op, data)) if dtype is None else dtype
    parts = [
        _assemble(op, d, common) if _holds_tensors(op, d) else _convert(op, d, common, None, None)
        for d in data
    ]
    for part in parts:
        if part.shape != parts[0].shape:
            raise ShapeError(
                op, f"elements must have equal shapes, got {type_of(parts[0])} and {type_of(part)}"
            )
    return stack(parts)


def _holds_tensors(op: str, data: object) -> bool:
    return isinstance(data, list | tuple) and any(issubclass(t, Tensor) for t in leaf_types(op, data))


# By filling


# the number that a function fills with
_FILLS: dict[Any, int | None] = {np.empty: 0, np.zeros: 0, np.ones: 1, np.full: None}


def as_leaf(tensor: Tensor, requires_grad: bool) -> Tensor:
    """The result of an op as if it had been made from data."""
    return tensor._value().requires_grad_() if requires_grad else tensor


def made(
    op: str,
    make: Callable[..., Any],
    *args: Any,
    requires_grad: bool = False,
    device: DeviceLike | None = None,
) -> Tensor:
    """A new leaf of what a NumPy function makes; more than memory can hold is an error in the name of op."""
    if (device is not None or BLOCKS) and (on := as_device(device)) is not CPU and not _captures():
        return _made_on(on, op, make, *args, requires_grad=requires_grad)
    if make in _FILLS and not is_known(args[0]):
        value = args[1] if make is np.full else _FILLS[make]
        return as_leaf(filled(args[0], value, args[-1]), requires_grad)
    try:
        array = make(*args)
    except WeftError:
        raise
    except (ValueError, MemoryError):
        raise ShapeError(op, f"the tensor must fit in memory, got shape {args[0]}") from None
    return leaf(array, requires_grad)


def _captures() -> bool:
    return bool(intercepted.threads) and thread.capture is not None


def _made_on(on: Device, op: str, make: Callable[..., Any], *args: Any, requires_grad: bool) -> Tensor:
    """A new leaf on a device; what is filled with one number is filled there."""
    if make in _FILLS:
        value = args[1] if make is np.full else None if make is np.empty else _FILLS[make]
        out: Tensor = wrap(hooks.new_filled(args[0], value, args[-1], on))
    else:
        out = move(made(op, make, *args, device=CPU), on)
    return out.requires_grad_(requires_grad)


def target_dtype(dtype: DTypeLike | None, default: DType) -> DType:
    """The dtype asked for, or the default."""
    return default if dtype is None else as_dtype(dtype)


def _shape_and_dtype(
    op: str, shape: ShapeLike, sizes: tuple[Any, ...], dtype: DTypeLike | None
) -> tuple[Shape, DTypeLike | None]:
    """A shape, given as a tuple or as ints one after the other; NumPy's calls have the dtype after it."""
    if len(sizes) == 1 and dtype is None and isinstance(sizes[0], np.dtype | type | str):
        return normalize_shape(op, shape), sizes[0]
    return normalize_shape(op, (shape, *sizes) if sizes else shape), dtype


@public
def empty(
    shape: ShapeLike,
    *sizes: int | DTypeLike,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor whose values are whatever was in memory.

    >>> import weft
    >>> weft.empty((2, 3)).shape
    (2, 3)
    """
    whole, dtype = _shape_and_dtype("empty", shape, sizes, dtype)
    target = target_dtype(dtype, default_float())
    return made("empty", np.empty, whole, target, requires_grad=requires_grad, device=device)


@public
def zeros(
    shape: ShapeLike,
    *sizes: int | DTypeLike,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of zeros.

    >>> import weft
    >>> weft.zeros(2, 3)
    tensor([[0., 0., 0.],
            [0., 0., 0.]])
    """
    whole, dtype = _shape_and_dtype("zeros", shape, sizes, dtype)
    target = target_dtype(dtype, default_float())
    return made("zeros", np.zeros, whole, target, requires_grad=requires_grad, device=device)


@public
def ones(
    shape: ShapeLike,
    *sizes: int | DTypeLike,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of ones.

    >>> import weft
    >>> weft.ones((2,), dtype=weft.int32)
    tensor([1, 1], dtype=weft.int32)
    """
    whole, dtype = _shape_and_dtype("ones", shape, sizes, dtype)
    target = target_dtype(dtype, default_float())
    return made("ones", np.ones, whole, target, requires_grad=requires_grad, device=device)


@public
def full(
    shape: ShapeLike,
    fill_value: Operand,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of one value, whose dtype follows the value.

    >>> import weft
    >>> weft.full((2,), 7), weft.full((), 0.5)
    (tensor([7, 7]), tensor(0.5000))
    """
    if isinstance(fill_value, Tensor) and fill_value.ndim == 0:
        target = target_dtype(dtype, fill_value.dtype)
        out = _filled(normalize_shape("full", shape), fill_value, target, requires_grad=False)
        return as_leaf(moved(out, device), requires_grad)
    value = number("full", "fill_value", fill_value)
    value = fill_array("full", value, target_dtype(dtype, number_dtype(value)))
    sizes = normalize_shape("full", shape)
    return made("full", np.full, sizes, value, value.dtype, requires_grad=requires_grad, device=device)


def _filled(shape: Shape, value: Tensor, dtype: DTypeLike | None, requires_grad: bool) -> Tensor:
    """One element in a shape, with the gradient of that element."""
    return as_leaf(broadcast_to(cast(value, dtype=dtype), shape=shape), requires_grad)


def _like(op: str, x: Tensor, dtype: DTypeLike | None) -> tuple[Shape, DType]:
    if not isinstance(x, Tensor):
        raise ArgumentError(op, f"must be a tensor, got {type(x).__name__}")
    return x.shape, target_dtype(dtype, x.dtype)


def _made_like(
    make: Callable[..., Any],
    x: Tensor,
    dtype: DTypeLike | None,
    device: DeviceLike | None,
    requires_grad: bool,
) -> Tensor:
    """A tensor filled by a NumPy function in the shape and dtype of another, and where that one is."""
    op = f"{make.__name__}_like"
    shape, target = _like(op, x, dtype)
    place = x.device if device is None else device
    if device is None and Parts in CONCRETE and not _captures():
        data: Any = x._data  # of a tensor that a capture has borrowed, what it held before
        data = data.before(x) if hasattr(data, "before") else data
        if type(data) is Parts:
            return _in_parts(make, data, target).requires_grad_(requires_grad)
    return made(op, make, shape, target, requires_grad=requires_grad, device=place)


def _in_parts(make: Callable[..., Any], x: Parts, dtype: DType) -> Tensor:
    """A tensor of which each rank has the part that it has of another one."""
    return wrap(Parts(make(x.part.shape, dtype), x.shape, x.cut, x.mesh))


@public
def empty_like(
    x: Tensor,
    /,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of the shape and dtype of another, whose values are whatever was in memory.

    >>> import weft
    >>> weft.empty_like(weft.ones(2, 3)).shape
    (2, 3)
    """
    return _made_like(np.empty, x, dtype, device, requires_grad)


@public
def zeros_like(
    x: Tensor,
    /,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Zeros of the shape and dtype of another tensor.

    >>> import weft
    >>> weft.zeros_like(weft.tensor([1, 2]))
    tensor([0, 0])
    """
    return _made_like(np.zeros, x, dtype, device, requires_grad)


@public
def ones_like(
    x: Tensor,
    /,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones of the shape and dtype of another tensor.

    >>> import weft
    >>> weft.ones_like(weft.tensor([5.0, 6.0]))
    tensor([1., 1.])
    """
    return _made_like(np.ones, x, dtype, device, requires_grad)


# Methods: tensors of the dtype of another


def _new(op: str, make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def method(self: Tensor, *shape: object, dtype: DTypeLike | None = None, **rest: object) -> Tensor:
        rest.setdefault("device", self.device)
        return make(*shape, dtype=self.dtype if dtype is None else dtype, **rest)

    method.__name__ = method.__qualname__ = op
    method.__doc__ = (
        f"``weft.{make.__name__}`` of a shape, in the dtype of this tensor unless another is given."
    )
    return method


for _make in (zeros, ones, empty, full):
    setattr(Tensor, f"new_{_make.__name__}", public(_new(f"new_{_make.__name__}", _make)))


@public
def full_like(
    x: Tensor,
    /,
    fill_value: Number,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """One value in the shape and dtype of another tensor.

    >>> import weft
    >>> weft.full_like(weft.tensor([5.0, 6.0]), 3)
    tensor([3., 3.])
    """
    shape, target = _like("full_like", x, dtype)
    if isinstance(fill_value, Tensor) and fill_value.ndim == 0:
        out = _filled(shape, fill_value, target, requires_grad=False)
        return as_leaf(moved_like(out, device, x), requires_grad)
    value = fill_array("full_like", number("full_like", "fill_value", fill_value), target)
    place = x.device if device is None else device
    return made("full_like", np.full, shape, value, target, requires_grad=requires_grad, device=place)

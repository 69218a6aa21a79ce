"""What PyTorch's tensors can be asked, and a few methods that are other functions with a tensor's arguments.

Where an answer would speak of memory, it is that of the elements as weft counts them (``docs/tensors.md``).
"""

from __future__ import annotations

from typing import Any

from weft.base.device import CPU
from weft.base.dtypes import DType, DTypeLike, as_dtype, kind
from weft.base.public import public
from weft.base.shapes import normalize_axis
from weft.ops import alias
from weft.ops.op import Operand
from weft.ops.select import where as select_where
from weft.ops.view import arranged
from weft.ops.view import axes as view_axes
from weft.tensor import creation
from weft.tensor.tensor import Tensor

TYPES: dict[str, str] = {
    "BFloat16Tensor": "bfloat16",
    "BoolTensor": "bool",
    "ByteTensor": "uint8",
    "CharTensor": "int8",
    "DoubleTensor": "float64",
    "FloatTensor": "float32",
    "HalfTensor": "float16",
    "IntTensor": "int32",
    "LongTensor": "int64",
    "ShortTensor": "int16",
}
_NAMES = {dtype: name for name, dtype in TYPES.items()}


@public
def nelement(x: Tensor, /) -> int:
    """The number of elements."""
    return int(x.numel())


@public
def ndimension(x: Tensor, /) -> int:
    """The rank: the number of axes."""
    return x.ndim


@public
def element_size(x: Tensor, /) -> int:
    """Bytes of one element."""
    return x.itemsize


@public
def stride(x: Tensor, /, dim: int | None = None) -> int | tuple[int, ...]:
    """How many elements lie between neighbours along each axis, or along one."""
    steps = alias.strides_of(x) if hasattr(x, "_link") else alias.contiguous_strides(x.shape)
    return tuple(steps) if dim is None else steps[normalize_axis("stride", dim, x.ndim)]


@public
def is_contiguous(x: Tensor, /) -> bool:
    """Whether the elements lie one after another."""
    return alias.is_contiguous(x)


@public
def get_device(x: Tensor, /) -> int:
    """The number of the GPU that holds the tensor, -1 for one on the cpu."""
    return -1 if x.device == CPU else x.device.index or 0


@public
def type(x: Tensor, /, dtype: DTypeLike | None = None) -> Any:
    """The tensor in another dtype; without one, what its kind is called: ``"weft.FloatTensor"``."""
    if dtype is None:
        name = x.dtype.name
        return f"weft.{_NAMES.get(name, name)}"
    return x.astype(_dtype(dtype), copy=False)


def _dtype(dtype: DTypeLike) -> DType:
    name = dtype.rpartition(".")[2] if isinstance(dtype, str) else ""
    return as_dtype(TYPES.get(name, dtype))


@public
def is_floating_point(x: Tensor, /) -> bool:
    """Whether the dtype is a real floating one."""
    return kind(x.dtype) == "f"


@public
def is_signed(x: Tensor, /) -> bool:
    """Whether the dtype has negative numbers."""
    return kind(x.dtype) in "ifc"


@public
def is_complex(x: Tensor, /) -> bool:
    """Whether the dtype is complex."""
    return kind(x.dtype) == "c"


@public
def view_as(x: Tensor, other: Tensor, /) -> Tensor:
    """The elements in the shape of another tensor, as a view."""
    return view_axes.reshape(x, other.shape, copy=False)


@public
def reshape_as(x: Tensor, other: Tensor, /) -> Tensor:
    """The elements in the shape of another tensor."""
    return view_axes.reshape(x, other.shape)


@public
def where(x: Tensor, condition: Tensor, other: Operand, /) -> Tensor:
    """Elements of the tensor where a condition holds, else of another one."""
    return select_where(condition, x, other)


@public
def unfold(x: Tensor, axis: int, size: int, step: int, /) -> Tensor:
    """All slices of a length along an axis, every ``step`` positions, as a new last axis."""
    return arranged.windows(x, axis, size, step)


@public
def new_tensor(x: Tensor, data: Any, /, *, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of data, in the dtype of this one and on its device unless said otherwise."""
    return creation.tensor(data, dtype=x.dtype if dtype is None else dtype, device=x.device)


def typed_constructor(name: str) -> Any:
    """``weft.FloatTensor`` and its kin: a tensor of data in one dtype, or of zeros of sizes."""
    dtype = as_dtype(TYPES[name])

    @public
    def make(*data: Any, device: Any = None) -> Tensor:
        if len(data) == 1 and not isinstance(data[0], int):
            return creation.tensor(data[0], dtype=dtype, device=device)
        return creation.zeros(tuple(data), dtype=dtype, device=device)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"""A tensor of {dtype.name}: of data, or zeros of sizes.

    >>> import weft
    >>> weft.{name}([1, 0]).dtype.name
    {dtype.name!r}
    """
    return make


BFloat16Tensor, BoolTensor, ByteTensor, CharTensor, DoubleTensor = map(
    typed_constructor, ("BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor")
)
FloatTensor, HalfTensor, IntTensor, LongTensor, ShortTensor = map(
    typed_constructor, ("FloatTensor", "HalfTensor", "IntTensor", "LongTensor", "ShortTensor")
)

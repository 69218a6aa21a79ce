"""Tensors of PyTorch and weft that share memory, and the dtypes of both."""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import DType, as_dtype
from weft.base.public import public
from weft.errors import DtypeError
from weft.interop.optional import exported, imported, need
from weft.tensor.tensor import Tensor


@public
def to_torch(tensor: Tensor) -> Any:
    """A tensor of PyTorch with the memory of one of weft; both are on the CPU, and nothing is copied.

    It is a leaf that requires grad if the tensor of weft does. Gradients do not cross: wrap a function by
    ``as_torch`` for that. A tensor of weft is a value, so write to the other one only if nobody reads this.

    Example::

        x = weft.interop.torch.to_torch(weft.ones(2))  # tensor([1., 1.])
    """
    torch = need("to_torch", "torch", "torch")
    out = torch.from_dlpack(exported("to_torch", tensor))
    return out.requires_grad_() if tensor.requires_grad else out


@public
def from_torch(x: Any) -> Tensor:
    """A tensor of weft with the memory of one of PyTorch; what is not on the CPU is copied there.

    It is a leaf that requires grad if the tensor of PyTorch does.

    Example::

        x = weft.interop.torch.from_torch(torch.ones(2))  # tensor([1., 1.])
    """
    torch = need("from_torch", "torch", "torch")
    if not isinstance(x, torch.Tensor):
        return imported("from_torch", x, torch.Tensor, "torch.Tensor", False)
    plain = x.detach().cpu().resolve_conj().resolve_neg()
    if plain.layout is not torch.strided:
        raise DtypeError("from_torch", f"must be dense, got {plain.layout}", hint="use x.to_dense()")
    weft_dtype("from_torch", plain.dtype)
    return imported("from_torch", plain, torch.Tensor, "torch.Tensor", x.requires_grad)


def weft_dtype(op: str, dtype: Any) -> DType:
    """The dtype of weft for one of PyTorch."""
    name = str(dtype).removeprefix("torch.")
    try:
        return as_dtype(name)
    except (TypeError, ValueError):
        raise DtypeError(op, f"dtype must be one that weft has, got {dtype}") from None


def torch_dtype(torch: Any, dtype: DType) -> Any:
    """The dtype of PyTorch for one of weft."""
    return getattr(torch, dtype.name)

"""Tensors of JAX and weft that share memory."""

from __future__ import annotations

from typing import Any

from weft.base.public import public
from weft.errors import ArgumentError, DeviceError
from weft.interop.optional import exported, imported, need
from weft.tensor.tensor import Tensor


@public
def to_jax(tensor: Tensor) -> Any:
    """An array of JAX with the memory of a tensor of weft, where JAX can use it; else a copy.

    JAX wants memory that begins at a multiple of 64 and is in row-major order. Where 64-bit types are not
    enabled in JAX, they are cut to 32 bits, as JAX does itself. An array does not know gradients.

    Example::

        x = weft.interop.jax.to_jax(weft.ones(2))  # Array([1., 1.], dtype=float32)
    """
    jax = need("to_jax", "jax", "jax")
    plain = exported("to_jax", tensor)
    if plain.dtype.itemsize == 8 and plain.dtype.name != "complex64" and not jax.config.jax_enable_x64:
        return jax.numpy.asarray(plain._array("to_jax"))
    try:
        return jax.dlpack.from_dlpack(plain)
    except Exception:  # of strides or an alignment that JAX does not take, or a dtype
        return jax.numpy.asarray(plain._array("to_jax"))


@public
def from_jax(x: Any, *, requires_grad: bool = False) -> Tensor:
    """A tensor of weft with the memory of an array of JAX.

    Args:
        x: an array on the CPU.
        requires_grad: whether the tensor is to be a leaf that requires grad.

    Example::

        x = weft.interop.jax.from_jax(jax.numpy.ones(2))  # tensor([1., 1.])
    """
    jax = need("from_jax", "jax", "jax")
    if isinstance(x, jax.core.Tracer):
        raise ArgumentError("from_jax", "must be given an array with data, got one that JAX traces")
    if isinstance(x, jax.Array) and any(d.platform != "cpu" for d in x.devices()):
        raise DeviceError("from_jax", f"the array must be on the cpu, got {x.devices()}")
    return imported("from_jax", x, jax.Array, "jax.Array", requires_grad)

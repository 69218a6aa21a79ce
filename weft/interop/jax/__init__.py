"""JAX beside weft: arrays, and functions as graphs."""

from weft.interop.jax.jaxpr import import_function, import_jaxpr, supported_primitives
from weft.interop.jax.tensors import from_jax, to_jax

__all__ = ["from_jax", "import_function", "import_jaxpr", "supported_primitives", "to_jax"]

"""What containers have in common that keep their elements in one tensor, and beside it where they belong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from weft.base.device import Device
from weft.base.dtypes import DType
from weft.ops.op import Container

if TYPE_CHECKING:
    from weft.tensor.tensor import Tensor


class Valued(Container):
    """A container of values; gradients are those of the values, at the same places."""

    __slots__ = ()

    values: Tensor

    def _with(self, values: Tensor) -> Self:
        """Other values at the same places."""
        raise NotImplementedError

    @property
    def dtype(self) -> DType:
        """The dtype of the values."""
        return self.values.dtype

    @property
    def device(self) -> Device:
        """Where the values live."""
        return self.values.device

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to or through the values."""
        return self.values.requires_grad

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Ask for gradients of the values, or stop asking."""
        self.values.requires_grad_(requires_grad)
        return self

    @property
    def grad(self) -> Self | None:
        """The gradient of the values, at the same places."""
        grad = self.values.grad
        return None if grad is None else self._with(grad)

    def detach(self) -> Self:
        """The same values, cut from the graph."""
        return self._with(self.values.detach())

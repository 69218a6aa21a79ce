"""Layers that learn the size of their input from the first one, and then are the usual layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft import Tensor
from weft.capture.runtime.modules import is_capturing
from weft.errors import ArgumentError
from weft.nn import batch_norm, conv, linear
from weft.nn.module import Module
from weft.nn.variant import Variant


class _Lazy(Variant):
    """A layer that is not there yet: the arguments of one, but for its first."""

    becomes: type[Module] = Module
    axis = 1  # of the input, whose size is the first argument

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__()
        self.__dict__["_waiting"] = (args, kwargs)

    def forward(self, x: Tensor, *args: object) -> Tensor:
        """Become the layer that fits x, and apply it."""
        name, axis = type(self).__name__, self.axis
        if is_capturing():
            hint = "call it once on an example before it is compiled or traced"
            raise ArgumentError(name, "must know its sizes before it is captured, got none yet", hint=hint)
        given, kwargs = self.__dict__.pop("_waiting")
        kept = {key: self.__dict__[key] for key in ("training", "_hooks", "_parent")}
        object.__setattr__(self, "__class__", self.becomes)
        unbatched = axis == 1 and x.ndim == getattr(self, "rank", 0) + 1 and self.rank > 0
        self.__init__(x.shape[0 if unbatched else axis], *given, **kwargs)  # type: ignore[misc]
        self.__dict__.update(kept)
        return self.forward(x, *args)

    def _members(self, names: str) -> Iterator[tuple[str, Any]]:
        if names != "_parameter_names":
            return iter(())
        hint = "call the model once on an example before its parameters are asked for"
        raise ArgumentError(
            type(self).__name__, "has no parameters before its first input, got a use of them", hint=hint
        )

    def extra_repr(self) -> str:
        """Its settings."""
        args, kwargs = self.__dict__["_waiting"]
        return ", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())])


class LazyLinear(_Lazy, becomes=linear.Linear, axis=-1, example="(3)(weft.ones((2, 4))).shape -> (2, 3)"):
    """``nn.Linear`` of any number of features in: ``LazyLinear(out_features)``."""


class LazyConv1d(_Lazy, becomes=conv.Conv1d, example="(3, 2)(weft.ones((2, 4, 8))).shape -> (2, 3, 7)"):
    """``nn.Conv1d`` of any number of channels in: ``LazyConv1d(out_channels, kernel_size)``."""


class LazyConv2d(_Lazy, becomes=conv.Conv2d, example="(3, 2)(weft.ones((2, 4, 8, 8))).shape -> (2, 3, 7, 7)"):
    """``nn.Conv2d`` of any number of channels in: ``LazyConv2d(out_channels, kernel_size)``."""


class LazyConv3d(
    _Lazy, becomes=conv.Conv3d, example="(3, 2)(weft.ones((2, 4, 3, 3, 3))).shape -> (2, 3, 2, 2, 2)"
):
    """``nn.Conv3d`` of any number of channels in: ``LazyConv3d(out_channels, kernel_size)``."""


class LazyConvTranspose1d(
    _Lazy, becomes=conv.ConvTranspose1d, example="(3, 2)(weft.ones((2, 4, 8))).shape -> (2, 3, 9)"
):
    """``nn.ConvTranspose1d`` of any number of channels in."""


class LazyConvTranspose2d(
    _Lazy, becomes=conv.ConvTranspose2d, example="(3, 2)(weft.ones((2, 4, 8, 8))).shape -> (2, 3, 9, 9)"
):
    """``nn.ConvTranspose2d`` of any number of channels in."""


class LazyConvTranspose3d(
    _Lazy, becomes=conv.ConvTranspose3d, example="(3, 2)(weft.ones((2, 4, 3, 3, 3))).shape -> (2, 3, 4, 4, 4)"
):
    """``nn.ConvTranspose3d`` of any number of channels in."""


class LazyBatchNorm1d(_Lazy, becomes=batch_norm.BatchNorm1d, example="()(weft.ones((2, 4))).shape -> (2, 4)"):
    """``nn.BatchNorm1d`` of any number of features."""


class LazyBatchNorm2d(
    _Lazy, becomes=batch_norm.BatchNorm2d, example="()(weft.ones((2, 4, 3, 3))).shape -> (2, 4, 3, 3)"
):
    """``nn.BatchNorm2d`` of any number of channels."""


class LazyBatchNorm3d(
    _Lazy, becomes=batch_norm.BatchNorm3d, example="()(weft.ones((2, 4, 2, 2, 2))).shape -> (2, 4, 2, 2, 2)"
):
    """``nn.BatchNorm3d`` of any number of channels."""

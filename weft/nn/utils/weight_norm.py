"""Weights as a length and a direction, learned apart (Salimans and Kingma, 2016).

The module gets a class of its own, whose weight is a property: it is computed from its two parts whenever it
is asked for, so it is right whatever changes these, eagerly and in graphs.
"""

from __future__ import annotations

from typing import Any, TypeVar

import weft
from weft import Tensor
from weft.base.public import public
from weft.errors import ArgumentError
from weft.nn.parameter import Parameter

M = TypeVar("M")


def _lengths(v: Tensor, dim: int | None) -> Tensor:
    axes = tuple(i for i in range(v.ndim) if dim is None or i != dim % v.ndim)
    return weft.sqrt((v * v).sum(axis=axes, keepdims=True))


@public
def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Learn the length and the direction of a weight apart, as ``weight_g`` and ``weight_v``.

    Args:
        module: that has the weight; it is changed, and returned.
        name: of the weight.
        dim: the axis along which each slice has a length of its own; None for one length.

    >>> import weft
    >>> from weft import nn
    >>> layer = nn.utils.weight_norm(nn.Linear(2, 3))
    >>> [(name, p.shape) for name, p in layer.named_parameters()]
    [('bias', (3,)), ('weight_g', (3, 1)), ('weight_v', (3, 2))]
    """
    held: Any = module
    weight = held.__dict__.get(name)
    if not isinstance(weight, Parameter):
        raise ArgumentError("weight_norm", f"{name!r} must be a parameter of {type(module).__name__}")
    g, v = f"{name}_g", f"{name}_v"
    delattr(module, name)
    start: Any = weight
    lengths = _lengths(start._value(), dim)
    setattr(module, g, Parameter(lengths.reshape(()) if dim is None else lengths))
    setattr(module, v, Parameter(weight))

    def normed(self: Any) -> Any:
        direction = getattr(self, v)
        return direction * (getattr(self, g) / _lengths(direction, dim))

    kind = type(module)
    held.__class__ = type(kind.__name__, (kind,), {name: property(normed), "_plain": (kind, name)})
    return module


@public
def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Make a weight one parameter again; returns the module.

    >>> import weft
    >>> from weft import nn
    >>> layer = nn.utils.remove_weight_norm(nn.utils.weight_norm(nn.Linear(2, 3)))
    >>> sorted(layer.state_dict())
    ['bias', 'weight']
    """
    held: Any = module
    plain = getattr(type(module), "_plain", None)
    if plain is None or plain[1] != name:
        kind = type(module).__name__
        raise ArgumentError(
            "remove_weight_norm", f"{name!r} of {kind} must have been normed, got a plain one"
        )
    weight = getattr(module, name)._value()
    held.__class__ = plain[0]
    for part in (f"{name}_g", f"{name}_v"):
        delattr(module, part)
    setattr(module, name, Parameter(weight))
    return module

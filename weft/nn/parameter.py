"""Parameters: tensors that a module learns.

A parameter is a plain ``Tensor``, so that nothing on the way of an operation has to know of it. That it is
one is remembered here, beside it.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import weft
from weft import Tensor
from weft.base.device import DeviceLike
from weft.base.dtypes import DTypeLike
from weft.base.shapes import ShapeLike
from weft.errors import CaptureError
from weft.ops.alias import CHOICE

_known: dict[int, weakref.ref[Any]] = {}  # by id; an entry goes when its tensor does


class _Kind(type):
    """Makes ``isinstance(x, Parameter)`` ask what was remembered; one of two parameters is one, too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if is_known(instance):
            return True
        parent, step, args = getattr(instance, "_link", _NO_LINK)
        if step is not CHOICE:
            return False
        first, other = isinstance(parent, cls), isinstance(args.other, cls)
        if first is not other:
            raise CaptureError(
                "isinstance",
                "whether a tensor is a Parameter must be known in captured code, got one that is a Parameter "
                "on one way alone",
                hint="ask in the branches",
            )
        return first


_NO_LINK: tuple[Any, Any, Any] = (None, None, None)


if TYPE_CHECKING:

    class Parameter(Tensor):
        """A tensor that a module learns; at run time it is of the class Tensor."""

        def __init__(self, data: object = None, requires_grad: bool = True) -> None: ...

else:

    class Parameter(metaclass=_Kind):
        """A tensor that a module learns: as an attribute of a ``Module``, it is among its ``parameters()``.

        Args:
            data: its values, a tensor or what ``weft.as_tensor`` takes.
            requires_grad: whether gradients are wanted; False for one that is frozen.

        >>> import weft
        >>> from weft import nn
        >>> w = nn.Parameter(weft.ones(2))
        >>> w
        tensor([1., 1.], requires_grad=True)
        >>> isinstance(w, nn.Parameter), isinstance(weft.ones(2), nn.Parameter)
        (True, False)
        """

        _weft_made_outside = (  # see weft.capture.runtime.objects
            "a Parameter",
            "which no module or optimizer knows",
            "make the Parameter outside, in the constructor of a module; inside, "
            "x.detach().requires_grad_() gives a tensor that gradients are computed for",
        )

        def __new__(cls, data=None, requires_grad=True):
            """A new tensor with the same values, which is a parameter."""
            tensor = weft.empty(0) if data is None else weft.as_tensor(data)
            return mark(tensor.detach().requires_grad_(requires_grad))


def is_known(x: Any) -> bool:
    """Whether something is a certain parameter, not one of two that a run picks."""
    reference = _known.get(id(x))
    return reference is not None and reference() is x


def mark(tensor: Tensor) -> Tensor:
    """Remember that a tensor is a parameter; returns it."""
    key = id(tensor)
    _known[key] = weakref.ref(tensor, lambda _: _known.pop(key, None))
    return tensor


def new_parameter(
    shape: ShapeLike, device: DeviceLike | None, dtype: DTypeLike | None, wanted: bool = True
) -> Any:
    """A parameter that is yet to be filled; None if none is wanted."""
    return Parameter(weft.empty(shape, device=device, dtype=dtype)) if wanted else None

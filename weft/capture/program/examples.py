"""Examples of arguments that may leave sizes open: ``weft.TensorType(("batch", 3), weft.float32)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import as_dtype
from weft.base.records import NamedTuple
from weft.base.size_text import shape_of_texts
from weft.base.sizes import Size, bind, size_names
from weft.base.trees import tree_map
from weft.capture.program.arguments import is_container
from weft.ir.types import TensorType
from weft.tensor.tensor import wrap

_OPEN = 2  # stands for a name of a size that is open; a tensor of zeros is made of it


class Examples(NamedTuple):
    """Arguments in which tensors stand for types, and the shapes these have.

    Attributes:
        args: by position.
        kwargs: by name.
        shapes: of the tensors that stand for types, by id, with names for open sizes.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shapes: dict[int, tuple[int | Size, ...]]

    def shapes_of(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
        """The shapes of tensors, named where a type was given."""
        return tuple(self.shapes.get(id(t), t.shape) for t in tensors)


def stand_ins(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Examples:
    """Examples with a tensor of zeros for each type among them.

    >>> import weft
    >>> from weft.capture.program.examples import stand_ins
    >>> found = stand_ins((weft.TensorType(("n", 3), weft.float32),), {})
    >>> found.args[0].shape, found.shapes_of(found.args)
    ((2, 3), ((n, 3),))
    """
    shapes: dict[int, tuple[int | Size, ...]] = {}

    def stand_in(x: Any) -> Any:
        if not isinstance(x, TensorType):
            return x
        shape = shape_of_texts(x.shape)
        open_sizes = dict.fromkeys(size_names(shape), _OPEN)
        tensor = wrap(np.zeros(bind(shape, open_sizes), as_dtype(x.dtype)))
        shapes[id(tensor)] = shape
        return tensor

    args, kwargs = tree_map(stand_in, (args, kwargs), is_leaf=_is_example)
    return Examples(args, kwargs, shapes)


def _is_example(x: Any) -> bool:
    return isinstance(x, TensorType) or is_container(x)

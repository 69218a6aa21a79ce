"""Keys: what calls of a captured function have in common that can share a graph.

These are the same containers, tensors of the same types, equal plain values, the same other objects, the same
tensor in the same places, and the settings of weft that matter to a graph.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from weft.base.dtypes import DType, float32
from weft.base.records import NamedTuple
from weft.base.trees import Structure, tree_flatten
from weft.tensor.form import form_of

PLAIN_TYPES = frozenset({bool, int, str, bytes, np.dtype, range, frozenset})

# Of a tensor a TensorKey, or the number of the tensor that it is again; of a float that is an input the class
# ``float``; of other plain values their type and value; of the rest a Same.
LeafKey: TypeAlias = Any


class TensorKey(NamedTuple):
    """What matters of a tensor to a graph: its type (a form if it has one), and whether it requires grad."""

    type: Any
    requires_grad: bool


def tensor_key(tensor: Any) -> TensorKey:
    """The key of a tensor."""
    data = tensor._data
    return TensorKey(tensor._form or form_of(data) or (data.shape, data.dtype), tensor._node is not None)


def value_key(x: Any) -> Any:
    """What matters of an argument that is no tensor: its value, or which object it is."""
    kind = type(x)
    if kind in PLAIN_TYPES:
        return kind, x
    if kind is float:
        return (kind, x) if x and x == x else (kind, math.copysign(1.0, x), x == x)
    if kind is complex:
        return kind, value_key(x.real), value_key(x.imag)
    if isinstance(x, np.generic):
        return kind, x.tobytes()
    return Same(x)


class TreeShape:
    """The structure of arguments; what its containers hold besides leaves need not be hashable."""

    __slots__ = ("structure",)

    def __init__(self, structure: Structure) -> None:
        self.structure = structure

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeShape) and self.structure == other.structure

    def __hash__(self) -> int:
        return len(self.structure.items)


class Same:
    """An object that is equal to itself alone, kept alive so that no other takes its id."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.obj is other.obj

    def __hash__(self) -> int:
        return id(self.obj)


class CallKey(NamedTuple):
    """The key of a call.

    Attributes:
        shape: of the tree of arguments.
        leaves: the keys of its leaves.
        autocast: the dtype that ``weft.autocast`` casts to, if it is on.
        recording: whether gradients are recorded.
        floating: the default dtype of floats.
    """

    shape: TreeShape
    leaves: tuple[LeafKey, ...]
    autocast: DType | None
    recording: bool
    floating: DType

    @property
    def settings(self) -> tuple[Any, ...]:
        """Those of weft."""
        return self[2:]

    def without_gradients(self) -> CallKey:
        """The key, which leaves open what requires grad and whether that is recorded."""
        leaves = tuple([part.type if isinstance(part, TensorKey) else part for part in self.leaves])
        return self._replace(leaves=leaves, recording=False)

    def asks_less_than(self, other: CallKey) -> bool:
        """Whether an argument of another call like this one has a gradient that it had not here."""
        pairs = zip(self.leaves, other.leaves, strict=True)
        return other.recording and any(
            isinstance(b, TensorKey) and b.requires_grad and not (self.recording and a.requires_grad)
            for a, b in pairs
        )


ANY_CALL = CallKey(TreeShape(tree_flatten(((), {}))[1]), (), None, False, float32)  # of what serves all calls

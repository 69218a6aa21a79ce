"""Slots: what captured code may change: the data of a tensor, its gradient, an attribute of an object.

Before a slot is changed the running capture is told, so that it knows the old content, can put it back when
the capture ends, and can make the new content an output of the graph.
"""

from __future__ import annotations

import weakref
from typing import Any, cast

from weft.ir.location import Location
from weft.ops.alias import link
from weft.ops.op import Tensor
from weft.tensor.dispatch import wrap


class Slot:
    """A place that holds a tensor, None, or something else; two slots of one place have the same key."""

    __slots__ = ("key",)

    key: tuple[Any, ...]

    def get(self) -> Any:
        """What it holds now, as something that later changes do not reach."""
        raise NotImplementedError

    def put(self, content: object) -> None:
        """Let it hold something else."""
        raise NotImplementedError

    def is_new(self) -> bool:
        """Whether it is a place that only the region which changed it knows."""
        return False

    def describe(self) -> str:
        """In words, for messages."""
        raise NotImplementedError


class DataSlot(Slot):
    """The value of a tensor: its data and its place in the dynamic graph."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.key = ("data", id(tensor))

    def get(self) -> Any:
        """What it holds now."""
        return wrap(self.tensor._data, self.tensor._node)

    def put(self, content: Any) -> None:
        """Let it hold something else."""
        tensor = self.tensor
        tensor._data, tensor._node, tensor._form = content._data, content._node, None

    def describe(self) -> str:
        """In words, for messages."""
        return "a tensor"


class LinkSlot(Slot):
    """What a tensor is a view of."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.key = ("link", id(tensor))

    def get(self) -> Any:
        """What it holds now."""
        return getattr(self.tensor, "_link", None)

    def put(self, content: Any) -> None:
        """Let it hold something else."""
        if content is not None:
            link(self.tensor, *content)
        elif hasattr(self.tensor, "_link"):
            del self.tensor._link

    def describe(self) -> str:
        """In words, for messages."""
        return "what a tensor is a view of"


class GradSlot(Slot):
    """The gradient of a tensor; None where there is none."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.key = ("grad", id(tensor))

    def get(self) -> Any:
        """What it holds now."""
        return getattr(self.tensor, "_grad", None)

    def put(self, content: Any) -> None:
        """Let it hold something else."""
        self.tensor._grad = content

    def describe(self) -> str:
        """In words, for messages."""
        return "the gradient of a tensor"


class PresenceSlot(Slot):
    """Whether a tensor has a gradient: a truth value that a run tells, or None where it is known.

    Where only a run tells, the slot of the gradient holds zeros that stand for none.
    """

    __slots__ = ("table", "tensor")

    def __init__(self, tensor: Tensor, table: dict[int, Any]) -> None:
        self.tensor = tensor
        self.table = table  # of a root, by id of the tensor
        self.key = ("presence", id(tensor))

    def get(self) -> Any:
        """What it holds now."""
        return self.table.get(id(self.tensor))

    def put(self, content: Any) -> None:
        """Let it hold something else."""
        if content is None:
            self.table.pop(id(self.tensor), None)
        else:
            self.table[id(self.tensor)] = content

    def describe(self) -> str:
        """In words, for messages."""
        return "whether a tensor has a gradient"


class HooksSlot(Slot):
    """The hooks on a tensor or on a node of the dynamic graph, by number."""

    __slots__ = ("hooks", "location")

    def __init__(self, hooks: dict[int, Any], location: Location | None) -> None:
        self.hooks = hooks
        self.location = location  # the line that changes them
        self.key = ("table of hooks", id(hooks))

    def get(self) -> dict[int, Any]:
        """What it holds now."""
        return dict(self.hooks)

    def put(self, content: object) -> None:
        """Let it hold something else."""
        self.hooks.clear()
        self.hooks.update(cast(dict[int, Any], content))

    def describe(self) -> str:
        """In words, for messages."""
        return "the hooks of a tensor"


class SavedSlot(Slot):
    """What a node of the dynamic graph saved for the backward pass that frees it."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        self.node = node
        self.key = ("saved", id(node))

    def get(self) -> Any:
        """What it holds now."""
        return self.node.saved

    def put(self, content: object) -> None:
        """Let it hold something else."""
        self.node.saved = content

    def describe(self) -> str:
        """In words, for messages."""
        return "what a backward pass needs"


class External:
    """A tensor from outside that a capture uses, weakly held: one that dies with it is a constant."""

    __slots__ = ("array", "node", "reference", "value")

    def __init__(self, tensor: Tensor, value: Any) -> None:
        self.reference = weakref.ref(tensor)
        self.array = tensor._data
        self.node = tensor._node
        self.value = value

    def let_go(self) -> None:
        """Hold no array that the tensor has got back: the first call may write over it."""
        tensor = self.reference()
        if tensor is not None and tensor._data is self.array:
            self.array = None

    def now(self) -> Any:
        """The array, or what the tensor has by now if it has got it back."""
        tensor = self.reference() if self.array is None else None
        return self.array if tensor is None else tensor._data

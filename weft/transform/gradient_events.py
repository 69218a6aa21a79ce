"""What a capture is told of the data and gradients of tensors.

On one way of an ``if`` a tensor may have a gradient and on the other none. The gradient is then zeros, beside
a truth value (``PresenceSlot``). Adding to it makes that known again. Who reads it relies on its being there,
which the run checks; and a call leaves None where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import CaptureError
from weft.ir.location import Location
from weft.ops.effects import check
from weft.ops.op import Tensor
from weft.tensor.choices import Truth, either
from weft.tensor.node import Leaf, Node
from weft.transform.captured import Captured
from weft.transform.slots import DataSlot, GradSlot, HooksSlot, PresenceSlot, SavedSlot, Slot
from weft.transform.staging import Unstaged

_MESSAGE = (
    "a gradient that is read must be there, got None on the way that this call took; "
    "zero_grad() or backward() under an `if`, or in a loop without turns, leaves none"
)

_UNUSED = (
    "a gradient {must}, got outputs that do not use an input on the way that this call took; "
    "pass materialize_grads=True to get zeros there"
)

_NO_GRAPH = (
    "backward() must start at a tensor with requires_grad, got one that is computed from constants on the "
    "way that this call took"
)


class GradientEvents:
    """The part of a capture that has to do with gradients."""

    parent: Any
    root: Any
    region: bool
    journal: dict[tuple[Any, ...], tuple[Slot, Any]]

    def before_write(self, slot: Slot) -> None:
        """Told before a slot changes."""
        raise NotImplementedError  # a capture knows

    def meet(self, tensor: Tensor) -> None:
        """Let a tensor from outside stand for its value from now on."""
        raise NotImplementedError  # likewise

    def remember(self, slot: Slot) -> None:
        """Told before a slot of something that this capture made changes."""
        raise NotImplementedError  # likewise

    def recorded(self, node: object) -> bool:
        """Whether a node of the dynamic graph was recorded in this very capture."""
        raise NotImplementedError  # likewise

    def location(self) -> Location | None:
        """Where the user's code is now."""
        raise NotImplementedError  # likewise

    def before_data_write(self, tensor: Tensor) -> None:
        """Told before the value of a tensor changes."""
        self.before_write(DataSlot(tensor))

    def before_leaf_write(self, tensor: Tensor) -> None:
        """Told before a tensor becomes a leaf that gradients are asked for, or ceases to be one.

        A region hands on values; whether gradients are asked for is known when a graph is made.
        """
        slot = DataSlot(tensor)
        self.before_write(slot)
        if self.region and slot.key in self.journal:
            raise Unstaged(
                "requires_grad_",
                "whether gradients of a tensor are asked for must not change in a branch or loop that a run "
                "decides on, got a tensor from around it",
                hint="change it before or after, or outside of the compiled function",
            )

    def has_made(self, edge: Node | Leaf) -> bool:
        """Whether a node or leaf of the dynamic graph was made in this very capture."""
        if type(edge) is not Leaf:
            return self.recorded(edge)
        tensor = edge.owner()
        data = getattr(tensor, "_data", None)
        return type(data) is Captured and data.capture is self and not self.root.has_lent(tensor)

    def before_hooks_write(self, hooks: dict[int, Any], *, is_own: bool) -> None:
        """Told before the hooks of a tensor or node change, and whether this very capture made that."""
        slot = HooksSlot(hooks, self.location())
        (self.remember if is_own else self.before_write)(slot)

    def check_hooks(self) -> None:
        """Raise if hooks changed on something from around: a run of the graph would not change them."""
        what, place = ("a branch or loop", "around") if self.region else ("captured code", "outside")
        for slot, held in self.journal.values():
            if isinstance(slot, HooksSlot) and slot.get() != held:
                raise CaptureError(
                    "register_hook",
                    f"{what} must leave the hooks of a tensor from {place} as they were, got one "
                    f"{'removed' if held.keys() - slot.hooks.keys() else 'added'}, which only the capture "
                    "would do, not each call",
                    hint="register and remove hooks outside of the captured function, or remove there what "
                    "is registered there",
                    location=None if slot.location is None else slot.location.place,
                )

    def before_free(self, node: Node) -> None:
        """Told before a backward pass frees a node: an attempt, of a capture around too, puts it back."""
        slot = SavedSlot(node)
        if node.rule.ways is not None:
            self.root.notes.freed[node] = node.saved
        capture: Any = self
        while capture is not None:
            capture.remember(slot)
            capture = capture.parent

    def before_grad_write(self, tensor: Tensor) -> None:
        """Told before the gradient of a tensor changes: from then on it is known whether there is one.

        A way that is not taken hands on the one that the call finds.
        """
        if self.parent is not None:
            self.before_grad_read(tensor)
        slot = GradSlot(tensor)
        held = slot.get()
        if held is not None:
            self.meet(held)  # so that it shows what changes from now on
        self.before_write(slot)
        if self.root.notes.presence:
            self.settle_presence(tensor)

    def before_grad_sum(self, tensor: Tensor, held: Truth, truth: Truth) -> None:
        """Told before a gradient is added to that of a tensor.

        Args:
            tensor: the tensor.
            held: whether it has one.
            truth: whether what is added is one, and not zeros that stand for none.
        """
        self.before_grad_write(tensor)
        there = either(held, truth)
        if there is not True:
            slot = self.presence_of(tensor)
            self.before_write(slot)
            slot.put(there)

    def before_grad_read(self, tensor: Tensor) -> None:
        """Told before the gradient of a tensor is read, or added to."""
        if self.parent is not None:
            self.parent.before_grad_read(tensor)

    def presence_of(self, tensor: Tensor) -> PresenceSlot:
        """The slot that tells whether a tensor has a gradient."""
        return PresenceSlot(tensor, self.root.notes.presence)

    def settle_presence(self, tensor: Tensor) -> None:
        """Note that it is known whether a tensor has a gradient."""
        slot = self.presence_of(tensor)
        if slot.get() is not None:
            self.before_write(slot)
            slot.put(None)

    def rely_on_gradient(self, tensor: Tensor) -> None:
        """Told that code looks at the gradient of a tensor: where only a run tells, it checks it is there."""
        truth = self.root.notes.presence.get(id(tensor))
        if truth is not None:
            check.on_tensors(truth, pieces=(_MESSAGE,), places=())

    def rely_on_ways(self, truths: Sequence[Truth], allow_unused: bool) -> None:
        """Told that code is given gradients as results: where only a run tells, it checks they are there."""
        must = "that is asked for must be there" if allow_unused else "must be of what the outputs depend on"
        for truth in truths:
            if truth is not True:
                check.on_tensors(truth, pieces=(_UNUSED.format(must=must),), places=())

    def rely_on_leaves(self, truths: Sequence[Truth]) -> None:
        """Told that backward runs, which must come to some leaf."""
        there: Truth = not truths
        for truth in truths:
            there = either(there, truth)
        if there is not True:
            check.on_tensors(there, pieces=(_NO_GRAPH,), places=())

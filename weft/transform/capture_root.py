"""What the root of a capture is told of Python around it, and what is noted of objects while code runs.

Converted code tells the root what it reads, and which objects it makes. A root that guards what its graph
relies on, ``weft.capture.record.root.Root``, says more than this one, which takes note of nothing: graphs
that are written by hand, and those of transforms, are of the call at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from weft.base.device import CPU, Device
from weft.base.records import dataclass, field
from weft.ops.op import Op
from weft.tensor.mode import thread

T = TypeVar("T")


@dataclass(slots=True)
class Notes:
    """What the runtime keeps with a capture while it runs; what is said of a root is kept with roots alone.

    Attributes:
        made: objects that the capture made, by id.
        leaves: of tensors that it began to ask for gradients of.
        received: objects that functions of libraries gave it, which nobody else held then, by id.
        read: what was looked at of lists from around a region ("last", "len", "all"), by id of the list.
        stacks: lists that a loop made: the list, its items, and the tensor whose rows they are, by id.
        extents: sizes that numbers have, with the value that tells each, by what the number is.
        indices: what is known of the indices of loops in a region, by name.
        unwritten: texts with values of the run in them that were not printed yet.
        outside: of a root: containers from outside, by id.
        joined: of a root: containers that may be one of several from outside, by id.
        stale: of a root: by id, those of which one has been changed since, and after which statement.
        origins: of a root: of containers that ways or turns have left, what they are on each way, by id.
        entered: of a root: containers that stand in a turn for those which a variable or place holds then.
        namespaces: of a root: dicts of attributes with the objects that have them, by id of the dict.
        marks: of a root: the tensor, and how it is written, of each text that stands for one.
        raised: of a root: exceptions that captured code raised, and where.
        handlers: of a root: for each ``try`` that runs, what gives the classes that it handles.
        running: of a root: the captures in which a function runs, by its code.
        presence: of a root: by id of a tensor, whether it has a gradient, where only a run tells.
        absence: of a root: by id, a truth value that there is no gradient, and the one that there is.
        assigned: of a root: tensors that captured code made the gradients of others, by id.
        numbers: of a root: by id, what is known of tensors that are numbers of Python on some way.
        feeds: of a root: by id an iterator that a builtin made, and those that it takes items from.
        ended: of a root: by id, iterators of which nobody knows how far they have come, and why.
        nesting: of a root: the lines of the statements whose branches are captured, innermost last.
        failing: of a root: how many nodes were made so far that a run may fail at.
        freed: of a root: what nodes of control flow saved that a backward pass has freed, which tells ways.
        picked: of a root: the last item that was picked: from what, its position, and the tensor.
    """

    made: dict[int, Any] = field(default_factory=dict)
    leaves: set[Any] = field(default_factory=set)
    received: dict[int, Any] = field(default_factory=dict)
    read: dict[int, tuple[Any, set[str]]] = field(default_factory=dict)
    stacks: dict[int, tuple[Any, list[Any], Any]] = field(default_factory=dict)
    extents: dict[Any, tuple[Any, Any]] = field(default_factory=dict)
    indices: dict[str, Any] = field(default_factory=dict)
    unwritten: set[str] = field(default_factory=set)
    outside: dict[int, Any] = field(default_factory=dict)
    joined: dict[int, Any] = field(default_factory=dict)
    stale: dict[int, str] = field(default_factory=dict)
    origins: dict[int, Any] = field(default_factory=dict)
    entered: dict[int, Any] = field(default_factory=dict)
    namespaces: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    marks: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    raised: list[tuple[BaseException, Any]] = field(default_factory=list)
    handlers: list[Any] = field(default_factory=list)
    nesting: list[Any] = field(default_factory=list)
    failing: int = 0
    picked: tuple[Any, Any, Any] | None = None
    running: dict[Any, list[Any]] = field(default_factory=dict)
    presence: dict[int, Any] = field(default_factory=dict)
    absence: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    assigned: dict[int, Any] = field(default_factory=dict)
    numbers: dict[int, Any] = field(default_factory=dict)
    feeds: dict[int, tuple[Any, list[Any]]] = field(default_factory=dict)
    ended: dict[int, tuple[Any, str]] = field(default_factory=dict)
    freed: dict[Any, Any] = field(default_factory=dict)


class CaptureRoot:
    """What every capture can be told.

    Attributes:
        guards_reads: whether it keeps what it is told: later calls are then checked to find the same.
        keeps_generators: whether the states of random generators are inputs of its graph, which calls change.
        stages_control: whether control flow on tensors goes into the graph; else their truth is asked for.
        by_value: ids of containers from outside that variables hold by value, as ways hold several; None
            where all are.
        decided: lines of statements that Python runs, by values that it asks for, with the error where it
            cannot; None where no capture begins again.
        untold_gradient: whether the ops of the graph do not tell the gradient of the code: it applied a
            ``weft.Function``, a hook changes gradients, or a leaf got elements that its gradient ignores.
        untold_tangent: whether they do not tell its tangents: likewise, of any tensor.
        ran_hooks: whether a hook ran since somebody set this to False.
        opens_sizes: whether sizes of its inputs have names that numbers could stand for.
        filters: of warnings, as it found them; None if that does not matter.
        device: where its graph is to run: where the tensors are that it met.
    """

    guards_reads: ClassVar[bool] = False
    keeps_generators: ClassVar[bool] = False
    stages_control: bool = True
    by_value: set[int] | None = None
    decided: dict[Any, Exception] | None = None
    untold_gradient: bool = False
    untold_tangent: bool = False
    ran_hooks: bool = False
    opens_sizes: bool = False
    filters: Any = None
    device: Device = CPU

    def before_failing(self, op: Op, inputs: Sequence[object], attrs: Mapping[str, object]) -> None:
        """Told before an op goes into the graph, or into a region of it, that raises for some values."""

    def before_retaining(self, tensor: Any) -> None:
        """Told before a tensor that is no leaf is to keep its gradient."""

    def read_device(self) -> Device:
        """Told that code asked where a tensor is; gives it."""
        return self.device

    def read_attr(self, obj: object, name: str, value: object) -> None:
        """Told that an attribute was read, or looked for in vain."""

    def read_class(self, kind: type, name: str, value: object) -> None:
        """Told that code relies on what a class holds under a name."""

    def read_item(self, container: object, index: object, value: object) -> None:
        """Told that an item of a list or a dict was read."""

    def read_slot(self, slot: object, value: object) -> None:
        """Told what a slot holds that each call is to look at again."""

    def read_layout(self, tensor: Any) -> None:
        """Told that it matters how the elements of a tensor lie."""

    def read_view(self, tensor: Any) -> None:
        """Told that it matters whether a tensor is a view."""

    def read_leaf(self, tensor: Any) -> None:
        """Told that it matters whether a tensor was a leaf when the call began."""

    def read_member(self, container: object, member: object, found: bool) -> None:
        """Told whether something was found in a container."""

    def read_length(self, container: object) -> None:
        """Told that the length of a container was read."""

    def read_contents(self, container: object) -> None:
        """Told that all of a container was read."""

    def read_function(self, function: object) -> None:
        """Told that a function from outside was called."""

    def read_hooks(self, leaf: object) -> None:
        """Told that a backward came to a leaf, and ran the hooks that it has."""

    def read_identity(self, tensor: object) -> None:
        """Told that code asked which tensor one is."""

    def read_apart(self, one: object, other: object) -> None:
        """Told that code found two tensors to be different ones."""

    def made_inside(self, obj: T) -> T:
        """Told that captured code made an object; returns it."""
        return obj

    def is_inside(self, obj: object) -> bool:
        """Whether captured code made an object."""
        return False

    def is_named(self, obj: object) -> bool:
        """Whether an object was found outside, by a name."""
        return False

    def is_known(self, key: tuple[Any, ...]) -> bool:
        """Whether each call finds in a slot, or has put there, what it holds now."""
        return True


def note_layout(tensor: Any) -> None:
    """Tell the running capture that it matters how the elements of a tensor lie."""
    if thread.capture is not None:
        thread.capture.root.read_layout(tensor)

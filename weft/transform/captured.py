"""``Captured``: the data of a tensor that stands for a value of a graph being captured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from weft.base.concrete import is_concrete
from weft.base.device import Device
from weft.base.frames import format_location
from weft.base.shapes import size_of
from weft.errors import CaptureError
from weft.ir.graph import Value
from weft.ops.op import Op
from weft.tensor.autocast import not_casting
from weft.tensor.dispatch import evaluate
from weft.tensor.mode import running_levels, thread
from weft.tensor.tensor import Tensor, wrap
from weft.transform.levels import Traced
from weft.transform.slots import DataSlot, Slot


class Captured(Traced):
    """Stands for a value of a graph that is being captured."""

    __slots__ = ("capture", "cut", "value")

    place = "capture"

    def __init__(self, capture: Any, value: Value, cut: bool = False) -> None:
        self.level = capture.level
        self.capture = capture
        self.value = value
        self.cut = cut  # whether no gradient is to flow through it, though one could by the graph alone

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value; sizes may be named."""
        return self.value.type.shape

    @property
    def dtype(self) -> Any:
        """Dtype of the value."""
        return self.value.type.dtype

    @property
    def device(self) -> Device:
        """Where the graph is to run."""
        device: Device = self.capture.root.read_device()
        return device

    @property
    def size(self) -> int:
        """Number of elements."""
        return size_of(self.value.type.shape)

    @property
    def name(self) -> str:
        """The name of the value."""
        return self.value.name

    def rename(self, name: str) -> None:
        """Give the value a name, if the capture allows it."""
        self.capture.rename(self.value, name)

    def interpret(self, op: Op, inputs: Sequence[Tensor], attrs: dict[str, Any]) -> tuple[Any, ...]:
        """Only reached where the capture is not the innermost running one of this thread."""
        root = self.capture.root
        if root.ident != get_ident() and any(root.has_lent(t) for t in inputs):
            root.wait()  # also for a tensor that the other thread has changed in its graph
        else:
            self.await_other_thread(op.name)
        for t in inputs:  # copies of tensors that another thread lent to its graph get the array itself
            data = t._data
            if type(data) is Captured and not data.capture.root.has_lent(t):
                data.await_other_thread(op.name)
                t._data = data.lent()
        return evaluate(op, inputs, attrs)

    def lent(self) -> Any:
        """The array of a tensor that another thread lent to its graph: here it is as before; else None."""
        root = self.capture.root
        if root.ident == get_ident():
            return None
        return next((e.now() for e in root.externals if e.value is self.value), None)

    def before(self, tensor: Tensor) -> Any:
        """What a tensor from outside held before the capture, which it stands for; None of others."""
        external = self.capture.root.lent.get(id(tensor))
        return None if external is None else external.now()

    def await_other_thread(self, op: str) -> None:
        """Return when another thread that captures has given the tensor back; an error if none has it."""
        if self.lent() is None:
            raise self.escaped(op)
        self.capture.root.wait()

    def has_ended(self) -> bool:
        """Whether nothing here can use the value: the capture ended, or went back, or is inside this one."""
        here = thread.capture
        if self.level not in running_levels or self.value in self.capture.dropped:
            return True
        return here is not None and here.level < self.level

    def escaped(self, op: str) -> CaptureError:
        """The error where a value is used after its capture, naming the line that made it."""
        made = self.capture.location_of(self.value)
        where = "" if made is None else f", made at {format_location(made.place)}"
        message = f"tensors of a capture must not be used after it ended, got one that escaped{where}"
        return CaptureError(op, message, hint=self.capture.escape_hint)

    def lift(self, constant: Tensor) -> Tensor:
        """A constant as a value of the running capture."""
        captured = self.capture.current().as_captured(constant)
        return wrap(captured, constant._node)

    def map(self, function: Callable[[Tensor], Tensor]) -> Any:
        """Itself: it holds no tensors of its own."""
        return self

    def detached(self) -> Any:
        """The same value, through which no gradient flows."""
        array = self.lent()
        if array is not None:
            return array
        return self if self.cut else Captured(self.capture, self.value, cut=True)

    def concrete(self, op: str) -> Any:
        """The array, if the capture knows it and may rely on it: it then holds a guard."""
        array = self.lent()
        if array is not None:
            return array
        if self.level not in running_levels:
            raise self.escaped(op)
        return self.capture.current().concrete(op, self)


def name_of(tensor: Tensor) -> str:
    """The name of the value of a captured tensor; "" if it has none."""
    return tensor._data.name if type(tensor._data) is Captured else ""


def name_value(tensor: Tensor, name: str) -> None:
    """Give the value of a captured tensor a name, for those who read the graph, if it has none."""
    data = tensor._data
    if type(data) is Captured and not data.value.name:
        object.__setattr__(data.value, "name", name)


def is_cut(tensor: Tensor) -> bool:
    """Whether no gradient is to flow through a tensor of a capture.

    Outside of regions the tape tells: a leaf that was made of a detached tensor gets a gradient of its own.
    """
    data = tensor._data
    return type(data) is Captured and data.cut and (tensor._node is None or data.capture.region)


def is_dropped(held: Any) -> bool:
    """Whether something is a tensor of a value that a capture went back to before."""
    data = getattr(held, "_data", None)
    return type(data) is Captured and data.value in data.capture.dropped


def is_given_back(slot: Slot, held: Any) -> bool:
    """Whether a tensor from outside has its array back, which stood for a value when it held this."""
    if not isinstance(slot, DataSlot):
        return False
    return is_concrete(slot.tensor._data) and not is_concrete(held._data)


@contextmanager
def not_capturing() -> Iterator[None]:
    """Let ops run on arrays though this thread captures."""
    before = thread.capture
    thread.capture = None
    try:
        with not_casting():
            yield
    finally:
        thread.capture = before

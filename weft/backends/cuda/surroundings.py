"""What a captured graph finds around it: all tensors before, and which of them the block has changed.

Data of tensors are values: ``w -= g`` gives ``w`` other memory. In a graph the pointers are fixed, so each
tensor from before that the block changes is written back to the memory where the block found it. Who else
holds such an array (a graph for backward, a copy) must go on seeing its old values: it is *moved out*.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Container, Iterator
from typing import Any
from weakref import ref

import numpy as np

from weft.backends.cuda.array import DeviceArray, new_array, strided
from weft.backends.cuda.copies import packed_copy
from weft.backends.cuda.memory import Block
from weft.base.records import NamedTuple
from weft.errors import DeviceError
from weft.ops.op import type_of
from weft.tensor.alias import change, is_aliased
from weft.tensor.dispatch import wrap
from weft.tensor.generator import Generator
from weft.tensor.tensor import Tensor

_FEW = 64  # elements of an array of the host that are compared; larger ones are written as a whole


class Found(NamedTuple):
    """A tensor as the block found it; ``copy`` has the elements of a small one on the host."""

    tensor: Any
    data: Any
    gradient: Any
    copy: Any

    def has_changed(self) -> bool:
        """Whether the block gave the tensor another value."""
        if self.tensor._data is not self.data:
            return True
        return self.copy is not None and self.copy.tobytes() != self.data.tobytes()

    def restore(self) -> None:
        """Let the tensor be as it was."""
        if self.copy is not None and self.copy.tobytes() != self.data.tobytes():
            self.data[...] = self.copy
        self.tensor._data, self.tensor._form = self.data, None
        if self.gradient is not None or hasattr(self.tensor, "_grad"):
            self.tensor._grad = self.gradient


class Surroundings:
    """All tensors and generators that there are when a block begins."""

    def __init__(self) -> None:
        self.tensors: dict[int, Found] = {}
        self.generators: list[tuple[Generator, Any]] = []
        gc.unfreeze()  # what is frozen is not listed
        for x in _instances(Tensor):
            data = getattr(x, "_data", None)
            if type(data) is DeviceArray or type(data) is np.ndarray:
                small = data.copy() if type(data) is np.ndarray and data.size <= _FEW else None
                self.tensors[id(x)] = Found(x, data, getattr(x, "_grad", None), small)
        for g in _instances(Generator):
            self.generators.append((g, Generator._state_array(g)))

    def restore(self) -> None:
        """Let all be as it was before the block."""
        for found in self.tensors.values():
            found.restore()
        for generator, state in self.generators:
            Generator._set_state_array(generator, state)

    def check(self) -> None:
        """Raise if the block has changed what a replay does not change again."""
        for generator, state in self.generators:
            if Generator._state_array(generator).tobytes() != state.tobytes():
                raise _refused("random numbers that are drawn on the cpu", "draw them before")
        for found in self.tensors.values():
            if found.has_changed() and not _stays(found):
                raise _refused(f"a change of {type_of(found.tensor)} on {found.tensor.device}", _HINT)

    def roots(self) -> Iterator[Found]:
        """The tensors of devices that are no views of others."""
        for found in self.tensors.values():
            if type(found.data) is DeviceArray and not hasattr(found.tensor, "_link"):
                yield found

    def changes(self, read: Container[int]) -> list[tuple[Found, Any, DeviceArray]]:
        """What the block has changed: tensors, and gradients with whose they are; and what is there by now.

        A gradient from before counts if its memory was ``read``: the block then adds to it.
        """
        out: list[tuple[Found, Any, Any]] = [
            (found, None, found.tensor._data)
            for found in self.roots()
            if found.tensor._data is not found.data
        ]
        for found in self.tensors.values():
            now, old = getattr(found.tensor, "_grad", None), found.gradient
            if old is not None and now is not None and now is not old and _is_read(old._data, read):
                out.append((Found(old, old._data, None, None), found.tensor, now._data))
        for found, _, _ in out:
            if in_order_of(found.data, found.data).gaps is not None or not isinstance(
                found.data.block, Block
            ):
                hint = "use x = x.clone() before the block"
                raise _refused(f"a change of {found.data.type}, whose memory is not its own", hint)
        return out


def _is_read(data: Any, read: Container[int]) -> bool:
    return type(data) is DeviceArray and id(data.block) in read


_HINT = "have it on the device (of an optimizer: optimizer.to(device)), or compile the step by weft.compile"


def _stays(found: Found) -> bool:
    """Whether a tensor that has changed is one of the device, as it was."""
    now = found.tensor._data
    if type(found.data) is not DeviceArray or type(now) is not DeviceArray:
        return False
    return now.shape == found.data.shape and now.dtype == found.data.dtype and now.card is found.data.card


def _refused(what: str, hint: str) -> DeviceError:
    return DeviceError("cuda.graph", f"replays must do all that the block does, got {what}", hint=hint)


def _instances(kind: type) -> Iterator[Any]:
    """All living objects of a class; of each other class it is asked once."""
    known: dict[type, bool] = {}
    for x in gc.get_objects():
        cls = type(x)
        if cls not in known:
            known[cls] = issubclass(cls, kind)
        if known[cls]:
            yield x


class Static:
    """A tensor from outside that a graph reads or writes at fixed memory.

    Attributes:
        home: the array at that memory.
        writes: whether the graph writes there, so that the tensor shows it after a replay.
    """

    __slots__ = ("_owner", "_tensor", "home", "writes")

    def __init__(
        self, tensor: Any, home: DeviceArray, *, writes: bool = False, gradient_of: Any = None
    ) -> None:
        self.home = home
        self.writes = writes
        self._tensor = ref(tensor)
        self._owner = None if gradient_of is None else ref(gradient_of)

    def bring_in(self) -> None:
        """Have at the fixed memory what the tensor shows by now, on the current stream."""
        tensor = self._current()
        if tensor is None:
            return
        data = tensor._data
        if data is self.home:
            if self.writes:
                self.home = move_out(self.home, 3)  # held here, by the tensor, and by this name
            return
        if type(data) is not DeviceArray or data.type != self.home.type:
            raise DeviceError(
                "cuda.graph",
                f"a tensor that a graph uses must stay {self.home.type} on {self.home.device}, "
                f"got {type_of(tensor)} on {tensor.device}",
                hint="capture again where shapes change",
            )
        self.home = move_out(self.home, 1)
        copy_over(self.home, data)

    def show(self) -> None:
        """Let the tensor, and what are views of it, show what a graph has written."""
        tensor = self._current()
        if tensor is None or not self.writes or tensor._data is self.home:
            return
        if is_aliased(tensor):
            change(tensor, wrap(self.home))
        else:
            tensor._data, tensor._form = self.home, None

    def _current(self) -> Any:
        """The tensor, if it lives; of a gradient the one that its tensor has by now, or zeros for none."""
        if self._owner is None:
            return self._tensor()
        owner = self._owner()
        if owner is None:
            return None
        if getattr(owner, "_grad", None) is None:
            owner._grad = _zeros(self.home)
        return owner._grad


def _zeros(like: DeviceArray) -> Any:
    out = new_array(like.card, like.shape, like.dtype)
    if out.size:
        out.card.driver.cuMemsetD8Async(out.pointer, 0, out.nbytes, out.card.current().handle)
    return wrap(out)


def in_order_of(target: DeviceArray, source: DeviceArray) -> DeviceArray:
    """The elements of an array in the order in which those of another one lie in memory."""
    order = sorted(range(target.ndim), key=lambda axis: -target.strides[axis])
    shape, strides = ([of[axis] for axis in order] for of in (source.shape, source.strides))
    return strided(source, tuple(shape), tuple(strides), 0)


def copy_over(target: DeviceArray, source: DeviceArray) -> None:
    """Write the elements of an array over those of another one, on the current stream."""
    if not target.size:
        return
    stream, packed = target.card.current(), in_order_of(target, source).packed()
    packed.block.read_on(stream)
    target.block.write_on(stream)
    target.card.driver.cuMemcpyDtoDAsync(target.pointer, packed.pointer, target.nbytes, stream.handle)


def move_out(array: DeviceArray, held: int) -> DeviceArray:
    """The array at its memory, for who is about to write there; so many references are the writer's own.

    Where others hold it, they see the same values elsewhere from here on, and there is a new array.
    """
    if sys.getrefcount(array) <= held + _ARGUMENTS:
        return array
    home = DeviceArray(array.card, array.block, array.pointer, array.shape, array.dtype, array.gaps)
    moved = packed_copy(array)
    array.block, array.pointer, array.gaps = moved.block, moved.pointer, None
    return home


_ARGUMENTS = 2  # references that a call of getrefcount inside a function adds

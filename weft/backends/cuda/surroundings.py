"""What a captured graph finds around it: all tensors before, and which of them the block has changed.

Data of tensors are values: ``w -= g`` gives ``w`` other memory. In a graph the pointers are fixed, so each
tensor from before that the block changes is written back to the memory where the block found it. Who else
holds an array there goes on seeing its old values: see ``weft.backends.cuda.parting``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

import numpy as np

from weft.backends.cuda.array import DeviceArray, same_place
from weft.backends.cuda.fixed import OWN, Static, in_order_of, show_array
from weft.backends.cuda.memory import Block
from weft.backends.cuda.recorder import GraphMemory
from weft.base.records import NamedTuple
from weft.errors import DeviceError
from weft.ops.op import type_of
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
        everything = gc.get_objects()
        self._arrays = list(_instances(DeviceArray, everything))
        tensors = [x for x in _instances(Tensor, everything) if hasattr(x, "_data")]
        _part_roots(tensors)
        for x in tensors:
            if (
                type(x._data) is DeviceArray
            ):  # what the block keeps of it is told from what others kept before
                x._data = same_place(x._data)
            if type(x._data) is DeviceArray or type(x._data) is np.ndarray:
                small = x._data.copy() if type(x._data) is np.ndarray and x._data.size <= _FEW else None
                self.tensors[id(x)] = Found(x, x._data, getattr(x, "_grad", None), small)
        for g in _instances(Generator, everything):
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

    def made(self, memory: GraphMemory) -> list[Static]:
        """The tensors that the block has made in memory of its graph, gradients of others among them."""
        out, owners = [], {}
        for found in self.tensors.values():
            if (gradient := getattr(found.tensor, "_grad", None)) is not None:
                owners[id(gradient)] = found.tensor
        for x in _instances(Tensor, gc.get_objects()):
            data = getattr(x, "_data", None)
            if id(x) in self.tensors or hasattr(x, "_link") or type(data) is not DeviceArray:
                continue
            if getattr(data.block, "pool", None) is memory:
                out.append(Static(x, data, writes=True, made=True, owner=owners.get(id(x))))
        return out

    def kept(self, used: Callable[[Any], bool]) -> list[DeviceArray]:
        """The arrays in memory that a graph uses that were not there before the block.

        Tensors have others from here on, so that of these only what the block has kept elsewhere goes on.
        """
        known, objects = set(map(id, self._arrays)), gc.get_objects()
        found = [a for a in _instances(DeviceArray, objects) if id(a) not in known and used(a.block)]
        for x in _instances(Tensor, objects):
            data = getattr(x, "_data", None)
            if type(data) is DeviceArray and used(data.block):
                x._data = same_place(data)
        return found

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
                raise _refused(f"a change of {found.data.type}, whose memory is not its own", OWN)
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


def _part_roots(tensors: Sequence[Any]) -> None:
    """Give tensors that are no views of one another, but share memory, memory of their own but for one."""
    seen = set[int]()
    for x in tensors:
        data = x._data
        if type(data) is not DeviceArray or hasattr(x, "_link") or type(data.block) is not Block:
            continue
        if not data.block.size or id(data.block) not in seen:
            seen.add(id(data.block))
            continue
        show_array(x, data.copy())


def _instances(kind: type, objects: Sequence[Any]) -> Iterator[Any]:
    """The objects of a class; of each other class it is asked once."""
    known: dict[type, bool] = {}
    for x in objects:
        cls = type(x)
        if cls not in known:
            known[cls] = issubclass(cls, kind)
        if known[cls]:
            yield x

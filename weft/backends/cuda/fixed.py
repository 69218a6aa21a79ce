"""Tensors that a graph of the user's code reads or writes at fixed memory, whatever they show by then."""

from __future__ import annotations

from sys import getrefcount
from typing import Any
from weakref import ref

from weft.backends.cuda.array import DeviceArray, new_array, same_place, strided
from weft.backends.cuda.memory import Block
from weft.backends.cuda.parting import arrays_shown, is_at
from weft.errors import DeviceError
from weft.ops.op import type_of
from weft.tensor.alias import change, is_aliased
from weft.tensor.dispatch import wrap

OWN = "use x = x.clone() before the block"


class Static:
    """A tensor that a graph reads or writes at fixed memory.

    Attributes:
        home: an array at that memory, which nobody else holds.
        writes: whether the graph writes there, so that the tensor shows it after a replay.
        made: whether the block has made it, so that a replay does not read what it was before.
    """

    __slots__ = ("_held", "_owner", "_tensor", "home", "made", "writes")

    def __init__(
        self, tensor: Any, at: DeviceArray, *, writes: bool = False, made: bool = False, owner: Any = None
    ) -> None:
        self.home = same_place(at)
        self.writes, self.made = writes, made
        self._tensor = ref(tensor)
        self._owner = None if owner is None else ref(owner)  # whose gradient it is
        self._held = 0  # how often the memory was held when only who may see it did; 0 where nobody knows

    def is_settled(self) -> bool:
        """Whether a replay has nothing to do for it: all is as the last one left it."""
        tensor = self._current()
        if tensor is None:
            return True
        data = tensor._data
        if not is_at(data, self.home):
            return False
        return not self.writes or (
            getrefcount(data) == _SOLE
            and getrefcount(self.home.block) == self._held
            and not is_aliased(tensor)
        )

    def settle(self) -> None:
        """Note that all is as it must be, for the next replay to compare with."""
        tensor = self._current()
        there = tensor is not None and self.writes and is_at(tensor._data, self.home)
        self._held = getrefcount(self.home.block) if there and not is_aliased(tensor) else 0

    def shown(self, shared: list[DeviceArray]) -> list[DeviceArray]:
        """The arrays that show what the next replay writes at the fixed memory; none if it writes nothing.

        Those that others have as well are ``shared`` out to these, and the tensors get new ones.
        """
        tensor = self._current()
        if tensor is None or not (self.writes or self._brings(tensor)):
            return []
        block = self.home.block
        return [self.home, *[a for a in arrays_shown(tensor, shared) if a.block is block]]

    def bring_in(self) -> None:
        """Have at the fixed memory what the tensor shows by now, on the current stream."""
        tensor = self._current()
        if tensor is None or not self._brings(tensor):
            return
        data = tensor._data
        if type(data) is not DeviceArray or data.type != self.home.type:
            raise _unlike(
                self.home, f"{type_of(tensor)} on {tensor.device}", "capture again where shapes change"
            )
        if not isinstance(self.home.block, Block):
            raise _unlike(self.home, "new values for memory of another library", OWN)
        copy_over(self.home, data)

    def _brings(self, tensor: Any) -> bool:
        return not (self.made or is_at(tensor._data, self.home))

    def show(self) -> None:
        """Let the tensor, and what are views of it, show what a graph has written."""
        tensor = self._current()
        if tensor is None or not self.writes or is_at(tensor._data, self.home):
            return
        if self._owner is not None and self.made and tensor is not self._tensor():
            self._owner()._grad = self._wrapped()  # type: ignore[union-attr]
        elif not self.made or type_of(tensor) == self.home.type:  # else it is of the user's by now
            show_array(tensor, same_place(self.home))

    def _wrapped(self) -> Any:
        """A tensor for the gradient that a replay makes, where there is another one by now."""
        made = wrap(same_place(self.home))
        self._tensor = ref(made)
        return made

    def _current(self) -> Any:
        """The tensor, if it lives; of a gradient the one that its tensor has by now.

        Where there is none by now it begins with zeros, or is what a replay makes.
        """
        if self._owner is None:
            return self._tensor()
        owner = self._owner()
        if owner is None:
            return None
        if getattr(owner, "_grad", None) is None:
            owner._grad = self._wrapped() if self.made else _zeros(self.home)
        return owner._grad


def _sole() -> int:
    """What getrefcount says of what one object holds, and a variable."""
    probe = [object()]
    data = probe[0]
    return getrefcount(data)


_SOLE = _sole()


def show_array(tensor: Any, array: DeviceArray) -> None:
    """Let a tensor, and what are views of it, show an array."""
    if is_aliased(tensor):
        change(tensor, wrap(array))
    else:
        tensor._data, tensor._form = array, None


def _unlike(home: DeviceArray, got: str, hint: str) -> DeviceError:
    return DeviceError(
        "cuda.graph",
        f"a tensor that a graph uses must stay {home.type} on {home.device}, got {got}",
        hint=hint,
    )


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

"""Elements on a device: copied there while those before are used.

A thread takes elements from the pipeline, lays their arrays into pinned memory and lets the device copy them
on a stream of its own; so the training loop finds them there. Tensors that are no plain arrays, such as
ragged ones, are moved when they are asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.base.dtypes import canonical
from weft.data.ahead import Ahead
from weft.data.stage import Element
from weft.data.stream import ReadFeed, State, Stream
from weft.data.tree import map_tree

AHEAD = 2  # elements on the device, or on their way, beyond the one that is used


def on_device(source: Stream, device: Any) -> Stream:
    """The elements of a stream as tensors on a device."""
    return _Arrived(Ahead(ReadFeed(source), lambda: [_Sender(device)], AHEAD), device)


class _Leaf:
    """Stands in an element for an array that was sent, by its number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class _Sender:
    """Sends the arrays of elements, in the thread that reads ahead."""

    def __init__(self, device: Any) -> None:
        self._uploads = weft.cuda.uploads(device, AHEAD + 1)

    def __call__(self, i: int, chunk: Any) -> Element:
        arrays: list[Any] = []

        def taken(leaf: Any) -> Any:
            if not isinstance(leaf, np.ndarray | np.generic) or canonical(leaf.dtype) is None:
                return leaf
            arrays.append(np.asarray(leaf, leaf.dtype.newbyteorder("=")))
            return _Leaf(len(arrays) - 1)

        tree = map_tree(taken, chunk)
        return tree, self._uploads.send(arrays)

    def stop(self) -> None:
        """A copy does not take long."""

    def close(self) -> None:
        """Leave the ring to the next epoch."""
        self._uploads.close()


class _Arrived(Stream):
    """Elements that were sent, as the training loop gets them."""

    def __init__(self, source: Ahead, device: Any) -> None:
        self._source = source
        self._device = device

    def next(self) -> Element:
        tree, sent = self._source.next()
        tensors = sent.receive()

        def shown(leaf: Any) -> Any:
            if isinstance(leaf, _Leaf):
                return tensors[leaf.number]
            return leaf.to(self._device) if hasattr(leaf, "to") else leaf

        return map_tree(shown, tree)

    def state(self) -> State:
        return self._source.state()

    def close(self) -> None:
        self._source.close()

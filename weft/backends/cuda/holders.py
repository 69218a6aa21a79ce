"""Who holds arrays of a device, and their memory: CPython counts it.

An array that a tensor alone holds, whose memory no other array is in, may be written over.
Gradients from the last step, which the next one replaces, are such arrays, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from sys import getrefcount
from typing import Any

from weft.backends.cuda.array import DeviceArray
from weft.backends.cuda.card import Card
from weft.backends.cuda.memory import Block
from weft.backends.cuda.program import Array


def sole_arrays(places: Sequence[int]) -> Callable[[list[Any]], bool]:
    """A function of the arrays of a call: whether only a tensor each holds those at places, and their memory.

    It is asked at each call, so it looks at all of them at a time, and compares with what is to be seen.
    """
    pick: Any = itemgetter(*places) if len(places) > 1 else lambda x: (x[places[0]],)

    def seen(x: list[Any]) -> tuple[list[Any], ...]:
        arrays = pick(x)
        blocks = [a.block for a in arrays]
        return (
            [*map(getrefcount, arrays)],
            [*map(getrefcount, blocks)],
            [*map(type, blocks)],
            [a.gaps for a in arrays],
            [a.pointer - b.pointer for a, b in zip(arrays, blocks)],  # noqa: B905 - the keyword costs 5 %
        )

    probes = [_probe() for _ in range(max(places) + 1)]
    tensors = list(probes)  # stand for those that hold them
    expected = seen(probes)
    del tensors

    def are_sole(x: list[Any]) -> bool:
        try:
            return seen(x) == expected
        except AttributeError:  # of an array of the host
            return False

    return are_sole


def spare_gradients(types: Sequence[Array], card: Card) -> Callable[[Sequence[Any]], list[Any]]:
    """A function of tensors, as many as there are types: the arrays of their gradients, if nobody needs them.

    That is so if the tensors alone hold their gradients, and these alone their arrays; else it gives none.
    """
    shapes, dtypes = [t.shape for t in types], [t.dtype for t in types]
    are_sole = sole_arrays(range(len(types)))

    def held(owners: Sequence[Any]) -> tuple[list[Any], list[int]]:
        gradients = [owner._grad for owner in owners]
        return gradients, [*map(getrefcount, gradients)]

    class Owner:
        _grad: object

    probe = Owner()
    probe._grad = Owner()
    expected = held([probe])[1] * len(types)

    def spare(owners: Sequence[Any]) -> list[Any]:
        gradients, counts = held(owners)
        if counts != expected:
            return []
        arrays = [g._data for g in gradients]
        if [type(a) for a in arrays] != [DeviceArray] * len(arrays) or not are_sole(arrays):
            return []
        fits = [a.shape for a in arrays] == shapes and [a.dtype for a in arrays] == dtypes
        return arrays if fits and all(a.card is card for a in arrays) else []

    return spare


def _probe() -> DeviceArray:
    """An array with memory of its own, of which there is none."""
    probe = DeviceArray.__new__(DeviceArray)
    probe.block = Block.__new__(Block)
    probe.block.size = probe.block.pointer = probe.pointer = 0
    probe.gaps = None
    return probe

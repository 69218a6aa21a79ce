"""Programs of ops whose sizes vary from call to call: after a few, one with open sizes serves all others.

A program for known sizes runs quickest, so the first shapes get one each. Who goes on with others, as batches
of texts of all lengths do, would wait for the compiler again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.backends.cuda.array import DeviceArray
from weft.base.shapes import Shape
from weft.capture.program.sizes import fit, has_names, name_sizes
from weft.errors import DeviceError, ParallelError, WeftError

Run = Callable[..., Any]

FEW = 4  # programs for known sizes
_MOST_SEEN = 16


class Varied:
    """The shapes that one op was given, and its programs whose sizes are open.

    >>> from weft.backends.cuda.varied import Varied
    >>> varied = Varied()
    >>> for n in (2, 3, 4, 5, 6, 7):
    ...     print(varied.find([(n, 8)], lambda shapes: str(shapes[0])))
    (2, 8)
    (3, 8)
    (4, 8)
    (5, 8)
    (n, 8)
    (n, 8)
    """

    __slots__ = ("_open", "_seen", "_wants_numbers")

    def __init__(self) -> None:
        self._seen: list[Sequence[Shape]] = []
        self._open: list[tuple[Sequence[Shape], Run]] = []
        self._wants_numbers = False  # whether sizes must be known

    def find(self, shapes: Sequence[Shape], make: Callable[[Sequence[Shape]], Any]) -> Any:
        """What runs on arrays of such shapes; ``make`` compiles for shapes, whose sizes may have names."""
        for named, run in self._open:
            if fit(named, shapes):
                return run
        run = self._made_open(shapes, make)
        if len(self._seen) < _MOST_SEEN:
            self._seen.append(shapes)
        if run is None:
            run = make(shapes)
            self._wants_numbers = len(self._seen) > FEW
        return run

    def _made_open(self, shapes: Sequence[Shape], make: Callable[[Sequence[Shape]], Any]) -> Any:
        if len(self._seen) < FEW or self._wants_numbers:
            return None
        named = name_sizes([*self._seen, shapes])
        try:
            run = make(named) if has_names(named) else None
        except (DeviceError, ParallelError):  # of the device itself, or of other ranks
            raise
        except WeftError:  # it needs the numbers, or says of them what is wrong
            return None
        if run is not None:
            self._open.append((named, run))
        return run


def open_kind(array: DeviceArray) -> Any:
    """What programs with open sizes depend on: all but sizes that are at least 2."""
    return array.dtype, tuple([s if s < 2 else None for s in array.shape])

"""Programs that have work on weights done once, before the first call that needs it.

What was computed of weights holds for these very arrays. If one of them may be written to by somebody, which
``weft.base.frozen`` knows, it is computed at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft.backends.backend import Array, Arrays, Executable
from weft.base.aligned import ALIGNMENT, aligned
from weft.base.frozen import is_frozen

if TYPE_CHECKING:
    from weft.backends.llvm.code import Code
    from weft.backends.llvm.plan import Plan
    from weft.backends.llvm.run import NativeExecutable
    from weft.ir.graph import Graph
    from weft.loop.ir import Program
    from weft.schedule.explanation import Explanation

_Held = tuple[list[tuple[int, Array]], list[Array]]  # weights by number, and what was computed of them


class Preparation:
    """Computes what a program needs of weights, and keeps it while these stay as they are.

    Attributes:
        numbers: of the weights among the arrays of a call.
    """

    def __init__(self, numbers: Sequence[int], run: Callable[[list[Array]], list[Array] | None]) -> None:
        self.numbers = tuple(numbers)
        self._run = run
        self._held: _Held | None = None

    def add(self, arrays: Arrays) -> list[Array] | None:
        """The arrays of a call, then what was computed of the weights; None if that is not possible.

        Weights that are kept cannot be written to: who changes one gives the call another array.
        """
        held = self._held
        if held is not None:
            for number, array in held[0]:
                if arrays[number] is not array:
                    break
            else:
                return [*arrays, *held[1]]
        return self._add_new(arrays)

    def _add_new(self, arrays: Arrays) -> list[Array] | None:
        if len(arrays) <= max(self.numbers, default=-1):
            return None
        weights = [arrays[i] for i in self.numbers]
        if any(type(array) is not np.ndarray for array in weights):
            return None
        stay = all(map(is_frozen, weights))  # asked before they are read
        made = self._run(weights)
        if made is None:
            return None
        if stay:
            made = [x if x.ctypes.data % ALIGNMENT == 0 else aligned(x) for x in made]
            self._held = list(zip(self.numbers, weights, strict=True)), made
        else:
            self._held = None
        return [*arrays, *made]


class PreparedExecutable(Executable):
    """A program that is given what another one computes of weights.

    Attributes:
        graph: the whole one.
        main: runs at each call.
        prepare: runs when weights are others.
        numbers: of the weights among the inputs.
    """

    __slots__ = ("_build_whole", "_preparation", "_whole", "graph", "main", "numbers", "prepare")

    def __init__(
        self,
        graph: Graph,
        main: NativeExecutable,
        prepare: NativeExecutable,
        numbers: Sequence[int],
        build_whole: Callable[[], NativeExecutable],
    ) -> None:
        self.graph = graph
        self.main, self.prepare = main, prepare
        self.numbers = tuple(numbers)
        self._preparation = Preparation(numbers, prepare)
        self._build_whole = build_whole
        self._whole: NativeExecutable | None = None

    def __call__(self, arrays: Arrays) -> list[Array]:
        """Run on arrays."""
        given = self._preparation.add(arrays)
        return self.whole(arrays) if given is None else self.main(given)

    def donating(self, arrays: Arrays, flags: Sequence[bool]) -> list[Array]:
        """Run on arrays, of which those that are flagged may be overwritten."""
        given = self._preparation.add(arrays)
        if given is None:
            return self.whole.donating(arrays, flags)
        return self.main.donating(given, (*flags, *[False] * (len(given) - len(arrays))))

    def explain(self, arrays: Arrays | None = None) -> Explanation:
        """What it does at each call, and how long that takes on arrays."""
        given = None if arrays is None else self._preparation.add(arrays)
        return (
            self.whole.explain(arrays) if given is None and arrays is not None else self.main.explain(given)
        )

    @property
    def whole(self) -> NativeExecutable:
        """The program with nothing prepared, for arrays that are elsewhere or of other types."""
        if self._whole is None:
            self._whole = self._build_whole()
        return self._whole

    @property
    def donated(self) -> Sequence[tuple[int, int]]:  # type: ignore[override]
        """Pairs (input, result) by number: the result may be written over the input."""
        return self.main.donated

    @property
    def program(self) -> Program:
        """What each call runs."""
        return self.main.program

    @property
    def loops(self) -> Program:
        """The program of loops that each call runs."""
        return self.main.program

    @property
    def codes(self) -> tuple[Code, ...]:
        """The machine code of what each call runs, the main function first."""
        return self.main.codes

    @property
    def objects(self) -> tuple[bytes, ...]:
        """The object code of what each call runs, if it was to be kept."""
        return self.main.objects if self.prepare.objects else ()

    def known_plans(self) -> list[tuple[tuple[tuple[int, ...], ...], Plan]]:
        """What there is for calls, by the shapes of the arrays and of what was prepared."""
        return self.main.known_plans()

    def known_sizes(self) -> Mapping[str, int]:
        """The values that the last new shapes gave the named sizes."""
        return self.main.known_sizes()

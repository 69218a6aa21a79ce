"""A budget of memory: where the plan of a program needs more, gradients of its loops keep fewer states."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from weft.base.hooks import hooks
from weft.base.sizes import Size, bind, size_names
from weft.errors import DomainError
from weft.ir.graph import Graph
from weft.passes.pipeline import optimize
from weft.schedule.memory_report import memory
from weft.schedule.origins import show_bytes
from weft.transform.control.segments import keeping_few_states

_log = logging.getLogger("weft.compile")
_TEXT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([kKMGT]?)(i?)B?\s*")
_HINT = 'write a number of bytes, or a text such as "2 GB" or "512 MiB"'


def as_bytes(op: str, amount: object) -> int:
    """A number of bytes, given as such or as a text.

    >>> from weft.schedule.budget import as_bytes
    >>> as_bytes("compile", "2 GB"), as_bytes("compile", "1.5KiB"), as_bytes("compile", 100)
    (2000000000, 1536, 100)
    """
    if isinstance(amount, int) and not isinstance(amount, bool) and amount > 0:
        return amount
    found = _TEXT.fullmatch(amount) if isinstance(amount, str) else None
    if found is None:
        raise DomainError(op, f"memory must be a positive number of bytes, got {amount!r}", hint=_HINT)
    number, unit, binary = found.groups()
    power = " kMGT".index(unit.replace("K", "k") or " ")
    return int(float(number) * (1024 if binary else 1000) ** power)


class Budget:
    """So many bytes for what a program has in between, and for what it keeps for its gradient.

    Args:
        limit: in bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def choose(
        self,
        name: str,
        capture: Callable[[], Any],
        sizes: Mapping[str, int],
        placed: Callable[[Any], Any] = lambda program: None,
    ) -> Any:
        """A program: as it is captured or, if that needs too much, with loops that keep few states.

        Args:
            name: of the function.
            capture: makes the program.
            sizes: what named sizes are in the call that it is made for.
            placed: of a program, data that is on the device where it will run; None for the host.
        """
        program = capture()
        needed = planned_bytes(program, sizes, placed(program))
        if needed <= self.limit:
            return program
        with keeping_few_states():
            smaller = capture()
        least = planned_bytes(smaller, sizes, placed(smaller))
        if least < needed:
            program, needed = smaller, least
        if needed > self.limit:
            both = show_bytes(needed), show_bytes(self.limit)
            _log.warning("%s: the plan needs %s, with loops that keep few states, of %s", name, *both)
        return program


def planned_bytes(program: Any, sizes: Mapping[str, int], there: Any = None) -> int:
    """The bytes that a program needs beside its inputs and results, and those of its backward graph.

    Args:
        program: that was captured.
        sizes: what named sizes are.
        there: data on the device where it will run; None for the host.
    """
    derivative = program.derivative
    if derivative is None:
        return _arena(program.graph, sizes, there)
    outputs = derivative.forward.outputs
    kept = sum(_bytes(v.type, sizes) for v in outputs[len(outputs) - derivative.saved :])
    return kept + max(_arena(g, sizes, there) for g in (derivative.forward, derivative.backward))


def _arena(graph: Graph, sizes: Mapping[str, int], there: Any) -> int:
    graph = optimize(graph)
    arena = None if there is None else hooks.arena_on_device(graph, there)
    return _number(memory(graph).arena if arena is None else arena, sizes)


def _bytes(kind: Any, sizes: Mapping[str, int]) -> int:
    count: Any = kind.dtype.itemsize
    for size in kind.shape:
        count = count * size
    return _number(count, sizes)


def _number(count: Any, sizes: Mapping[str, int]) -> int:
    """A number of bytes; a size that only the run tells, or that no argument has, counts as one."""
    if not isinstance(count, Size):
        return int(count)
    return int(bind(count, {name: sizes.get(name, 1) for name in size_names([count])}))

"""Which library does a ``LibraryCall``: cuDNN, or NCCL for collectives."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Mapping, Sequence
from typing import Any

from weft.backends.cuda import cudnn, nccl
from weft.backends.cuda.card import Card
from weft.backends.cuda.program import LibraryCall, Step, all_steps
from weft.base.records import NamedTuple

Call = cudnn.Call | nccl.Call


def call_of(card: Card, step: LibraryCall, sizes: Mapping[str, int]) -> Call:
    """The call of a step, for sizes that are known."""
    return nccl.Call(card, step, sizes) if is_collective(step) else cudnn.Call.of(card, step, sizes)


def is_collective(step: Step) -> bool:
    """Whether a step is a collective by NCCL."""
    return isinstance(step, LibraryCall) and step.name in nccl.NAMES


def commit_of(steps: Sequence[Step]) -> LibraryCall | None:
    """The step that tells all ranks whether one has failed, if there is one."""
    return next((s for s in all_steps(steps) if isinstance(s, LibraryCall) and s.name == nccl.COMMIT), None)


class Collective(NamedTuple):
    """A collective of a program, as all ranks have it."""

    name: str
    types: str
    attrs: dict[str, Any]


def collectives_of(steps: Sequence[Step]) -> list[Collective]:
    """The collectives by NCCL among steps, and those inside them, in their order."""
    return [
        Collective(s.name, str([(a.dtype.name, str(a.shape)) for a in s.arrays]), literal_eval(s.attrs))
        for s in all_steps(steps)
        if isinstance(s, LibraryCall) and is_collective(s)
    ]

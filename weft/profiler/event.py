"""What a profile consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Line = tuple[str, int]  # file and line
KINDS = ("op", "kernel", "call", "build", "stage", "wait", "module", "region")


class Part(NamedTuple):
    """A line and a module that an event comes from, and its share of the event's time."""

    line: Line | None
    module: str
    phase: str
    share: float


@dataclass(frozen=True, slots=True)
class Event:
    """Something that ran.

    Attributes:
        kind: what it is: "op" (outside of graphs), "kernel" (a part of a compiled function), "call" (of a
            compiled function), "build" (compiling one), "stage" (of a data pipeline), "wait" (for a batch),
            "module", "region".
        name: of the op, the ops that were fused into the kernel, the function, the stage, ...
        begin: ns, of the clock of ``time.perf_counter_ns``.
        duration: ns.
        thread: number of the thread.
        line: file and line of the user's code, or None.
        module: path of the ``nn.Module`` that was running, or "".
        shapes: types of the inputs, such as ``f32[2,3]``; of a kernel those of its result.
        bytes: that it read and wrote, each array counted once.
        flops: floating-point operations, of kernels.
        count: how often it ran: a kernel in a loop is one event for each call of the function.
        parts: the lines and modules that a kernel was fused from.
        beside: how many other kernels ran side by side with it; the time of all was shared out by their work.
        own: ns, without the events inside of it.
    """

    kind: str
    name: str
    begin: int
    duration: int
    thread: int
    line: Line | None = None
    module: str = ""
    shapes: tuple[str, ...] = ()
    bytes: int = 0
    flops: int = 0
    count: int = 1
    parts: tuple[Part, ...] = ()
    beside: int = 0
    own: int = 0

    @property
    def end(self) -> int:
        """When it ended, in ns."""
        return self.begin + self.duration

"""What a row is: one program, written in each framework, with its goal and a limit of time."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Step = Callable[[], Any]  # does the work once, and gives something of its result
Make = Callable[[], Step]

WEFT, TORCH, COMPILED, JAX = "weft", "PyTorch", "torch.compile", "jax.jit"
DEVICE = os.environ.get("BENCH_DEVICE", "cuda")  # of weft: its programs can be tried where there is no card


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: by which it is asked for.
        title: what it is, for people.
        goal: in microseconds; None for what is only told.
        makers: by framework, what makes a step.
        limit: seconds that one framework may take in all, the first call included.
        turns: steps of a stretch, of which the time is taken.
        ops: operations of a step; the time of one is told.
        losses: whether what steps give is a loss, to be compared; of how many.
        own_time: whether a step gives its own time, in microseconds.
    """

    name: str
    title: str
    goal: float | None
    makers: dict[str, Make] = field(repr=False)
    limit: float = 60.0
    turns: int = 50
    ops: int = 1
    losses: int = 0
    own_time: bool = False


def waiter(framework: str) -> Callable[[Any], None]:
    """What waits for all that was begun, the last result given."""
    if framework == WEFT:
        import weft

        return lambda result: weft.cuda.synchronize() if DEVICE == "cuda" else None
    if framework == JAX:
        import jax

        def wait(result: Any) -> None:
            jax.block_until_ready(result)

        return wait
    import torch

    return lambda result: torch.cuda.synchronize()


def peak_bytes(framework: str) -> int | None:
    """The most memory of the device that was held, where the framework tells."""
    if framework == WEFT:
        import weft

        return weft.cuda.max_memory_allocated() if DEVICE == "cuda" else None
    if framework == JAX:
        import jax

        stats = jax.local_devices()[0].memory_stats()
        return None if stats is None else int(stats["peak_bytes_in_use"])
    import torch

    return int(torch.cuda.max_memory_allocated())

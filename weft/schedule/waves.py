"""Waves: launches in a row that do not depend on each other, so that they may run at the same time."""

from __future__ import annotations

from typing import Any

from weft.loop.ir import Block, Buffer, Launch, Wave
from weft.loop.walk import blocks_of, own_accesses

LONGEST = 64  # launches of a wave


def form_waves(block: Block) -> None:
    """Put independent neighbours of a block, and of those inside, into waves."""
    out: list[Any] = []
    wave: list[Launch] = []
    read: set[Buffer] = set()
    written: set[Buffer] = set()

    def end() -> None:
        if wave:
            out.append(wave[0] if len(wave) == 1 else Wave(tuple(wave)))
        wave.clear()
        read.clear()
        written.clear()

    for statement in block.statements:
        for inner in blocks_of(statement):
            form_waves(inner)
        if not isinstance(statement, Launch):
            end()
            out.append(statement)
            continue
        reads = {a.buffer for a in own_accesses(statement) if not a.written}
        writes = {a.buffer for a in own_accesses(statement) if a.written}
        if len(wave) >= LONGEST or writes & (read | written) or reads & written:
            end()
        wave.append(statement)
        read |= reads
        written |= writes
    end()
    block.statements[:] = out

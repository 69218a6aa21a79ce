"""Scalars that nothing uses are taken out of kernels; all others stay."""

from __future__ import annotations

import numpy as np

from weft.loop.builder import Builder
from weft.loop.ir import Scalar
from weft.loop.text import format_function
from weft.schedule.bodies import drop_unused

F32 = np.dtype("f4")


def instructions(b: Builder) -> list[str]:
    """The instructions that are left, in the order in which they are written."""
    function = b.function("f", written=b.buffers)
    lines = format_function(function).splitlines()
    return [line.split("= ")[1].split("(")[0] for line in lines if line.strip().startswith("%")]


def test_chain_that_ends_nowhere_is_gone_and_its_loads_stay() -> None:
    b = Builder()
    x = b.buffer("x", F32, 8)
    with b.loop(8) as i:
        b.exp(b.neg(b.load(x, i)))
        b.store(x, i, b.sqrt(b.load(x, i)))
    drop_unused(b.block)
    assert instructions(b) == ["load x[i1]", "load x[i1]", "sqrt"]


def test_what_indices_masks_and_conditions_use_stays() -> None:
    b = Builder()
    x = b.buffer("x", F32, 64)
    with b.loop(8) as i:
        place = b.term(b.xor(i, 3), 8)
        inside = b.lt(b.mul(i, i), 40)
        b.store(x, place * 8, b.load(x, place, inside), inside)
        with b.if_(b.eq(b.xor(i, 5), 0)) as otherwise:
            b.store(x, i, 1.0)
        with b.inside(otherwise):
            b.neg(b.load(x, i))
    drop_unused(b.block)
    kept = instructions(b)
    assert kept.count("xor") == 2
    assert {"mul", "lt", "eq"} <= set(kept)
    assert "neg" not in kept


def test_values_from_outside_of_a_loop_that_only_its_inside_uses_stay() -> None:
    b = Builder()
    x = b.buffer("x", F32, 8)
    scale = b.sqrt(b.load(x, 0))
    total = b.local(b.neg(scale), F32)
    with b.loop(8) as i:
        b.set(total, b.add(b.get(total), b.mul(b.load(x, i), scale)))
    b.store(x, 0, b.get(total))
    before = len([s for s in b.block.statements if isinstance(s, Scalar)])
    drop_unused(b.block)
    assert len([s for s in b.block.statements if isinstance(s, Scalar)]) == before == 2
    assert instructions(b).count("mul") == 1

"""Kernels that convert every dtype to every other one, in each way that loops are lowered, at each length.

They are compiled for both architectures, since how vectors of odd lengths are converted is what code
generators know least: some conversions they refuse, and end the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.backends.llvm.compiler import Source
from weft.backends.llvm.emit.kernel import emit_kernel
from weft.backends.llvm.export.processor import target_named
from weft.backends.llvm.target import Target
from weft.base.dtypes import DTYPES, bool_, int64
from weft.loop.builder import Builder
from weft.loop.ir import Function
from weft.schedule.cpu.machine import Machine

LONGEST = 40
PAIRS = [(a, b) for a in DTYPES for b in DTYPES if a != b]


def arm_targets() -> list[Target]:
    """ARM with what every one has, with units for narrow numbers, and with the widest vectors."""
    plain = target_named("armv8-a")
    wide = Target(plain.triple, "neoverse-v1", "", plain.vector_bytes, plain.registers)
    return [plain, target_named("armv8.6-a"), wide]


def x86_targets() -> list[Target]:
    """x86-64 with vectors of 32, 64 and 16 bytes, and with units for narrow numbers."""
    names = ("x86-64-v3", "x86-64-v4", "x86-64-v2", "x86-64-v4-bf16")
    return [target_named(name) for name in names]


def some_lengths(source: Any, to: Any, target: Target) -> list[int]:
    """Less than a vector, whole ones, and rests after one: longer arrays are made of the same."""
    machine = Machine(target.vector_bytes, target.registers)
    lanes = 2 * min(machine.lanes(source), machine.lanes(to))  # at most
    return sorted({*range(1, min(lanes + 1, LONGEST)), min(2 * lanes + 1, LONGEST), LONGEST})


def cast_sources(source: Any, to: Any, target: Target, *, every: bool) -> Iterable[Source]:
    """Each lowering of a conversion, optimised; with ``every`` at all lengths, and checked and quick too."""
    lengths = range(1, LONGEST + 1) if every else some_lengths(source, to, target)
    function = cast_function(source, to, lengths)
    yield Source(emit_kernel(function, "casts", target))
    if every:
        yield Source(emit_kernel(function, "casts_checked", target, debug=True), quick=True)


def cast_function(source: Any, to: Any, lengths: Sequence[int]) -> Function:
    """A kernel that converts arrays of some lengths, and of one that is not known."""
    most = LONGEST
    b = Builder()
    x, y = (b.buffer(name, dtype, 3 * most) for name, dtype in (("x", source), ("y", to)))
    number, chosen = b.buffer("n", int64, 1), b.buffer("m", bool_, most)
    for length in lengths:
        with b.vector(length) as i:
            b.store(y, i, b.cast(b.load(x, i), to))
    unknown = b.term(b.load(number, 0), most + 1)

    def masked(i: Any) -> None:
        mask = b.load(chosen, i)
        b.store(y, i, b.cast(b.load(x, i, mask), to), mask)

    bodies: list[tuple[Any, Callable[[Any], None]]] = [
        (b.vector(unknown), lambda i: b.store(y, i, b.cast(b.load(x, i), to))),
        (b.vector(most, 1), lambda i: b.store(y, i, b.cast(b.load(x, i), to))),
        (b.vector(most), lambda i: b.store(y, i, b.cast(b.load(x, 2 * i + 1), to))),
        (b.vector(most), lambda i: b.store(y, 3 * i, b.cast(b.load(x, i), to))),
        (b.vector(most), lambda i: b.store(y, i, b.cast(b.load(x, most - 1 - i), to))),
        (b.vector(most), lambda i: b.store(y, i, b.cast(b.load(x, 0), to))),
        (b.vector(unknown), masked),
        (b.loop(most), lambda i: b.store(y, i, b.cast(b.load(x, i), to))),
        (b.loop(unknown), masked),
    ]
    for loop, body in bodies:
        with loop as i:
            body(i)
    return b.function("casts", written=[y])

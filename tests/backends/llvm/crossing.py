"""Compiles the programs of the tests for the architecture that this machine is not of, and casts for both.

``python -m tests.backends.llvm.crossing 0 6`` does the first of six parts, in a process of its own: where
LLVM's selection of instructions meets what it does not know, it aborts. Each name is printed beforehand. A
run takes a third of the ops and conversions, another third whenever weft's code is another.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

import weft
from tests.backends.llvm.casting import PAIRS, arm_targets, cast_sources, x86_targets
from tests.backends.llvm.matrix import Case, case_of, cases, graph_of, rows
from tests.of_code import is_turn
from tests.schedule.lowered import variants
from weft.backends.llvm.compiler import Compiler, Source, defined_names, merged
from weft.backends.llvm.driver import kernel_symbol
from weft.backends.llvm.emit.instructions import instruction_set
from weft.backends.llvm.emit.kernel import emit_kernel
from weft.backends.llvm.emit.main import emit_main
from weft.backends.llvm.entry import enter_source
from weft.backends.llvm.export.processor import is_arm
from weft.backends.llvm.pool import pool_text
from weft.backends.llvm.target import Target, host_target
from weft.base.dtypes import DTYPES, kind
from weft.ir.graph import Graph
from weft.loop.walk import launched_functions
from weft.passes.pipeline import lower
from weft.schedule.cpu.machine import Machine
from weft.schedule.cpu.target import Cpu
from weft.schedule.program import lower_graph

ALL = os.environ.get("WEFT_CROSS_ALL", "") == "1"  # every case for every target, instead of some for one
SHARE = 1 if ALL else 8
TILE_SHARE = 1 if ALL else 4
CHECKED = 8  # of so many ops, one is also compiled with checks of every index

Make = Callable[[Target], Iterable[Source]]  # the texts of a program for a target


def other_targets() -> list[Target]:
    """Processors of the other architecture: with few features, with more, and with the widest vectors."""
    return x86_targets() if is_arm(host_target()) else arm_targets()


def sources(graph: Graph, target: Target, *, debug: bool = False) -> Iterator[Source]:
    """The texts of a graph: its kernels, then its main function."""
    machine = Machine(target.vector_bytes, target.registers, units=instruction_set(target).dots)
    program = lower_graph(lower(graph), target=Cpu(machine), debug=debug)
    symbol_of = partial(kernel_symbol, debug=debug)
    for function in launched_functions(program.main.body):
        yield Source(emit_kernel(function, symbol_of(function), target, debug=debug), quick=debug)
    name = "main_checked" if debug else "main"
    main = emit_main(program, name, symbol_of, target, debug=debug)
    yield Source(main, optimise=not debug and len(main) < 10_000)


# Programs


def programs() -> list[tuple[str, Make]]:
    """All programs, by name; dear ones are not side by side."""
    found: list[tuple[str, Make]] = [("the pool and the entry", _surroundings)]
    found += [(name, partial(_op_sources, name, number)) for number, name in enumerate(rows())]
    found += [(name, partial(_tile_sources, *tile)) for name, tile in TILES.items()]
    return found


def casts() -> list[tuple[str, Make]]:
    """Conversions of every dtype to every other one."""
    return [(f"cast {a} to {b}", partial(cast_sources, a, b, every=ALL)) for a, b in PAIRS]


def _surroundings(target: Target) -> Iterable[Source]:
    return [Source(pool_text(arm=is_arm(target), mac=False), quick=True), enter_source()]


def _op_sources(name: str, number: int, target: Target) -> Iterator[Source]:
    found = list(cases(name)) if ALL else list(_some_cases(name, number))
    yield from sources(graph_of(found).optimize(), target)
    if ALL or number % CHECKED == 0:
        yield from sources(graph_of(found[:1]), target, debug=True)


def _some_cases(name: str, number: int) -> Iterator[Case]:
    """One sample of an op as it is, of every other op, and one in another dtype, as the op's number says."""
    entry = rows()[name][number % len(rows()[name])]
    changed = variants(entry.sample.inputs)
    start = number % len(changed)
    tried = [*([] if number % 2 else [list(entry.sample.inputs)]), *changed[start:], *changed[:start]]
    found = (case for arrays in tried if (case := case_of(entry, arrays)) is not None)
    yield from islice(found, 1 if number % 2 else 2)


def _tile_sources(function: Any, shapes: Any, dtype: Any, target: Target) -> Iterable[Source]:
    def both(*inputs: Any) -> Any:
        out, pull = weft.vjp(function, *inputs)
        return (out, *pull(out))

    inputs = [weft.ones(*shape, dtype=dtype) for shape in shapes]
    graph = weft.make_graph(both if kind(dtype) in "fc" else function)(*inputs)
    return sources(graph.optimize(), target)


_attend = weft.scaled_dot_product_attention
_SIZES = ((1, 1, 1), (3, 5, 7), (17, 33, 9), (128, 100, 784), (4, 300, 64))
TILES: dict[str, tuple[Any, Any, Any]] = {
    f"matmul {m}x{k} {k}x{n} {dtype}": (weft.matmul, ((m, k), (k, n)), dtype)
    for number, dtype in enumerate(d for d in DTYPES if kind(d) != "b")
    for m, n, k in (_SIZES if ALL or dtype == weft.float32 else [_SIZES[number % len(_SIZES)]])
} | {
    f"convolution of {x} by {w}, {dtype}": (lambda x, w: weft.conv2d(x, w, padding=1), (x, w), dtype)
    for dtype in (weft.float32, weft.float64, weft.bfloat16)
    for x, w in [((4, 16, 14, 14), (24, 16, 3, 3)), ((2, 3, 19, 19), (5, 3, 7, 7))][: None if ALL else 1]
} | {
    f"attention of {rows} rows, {dtype}": (attend, ((2, rows, 12),) * 3, dtype)
    for rows, attend in ((70, _attend), (300, lambda q, k, v: _attend(q, k, v, is_causal=True)))
    for dtype in (weft.float32, weft.float16)
}  # fmt: skip


# The process


def compile_all(part: Iterable[tuple[int, tuple[str, Make]]], targets: Sequence[Target]) -> None:
    """Compile programs, each for the target that its number says; kernels that others had are left out."""
    compilers = {target: Compiler(target) for target in targets}
    known: set[tuple[Target, str]] = set()
    for number, (name, make) in part:
        for target in targets if ALL else [targets[number % len(targets)]]:
            print(f"{name}, for {target.cpu}", flush=True)  # noqa: T201 - whoever started it reads this
            modules: dict[tuple[bool, ...], list[str]] = {}
            for source in make(target):
                symbol = defined_names(source.text)[0]
                key = target, symbol if symbol.startswith("weft_") else source.text  # named after its code
                if key not in known:
                    known.add(key)
                    modules.setdefault(source[1:], []).append(source.text)
            for settings, texts in modules.items():
                compilers[target].compile(Source(merged(texts), *settings), verify=True)


def some(found: list[tuple[str, Make]]) -> list[tuple[int, tuple[str, Make]]]:
    """Programs with their numbers: the first, and those whose turn it is; of tiles, which are dear, more."""
    return [
        (i, (name, make))
        for i, (name, make) in enumerate(found)
        if i == 0 or is_turn(name, TILE_SHARE if name in TILES else SHARE)
    ]


def main(part: int, parts: int) -> None:
    """Compile one part of all programs."""
    Cpu().load()
    warnings.simplefilter("ignore")
    with np.errstate(all="ignore"):
        compile_all(some(programs())[part::parts], other_targets())
        for targets in (arm_targets(), x86_targets()):
            compile_all(some(casts())[part::parts], targets if ALL else targets[:1])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

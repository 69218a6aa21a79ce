"""Executables of machine code that is written by hand, for tests of how programs are run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft.backends.llvm.compiler import Source
from weft.backends.llvm.engine import default_engine
from weft.backends.llvm.run import NativeExecutable
from weft.ir.graph import Graph
from weft.loop.ir import Block, Buffer, Function, Program

Array = np.ndarray[Any, Any]
F32 = np.dtype(np.float32)


def executable(
    graph: Graph | str,
    body: str,
    *,
    sizes: Sequence[str] = (),
    constants: Sequence[Array] = (),
    arena: Any = 0,
    failures: Sequence[Any] = (),
    hosts: Sequence[Any] = (),
    donated: Sequence[tuple[int, int]] = (),
    declarations: str = "",
    records: int = 0,
) -> NativeExecutable:
    """A graph's inputs and results with machine code that does something of its own.

    In ``body``, %b0, %b1, ... are the buffers.
    """
    graph = weft.parse_graph(graph) if isinstance(graph, str) else graph
    values = (*graph.inputs, *graph.results)
    buffers = [Buffer(f"b{i}", v.type.dtype, 0) for i, v in enumerate(values)]
    buffers += [Buffer(f"c{i}", c.dtype, c.size) for i, c in enumerate(constants)]
    loads = [
        f"  %p{i} = getelementptr ptr, ptr %buffers, i64 {i}\n  %b{i} = load ptr, ptr %p{i}"
        for i in range(len(buffers))
    ]
    head = "define i64 @main(ptr %context, ptr %buffers, ptr %arena, ptr %sizes) {\nentry:"
    text = "\n".join([declarations, head, *loads, body, "}", ""])
    code = default_engine().load([Source(text)], verify=True)["main"]
    main = Function("main", tuple(buffers), tuple(sizes), Block())
    program = Program(
        main,
        len(graph.inputs),
        len(graph.results),
        tuple(constants),
        {},
        arena,
        (),
        failures,
        hosts,
        tuple(donated),
    )
    return NativeExecutable(graph, program, [code], records=records)


ADD = """
  %x = load <6 x float>, ptr %b0, align 4
  %y = load <6 x float>, ptr %b1, align 4
  %z = fadd <6 x float> %x, %y
  store <6 x float> %z, ptr %b2, align 4
  ret i64 0
"""
ADD_GRAPH = "graph f(%x: f32[2,3], %y: f32[2,3]) {\n  %0: f32[2,3] = add(%x, %y)\n  return %0\n}"


def arrays(*seeds: int) -> list[Array]:
    return [np.random.default_rng(seed).random((2, 3)).astype(np.float32) for seed in seeds]

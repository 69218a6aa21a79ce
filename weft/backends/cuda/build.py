"""From a graph to a ``CudaProgram``: lowered for a GPU, its kernels as PTX, its main function as steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from weft.backends.cuda.emit.kernel import can_fail, emit_grid_kernel, nvptx_target, thread_count
from weft.backends.cuda.emit.module import merged, to_ptx
from weft.backends.cuda.program import Array, CudaProgram, Kernel
from weft.backends.cuda.steps import Steps, find_alignments
from weft.backends.llvm.target import Target
from weft.ir.graph import Graph, Value
from weft.loop.capabilities import check_supported
from weft.loop.ir import Buffer, Function, Program
from weft.passes import lower
from weft.schedule.gpu.machine import Gpu as Machine
from weft.schedule.gpu.target import Gpu
from weft.schedule.program import lower_graph

_NOT_HERE = ("fuse_attention",)  # passes whose ops have no kernel for GPUs


def build_program(
    graph: Graph, architecture: str = "sm_90", machine: Machine | None = None, **options: Any
) -> CudaProgram:
    """The program of an optimised graph for cards of an architecture.

    Options are those of ``lower_graph``; what a machine is decides how work is shared out.

    >>> import weft
    >>> from weft.backends.cuda.build import build_program
    >>> graph = weft.make_graph(lambda x: weft.tanh(x) * 2.0)(weft.ones(1000))
    >>> print(build_program(graph))
    cuda program <lambda> for sm_90 {
      input 0: float32[1000]
      output 0: float32[1000]
      arena of 0 bytes
      kernel tanh_mul(pointer, pointer) threads 250 shared 0
      launch tanh_mul(input0, output0) grid 1
    }
    """
    lowered = lower(graph, disable=_NOT_HERE)
    return from_loops(lower_graph(lowered, target=Gpu(machine), **options), graph, architecture)


def from_loops(program: Program, graph: Graph, architecture: str) -> CudaProgram:
    """The program for cards of a program of loops."""
    target = nvptx_target(architecture)
    names = _Kernels(target)
    for function, alignments in find_alignments(program).items():
        names.add(function, alignments)
    steps = Steps(program, names.symbols).block(program.main.body)
    outputs = program.main.buffers[program.inputs : program.inputs + program.outputs]
    handed = [(i, outputs.index(b)) for i, b in enumerate(program.heap) if b in outputs]
    return CudaProgram(
        graph.name,
        architecture,
        to_ptx(merged(names.texts.values()), target) if names.texts else "",
        names.kernels,
        _arrays(graph.inputs, program.main.buffers[: program.inputs]),
        _arrays(graph.results, outputs),
        program.constants,
        tuple(Array(b.dtype, b.size) for b in program.heap),
        program.main.sizes,
        program.arena_size,
        steps,
        program.donated,
        program.failures,
        program.hosts,
        tuple(handed),
    )


def _arrays(values: Sequence[Value], buffers: Sequence[Buffer]) -> tuple[Array, ...]:
    return tuple(Array(b.dtype, b.size, v.type.shape) for v, b in zip(values, buffers, strict=True))


class _Kernels:
    """The kernels of a program, equal ones once.

    Attributes:
        symbols: by function, the name of its kernel.
        texts: by name, its LLVM assembly.
        kernels: by name.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self.symbols: dict[Function, str] = {}
        self.texts: dict[str, str] = {}
        self.kernels: dict[str, Kernel] = {}
        self._by_body: dict[int, str] = {}
        self._by_text: dict[str, str] = {}

    def add(self, function: Function, alignments: dict[Buffer, int]) -> None:
        """Have a kernel for a function."""
        key = id(function.body)
        if key not in self._by_body:
            self._by_body[key] = self._emit(function, alignments)
        self.symbols[function] = self._by_body[key]

    def _emit(self, function: Function, alignments: dict[Buffer, int]) -> str:
        check_supported(function, "cuda", threads=True)
        name = self._free_name(function.name)
        text = emit_grid_kernel(function, name, self._target, alignments)
        found = self._by_text.setdefault(text.replace(name, "$"), name)
        if found == name:
            self.texts[name] = text
            pointers = len(function.buffers) + can_fail(function)
            parameters: Any = ("pointer",) * pointers + ("number",) * len(function.sizes)
            self.kernels[name] = Kernel(name, parameters, thread_count(function))
        return found

    def _free_name(self, name: str) -> str:
        name = re.sub(r"\W+", "_", name).strip("_") or "kernel"
        taken = {*self.texts}
        numbered = (f"{name}_{i}" for i in range(2, len(taken) + 3))
        return name if name not in taken else next(n for n in numbered if n not in taken)

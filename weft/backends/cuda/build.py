"""From a graph to a ``CudaProgram``: lowered for a GPU, its kernels as PTX, its main function as steps."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from weft.backends.cuda.emit.kernel import (
    asked_bytes,
    can_fail,
    emit_grid_kernel,
    nvptx_target,
    thread_count,
)
from weft.backends.cuda.emit.module import merged, to_ptx
from weft.backends.cuda.program import Array, CudaProgram, Kernel
from weft.backends.cuda.steps import find_alignments, steps_of, waves_of
from weft.backends.llvm.target import Target
from weft.ir.graph import Graph, Value
from weft.loop.capabilities import check_supported
from weft.loop.ir import Buffer, Function, Launch, Program, Wave
from weft.loop.walk import statements
from weft.passes import lower
from weft.passes.base import Pass
from weft.passes.inline import inline
from weft.passes.lowering.biases_by_library import biases_by_library
from weft.passes.lowering.channels_last import convolutions_by_library
from weft.passes.lowering.gpu import BY_CUDNN, GPU_LOWERING, MEANT_TOO
from weft.passes.pipeline import Step
from weft.schedule.gpu.machine import Gpu as Machine
from weft.schedule.gpu.target import Gpu
from weft.schedule.program import lower_graph


def build_program(
    graph: Graph, architecture: str = "sm_90", machine: Machine | None = None, **options: Any
) -> CudaProgram:
    """The program of an optimised graph for cards of an architecture.

    Options are those of ``loops_of``; what a machine is decides how work is shared out.

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
    return from_loops(loops_of(graph, machine, **options), graph, architecture)


def loops_of(
    graph: Graph,
    machine: Machine | None = None,
    *,
    lowering: Sequence[Step] | None = None,
    disable: Collection[str] = (),
    **options: Any,
) -> Program:
    """The program of loops of an optimised graph, shared out for a machine.

    Args:
        graph: the graph.
        machine: what it is to run on.
        lowering: passes to run first, instead of ``weft.passes.GPU_LOWERING``.
        disable: names of passes, and of choices of the schedule, to leave out.
        options: others of ``lower_graph``.
    """
    if machine is not None and "libraries" in disable:
        machine = machine._replace(libraries=False, cudnn=False)
    usual = [inline] if options.get("check_nan") else _passes_for(machine)  # checks are of each op by itself
    off = {*disable, *[MEANT_TOO[name] for name in disable if name in MEANT_TOO]}
    if machine is None or not machine.cudnn:
        off.update(BY_CUDNN)
    elif not machine.adds_biases:
        off.add(convolutions_by_library.name)
    lowered = lower(graph, usual if lowering is None else lowering, disable=off)
    return lower_graph(lowered, target=Gpu(machine), disable=disable, **options)


def _passes_for(machine: Machine | None) -> list[Pass]:
    """The passes for a machine; without a library none that leaves something to it."""
    worth = {} if machine is None or not machine.libraries else {"worth": machine.least_product}
    chosen = {biases_by_library: [biases_by_library.using(**worth)] if worth else []}
    return [made for p in GPU_LOWERING for made in chosen.get(p, [p])]


def from_loops(program: Program, graph: Graph, architecture: str) -> CudaProgram:
    """The program for cards of a program of loops."""
    target = nvptx_target(architecture)
    names = _Kernels(target)
    alignments_of = find_alignments(program)
    alone = {s.function for s in statements(program.main.body) if isinstance(s, Launch)}
    for function, alignments in alignments_of.items():
        if function in alone:
            names.add(function, alignments)
    for wave in waves_of(program.main.body):
        names.add_wave(wave, alignments_of[wave.launches[0].function])
    steps = steps_of(program, names.symbols, names.waves)
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
        [] if all(entry.library for entry in program.hosts) else program.hosts,
        tuple(handed),
        program.late,
    )


def _arrays(values: Sequence[Value], buffers: Sequence[Buffer]) -> tuple[Array, ...]:
    return tuple(Array(b.dtype, b.size, v.type.shape) for v, b in zip(values, buffers, strict=True))


class _Kernels:
    """The kernels of a program, equal ones once.

    Attributes:
        symbols: by function, the name of its kernel.
        waves: by number of launches and id of their body, the name of the kernel that has them all.
        texts: by name, its LLVM assembly.
        kernels: by name.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self.symbols: dict[Function, str] = {}
        self.texts: dict[str, str] = {}
        self.kernels: dict[str, Kernel] = {}
        self.waves: dict[tuple[int, int], str] = {}
        self._by_body: dict[int, str] = {}
        self._by_text: dict[str, str] = {}

    def add(self, function: Function, alignments: dict[Buffer, int]) -> None:
        """Have a kernel for a function."""
        key = id(function.body)
        if key not in self._by_body:
            self._by_body[key] = self._emit(function, alignments)
        self.symbols[function] = self._by_body[key]

    def add_wave(self, wave: Wave, alignments: dict[Buffer, int]) -> None:
        """Have a kernel for all launches of a wave."""
        function, many = wave.launches[0].function, len(wave.launches)
        key = many, id(function.body)
        if key not in self.waves:
            self.waves[key] = self._emit(function, alignments, many)

    def _emit(self, function: Function, alignments: dict[Buffer, int], many: int = 1) -> str:
        check_supported(function, "cuda", threads=True)
        name = self._free_name(function.name if many == 1 else f"{function.name}_x{many}")
        text = emit_grid_kernel(function, name, self._target, alignments, many)
        # Only where it is a symbol: a kernel "mul" also has instructions that end so, as "sub" has others.
        found = self._by_text.setdefault(text.replace(f"@{name}", "@$"), name)
        if found == name:
            self.texts[name] = text
            pointers = len(function.buffers) + can_fail(function)
            parameters: Any = ("pointer",) * pointers + ("number",) * len(function.sizes)
            parameters = parameters if many == 1 else ("number", *parameters) * many
            shared = asked_bytes(function)
            self.kernels[name] = Kernel(name, parameters, thread_count(function), shared, many)
        return found

    def _free_name(self, name: str) -> str:
        name = re.sub(r"\W+", "_", name).strip("_") or "kernel"
        taken = {*self.texts}
        numbered = (f"{name}_{i}" for i in range(2, len(taken) + 3))
        return name if name not in taken else next(n for n in numbered if n not in taken)

"""From a graph to what runs it on a device: the program of ``weft.backends.cuda.build``, made ready there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from weft.backends.backend import Backend, Executable, Option
from weft.backends.cuda.bound import can_fail
from weft.backends.cuda.card import Card, card
from weft.backends.cuda.cublaslt import find_library, library_of
from weft.backends.cuda.cudnn import has_biases, has_cudnn, has_plans
from weft.backends.cuda.execute import CudaExecutable
from weft.backends.cuda.meeting import shared_graph
from weft.backends.cuda.modules import load_module
from weft.backends.cuda.program import CudaProgram, LibraryCall, MatrixProduct, all_steps
from weft.backends.cuda.stored import stored_program
from weft.errors import GraphError
from weft.ir.graph import Graph
from weft.ops.collective import commit
from weft.ops.library_collective import library_commit
from weft.schedule.gpu.machine import Gpu as Machine

_COMPILER = "weft.backends.cuda.build"
_CUDNN = (8, 0)  # capability of cards from which on cuDNN has what programs leave to it


@cache
def has_compiler() -> bool:
    """Whether graphs can be compiled for devices."""
    return find_spec(_COMPILER) is not None


def compile_for_device(graph: Graph, on: Card) -> CudaExecutable:
    """What runs an optimised graph on a device."""
    return CudaExecutable(on, program_for(graph, on), graph)


def program_for(graph: Graph, on: Card, **options: Any) -> CudaProgram:
    """The program of an optimised graph for a device, from disk if it was made before."""
    if not has_compiler():
        raise GraphError("cuda", f"graphs must be compiled by {_COMPILER}, which is not there")
    program = _program(shared_graph(graph, on), on, options)
    if any(node.op is commit for node in graph.nodes) and can_fail(program):
        # Ranks must meet before state is overwritten: all of them overwrite theirs, or none does.
        meeting = shared_graph(graph, on, commits=True)
        if any(node.op in (commit, library_commit) for node in meeting.nodes):
            program = _program(meeting, on, options)
    return program


def _program(graph: Graph, on: Card, options: dict[str, Any]) -> CudaProgram:
    machine = machine_of(on)
    program = _stored(graph, on.architecture, machine, options)
    if not machine.cudnn or _has_all(on, program):
        return program
    if has_biases(program):
        program = _stored(graph, on.architecture, machine._replace(adds_biases=False), options)
        if _has_all(on, program):
            return program
    return _stored(graph, on.architecture, machine._replace(cudnn=False), options)


def _has_all(on: Card, program: CudaProgram) -> bool:
    """Whether cuDNN has what a program calls; the driver makes machine code of its kernels meanwhile."""
    if not any(isinstance(step, LibraryCall) for step in all_steps(program.steps)):
        return True
    with ThreadPoolExecutor(2) as beside:  # errors come again, to who needs what there is none of then
        if program.ptx:
            beside.submit(load_module, on, program.ptx)
        if any(isinstance(step, MatrixProduct) for step in all_steps(program.steps)):
            beside.submit(library_of, on)
        return has_plans(on, program)


def _stored(graph: Graph, architecture: str, machine: Machine, options: dict[str, Any]) -> CudaProgram:
    def build() -> CudaProgram:
        make: Callable[..., CudaProgram] = import_module("weft.backends.cuda.build").build_program
        return make(graph, architecture, machine, **options)

    if options.get("lowering"):  # passes that have no text
        return build()
    told = sorted((name, sorted(x) if isinstance(x, frozenset) else x) for name, x in options.items())
    return stored_program(graph, f"{architecture} {machine} {told}", build)


def machine_of(on: Card) -> Machine:
    """What programs for a device can count on."""
    return Machine(
        shared_bytes=on.shared_bytes,
        libraries=find_library("cublasLt") is not None,
        cudnn=has_cudnn() and on.capability >= _CUDNN,
    )


class CudaBackend(Backend):
    """Runs graphs on the first GPU; arrays of the host are copied there."""

    name = "cuda"
    needs = ("cuda",)

    def build(self, graph: Graph, **options: Option) -> Executable:
        """What runs a graph."""
        return compile_for_device(graph, card(0, "compile"))


BACKEND = CudaBackend()

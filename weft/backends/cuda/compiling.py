"""From a graph to what runs it on a device: the program of ``weft.backends.cuda.build``, made ready there."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from weft.backends.backend import Backend, Executable, Option
from weft.backends.cuda.card import Card, card
from weft.backends.cuda.execute import CudaExecutable
from weft.errors import GraphError
from weft.ir.graph import Graph

_COMPILER = "weft.backends.cuda.build"


@cache
def has_compiler() -> bool:
    """Whether graphs can be compiled for devices."""
    return find_spec(_COMPILER) is not None


def compile_for_device(graph: Graph, on: Card) -> CudaExecutable:
    """What runs an optimised graph on a device."""
    if not has_compiler():
        raise GraphError("cuda", f"graphs must be compiled by {_COMPILER}, which is not there")
    make: Callable[..., Any] = import_module("weft.backends.cuda.build").build_program
    return CudaExecutable(on, make(graph, on.architecture), graph)


class CudaBackend(Backend):
    """Runs graphs on the first GPU; arrays of the host are copied there."""

    name = "cuda"
    needs = ("cuda",)

    def build(self, graph: Graph, **options: Option) -> Executable:
        """What runs a graph."""
        return compile_for_device(graph, card(0, "compile"))


BACKEND = CudaBackend()

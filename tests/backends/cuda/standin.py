# ruff: noqa: N802 - the names are those of the driver
"""The stand-in for the driver with its graphs, and how it is put in the driver's place.

Nodes of a graph run in some order that its edges allow, another one each time, so that a missing edge shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.backends.cuda.standin_driver import OUT_OF_MEMORY, Allocation, DriverStandIn, Handle, RaceError
from weft.backends.cuda import cublaslt, cudnn, driver, nccl
from weft.backends.cuda.backward import forget_rules
from weft.backends.cuda.card import forget_cards
from weft.backends.cuda.compiling import compile_for_device, has_compiler
from weft.backends.cuda.eager import forget_programs, set_build
from weft.backends.cuda.forms import forget_forms
from weft.backends.cuda.modules import forget_modules
from weft.backends.cuda.placing import forget_constants
from weft.backends.cuda.uploads import forget_rings
from weft.backends.llvm.cache import default_cache, set_cache_directory

__all__ = ["OUT_OF_MEMORY", "Allocation", "Handle", "RaceError", "StandIn", "standing_in"]


class Params:
    """The parameters of a node of a graph."""

    def __init__(self) -> None:
        self.func = self.sharedMemBytes = self.kernelParams = 0
        self.gridDimX = self.gridDimY = self.gridDimZ = 1
        self.blockDimX = self.blockDimY = self.blockDimZ = 1
        self.dst = self.value = self.elementSize = self.width = self.height = self.pitch = 0
        self.srcDevice = self.dstDevice = self.WidthInBytes = 0
        self.srcMemoryType = self.dstMemoryType = None
        self.dstHost = 0
        self.Height = self.Depth = 1
        self.words: list[int] = []


class Conditional:
    """What a conditional node is told, and the graphs of its bodies."""

    def __init__(self) -> None:
        self.handle = self.type = self.size = self.ctx = 0
        self.phGraph_out: list[Any] = []


class NodeParams:
    """The parameters of a node of any kind."""

    def __init__(self) -> None:
        self.type = 0
        self.conditional = Conditional()


class EdgeData:
    """What an edge is told."""

    def __init__(self) -> None:
        self.from_port = self.to_port = self.type = 0


class StandIn(DriverStandIn):
    """All functions, by the names and with the results that the bindings have."""

    CUDA_KERNEL_NODE_PARAMS = CUDA_MEMSET_NODE_PARAMS = CUDA_MEMCPY3D = Params
    CUgraphNodeParams = NodeParams
    CUgraphEdgeData = EdgeData

    def cuGraphCreate(self, flags: int) -> Any:
        graph = self.number()
        self.graphs[graph] = []
        return 0, Handle(graph)

    def add_node(self, graph: int, dependencies: Any, count: int, kind: str, params: Params) -> Any:
        nodes = self.graphs[int(graph)]
        if kind == "copy":  # the driver looks at both sides
            self.allocation(params.srcDevice, params.WidthInBytes)
            assert params.dstMemoryType == 1 or self.allocation(params.dstDevice, params.WidthInBytes)
        if kind == "fill":
            self.allocation(params.dst, params.width)
        assert count == len(dependencies or ())
        assert all(self.nodes[int(d)][0] == int(graph) for d in dependencies or ()), "nodes of this graph"
        if kind == "kernel":
            params.words = self.words(params.func, params.kernelParams)
        nodes.append((kind, _copied(params) if isinstance(params, Params) else params))
        node = self.number()
        self.nodes[node] = (int(graph), len(nodes) - 1)
        self.edges.setdefault(int(graph), []).append([self.nodes[int(d)][1] for d in dependencies or ()])
        return 0, Handle(node)

    def cuGraphAddKernelNode(self, graph: int, dependencies: Any, count: int, params: Params) -> Any:
        return self.add_node(graph, dependencies, count, "kernel", params)

    def cuGraphAddMemcpyNode(self, graph: int, dependencies: Any, count: int, params: Params, c: int) -> Any:
        return self.add_node(graph, dependencies, count, "copy", params)

    def cuGraphAddMemsetNode(self, graph: int, dependencies: Any, count: int, params: Params, c: int) -> Any:
        return self.add_node(graph, dependencies, count, "fill", params)

    def cuGraphAddDependencies(self, graph: int, first: Any, then: Any, edges: Any, count: int) -> int:
        assert count == len(first) == len(then) == len(edges)
        for a, b, edge in zip(first, then, edges, strict=True):
            (home, i), (other, j) = self.nodes[int(a)], self.nodes[int(b)]
            assert home == other == int(graph), "nodes of this graph"
            nodes = self.graphs[int(graph)]
            assert (edge.from_port, edge.to_port, edge.type) == (1, 0, 1)
            assert [nodes[i][0], nodes[j][0]] == ["kernel", "kernel"]
            for place in (i, j):
                image = self.images[int(nodes[place][1].func)]
                assert b".entry" not in image or b"griddepcontrol.wait" in image, "it would not wait"
            self.edges[int(graph)][j].append(i)
        return 0

    def cuGraphInstantiate(self, graph: int, flags: int) -> Any:
        ready = self.number()
        self.graphs[ready] = list(self.graphs[int(graph)])
        self.edges[ready] = self.edges.get(int(graph), [])
        return 0, Handle(ready)

    def set_node(self, ready: int, node: Any, params: Params) -> int:
        _, place = self.nodes[int(node)]
        kind, _ = self.graphs[int(ready)][place]
        if kind == "kernel":
            params.words = self.words(params.func, params.kernelParams)
        self.graphs[int(ready)][place] = (kind, _copied(params))
        return 0

    def cuGraphExecKernelNodeSetParams(self, ready: int, node: Any, params: Params) -> int:
        return self.set_node(ready, node, params)

    def cuGraphExecMemcpyNodeSetParams(self, ready: int, node: Any, params: Params, context: int) -> int:
        return self.set_node(ready, node, params)

    def cuGraphExecMemsetNodeSetParams(self, ready: int, node: Any, params: Params, context: int) -> int:
        return self.set_node(ready, node, params)

    def cuGraphConditionalHandleCreate(self, graph: int, context: int, default: int, flags: int) -> Any:
        assert (default, flags) == (0, 1)
        assert int(graph) in self.graphs
        return 0, Handle(self.number())

    def cuGraphAddNode(self, graph: int, dependencies: Any, data: Any, count: int, params: NodeParams) -> Any:
        assert params.type == 13
        assert data is None
        told = params.conditional
        assert told.size in ((1, 2) if told.type == 0 else (1,))
        assert int(told.handle) not in {
            int(p.handle) for g in self.graphs.values() for _, p in g if hasattr(p, "handle")
        }
        told.phGraph_out = [self.cuGraphCreate(0)[1] for _ in range(told.size)]
        return self.add_node(graph, dependencies, count, ("if", "while")[told.type], told)  # type: ignore[arg-type]

    def cuStreamEndCapture(self, stream: int) -> Any:
        graph = self.number()
        given = self.notes.pop(int(stream))
        self.graphs[graph] = [("fill", g) if isinstance(g, Params) else ("work", g) for g in given]
        return 0, Handle(graph)

    def clear(self, stream: int, pointer: int, size: int) -> None:
        """What a library does before a kernel that counts."""
        if stream not in self.notes:
            self.cuMemsetD8Async(pointer, 0, size, stream)
            return
        params = Params()
        params.dst, params.value, params.elementSize = pointer, 0, 1
        params.width, params.height = size, 1
        self.notes[stream].append(params)  # type: ignore[arg-type]

    def cuGraphGetRootNodes(self, graph: int, count: int) -> Any:
        node = self.number()
        self.nodes[node] = (int(graph), 0)
        return 0, [Handle(node)], len(self.graphs[int(graph)][:count])

    def cuGraphNodeGetType(self, node: int) -> Any:
        graph, place = self.nodes[int(node)]
        return 0, 2 if self.graphs[graph][place][0] == "fill" else 0

    def cuGraphMemsetNodeGetParams(self, node: int) -> Any:
        graph, place = self.nodes[int(node)]
        return 0, self.graphs[graph][place][1]

    def cuGraphDestroyNode(self, node: int) -> Any:
        graph, place = self.nodes[int(node)]
        del self.graphs[graph][place]
        return (0,)

    def cuGraphAddChildGraphNode(self, graph: int, dependencies: Any, count: int, child: int) -> Any:
        copy = self.number()
        self.graphs[copy] = list(self.graphs[int(child)])
        return self.add_node(graph, dependencies, count, "child", Handle(copy))  # type: ignore[arg-type]

    def cuGraphLaunch(self, ready: int, stream: int) -> int:
        self.conditions.clear()
        self._play(int(ready), int(stream))
        return 0

    def _play(self, graph: int, stream: int) -> None:
        for kind, p in self._ordered(graph):
            if kind == "kernel":
                grid, block = (p.gridDimX, p.gridDimY, p.gridDimZ), (p.blockDimX, p.blockDimY, p.blockDimZ)
                self.launch(int(p.func), grid, block, stream, p.words, p.sharedMemBytes)
            elif kind == "copy":
                assert p.Height == p.Depth == 1
                copy = self.cuMemcpyDtoHAsync if p.dstMemoryType == 1 else self.cuMemcpyDtoDAsync
                copy(p.dstHost or p.dstDevice, p.srcDevice, p.WidthInBytes, stream)
            elif kind == "fill":
                assert p.elementSize == p.height == 1
                self.cuMemsetD8Async(p.dst, p.value, p.width, stream)
            else:
                self._play_inner(kind, p, stream)

    def _ordered(self, graph: int) -> Iterator[tuple[str, Any]]:
        """The nodes of a graph in some order that their edges allow."""
        nodes, edges = self.graphs[graph], self.edges.get(graph)
        waiting = [[i - 1] if i else [] for i in range(len(nodes))] if not edges else list(edges)
        done: set[int] = set()
        while len(done) < len(nodes):
            ready = [i for i in range(len(nodes)) if i not in done and done.issuperset(waiting[i])]
            chosen = self.random.choice(ready)
            done.add(chosen)
            yield nodes[chosen]

    def _play_inner(self, kind: str, p: Any, stream: int) -> None:
        if kind == "work":
            p(stream)
        elif kind == "child":
            self._play(int(p), stream)
        elif kind == "if":
            side = 1 - self.conditions[int(p.handle)]
            if side < p.size:
                self.turns["if"] += 1
                self._play(int(p.phGraph_out[side]), stream)
        else:
            while self.conditions[int(p.handle)]:
                self.turns["while"] += 1
                self._play(int(p.phGraph_out[0]), stream)

    def cuGraphDestroy(self, graph: int) -> int:
        return 0

    def cuGraphExecDestroy(self, ready: int) -> int:
        return 0


def _copied(params: Params) -> Params:
    copy = Params()
    copy.__dict__.update(params.__dict__)
    return copy


@contextmanager
def standing_in(api: StandIn | None = None, **options: Any) -> Iterator[StandIn]:
    """Let weft take the stand-in for the driver inside a block, with nothing left from before."""
    api = StandIn(**options) if api is None else api
    before = default_cache().directory
    set_cache_directory(None)
    _forget()
    driver.found.use(api)
    set_build(None)  # kernels are given by the tests
    try:
        yield api
    finally:
        _forget()
        driver.found.forget()
        set_build(compile_for_device if has_compiler() else None)
        set_cache_directory(before)


def _forget() -> None:
    import gc

    gc.collect()
    forget_rings()
    forget_constants()
    forget_programs()
    forget_forms()
    forget_rules()
    forget_modules()
    cublaslt.forget_libraries()
    cudnn.forget_libraries()
    nccl.forget()
    forget_cards()

"""A list of launches as one CUDA graph: the driver starts all of it by one call.

The pointers in a graph are fixed. Between calls only few change: those nodes alone are given new ones.
Results are in new memory each time, as those of any op, so one that somebody holds is never overwritten.
"""

from __future__ import annotations

from typing import Any

from weft.backends.cuda.bound import Bound, CopyEntry, FillEntry, KernelEntry, ProductEntry, Table
from weft.backends.cuda.card import Card
from weft.backends.cuda.driver import Life
from weft.backends.cuda.streams import Stream

_DEVICE_MEMORY = 2  # of CUmemorytype


def can_be_graph(bound: Bound) -> bool:
    """Whether each entry has a kind of node; products of libraries do not yet."""
    return not any(isinstance(entry, ProductEntry) for entry in bound.entries)


class GraphRun:
    """A list of launches as a graph that is ready.

    Attributes:
        bound: the list.
        table: the pointers that the graph has now.
        updated: how many nodes were given new pointers, in all calls together.
    """

    def __init__(self, bound: Bound, table: Table) -> None:
        self.bound = bound
        self.table = list(table)
        self.updated = 0
        card = bound.card
        driver = card.driver
        self._card = card
        self._graph = driver.cuGraphCreate(0)
        self._nodes: list[Any] = []
        self._users: dict[int, list[int]] = {}  # by slot, the entries that use it
        for number, entry in enumerate(bound.entries):
            for slot in entry.slots():
                self._users.setdefault(slot, []).append(number)
            before = self._nodes[-1:]
            self._nodes.append(_add(card, self._graph, before, entry, self.table))
        self._ready = driver.cuGraphInstantiate(self._graph, 0)

    def __del__(self, life: type[Life] = Life) -> None:
        if life.ending:
            return
        driver = self._card.driver
        if hasattr(self, "_ready"):
            driver.code("cuGraphExecDestroy", self._ready)
        if hasattr(self, "_graph"):
            driver.code("cuGraphDestroy", self._graph)

    def run(self, table: Table, stream: Stream) -> None:
        """Do all of it on a stream, with these pointers."""
        changed: set[int] = set()
        for slot, pointer in enumerate(table):
            if pointer != self.table[slot]:
                changed.update(self._users.get(slot, ()))
                self.table[slot] = pointer
        for number in sorted(changed):
            _update(self._card, self._ready, self._nodes[number], self.bound.entries[number], self.table)
        self.updated += len(changed)
        self._card.driver.cuGraphLaunch(self._ready, stream.handle)


def _add(card: Card, graph: Any, before: list[Any], entry: Any, table: Table) -> Any:
    kind, params = _params(card, entry, table)
    rest = () if kind == "Kernel" else (card.context,)
    return getattr(card.driver, f"cuGraphAdd{kind}Node")(graph, before, len(before), params, *rest)


def _update(card: Card, ready: Any, node: Any, entry: Any, table: Table) -> None:
    kind, params = _params(card, entry, table)
    rest = () if kind == "Kernel" else (card.context,)
    getattr(card.driver, f"cuGraphExec{kind}NodeSetParams")(ready, node, params, *rest)


def _params(card: Card, entry: Any, table: Table) -> tuple[str, Any]:
    """The kind of an entry's node, and its parameters with pointers of a table."""
    api: Any = card.driver.api
    match entry:
        case KernelEntry():
            return "Kernel", _kernel_params(api, entry, table)
        case CopyEntry():
            return "Memcpy", _copy_params(api, entry, table)
        case FillEntry():
            params = api.CUDA_MEMSET_NODE_PARAMS()
            params.dst, params.value, params.elementSize = entry.pointer(table), entry.value, 1
            params.width, params.height, params.pitch = entry.nbytes, 1, 0
            return "Memset", params
    raise AssertionError(entry)


def _kernel_params(api: Any, entry: KernelEntry, table: Table) -> Any:
    for word, slot, offset in entry.patches:
        entry.launch.words[word] = table[slot] + offset
    if entry.shared > entry.launch.function.dynamic_shared:
        entry.launch.function.allow_shared(entry.shared)
    params = api.CUDA_KERNEL_NODE_PARAMS()
    params.func = entry.launch.function.handle
    params.gridDimX, params.gridDimY, params.gridDimZ = entry.grid
    params.blockDimX, params.blockDimY, params.blockDimZ = entry.block
    params.sharedMemBytes = entry.shared
    params.kernelParams = entry.launch.params
    return params


def _copy_params(api: Any, entry: CopyEntry, table: Table) -> Any:
    params = api.CUDA_MEMCPY3D()
    kind = getattr(api, "CUmemorytype", int)(_DEVICE_MEMORY)
    params.dstDevice, params.srcDevice = entry.pointers(table)
    params.dstMemoryType = params.srcMemoryType = kind
    params.WidthInBytes, params.Height, params.Depth = entry.nbytes, 1, 1
    return params

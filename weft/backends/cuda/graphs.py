"""Entries as one CUDA graph: the driver starts all of it by one call.

Branches and loops are conditional nodes, which a kernel of one thread sets from a bool in memory, so nobody
waits for the host. What is no kernel, copy or fill (a library's product) is captured from a stream, as a
graph inside. The pointers in a graph are fixed; those of single nodes can be changed between launches, see
``settable``. A kernel of weft's own is brought to the processors while those before it still run, and waits
there until they are done: ``griddepcontrol`` in its text, a programmatic edge in the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

from weft.backends.cuda.card import Card
from weft.backends.cuda.conditions import Conditions
from weft.backends.cuda.driver import Life
from weft.backends.cuda.emit.kernel import waits_for_others
from weft.backends.cuda.entries import BranchEntry, CopyEntry, FillEntry, KernelEntry, LoopEntry, Table
from weft.backends.cuda.native import native_call
from weft.backends.cuda.order import dependencies
from weft.backends.cuda.program import COMMITTED, CONTEXT_WORDS
from weft.backends.cuda.streams import Stream

_HOST_MEMORY, _DEVICE_MEMORY = 1, 2  # of CUmemorytype
_PROGRAMMATIC = 1  # of CUgraphDependencyType, and the port of a kernel that such an edge leaves from
_EARLY_VERSION = 13000  # of the driver, from which on edges are told in this way
_MEMSET = 2  # of CUgraphNodeType
_RELAXED = 2  # of CUstreamCaptureMode: other threads go on as they like
_SINGLE = (KernelEntry, CopyEntry, FillEntry)
_capturing = Lock()  # held while the stream for it captures
CONTEXT_BYTES = 8 * CONTEXT_WORDS
NOTED_BYTES = CONTEXT_BYTES - 8  # what kernels may note; the last word is set, and is copied after it


def is_captured(entries: Iterable[Any]) -> bool:
    """Whether some entry has no node of its own, and is captured from a stream."""
    for entry in entries:
        if isinstance(entry, BranchEntry):
            found = is_captured((*entry.then, *entry.otherwise))
        elif isinstance(entry, LoopEntry):
            found = is_captured((*entry.test, *entry.body))
        else:
            found = not isinstance(entry, _SINGLE)
        if found:
            return True
    return False


def settable(entries: Sequence[Any]) -> set[int]:
    """The slots whose pointers can be changed: those that only nodes of their own use, outside of bodies."""
    used = {slot for entry in entries if isinstance(entry, _SINGLE) for slot in entry.slots()}
    return used.difference(*[e.slots() for e in entries if not isinstance(e, _SINGLE)])


class GraphRun:
    """Entries as a graph that is ready.

    Attributes:
        table: the pointers that the graph has now.
        updated: how many nodes were given new pointers, in all calls together.

    Args:
        card: the device.
        entries: what it does.
        table: the pointers.
        context: where failures are noted, and where on the host they are copied to as soon as none can come
            any more; None without. Its last word is copied last.
        noting: the slot of that memory.
        alias: by slot, another one that is the same memory; without, entries run one after another.
        counters: slot, offset and bytes of what calls of libraries count in, each in its own part, from 0 on.
    """

    def __init__(
        self,
        card: Card,
        entries: Sequence[Any],
        table: Table,
        context: tuple[int, int] | None = None,
        alias: Mapping[int, int] | None = None,
        noting: int | None = None,
        counters: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        self.table = list(table)
        self.updated = 0
        self._card = card
        driver = card.driver
        self._graph = driver.cuGraphCreate(0)
        writer = _Nodes(card, self._graph, self.table, 0 if context is None else context[0], alias)
        first = [] if context is None else writer.add(_api_fill(card, context[0]), [])
        slot, start, size = counters
        if size:
            writer.cleared = range(self.table[slot] + start, self.table[slot] + start + size)
            first += writer.add(_described(card, FillEntry((slot, start), 0, size), self.table), [])
        self._entries = entries
        self._nodes, ends = writer.all(entries, first, self._graph)
        if context is not None:
            some = [n for n, e in zip(self._nodes, entries, strict=True) if noting in e.slots()]
            after = ends if noting is None else some or first
            source, target = context
            copied = writer.add(_to_host(card, source, target, NOTED_BYTES), after)
            last = source + NOTED_BYTES, target + NOTED_BYTES, CONTEXT_BYTES - NOTED_BYTES
            writer.add(_to_host(card, *last), copied)
        self._users: dict[int, list[int]] = {}  # by slot, the entries that use it
        for number, entry in enumerate(entries):
            for slot in entry.slots() if isinstance(entry, _SINGLE) else ():
                self._users.setdefault(slot, []).append(number)
        self._ready = driver.cuGraphInstantiate(self._graph, 0)
        self._launch, self._handle = native_call(driver, "cuGraphLaunch"), int(self._ready)

    def __del__(self, life: type[Life] = Life) -> None:
        if life.ending:
            return
        driver = self._card.driver
        if hasattr(self, "_ready"):
            driver.code("cuGraphExecDestroy", self._ready)
        if hasattr(self, "_graph"):
            driver.code("cuGraphDestroy", self._graph)

    def set(self, slot: int, pointer: int) -> None:
        """Let the nodes that use a slot, which must be settable, use another pointer."""
        if self.table[slot] == pointer:
            return
        self.table[slot] = pointer
        for number in self._users.get(slot, ()):
            kind, params, rest = _described(self._card, self._entries[number], self.table)
            change = getattr(self._card.driver, f"cuGraphExec{kind}NodeSetParams")
            change(self._ready, self._nodes[number], params, *rest)
            self.updated += 1

    def run(self, stream: Stream) -> None:
        """Do all of it on a stream."""
        self._launch(self._handle, stream.handle, 0, 0)


class _Nodes:
    """Adds nodes to a graph and to those inside of it, each after those that it must wait for."""

    def __init__(
        self, card: Card, root: Any, table: Table, context: int, alias: Mapping[int, int] | None
    ) -> None:
        self._alias = alias
        self._card = card
        self._root = root
        self._table = table
        self._context = context
        self._waiting: set[int] = set()  # nodes that let others come early, as they wait themselves
        self.cleared = range(0)  # addresses that are 0 before anything else runs
        self._edge = _early_edge(card)

    def put(self, entry: Any, before: list[Any], graph: Any = None) -> list[Any]:
        """The nodes of an entry, after others; gives the last one, in a list."""
        graph = self._root if graph is None else graph
        if isinstance(entry, BranchEntry):
            return self._branch(entry, before, graph)
        if isinstance(entry, LoopEntry):
            return self._loop(entry, before, graph)
        if isinstance(entry, KernelEntry) and entry.waits and self._edge is not None:
            return self._add_early(_described(self._card, entry, self._table), before, graph)
        if isinstance(entry, _SINGLE):
            return self.add(_described(self._card, entry, self._table), before, graph)
        return self._capture(entry, before, graph)

    def add(
        self, described: tuple[str, Any, tuple[Any, ...]], before: list[Any], graph: Any = None
    ) -> list[Any]:
        """A single node."""
        kind, params, rest = described
        graph = self._root if graph is None else graph
        add = getattr(self._card.driver, f"cuGraphAdd{kind}Node")
        return [add(graph, before, len(before), params, *rest)]

    def _add_early(
        self, described: tuple[str, Any, tuple[Any, ...]], before: list[Any], graph: Any
    ) -> list[Any]:
        """A kernel that waits for those before it by itself, as far as they are kernels that wait, too."""
        early = [node for node in before if int(node) in self._waiting]
        others = [node for node in before if int(node) not in self._waiting]
        [node] = self.add(described, others, graph)
        if early:
            count = len(early)
            edges = [self._edge] * count
            self._card.driver.cuGraphAddDependencies(graph, early, [node] * count, edges, count)
        self._waiting.add(int(node))
        return [node]

    def all(self, entries: Sequence[Any], before: list[Any], graph: Any) -> tuple[list[Any], list[Any]]:
        """The last node of each entry, after others; and those that no other entry waits for."""
        if self._alias is None:
            after = [[i - 1] if i else [] for i in range(len(entries))]
        else:
            after = dependencies(entries, self._alias)
        nodes: list[Any] = []
        for entry, others in zip(entries, after, strict=True):
            nodes += self.put(entry, [nodes[i] for i in others] or before, graph)
        waited = {i for others in after for i in others}
        return nodes, [node for i, node in enumerate(nodes) if i not in waited] or before

    def _branch(self, entry: BranchEntry, before: list[Any], graph: Any) -> list[Any]:
        conditions = Conditions(self._card)
        handle = conditions.handle(self._root)
        flag = 0 if entry.condition is None else self._table[entry.condition[0]] + entry.condition[1]
        noted = self._context + (8 * COMMITTED if entry.committed else 0)
        context = noted if entry.condition is None else 0
        before = self._set(conditions, handle, flag, context, before, graph)
        sides = [entry.then, entry.otherwise] if entry.otherwise else [entry.then]
        node, bodies = conditions.add(graph, before, handle, "if", len(sides))
        for side, body in zip(sides, bodies, strict=True):
            self.all(side, [], body)
        return [node]

    def _loop(self, entry: LoopEntry, before: list[Any], graph: Any) -> list[Any]:
        conditions = Conditions(self._card)
        handle = conditions.handle(self._root)
        flag = self._table[entry.condition[0]] + entry.condition[1]
        before = self.all(entry.test, before, graph)[1]
        before = self._set(conditions, handle, flag, self._context, before, graph)
        node, [body] = conditions.add(graph, before, handle, "while", 1)
        last = self.all((*entry.body, *entry.test), [], body)[1]
        self._set(conditions, handle, flag, self._context, last, body)
        return [node]

    def _set(
        self, conditions: Conditions, handle: int, flag: int, context: int, before: list[Any], graph: Any
    ) -> list[Any]:
        launch = conditions.launch(handle, flag, context)
        params = _kernel_params(self._card, launch.function.handle, (1, 1, 1), (1, 1, 1), 0, launch.params)
        if self._edge is None or not waits_for_others(self._card.architecture):
            return self.add(("Kernel", params, ()), before, graph)
        return self._add_early(("Kernel", params, ()), before, graph)

    def _capture(self, entry: Any, before: list[Any], graph: Any) -> list[Any]:
        """What a library gives to a stream, as a graph inside."""
        driver, stream = self._card.driver, self._card.capture_stream
        mode = getattr(driver.api, "CUstreamCaptureMode", int)(_RELAXED)
        with _capturing:
            driver.cuStreamBeginCapture(stream.handle, mode)
            try:
                entry.run(self._table, stream, self._card)
            finally:
                inner = driver.cuStreamEndCapture(stream.handle)
        if self.cleared:
            self._leave_clearing(inner)
        node = driver.cuGraphAddChildGraphNode(graph, before, len(before), inner)
        driver.cuGraphDestroy(inner)  # the node has a copy
        return [node]

    def _leave_clearing(self, inner: Any) -> None:
        """Take out what clears a counter that is clear by then: products wait for it longer than it takes."""
        driver = self._card.driver
        nodes, count = driver.cuGraphGetRootNodes(inner, 1)
        if count != 1 or int(driver.cuGraphNodeGetType(nodes[0])) != _MEMSET:
            return
        params = driver.cuGraphMemsetNodeGetParams(nodes[0])
        last = int(params.dst) + int(params.elementSize) * int(params.width) - 1
        inside = int(params.dst) in self.cleared and last in self.cleared
        if inside and int(params.height) == 1 and int(params.value) == 0:
            driver.cuGraphDestroyNode(nodes[0])


def _early_edge(card: Card) -> Any:
    """What tells of an edge that its second node may come early; None where the driver has none."""
    api: Any = card.driver.api
    if not hasattr(api, "CUgraphEdgeData") or int(card.driver.cuDriverGetVersion()) < _EARLY_VERSION:
        return None
    edge = api.CUgraphEdgeData()
    edge.from_port, edge.to_port, edge.type = _PROGRAMMATIC, 0, _PROGRAMMATIC
    return edge


def _described(card: Card, entry: Any, table: Table) -> tuple[str, Any, tuple[Any, ...]]:
    """The kind of an entry's node, its parameters with pointers of a table, and what else the driver asks."""
    api: Any = card.driver.api
    match entry:
        case KernelEntry():
            for word, slot, offset in entry.patches:
                entry.launch.words[word] = table[slot] + offset
            function = entry.launch.function
            if entry.shared > function.dynamic_shared:
                function.allow_shared(entry.shared)
            shape = entry.grid, entry.block, entry.shared
            return "Kernel", _kernel_params(card, function.handle, *shape, entry.launch.params), ()
        case CopyEntry():
            params = _copy_params(api, entry.nbytes)
            params.dstDevice, params.srcDevice = entry.pointers(table)
            params.dstMemoryType = _memory(api, _DEVICE_MEMORY)
            return "Memcpy", params, (card.context,)
        case FillEntry():
            params = api.CUDA_MEMSET_NODE_PARAMS()
            params.dst, params.value, params.elementSize = entry.pointer(table), entry.value, 1
            params.width, params.height, params.pitch = entry.nbytes, 1, 0
            return "Memset", params, (card.context,)
    raise AssertionError(entry)


def _api_fill(card: Card, context: int) -> tuple[str, Any, tuple[Any, ...]]:
    return _described(card, FillEntry((0, 0), 0, NOTED_BYTES), [context])


def _to_host(card: Card, context: int, words: int, nbytes: int) -> tuple[str, Any, tuple[Any, ...]]:
    """A copy of what was noted of failures to memory of the host."""
    api: Any = card.driver.api
    params = _copy_params(api, nbytes)
    params.srcDevice, params.dstHost = context, words
    params.dstMemoryType = _memory(api, _HOST_MEMORY)
    return "Memcpy", params, (card.context,)


def _kernel_params(
    card: Card, function: int, grid: Sequence[int], block: Sequence[int], shared: int, arguments: int
) -> Any:
    params: Any = card.driver.api.CUDA_KERNEL_NODE_PARAMS()  # type: ignore[attr-defined]
    params.func = function
    params.gridDimX, params.gridDimY, params.gridDimZ = grid
    params.blockDimX, params.blockDimY, params.blockDimZ = block
    params.sharedMemBytes = shared
    params.kernelParams = arguments
    return params


def _memory(api: Any, kind: int) -> Any:
    return getattr(api, "CUmemorytype", int)(kind)


def _copy_params(api: Any, nbytes: int) -> Any:
    params = api.CUDA_MEMCPY3D()
    params.srcMemoryType = _memory(api, _DEVICE_MEMORY)
    params.WidthInBytes, params.Height, params.Depth = nbytes, 1, 1
    return params

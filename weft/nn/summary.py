"""What ``Module.summary`` gives: a table of the modules that a call uses.

The call is captured, so that shapes come from the modules' own calls and operations from the nodes of the
graph, each of which knows the module it belongs to. Nothing is computed and nothing changes.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from math import prod
from typing import Any, NamedTuple

import weft
from weft import Tensor
from weft.base.hooks import hooks
from weft.ir.stats import node_flops
from weft.nn.text import count_parameters


class Row(NamedTuple):
    """One module.

    Attributes:
        path: of the module, "" for the one that is summed up.
        kind: the name of its class.
        calls: how often it is called.
        output: the shapes of what it gives; of its last call.
        parameters: how many numbers it learns, those of modules inside included.
        memory: bytes of its parameters and of all values that it computes.
        flops: floating-point operations of a forward pass.
    """

    path: str
    kind: str
    calls: int
    output: Tensor
    parameters: int
    memory: int
    flops: int


class Summary(NamedTuple):
    """The rows of a table, and sums.

    Attributes:
        rows: the modules, each before those inside it.
        parameters: how many numbers there are to learn.
        frozen: how many of them get no gradient.
        parameter_bytes: their bytes.
    """

    rows: tuple[Row, ...]
    parameters: int
    frozen: int
    parameter_bytes: int

    def __str__(self) -> str:
        lines = [("module", "output", "parameters", "memory", "flops"), *map(cells_of, self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(5)]
        widths[0] = max(widths[0], 18)
        table = [f"{a:<{widths[0]}}  " + "  ".join(_aligned(rest, widths[1:])) for a, *rest in lines]
        trained = f"{self.frozen:,} of them frozen" if self.frozen else "all trained"
        total = f"{self.parameters:,} parameters ({show_bytes(self.parameter_bytes)}), {trained}"
        return "\n".join([*(line.rstrip() for line in table), total])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return hooks.summary_html(self)


def summarize(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], depth: int | None) -> Summary:
    """Capture a call of a module, and sum up what the modules inside do."""
    calls, outputs, named = Counter[str](), dict[str, Any](), dict[str, Any]()

    def enter(called: Any, given: Any) -> None:
        path = called._path()
        named[path] = called
        calls[path] += 1

    def leave(called: Any, given: Any, out: Any) -> None:
        outputs[called._path()] = _shapes(out)

    with ExitStack() as stack:
        for inside in module.modules():
            stack.enter_context(inside.register_forward_pre_hook(enter))
            stack.enter_context(inside.register_forward_hook(leave))
        graph = weft.make_graph(module)(*args, **kwargs)
    made, flops = _bytes_by_path(graph.nodes), Counter[str]()
    _add_flops(graph.nodes, 1, flops)
    rows = [
        Row(
            path.removeprefix(module._path()).removeprefix("."),
            type(inside).__name__,
            calls[path],
            outputs[path],
            count_parameters(inside)[0],
            _parameter_bytes(inside) + _within(path, made),
            _within(path, flops),
        )
        for path, inside in named.items()
    ]
    shown = [r for r in rows if depth is None or depth_of(r.path) <= depth]
    count, frozen = count_parameters(module)
    return Summary(tuple(shown), count, frozen, _parameter_bytes(module))


def _module_of(node: Any) -> str:
    return node.location.module if node.location else ""


def _bytes_by_path(nodes: Any) -> Counter[str]:
    """Bytes of the values that nodes make, by the path of the module they belong to."""
    found = Counter[str]()
    for node in nodes:
        found[_module_of(node)] += sum(v.type.dtype.itemsize * prod(v.type.shape) for v in node.outputs)
    return found


def _add_flops(nodes: Any, turns: int, found: Counter[str]) -> None:
    """Add the floating-point operations of nodes by path; each turn of a loop counts, and all branches do."""
    for node in nodes:
        if node.op.name == "call" or not node.regions:
            found[_module_of(node)] += turns * int(node_flops(node))
        else:
            length = node.attrs["length"] if node.op.name == "scan" else 1
            for region in node.regions:
                _add_flops(region.nodes, turns * length, found)


def _within(path: str, counts: Counter[str]) -> int:
    """The counts of a module and of those inside it."""
    return sum(n for p, n in counts.items() if not path or p == path or p.startswith(path + "."))


def depth_of(path: str) -> int:
    """How deep a module lies in the one that is summed up."""
    return path.count(".") + 1 if path else 0


def _parameter_bytes(module: Any) -> int:
    return sum(p.numel() * p.itemsize for p in module.parameters())


def _shapes(out: Any) -> Any:
    """The shapes of the tensors in a result, in its structure."""
    if isinstance(out, tuple | list):
        return tuple(_shapes(o) for o in out)
    if weft.is_tensor(out):
        return tuple(out.shape)
    leaves = weft.tree_leaves(out)
    return None if leaves == [out] else _shapes(leaves)


def cells_of(row: Row) -> tuple[str, str, str, str, str]:
    """The texts of a row."""
    name = f"{row.path.rpartition('.')[2]}: {row.kind}" if row.path else row.kind
    times = f" x{row.calls}" if row.calls > 1 else ""
    learned = f"{row.parameters:,}" if row.parameters else ""
    return (
        "  " * depth_of(row.path) + name + times,
        str(row.output),
        learned,
        show_bytes(row.memory),
        f"{row.flops:,}",
    )


def _aligned(cells: list[str], widths: list[int]) -> list[str]:
    first, *rest = zip(cells, widths, strict=True)
    return [f"{first[0]:<{first[1]}}", *(f"{cell:>{width}}" for cell, width in rest)]


def show_bytes(count: int) -> str:
    """A number of bytes in the unit that suits it.

    >>> show_bytes(352), show_bytes(81920)
    ('352 B', '80.0 KiB')
    """
    size, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.1f} {units[0]}" if units[0] != "B" else f"{count} B"

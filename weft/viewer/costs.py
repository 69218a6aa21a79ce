"""What a program costs, for the page: its kernels with time and bytes, and the memory timeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.errors import ArgumentError
from weft.ir.graph import Graph, Node
from weft.loop.ir import Program
from weft.schedule.explanation import ExplainedStep, share_of_limit, show_share
from weft.schedule.memory_report import report_memory
from weft.schedule.origins import steps_of
from weft.schedule.work import count_bytes, count_flops, number_of
from weft.viewer.parts import users_of
from weft.viewer.table import Table


def list_kernels(
    table: Table, graph: Graph, steps: Sequence[ExplainedStep], *, limits: bool = False
) -> list[dict[str, Any]]:
    """The kernels of a program in order: what each computes, how long it takes, how much it moves.

    Args:
        table: that numbers values.
        graph: that the nodes of the steps stand in.
        steps: as ``explain`` gives them.
        limits: whether to say how much of the machine's limit each reaches, as tables of devices do.
    """
    kernels: list[dict[str, Any]] = [
        {
            **{field: getattr(s, field) for field in ("number", "name", "ops", "bytes", "flops")},
            "seconds": None if s.measured is None else s.measured.seconds,
            "runs": 1 if s.measured is None else s.measured.runs,
            "limit": s.limit_share if limits else "",
            "values": [_number(table, n) for n in s.nodes],
        }
        for s in steps
        if s.number
    ]
    _add_views(table, graph, kernels)
    return kernels


def steps_without_times(program: Program) -> list[ExplainedStep]:
    """The steps of a program that nobody has run."""
    found = []
    for step in steps_of(program):
        s = step.statement
        nodes = tuple(program.origins.kernels.get(getattr(s, "function", None), ()))
        if step.number:
            name = getattr(getattr(s, "function", None), "name", type(s).__name__.lower())
            work = count_bytes(s, {}), count_flops(s, {})
            ops = ", ".join(n.op.name for n in nodes)
            found.append(ExplainedStep(step.number, step.depth, name, ops, (), *work, nodes=nodes))
    return found


def take_profile(kernels: Sequence[dict[str, Any]], name: str, profile: Any) -> float:
    """Give kernels the mean time that they took in the calls of a function under a profile; that of a call.

    A profile names kernels by their ops; those with the same ones ran in the order in which they stand.
    """
    calls = [e for e in profile.events if e.kind == "call" and e.name == name]
    if not calls:
        hint = f"call {name} inside of `with weft.profile() as p:`"
        raise ArgumentError("view", f"the profile must have a call of {name}, got none", hint=hint)
    spent: Counter[tuple[str, int]] = Counter()
    at_best: Counter[tuple[str, int]] = Counter()
    for call in calls:
        inside = [e for e in profile.events if e.kind == "kernel" and call.begin <= e.begin < call.end]
        for key, event in _with_turns(inside, lambda e: str(e.name)):
            spent[key] += event.duration
            at_best[key] += event.at_best
    for key, kernel in _with_turns(kernels, lambda k: str(k["ops"] or k["name"])):
        kernel["seconds"] = 1e-9 * spent[key] / len(calls)
        kernel["limit"] = show_share(share_of_limit(at_best[key], spent[key]))
    return 1e-9 * float(sum(e.duration for e in calls)) / len(calls)


def _with_turns(items: Sequence[Any], name_of: Callable[[Any], str]) -> Iterator[tuple[tuple[str, int], Any]]:
    """Each item with its name, and how many of that name came before it."""
    seen: Counter[str] = Counter()
    for item in items:
        name = name_of(item)
        yield (name, seen[name]), item
        seen[name] += 1


def _number(table: Table, node: Node) -> int:
    return table.number(node.outputs[0] if node.outputs else node)


def _add_views(table: Table, graph: Graph, kernels: list[dict[str, Any]]) -> None:
    """Put what costs nothing (views) to the kernel that reads it, if that is one alone."""
    owner: dict[int, int] = {}
    for i, kernel in enumerate(kernels):
        for number in kernel["values"]:
            owner.setdefault(number, i)
    for region in _with_regions(graph):
        users = users_of(region)
        for node in reversed(region.nodes):
            number = _number(table, node)
            readers = {owner.get(_number(table, u), -1) for v in node.outputs for u in users.get(v, ())}
            if number not in owner and not node.regions and len(readers) == 1 and -1 not in readers:
                owner[number] = readers.pop()
                kernels[owner[number]]["values"].append(number)


def _with_regions(graph: Graph) -> list[Graph]:
    inside = [r for node in graph.nodes for region in node.regions for r in _with_regions(region)]
    return [graph, *inside]


def memory_timeline(table: Table, graph: Graph, program: Program, sizes: dict[str, int]) -> dict[str, Any]:
    """Which buffers are there from which step to which, where they lie, and when most memory is in use."""
    report = report_memory(graph, program, sizes)

    def number(x: Any) -> int:
        return number_of(x, sizes)

    buffers = [
        {
            **{field: getattr(b, field) for field in ("name", "type", "op", "first", "last")},
            **{field: number(getattr(b, field)) for field in ("bytes", "offset")},
            "peak": b.at_peak,
            "value": None if b.node is None else _number(table, b.node),
        }
        for b in report.buffers
    ]
    fields = ("arena", "peak", "unshared", "inputs", "outputs", "donated", "constants")
    found: dict[str, Any] = {field: number(getattr(report, field)) for field in fields}
    return found | {"peakStep": report.peak_step, "buffers": buffers}

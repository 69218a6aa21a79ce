"""Where the parts of a program come from: the nodes that each kernel computes, and what each buffer holds.

The writer takes it down while it lowers; reports (``report_memory``, ``explain``) read it. Both number the
*steps* of a program in the same way: what its main function runs that is more than a scalar instruction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.base.frames import format_location
from weft.base.records import NamedTuple, dataclass, field
from weft.ir.graph import Graph, Node, Value
from weft.loop import ir
from weft.loop.ir import Block, Buffer, Function, Program, Statement
from weft.loop.walk import blocks_of
from weft.schedule.memory import number_statements


class Held(NamedTuple):
    """What a buffer was made for.

    Attributes:
        shape: of the array in it.
        nodes: that were being lowered.
        value: of the graph, where it is one.
    """

    shape: tuple[Any, ...]
    nodes: tuple[Node, ...]
    value: Value | None = None

    @property
    def maker(self) -> Node | None:
        """The node that the buffer's content comes from."""
        made = [n for n in self.nodes if self.value is not None and self.value in n.outputs]
        return next(iter(made or self.nodes[-1:]), None)


@dataclass
class Origins:
    """Where kernels and buffers come from.

    Attributes:
        kernels: by function, the nodes that it computes.
        buffers: by buffer, what it was made for.
        graph: that these nodes stand in, after the passes of lowering.
        choices: of the schedule that were on.
    """

    kernels: dict[Function, tuple[Node, ...]] = field(default_factory=dict)
    buffers: dict[Buffer, Held] = field(default_factory=dict)
    graph: Graph | None = None
    choices: tuple[str, ...] = ()


def kernel_name(nodes: Sequence[Node]) -> str:
    """The name of a kernel that computes nodes."""
    names = [node.op.name for node in nodes]
    return "_".join(names if len(names) <= 4 else [*names[:2], "...", names[-1]])


class Step(NamedTuple):
    """A part of the run of a program.

    Attributes:
        number: from 1 on; of a wave each launch has its own.
        depth: how many loops and branches it stands in.
        statement: a launch, a call back into Python, a copy, a product; or the head of a loop or a branch.
        position: the number of the statement in the main function.
        is_alternative: whether it begins the other one of two branches.
    """

    number: int
    depth: int
    statement: Statement
    position: int
    is_alternative: bool = False


_STEPS = (ir.Launch, ir.Host, ir.Copy, ir.Matmul)
_HEADS = (ir.Loop, ir.While, ir.If)


def steps_of(program: Program) -> list[Step]:
    """The steps of a program in order, and the heads of loops and branches with steps inside (numbered 0).

    >>> import weft
    >>> from weft.schedule.origins import steps_of
    >>> from weft.schedule.program import lower_graph
    >>> graph = weft.make_graph(lambda x: weft.tanh(x).sum(axis=0))(weft.ones((64, 64)))
    >>> [(s.number, s.statement.function.name) for s in steps_of(lower_graph(graph))]
    [(1, 'tanh_sum')]
    """
    position: dict[int, int] = {}
    number_statements(program.main.body, position, [0])
    return list(_Numbering(position).visit(program.main.body, 0))


class _Numbering:
    def __init__(self, position: dict[int, int]) -> None:
        self.position = position
        self.count = 0

    def visit(self, block: Block, depth: int) -> Iterator[Step]:
        for s in block.statements:
            here = self.position[id(s)]
            if isinstance(s, ir.Wave):
                for launch in s.launches:
                    yield self._step(launch, depth, here)
            elif isinstance(s, _STEPS):
                yield self._step(s, depth, here)
            elif isinstance(s, _HEADS):
                yield from self._inside(s, depth, here)

    def _step(self, statement: Statement, depth: int, position: int) -> Step:
        self.count += 1
        return Step(self.count, depth, statement, position)

    def _inside(self, s: Any, depth: int, here: int) -> Iterator[Step]:
        parts = [list(self.visit(block, depth + 1)) for block in blocks_of(s)]
        if not any(parts):
            return
        yield Step(0, depth, s, here)
        for i, part in enumerate(parts):
            if part and i and isinstance(s, ir.If):
                yield Step(0, depth, s, here, is_alternative=True)
            yield from part


def short_location(place: tuple[str, int], most: int = 72) -> str:
    """File, line and the text there, of which the beginning if it is long."""
    text = format_location(place)
    return text if len(text) <= most else text[: most - 4] + " ..."


def source_lines(nodes: Sequence[Node]) -> list[str]:
    """The user's lines that nodes come from, each once, in their order in the files."""
    found: dict[tuple[str, int], set[str]] = {}
    for node in nodes:
        if node.location is not None:
            found.setdefault(node.location.place, set()).add(node.location.phase)
    out = []
    for place in sorted(found):
        backward = " (backward)" if found[place] == {"backward"} else ""
        out.append(short_location(place) + backward)
    return out


def op_names(nodes: Sequence[Node], most: int = 12) -> str:
    """The names of ops in short: repeated ones counted, and not too many."""
    runs: list[list[Any]] = []
    for node in nodes:
        if runs and runs[-1][0] == node.op.name:
            runs[-1][1] += 1
        else:
            runs.append([node.op.name, 1])
    texts = [name if count == 1 else f"{count} {name}" for name, count in runs]
    if len(texts) > most + 1:
        texts = [*texts[: most - 1], f"... {len(texts) - most} more", texts[-1]]
    return ", ".join(texts)


_UNITS = ("bytes", "KB", "MB", "GB", "TB")


def show_bytes(count: Any) -> str:
    """A number of bytes, in the unit in which it is short; an expression in named sizes as it is.

    >>> from weft.schedule.origins import show_bytes
    >>> show_bytes(512), show_bytes(16384), show_bytes(5_500_000)
    ('512 bytes', '16.4 KB', '5.5 MB')
    """
    if not isinstance(count, int):
        return f"{count} bytes"
    if count < 1000:
        return f"{count} bytes"
    value, unit = float(count), 0
    while value >= 999.95:
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {_UNITS[unit]}"

"""What a compiled program does, for people: its kernels in order, what is fused into each, and the cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.base.records import NamedTuple, dataclass, field
from weft.ir.graph import Graph, Node
from weft.ir.stats import node_flops
from weft.loop.ir import Copy, Host, If, Launch, Loop, Matmul, Program, Statement, While
from weft.ops.affine import HALVES
from weft.passes.pipeline import history
from weft.schedule.origins import Step, kernel_name, op_names, show_bytes, source_lines, steps_of
from weft.schedule.region import HostCall
from weft.schedule.work import count_bytes, count_flops, number_of, trips_of, widest_float

_CALL = 0.1e-6  # seconds that it takes to call a kernel
_CALL_BACK = 20e-6  # and Python


class Limits(NamedTuple):
    """What the machine can do at best.

    Attributes:
        memory: bytes a second, of arrays that no cache holds.
        cache: bytes a second, of arrays that caches hold.
        held: bytes that caches hold.
        flops: floating-point operations a second, of float32.
        halves: the same of products in half precision by units of their own; 0 where there are none.

    >>> from weft.schedule.explanation import Limits
    >>> Limits(memory=20e9, cache=80e9, held=2**20, flops=100e9).seconds(2_000_000, 0, 4) > 1e-4
    True
    """

    memory: float
    cache: float
    held: int
    flops: float
    halves: float = 0.0

    def seconds(self, moved: int, flops: int, width: int, *, units: bool = False) -> float:
        """An estimate of the time for so many bytes and operations on floats of so many bytes.

        Args:
            moved: bytes.
            flops: operations.
            width: bytes of a float.
            units: whether they are products in half precision, for which the machine may have units.
        """
        rate = self.memory if moved > self.held else self.cache
        work = flops / self.halves if units and self.halves else flops * width / 4 / self.flops
        return _CALL + max(moved / rate, work)


class Measured(NamedTuple):
    """Of one step, how often it ran in a call, and how long that took in all."""

    runs: int
    seconds: float


@dataclass(frozen=True)
class ExplainedStep:
    """A kernel, a copy or a call back into Python; or the head of a loop or a branch.

    Attributes:
        number: of the step, in order; 0 for the head of a loop or a branch.
        depth: how many loops and branches it stands in.
        name: of the kernel, or what else it is.
        ops: the ops that were fused into it, in short.
        sources: the user's lines that it comes from, with file, line and text.
        bytes: that it reads and writes, each counted once.
        flops: floating-point operations.
        estimated: seconds that the machine needs for one run, at best; 0 where nobody knows.
        measured: how often it ran in a call, and how long that took; None where nothing was measured.
        nodes: of the graph.
    """

    number: int
    depth: int
    name: str
    ops: str = ""
    sources: tuple[str, ...] = ()
    bytes: int = 0
    flops: int = 0
    estimated: float = 0.0
    measured: Measured | None = None
    nodes: tuple[Node, ...] = field(default=(), repr=False)

    @property
    def limit_share(self) -> str:
        """How much of what the machine can do at best it reaches; "" where nothing was measured."""
        if self.measured is None:
            return ""
        return show_share(share_of_limit(self.estimated * self.measured.runs, self.measured.seconds))


@dataclass(frozen=True, repr=False)
class Explanation:
    """What a compiled graph does; a table as text.

    Attributes:
        name: of the graph.
        steps: in order of execution, with the heads of loops and branches between them.
        arena: bytes for what is in between.
        donated: names of the inputs that may be overwritten by their new values.
        hosts: ops that Python runs.
        passes: that changed the graph on the way to the program, in order.
        choices: of the schedule that were on, see ``weft.schedule.choices``.
        seconds: that a call takes as a whole; None where nothing was measured.
        note: on the measurement.
        device: that it runs on, in words; "" for the processor.
        program: what the device runs, which prints; None for the processor.
    """

    name: str
    steps: tuple[ExplainedStep, ...]
    arena: int
    donated: tuple[str, ...]
    hosts: tuple[str, ...]
    passes: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    seconds: float | None = None
    note: str = ""
    device: str = ""
    program: object = field(default=None, repr=False)

    @property
    def kernels(self) -> tuple[ExplainedStep, ...]:
        """The steps, without the heads of loops and branches."""
        return tuple(s for s in self.steps if s.number)

    def __str__(self) -> str:
        limit = ("of limit",) if self.device else ()
        rows: list[tuple[str, ...]] = [("#", "measured", "", "estimated", *limit, "moved", "flops", "what")]
        rows += [row for step in self.steps for row in self._rows(step)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
        lines = [
            " ".join(f"{text:>{w}} " for text, w in zip(row, widths, strict=False)) + row[-1] for row in rows
        ]
        return "\n".join([*self._head(), *lines, *([self.note] if self.note else [])])

    def _head(self) -> list[str]:
        count = len(self.kernels)
        first = f"{self.name}: {count} step{'' if count == 1 else 's'}, arena of {show_bytes(self.arena)}"
        lines = [first if self.seconds is None else f"{first}, {show_seconds(self.seconds)} a call"]
        if self.device:
            lines.append(f"on {self.device}")
        lines.append(f"passes: {', '.join(dict.fromkeys(self.passes)) or 'none changed the graph'}")
        lines.append(f"schedule: {', '.join(self.choices) or 'node by node'}")
        if self.donated:
            shown = [*self.donated[:6], *([f"{len(self.donated) - 6} more"] if len(self.donated) > 6 else [])]
            lines.append(f"overwritten in place: {', '.join(shown)}")
        if self.hosts:
            lines.append(f"run by Python: {', '.join(dict.fromkeys(self.hosts))}")
        return lines

    def _rows(self, step: ExplainedStep) -> list[tuple[str, ...]]:
        indent = "  " * step.depth
        blank = ("",) * (7 if self.device else 6)
        if not step.number:
            return [(*blank, f"{indent}{step.name}")]
        rest = [f"{indent}  {line}" for line in step.sources]
        what = f"{indent}{step.ops or step.name}"
        limit = (step.limit_share,) if self.device else ()
        at_best = show_seconds(step.estimated) if step.estimated else ""
        cells = (at_best, *limit, show_bytes(step.bytes), _grouped(step.flops))
        first = (str(step.number), *self._times(step), *cells, what)
        return [first, *[(*blank, line) for line in rest]]

    def _times(self, step: ExplainedStep) -> tuple[str, str]:
        if step.measured is None:
            return "", ""
        runs, seconds = step.measured
        if runs == 0:
            return "not run", ""
        total = sum(s.measured.seconds for s in self.steps if s.measured is not None)
        text = show_seconds(seconds) if runs == 1 else f"{runs} x {show_seconds(seconds / runs)}"
        return text, f"{100 * seconds / total if total else 0:.0f}%"

    def __repr__(self) -> str:
        return f"<explanation of {self.name}: {len(self.kernels)} steps>"


def show_seconds(seconds: float) -> str:
    """A time, in the unit in which it is short.

    >>> from weft.schedule.explanation import show_seconds
    >>> show_seconds(0.0123), show_seconds(4.56e-6)
    ('12.3 ms', '4.6 us')
    """
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= 0.9995 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds * 1e9:.0f} ns"


def share_of_limit(at_best: float, seconds: float) -> float:
    """How much of what the machine can do at best is reached; 0 where nobody knows.

    Args:
        at_best: seconds that the machine needs at best, 0 where that is not known.
        seconds: that it took.
    """
    return at_best / seconds if seconds else 0.0


def show_share(share: float) -> str:
    """A share of the machine's limit as text, for tables; nothing where nobody knows it.

    >>> from weft.schedule.explanation import share_of_limit, show_share
    >>> show_share(share_of_limit(3e-6, 4e-6)), show_share(share_of_limit(0.0, 4e-6))
    ('75%', '')
    """
    return f"{100 * share:.0f}%" if share else ""


def _grouped(count: int) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return str(count)


def explain_program(
    graph: Graph,
    program: Program,
    limits: Limits,
    sizes: Mapping[str, int] = {},
    measured: Sequence[Measured] = (),
) -> Explanation:
    """What a program does, with the times of its steps where they were measured.

    >>> import weft
    >>> from weft.schedule.explanation import Limits, explain_program
    >>> from weft.schedule.program import lower_graph
    >>> graph = weft.make_graph(lambda x: weft.softmax(x, axis=1) * 2.0)(weft.ones((64, 64)))
    >>> program = lower_graph(weft.passes.lower(graph))
    >>> [step] = explain_program(graph, program, Limits(1e10, 1e11, 2**20, 1e11)).steps
    >>> step.ops, step.bytes
    ('max, sub, exp, sum, div, 2 mul', 32768)
    """
    steps = steps_of(program)
    times = dict(zip([s.number for s in steps if s.number], measured, strict=bool(measured)))
    explained = [_explain(program, s, limits, sizes, times.get(s.number)) for s in steps]
    return Explanation(
        graph.name,
        tuple(explained),
        number_of(program.arena_size, sizes),
        tuple(graph.inputs[i].name or f"input {i}" for i, _ in program.donated),
        tuple(entry.op.name for entry in program.hosts if isinstance(entry, HostCall) and not entry.library),
        tuple(record.name for record in history(program.origins.graph)),
        program.origins.choices,
    )


def _explain(
    program: Program, step: Step, limits: Limits, sizes: Mapping[str, int], measured: Measured | None
) -> ExplainedStep:
    s = step.statement
    if not step.number:
        return ExplainedStep(0, step.depth, _head_text(step, sizes))
    nodes = _nodes(program, s)
    by_library = isinstance(s, Host) and getattr(program.hosts[s.number], "library", False)
    moved = count_bytes(s, sizes)
    flops = number_of(node_flops(nodes[0]), sizes) if by_library else count_flops(s, sizes)
    width = widest_float(s.function) if isinstance(s, Launch) else 4
    seconds = limits.seconds(moved, flops, width, units=_is_of_halves(s))
    if isinstance(s, Host) and not flops:  # a library may compute for longer than it moves data
        seconds = 0.0 if by_library else _CALL_BACK
    name = s.function.name if isinstance(s, Launch) else type(s).__name__.lower()
    sources = tuple(source_lines(nodes))
    what = op_names(nodes) if by_library else _what(s, name, nodes)
    return ExplainedStep(step.number, step.depth, name, what, sources, moved, flops, seconds, measured, nodes)


def _is_of_halves(statement: Statement) -> bool:
    """Whether a step is a product of matrices in half precision, or another call of a library on such."""
    if isinstance(statement, Matmul):
        return statement.a[0].dtype in HALVES
    return isinstance(statement, Host) and any(b.dtype in HALVES for b, _ in statement.inputs)


def _what(statement: Statement, name: str, nodes: Sequence[Node]) -> str:
    """What a step computes: its ops, or what it does for them."""
    ops = op_names(nodes)
    if isinstance(statement, Host):
        return f"{ops} (by Python)"
    if not nodes:
        return name
    is_whole = name == nodes[0].op.name or (isinstance(statement, Launch) and name == kernel_name(nodes))
    return ops if is_whole else f"{name} for {ops}"


def _nodes(program: Program, statement: Statement) -> tuple[Node, ...]:
    if isinstance(statement, Launch):
        return tuple(program.origins.kernels.get(statement.function, ()))
    if isinstance(statement, Host):
        return (program.hosts[statement.number].node,)
    if isinstance(statement, Copy):
        held = [program.origins.buffers.get(b) for b in (statement.target, statement.source)]
        return tuple(h.maker for h in held if h is not None and h.maker is not None)[:1]
    if isinstance(statement, Matmul) and (made := program.origins.buffers.get(statement.c[0])):
        return tuple(node for node in made.nodes if node.op.products is not None)[:1]
    return ()


def _head_text(step: Step, sizes: Mapping[str, int]) -> str:
    s = step.statement
    if isinstance(s, Loop):
        return f"loop, {trips_of(s, sizes):.0f} times:" if (s.stop - s.start).is_fixed else "loop:"
    if isinstance(s, While):
        return "while:"
    assert isinstance(s, If)
    return "else:" if step.is_alternative else "if:"

"""Targets: what the schedule asks of the kind of machine that it writes for.

Units, fusion, order and memory are planned alike for every target. A target has lowerings, the shape of the
kernel of a group, and what pays on its machines alone: epilogues, layouts, vectors.

A lowering is a function ``lower(writer, node, inputs, outputs)``, of an op that is more than a rule for one
element: it opens kernels on the arrays of the node's inputs and outputs and writes loops. Inputs may have any
strides; outputs are dense, unless it takes any layout. Ops with a fold share a lowering. An op with neither a
pointwise rule nor a lowering is run by Python, through its reference kernel; ``Op.host`` says where that is
meant.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from weft.base.records import NamedTuple
from weft.ir.graph import Graph, Node, Value
from weft.loop.builder import Builder
from weft.loop.ir import Block, Const
from weft.ops.op import Op
from weft.schedule.arrays import Array

if TYPE_CHECKING:
    from weft.schedule.fusion import Group, Grouping
    from weft.schedule.region import Place, Scope
    from weft.schedule.use_def import UseDef
    from weft.schedule.writer import Writer

Lower = Callable[["Writer", Node, Sequence[Array], Sequence[Array]], None]
ANY_TARGET = ""


class Lowering(NamedTuple):
    """How an op is written for a target.

    Attributes:
        lower: writes its kernels.
        any_layout: whether its outputs may have any strides; else they are dense.
        serves: which nodes of the op it is for, on processors alone; None for all. Python runs the others.
    """

    lower: Lower
    any_layout: bool = False
    serves: Callable[[Node], bool] | None = None


_BY_NAME: dict[tuple[str, str], Lowering] = {}
_BY_FOLD: dict[tuple[str, str], Lowering] = {}
_loaded: set[str] = set()
_CLASSES = {"cpu": ("weft.schedule.cpu.target", "Cpu"), "gpu": ("weft.schedule.gpu.target", "Gpu")}


def lowers(
    *names: str,
    target: str = ANY_TARGET,
    fold_over: str = "",
    any_layout: bool = False,
    serves: Callable[[Node], bool] | None = None,
) -> Callable[[Lower], Lower]:
    """Enter the lowering of ops, or of all ops with a fold, for a target.

    One for ``ANY_TARGET`` serves those that have none of their own.
    """

    def enter(lower: Lower) -> Lower:
        for name in names:
            _BY_NAME[name, target] = Lowering(lower, any_layout, serves)
        if fold_over:
            _BY_FOLD[fold_over, target] = Lowering(lower, any_layout)
        return lower

    return enter


def find_lowering(op: Op, target: str) -> Lowering | None:
    """The lowering of an op for a target whose modules are loaded, or None."""
    return (
        _BY_NAME.get((op.name, target))
        or _BY_NAME.get((op.name, ANY_TARGET))
        or _BY_FOLD.get((op.fold_over, target))
    )


class Plan(NamedTuple):
    """What a target makes of the groups of a graph.

    Attributes:
        layouts: by value, the order of its axes in memory where it is not the usual one.
        joined: by number of a unit's anchor, the number of a node that is written in the same kernel.
    """

    layouts: dict[Value, tuple[int, ...]]
    joined: dict[int, int]


class Target(ABC):
    """One kind of machine.

    Attributes:
        name: under which its lowerings are entered.
        modules: that enter them.
        machine: what its lowerings know of the machine at hand.
        in_registers: elements: temporaries as small as this are on the host's stack, for LLVM to remove.
        makes_waves: whether launches that may run at the same time are put together.
        prefers_single: whether float64 is dear.
        rows_end: see ``weft.schedule.fusion.Grouping``.
        changes_parts: whether loops change parts of what they carry in place.
        joins_in_place: whether parts of a concatenation are written where they will be.
        keeps_results: whether results lie where those of the last call did, if nobody needs these any more.
        lacks: names of ``weft.schedule.choices`` that it has no use for.
        tests_loops: whether a loop whose length is in memory has to test it, as its host would have to wait.
    """

    name: ClassVar[str]
    modules: ClassVar[tuple[str, ...]]
    machine: object
    in_registers: ClassVar[int] = 4
    makes_waves: ClassVar[bool] = True
    prefers_single: ClassVar[bool] = False
    rows_end: ClassVar[bool] = False
    lacks: ClassVar[frozenset[str]] = frozenset()
    tests_loops: ClassVar[bool] = False
    changes_parts: ClassVar[bool] = False
    joins_in_place: ClassVar[bool] = False
    keeps_results: ClassVar[bool] = False

    def load(self) -> None:
        """Import its lowerings, once."""
        if self.name not in _loaded:
            for module in self.modules:
                import_module(module)
            _loaded.add(self.name)

    def lowering_of(self, node: Node) -> Lowering | None:
        """The lowering of a node's op, or None."""
        self.load()
        found = find_lowering(node.op, self.name)
        return None if found is None or (found.serves is not None and not found.serves(node)) else found

    def plan(self, grouping: Grouping, disabled: Collection[str] = ()) -> Plan:
        """Let groups grow where kernels of the target take more, and choose layouts, unless switched off."""
        return Plan({}, {})

    @abstractmethod
    def lower_group(self, scope: Scope, use_def: UseDef, group: Group, name: str) -> None:
        """Write the kernel of a group."""

    def lower_joined(self, scope: Scope, use_def: UseDef, unit: Group | int, node: Node) -> None:
        """Write the kernel of a unit and of the node that the plan joined to it."""
        raise NotImplementedError(f"{self.name} joins nothing")

    def lower_node(self, scope: Scope, node: Node) -> bool:
        """Write a node by its lowering; False where it has none."""
        lowering = self.lowering_of(node)
        if lowering is None:
            return False
        inputs = [scope.array(v) for v in node.inputs]
        lowering.lower(scope.writer, node, inputs, [scope.output(v) for v in node.outputs])
        return True

    def shape_kernel(self, builder: Builder) -> None:  # noqa: B027 - as written, where nothing says else
        """Give the finished body of a kernel the shape that the target runs."""

    def copy_array(self, writer: Writer, source: Array, target: Array) -> bool:
        """Copy an array into another of its shape in a way of the target's own; False where it has none."""
        return False

    def fill_array(self, builder: Builder, target: Array, number: Const) -> bool:
        """Write a number to all of a dense array in a way of the target's own; False where it has none."""
        return False

    def fixed_places(self, scope: Scope, body: Graph, values: Sequence[Value]) -> list[Place]:
        """Where the last inputs of a loop's body lie, which are the same in every iteration."""
        return [scope.place(v) for v in values]

    def settle(self, writer: Writer) -> None:  # noqa: B027 - a host may run its main function as it is
        """Give the main function the form that the target's host runs."""

    def finish(self, block: Block) -> None:  # noqa: B027 - not every target has something to improve
        """Improve the loops of the main function."""


def default_target(name: str = "cpu") -> Target:
    """A target by its name, for a machine of the usual kind.

    >>> from weft.schedule.target import default_target
    >>> default_target().name
    'cpu'
    """
    module, cls = _CLASSES[name]
    target: Target = getattr(import_module(module), cls)()
    return target

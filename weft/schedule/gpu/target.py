"""A graphics processor as a target: rows on blocks of threads, and all else an iteration a thread."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from weft.base.sizes import Size
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.ir import Const
from weft.ops.contract import matrix_multiply
from weft.schedule.arrays import Array
from weft.schedule.cpu.epilogues import lower_with_epilogue
from weft.schedule.cpu.row_kernel import RowKernel
from weft.schedule.fusion import Group, Grouping, is_reduction
from weft.schedule.gpu.alike import AlikeKernel, mark_alike
from weft.schedule.gpu.batches import form_batches
from weft.schedule.gpu.biases import find_biases, lower_biased
from weft.schedule.gpu.fills import fill_in_vectors
from weft.schedule.gpu.following import follow_products
from weft.schedule.gpu.group_kernel import GroupKernel
from weft.schedule.gpu.inlined import find_inlined, lower_inlined
from weft.schedule.gpu.machine import Gpu as Machine
from weft.schedule.gpu.outline import outline
from weft.schedule.gpu.sliced import is_sliced, multiply_in_slices
from weft.schedule.gpu.spread import spread
from weft.schedule.gpu.turned import copy_turned
from weft.schedule.region import Scope
from weft.schedule.target import Lowering, Plan, Target, find_lowering
from weft.schedule.use_def import UseDef
from weft.schedule.writer import Writer


class Gpu(Target):
    """A graphics processor.

    >>> from weft.schedule.gpu.target import Gpu
    >>> Gpu().machine.warp
    32
    """

    name = "gpu"
    in_registers = -1  # the host has none
    makes_waves = False
    prefers_single = True
    rows_end = True
    joins_in_place = True
    keeps_results = True
    lacks = frozenset({"dots", "units", "prepared", "layouts", "vectorisation"})
    tests_loops = True
    modules = (
        "weft.schedule.gpu.folds",
        "weft.schedule.gpu.library",
        "weft.schedule.gpu.products",
        "weft.schedule.gpu.scans",
        "weft.schedule.gpu.scattering",
        "weft.schedule.gpu.sorting",
        "weft.schedule.cpu.classes",
        "weft.schedule.cpu.reductions",
        "weft.schedule.cpu.sorting",
        "weft.schedule.cpu.scattering",
        "weft.schedule.cpu.triangular",
        "weft.schedule.pointwise.random",
    )

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine: Machine = machine or Machine()

    def lowering_of(self, node: Node) -> Lowering | None:
        """The lowering of a node's op; one for processors is shared out among threads."""
        self.load()
        found = find_lowering(node.op, self.name)
        if found is None:  # of those for processors, the ones of its own modules, whoever loaded others
            found = find_lowering(node.op, "cpu")
            if found is not None and found.lower.__module__ not in self.modules:
                return None
        return None if found is None or found.serves is not None else found

    def plan(self, grouping: Grouping, disabled: Collection[str] = ()) -> Plan:
        """Find what has a kernel in common: groups, folds, and what products take along."""
        fuses = "fusion" not in disabled
        joined = find_inlined(grouping) if fuses else {}
        if fuses and "epilogues" not in disabled:
            follow_products(grouping, self._takes_epilogue)
        joined |= find_biases(grouping, self.machine) if fuses else {}
        if "alike" not in disabled:
            mark_alike(grouping.use_def, grouping.groups)
        return Plan({}, joined)

    def _takes_epilogue(self, node: Node) -> bool:
        return node.op is matrix_multiply and is_sliced(node, self.machine)

    def lower_joined(self, scope: Scope, use_def: UseDef, unit: Group | int, node: Node) -> None:
        """A fold, and what it folds; or a row that is added to a product."""
        assert isinstance(unit, int)
        if is_reduction(use_def.nodes[unit]):
            lower_inlined(scope, use_def, unit, node)
        else:
            lower_biased(scope, use_def, unit, node)

    def lower_group(self, scope: Scope, use_def: UseDef, group: Group, name: str) -> None:
        """A kernel of tiles, or that of a product; where there is no element, a plain one."""
        shape = group.frame.shape
        if group.anchor is not None:
            lower_with_epilogue(scope, use_def, group, partial(multiply_in_slices, name=name))
            return
        if any(not isinstance(s, Size) and s == 0 for s in shape):
            RowKernel(scope, use_def, group).lower(name)
            return
        alike = AlikeKernel(scope, use_def, group) if group.alike else None
        if alike is not None and alike.is_possible():
            alike.lower(name)
        else:
            GroupKernel(scope, use_def, group).lower(name)

    def copy_array(self, writer: Writer, source: Array, target: Array) -> bool:
        """By tiles, where the two do not have their axes in the same order."""
        return copy_turned(writer, source, target)

    def fill_array(self, builder: Builder, target: Array, number: Const) -> bool:
        """In vectors, several a thread."""
        return fill_in_vectors(builder, target, number, self.machine)

    def settle(self, writer: Writer) -> None:
        """Scalar code becomes kernels, and launches of one kernel become one."""
        outline(writer)
        if "waves" not in writer.disabled:
            form_batches(writer.main.block, writer.temporaries)

    def shape_kernel(self, builder: Builder) -> None:
        """Share out what was written for processors."""
        spread(builder)

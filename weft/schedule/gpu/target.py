"""A graphics processor as a target: rows on blocks of threads, and all else an iteration a thread."""

from __future__ import annotations

from weft.base.sizes import Size
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.schedule.cpu.row_kernel import RowKernel
from weft.schedule.fusion import Group
from weft.schedule.gpu.group_kernel import GroupKernel
from weft.schedule.gpu.machine import Gpu as Machine
from weft.schedule.gpu.outline import outline
from weft.schedule.gpu.spread import spread
from weft.schedule.region import Scope
from weft.schedule.target import Lowering, Target, find_lowering
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
    modules = (
        "weft.schedule.gpu.folds",
        "weft.schedule.gpu.products",
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
        return find_lowering(node.op, self.name) or find_lowering(node.op, "cpu")

    def lower_group(self, scope: Scope, use_def: UseDef, group: Group, name: str) -> None:
        """A kernel of tiles; where there is no element, a plain one."""
        shape = group.frame.shape
        if any(not isinstance(s, Size) and s == 0 for s in shape):
            RowKernel(scope, use_def, group).lower(name)
        else:
            GroupKernel(scope, use_def, group).lower(name)

    def settle(self, writer: Writer) -> None:
        """Scalar code becomes kernels."""
        outline(writer)

    def shape_kernel(self, builder: Builder) -> None:
        """Share out what was written for processors."""
        spread(builder)

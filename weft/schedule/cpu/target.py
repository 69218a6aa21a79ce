"""The CPU as a target: rows in vectors, products in register tiles, epilogues, channels side by side."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft.ir.graph import Graph, Node, Value
from weft.loop.ir import Block
from weft.schedule.choices import ON_DEVICES
from weft.schedule.cpu.convolution.pooled import find_pooled, lower_conv_pool, lower_pool_by_channels
from weft.schedule.cpu.epilogues import ANCHORS, attach_epilogues, lower_with_epilogue, storing
from weft.schedule.cpu.layouts import find_layouts, is_pool, order_weights
from weft.schedule.cpu.machine import Machine
from weft.schedule.cpu.row_kernel import RowKernel
from weft.schedule.cpu.vectorisation import vectorise
from weft.schedule.fusion import Group, Grouping
from weft.schedule.region import Place, Scope
from weft.schedule.target import Plan, Target
from weft.schedule.use_def import UseDef


class Cpu(Target):
    """A processor with vector registers.

    >>> from weft.schedule.cpu.machine import Machine
    >>> from weft.schedule.cpu.target import Cpu
    >>> Cpu(Machine(vector_bytes=16)).machine.registers
    32
    """

    name = "cpu"
    changes_parts = True
    lacks = ON_DEVICES
    modules = (
        "weft.schedule.cpu.classes",
        "weft.schedule.cpu.reductions",
        "weft.schedule.cpu.matmul.lowering",
        "weft.schedule.cpu.matmul.panels",
        "weft.schedule.cpu.attention.forward",
        "weft.schedule.cpu.attention.backward",
        "weft.schedule.cpu.convolution.lowering",
        "weft.schedule.cpu.sorting",
        "weft.schedule.cpu.scattering",
        "weft.schedule.cpu.small_systems",
        "weft.schedule.cpu.triangular",
        "weft.schedule.pointwise.random",
    )

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine: Machine = machine or Machine()

    def plan(self, grouping: Grouping, disabled: Collection[str] = ()) -> Plan:
        """Epilogues join products, then layouts are chosen, and convolutions joined with their pools."""
        self.load()  # lowerings, which say what takes an epilogue
        use_def, groups = grouping.use_def, grouping.groups
        if "fusion" not in disabled and "epilogues" not in disabled:
            attach_epilogues(grouping)
        layouts = {} if "layouts" in disabled else find_layouts(use_def, groups, self, self.machine)
        return Plan(layouts, {} if "fusion" in disabled else find_pooled(use_def, groups, layouts))

    def lower_group(self, scope: Scope, use_def: UseDef, group: Group, name: str) -> None:
        """A kernel that goes row by row, or that of a product with an epilogue."""
        first = use_def.nodes[group.members[0]]
        if _reads_channels_last(scope, first):
            lower_pool_by_channels(scope, first)
        elif group.anchor is None:
            RowKernel(scope, use_def, group).lower(name)
        else:
            lower_with_epilogue(scope, use_def, group)

    def lower_joined(self, scope: Scope, use_def: UseDef, unit: Group | int, node: Node) -> None:
        """A convolution and its pool."""
        lower_conv_pool(scope, use_def, unit, node)

    def lower_node(self, scope: Scope, node: Node) -> bool:
        """By its lowering; with what layouts ask for."""
        if _reads_channels_last(scope, node):
            lower_pool_by_channels(scope, node)
            return True
        if node.op.name in ANCHORS and node.outputs[0] in scope.layouts:
            inputs = [scope.array(v) for v in node.inputs]
            out = scope.output(node.outputs[0])
            ANCHORS[node.op.name](scope.writer, node, inputs, out, storing(out))
            return True
        return super().lower_node(scope, node)

    def fixed_places(self, scope: Scope, body: Graph, values: Sequence[Value]) -> list[Place]:
        """Weights of products in the order in which these read them."""
        return order_weights(scope, body, values)

    def finish(self, block: Block) -> None:
        """Loops over elements by vectors."""
        vectorise(block)


def _reads_channels_last(scope: Scope, node: Node) -> bool:
    """Whether a node is a pool of a convolution that is written with its channels last."""
    return is_pool(node) and node.inputs[0] in scope.layouts

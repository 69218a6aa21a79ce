"""What follows small products, in their kernels: bias and activation, masks of gradients.

A gradient that comes out of a product is mostly masked and then summed over rows, for a bias, in one group.
Nothing that folds rows can follow in the kernel of a product. So such sums become kernels of their own, which
nothing waits for but an optimizer, and the rest goes with the product, which the next product waits for.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.graph import Node
from weft.schedule.cpu.epilogues import MOST_NODES, attach_epilogues, fits, makes_states
from weft.schedule.fusion import Frame, Group, Grouping, is_reduction, reduction


def follow_products(grouping: Grouping, takes: Callable[[Node], bool]) -> None:
    """Let groups be part of the kernel of a product that takes them."""
    attach_epilogues(grouping, takes)
    for group in {id(g): g for g in grouping.groups.values()}.values():
        if group.anchor is None and group.frame.split is not None and len(group.members) <= MOST_NODES:
            _follow_without_sums(grouping, group, takes)


def _follow_without_sums(grouping: Grouping, group: Group, takes: Callable[[Node], bool]) -> None:
    use_def = grouping.use_def
    sums = [i for i in group.members if is_reduction(use_def.nodes[i])]
    rest = Group([i for i in group.members if i not in sums], Frame(group.frame.shape))
    if not sums or not rest.members or makes_states(use_def, group):
        return
    if any(reduction(use_def.nodes[i], group.frame) != "column" for i in sums):
        return
    shapes = [use_def.nodes[i].outputs[0].type.shape for i in rest.members]
    if any(group.frame.kind(shape) != "full" for shape in shapes):
        return
    needed = {j for i in rest.members for j in use_def.needs[i]} - set(group.members)
    for j in sorted(needed, reverse=True):
        if takes(use_def.nodes[j]) and fits(grouping, rest, j):
            rest.anchor = j
            rest.members.insert(0, j)
            grouping.groups |= dict.fromkeys(rest.members, rest)
            for i in sums:
                del grouping.groups[i]
            return

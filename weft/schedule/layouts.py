"""Layouts: values that are written with their axes in another order, because they are read that way.

A reshape of a permuted value would have to copy it; if it is written in the permuted order, it is a view.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.ir.graph import Node, Value
from weft.schedule.arrays import Array, Shape, row_major
from weft.schedule.groups import REDUCTIONS, Group
from weft.schedule.units import Web

PRODUCTS = frozenset({"matmul", "conv", "attention", "attention_gradient"})


def find_layouts(web: Web, groups: Mapping[int, Group]) -> dict[Value, tuple[int, ...]]:
    """By value, the order of axes in which it is best written; those not named are written as they are."""
    found: dict[Value, tuple[int, ...]] = {}
    for node in web.nodes:
        permuted = node.inputs[0] if node.op.name == "reshape" else None
        maker = _maker(web, permuted)
        if maker is None or maker.op.name != "permute":
            continue
        value = maker.inputs[0]
        i = web.producer.get(value)
        if i is not None and value not in web.results and _can_choose(web.nodes[i], groups.get(i)):
            found.setdefault(value, maker.attrs["axes"])
    return found


def _maker(web: Web, value: Value | None) -> Node | None:
    i = None if value is None else web.producer.get(value)
    return None if i is None else web.nodes[i]


def _can_choose(node: Node, group: Group | None) -> bool:
    """Whether a node's kernel stores each element where it is told to."""
    if node.op.name in PRODUCTS:
        return True
    return group is not None and node.op.name not in REDUCTIONS


def in_layout(array: Array, shape: Shape, axes: tuple[int, ...]) -> Array:
    """An array of a shape in the memory of a dense one, whose axes lie in another order."""
    ordered = row_major(tuple(shape[a] for a in axes))
    strides = list(ordered)
    for axis, stride in zip(axes, ordered, strict=True):
        strides[axis] = stride
    return Array(array.buffer, shape, tuple(strides), array.offset)

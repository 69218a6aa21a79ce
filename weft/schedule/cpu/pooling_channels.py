"""Pools of convolutions whose channels lie side by side (see ``layouts``): those go in lanes.

A task takes a line of windows. What it gives is put aside with channels side by side, and then turned into
the usual order.
"""

from __future__ import annotations

from weft.base.shapes import size_of
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer
from weft.schedule.arrays import Array
from weft.schedule.pointwise.rules import Reader
from weft.schedule.region import Scope
from weft.schedule.writer import unflattened


def lower_pool_by_channels(scope: Scope, node: Node) -> None:
    """Write a pool whose input has its channels last."""
    (value,), (out,) = node.inputs, node.outputs
    with scope.writer.kernel(node.op.name, [scope.array(value)], [scope.output(out)]) as k:
        b, (target,) = k.builder, k.writes
        reader = scope.reader(b, {value: k.reads[0]}, {out: node})
        n, channels, *lines, width = target.shape
        aside = b.scratch("line", out.type.dtype, width * channels)
        tasks = (n, *lines)
        with b.parallel(size_of(tasks)) as task:
            i, *at = unflattened(b, task, tasks)
            write_line(b, reader, node, aside, (i, *at), (channels, width))
            turn_line(b, target, aside, (i, *at))


def write_line(
    b: Builder, reader: Reader, node: Node, aside: Buffer, at: tuple[Index, ...], sizes: tuple[int, int]
) -> None:
    """Compute a line of results, channel by channel side by side."""
    channels, width = sizes
    i, *lines = at
    with b.loop(width) as w, b.vector(channels) as c:
        b.store(aside, w * channels + c, reader.read(node.outputs[0], (i, c, *lines, w)))


def turn_line(b: Builder, target: Array, aside: Buffer, at: tuple[Index, ...]) -> None:
    """Write a line of results in the usual order."""
    channels, width = target.shape[1], target.shape[-1]
    i, *lines = at
    with b.loop(channels) as c, b.loop(width) as w:
        b.store(target.buffer, target.at(i, c, *lines, w), b.load(aside, w * channels + c))

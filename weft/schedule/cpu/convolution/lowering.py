"""Convolutions as loops: products of the weight with windows of the input, which are never copied out.

Tiles (see ``matmul.tile``) sum over channels and taps. Either positions of the result go in lanes, output
channels in rows: then positions along the last two axes are counted through as they lie in the (padded)
input, so that a vector may run over the end of a line, and what lies beyond it is left out at the end. Or
output channels go in lanes: that suits the gradient by the weight, with few positions and long sums, and any
stride.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.sizes import Size
from weft.ir.graph import Node
from weft.schedule.arrays import Array
from weft.schedule.cpu.convolution.channels import lower_by_channels
from weft.schedule.cpu.convolution.plan import Convolution, prefers_positions
from weft.schedule.cpu.convolution.positions import lower_by_positions
from weft.schedule.cpu.machine import machine_of
from weft.schedule.cpu.matmul.epilogue import Epilogue, anchors, storing
from weft.schedule.writer import Writer


@anchors("conv")
def _conv(writer: Writer, node: Node, inputs: Sequence[Array], out: Array, epilogue: Epilogue | None) -> None:
    lower_conv(writer, inputs[0], inputs[1], out, node.attrs, epilogue)


def lower_conv(
    writer: Writer, x: Array, w: Array, out: Array, attrs: Any, epilogue: Epilogue | None = None
) -> None:
    """Write a convolution, and what an epilogue does with its elements; without one they are stored."""
    if any(not isinstance(s, Size) and s == 0 for s in out.shape):
        return
    conv = Convolution.of(x, w, out, attrs)
    writes = epilogue.writes if epilogue is not None else [out]
    channels_last = all(len(t.shape) > 2 and t.strides[1] == 1 and t.strides[-1] != 1 for t in writes)
    if not channels_last and prefers_positions(conv, machine_of(writer)):
        lower_by_positions(writer, conv, epilogue or storing(out))
    else:
        lower_by_channels(writer, conv, epilogue or storing(out), stages=epilogue is not None)

"""Passes that make a graph ready for loops: each runs once, in order, after the others have settled.

A backend that makes kernels runs them (``weft.passes.lower``); the interpreter needs none of them.
"""

from weft.passes.base import Pass
from weft.passes.inline import inline
from weft.passes.lowering.accumulate import accumulate
from weft.passes.lowering.add_parts import add_parts
from weft.passes.lowering.decompose import decompose
from weft.passes.lowering.fuse_attention import fuse_attention
from weft.passes.lowering.hoist_lookups import hoist_lookups
from weft.passes.lowering.mask_whole import mask_whole
from weft.passes.lowering.narrow_products import narrow_products
from weft.passes.lowering.recompute import recompute
from weft.passes.lowering.straighten import straighten
from weft.passes.lowering.stream_products import stream_products
from weft.passes.lowering.take_products import take_products
from weft.passes.lowering.turn_products import turn_products

LOWERING: list[Pass] = [
    inline,
    add_parts,
    mask_whole,
    hoist_lookups,
    narrow_products,
    take_products,
    fuse_attention,
    decompose,
    stream_products,
    straighten,
    turn_products,
    accumulate,
    recompute,
]

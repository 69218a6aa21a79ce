"""The passes that make a graph ready for kernels of a GPU: ``LOWERING``, with others in the place of some.

They are imported when a program for a GPU is made, or somebody asks for their names.
"""

from __future__ import annotations

from weft.passes.base import Pass
from weft.passes.lowering import LOWERING
from weft.passes.lowering.attention_by_library import attention_by_library
from weft.passes.lowering.biases_by_library import biases_by_library
from weft.passes.lowering.channels_last import channels_last, convolutions_by_library
from weft.passes.lowering.early_parts import early_parts
from weft.passes.lowering.falling_powers import falling_powers
from weft.passes.lowering.fuse_attention import fuse_attention
from weft.passes.lowering.join_parts import join_parts
from weft.passes.lowering.narrow_products import narrow_products, widen_products
from weft.passes.lowering.pick_classes import pick_classes
from weft.passes.lowering.recompute import recompute, recompute_more
from weft.passes.lowering.row_products import row_products
from weft.passes.lowering.rows_in_parts import rows_in_parts
from weft.passes.lowering.straighten import straighten
from weft.passes.lowering.stream_products import stream_products
from weft.passes.lowering.take_products import take_products, take_wide_products

_INSTEAD: dict[Pass, tuple[Pass, ...]] = {
    narrow_products: (widen_products,),
    take_products: (take_wide_products,),
    fuse_attention: (join_parts, attention_by_library, biases_by_library, convolutions_by_library),
    stream_products: (),  # row_products has what threads of a card read well
    straighten: (),  # tiles are turned in shared memory
    recompute: (
        channels_last,
        pick_classes,
        falling_powers,
        row_products,
        early_parts,
        rows_in_parts,
        recompute_more,
    ),
}
MEANT_TOO = {  # a name of `disable=` means what is there in its place, too
    take_products.name: take_wide_products.name,
    fuse_attention.name: attention_by_library.name,
    recompute.name: recompute_more.name,
}
BY_CUDNN = (attention_by_library.name, convolutions_by_library.name, channels_last.name)  # that need it
GPU_LOWERING: list[Pass] = [made for p in LOWERING for made in _INSTEAD.get(p, (p,))]

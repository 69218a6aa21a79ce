"""Ops that say in a graph where gradients go: what ``detach`` and ``no_grad`` leave in a region.

``stop_gradient`` ends them. ``in_place_of`` is a tensor that was changed in place while nothing recorded: it
has new elements, and keeps its place in the graph, so gradients go where those of the old elements went.
"""

from __future__ import annotations

import numpy as np

from weft.ops.families import elementwise
from weft.ops.op import no_gradient
from weft.ops.samples import reals

stop_gradient = elementwise(
    "stop_gradient",
    eval=np.positive,
    partials=no_gradient("a constant, as the program says"),
    samples=reals(1, complex=True),
    scalar=lambda e, x: x,
)

in_place_of = elementwise(
    "in_place_of",
    eval=lambda x, y: np.positive(np.broadcast_arrays(x, y)[0]),
    partials=(0, 1),
    samples=lambda: [s._replace(smooth=False) for s in reals(2)()],  # it says what gradients are
    scalar=lambda e, x, y: x,
)

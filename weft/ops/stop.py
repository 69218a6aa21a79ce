"""The op that says in a graph where gradients end: what ``detach`` and ``no_grad`` leave in a region."""

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

"""What is done with elements that a mask picks, done with all of them: ``z[m] = f(z[m])``, ``x[m].sum()``.

Picked elements have a number that only a run tells. A function of each element gives the same for those that
are picked if it is computed for all; then the mask chooses. So nothing is counted, gathered or scattered, and
what is computed goes into one loop with what is around it. What else looks at picked elements stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.base.dtypes import bool_, int64, kind
from weft.base.shapes import Shape
from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, sweep
from weft.ops.arithmetic import floor_divide, remainder
from weft.ops.index import gather_nd, scatter_nd
from weft.ops.places import true_places
from weft.ops.reduce import reduce_sum
from weft.ops.select import cast, select
from weft.ops.size import size
from weft.ops.view.primitives import broadcast_to, reshape
from weft.passes.base import graph_pass
from weft.passes.dce import dce


@graph_pass(once=True)
def mask_whole(graph: Graph) -> Graph:
    """Compute functions of elements that a mask picks for all elements, and choose by the mask.

    >>> import weft
    >>> from weft.passes.lowering.mask_whole import mask_whole
    >>> def f(x):
    ...     mask = x > 0.0
    ...     x[mask] = x[mask] * 2.0
    ...     return x
    >>> graph = weft.make_graph(f)(weft.TensorType((4,), weft.float32)).optimize()
    >>> [node.op.name for node in graph.nodes]
    ['greater', 'true_places', 'gather', 'mul', 'scatter']
    >>> [node.op.name for node in mask_whole(graph).nodes]
    ['greater', 'mul', 'where']
    """
    found = sweep(graph, {scatter_nd: [_updated], reduce_sum: [_summed], size: [_counted]}, again=False)
    return graph if found is graph else dce(found)


def _updated(draft: Draft, node: Node) -> Sequence[Value] | None:
    """``x[mask] = value``: the value for all elements where the mask holds, else x."""
    x, value, *indices = node.inputs
    shape = x.type.shape
    places = _places(draft, indices, shape)
    if places is None or value.type.dtype != x.type.dtype:
        return None
    if not _is_whole(draft, value, places, shape):
        return None
    whole = _spread(draft, _whole(draft, value, shape, {}), shape)
    return draft.emit(select, [_mask(draft, places, shape), whole, x])


def _summed(draft: Draft, node: Node) -> Sequence[Value] | None:
    """``x[mask].sum()``: all elements, of which those outside of the mask are zeros."""
    (value,) = node.inputs
    if len(value.type.shape) != 1 or node.attrs["keepdims"] or not isinstance(value.type.shape[0], Size):
        return None
    found = _origin(draft, value)
    if found is None or not _is_whole(draft, value, *found):
        return None
    places, shape = found
    whole = _spread(draft, _whole(draft, value, shape, {}), shape)
    zero = _spread(draft, draft.constant(np.zeros((), value.type.dtype)), shape)
    (kept,) = draft.emit(select, [_mask(draft, places, shape), whole, zero])
    return draft.emit(reduce_sum, [kept], **{**node.attrs, "axes": tuple(range(len(shape)))})


def _counted(draft: Draft, node: Node) -> Sequence[Value] | None:
    """How many elements a mask picks: a sum, which needs no list of them."""
    wanted = node.attrs["value"]
    if not isinstance(wanted, Size):
        return None
    for made in draft.nodes:
        if made.op is true_places and made.attrs["trips"] == wanted:
            (ones,) = draft.emit(cast, [made.inputs[0]], dtype=int64)
            (count,) = draft.emit(reduce_sum, [ones], axes=(0,), keepdims=False)
            (out,) = node.outputs
            return draft.emit(cast, [count], dtype=out.type.dtype) if out.type.dtype != int64 else [count]
    return None


# What is picked


def _places(draft: Draft, indices: Sequence[Value], shape: Shape) -> Node | None:
    """The node that tells where a mask of a shape holds, if these are its indices along all axes."""
    if len(indices) != len(shape) or not all(isinstance(s, int) for s in shape) or not shape:
        return None
    axis = len(shape) - 1
    at = indices[0] if axis == 0 else _dividend(draft, indices[axis], remainder, shape[axis])
    places = None if at is None else draft.producer(at, true_places)
    while places is not None and axis > 0:
        axis -= 1
        above = indices[0] if axis == 0 else _dividend(draft, indices[axis], remainder, shape[axis])
        if above is None or _dividend(draft, above, floor_divide, shape[axis + 1]) is not at:
            return None
        at = above
        if axis and _dividend(draft, indices[axis], remainder, shape[axis]) is not at:
            return None
    if places is None or _elements(shape) != places.inputs[0].type.shape[0]:
        return None
    return places


def _dividend(draft: Draft, value: Value, op: object, by: int) -> Value | None:
    """What is divided by a number, or what remains of it, in a value."""
    node = draft.producer(value, op)
    if node is None:
        return None
    number = draft.array(node.inputs[1])
    return node.inputs[0] if number is not None and number.ndim == 0 and int(number) == by else None


def _elements(shape: Shape) -> int:
    return int(np.prod([int(s) for s in shape]))


def _origin(draft: Draft, value: Value) -> tuple[Node, Shape] | None:
    """The mask by which a value was picked, and its shape: those of the first element read on the way."""
    node = draft.made.get(value)
    if node is None or not value.type.shape:
        return None
    if node.op is gather_nd:
        shape = node.inputs[0].type.shape
        places = _places(draft, node.inputs[1:], shape)
        return None if places is None else (places, shape)
    if not _is_of_elements(node):
        return None
    return next((found for v in node.inputs if (found := _origin(draft, v)) is not None), None)


def _is_of_elements(node: Node) -> bool:
    """Whether an op works element by element, and can do so with any of them."""
    if len(node.outputs) != 1 or not node.is_pure:
        return False
    if node.op in (cast, select):
        return True
    (out,) = node.outputs
    # an integer divided by an element that was not picked might be one divided by zero
    divides = node.op in (floor_divide, remainder) and kind(out.type.dtype) in "iu"
    return bool(node.op.accepts) and not divides


def _is_whole(draft: Draft, value: Value, places: Node, shape: Shape) -> bool:
    """Whether a value is a function of picked elements, each for itself, and of single numbers."""
    if not value.type.shape:
        return True
    node = draft.made.get(value)
    if node is None:
        return False
    if node.op is gather_nd:
        source, *indices = node.inputs
        return source.type.shape == shape and _places(draft, indices, shape) is places
    if node.op is broadcast_to:
        return not node.inputs[0].type.shape
    return _is_of_elements(node) and all(_is_whole(draft, v, places, shape) for v in node.inputs)


def _whole(draft: Draft, value: Value, shape: Shape, done: dict[Value, Value]) -> Value:
    """The same function of all elements."""
    if not value.type.shape:
        return value
    if value not in done:
        node = draft.made[value]
        if node.op in (gather_nd, broadcast_to):
            done[value] = node.inputs[0]
        else:
            inputs = [_whole(draft, v, shape, done) for v in node.inputs]
            inputs = [_spread(draft, v, shape) for v in inputs] if node.op is select else inputs
            (done[value],) = draft.emit(node.op, inputs, **node.attrs)
    return done[value]


def _spread(draft: Draft, value: Value, shape: Shape) -> Value:
    """A value in a shape, to which a single number is broadcast."""
    return value if value.type.shape == shape else draft.emit(broadcast_to, [value], shape=shape)[0]


def _mask(draft: Draft, places: Node, shape: Shape) -> Value:
    """The mask in its shape."""
    (flat,) = places.inputs
    assert flat.type.dtype == bool_
    made = draft.producer(flat, reshape)
    if made is not None and made.inputs[0].type.shape == shape:
        return made.inputs[0]
    return flat if flat.type.shape == shape else draft.emit(reshape, [flat], shape=shape)[0]

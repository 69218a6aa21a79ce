"""Ring attention on parts: each rank's queries meet the keys and values of all ranks, block after block.

A rank holds its part of the sequence. At every turn it works on the block of keys and values that it has, and
hands it on to the next rank; after as many turns as there are ranks each query has met every key. What is
known of a row of scores so far is its largest score and its sum of exponentials: a block with a larger score
scales down what was found before. Backward, the gradients of a block of keys and values go round with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.public import public
from weft.base.ranks import axis_size
from weft.ir.graph import Node
from weft.ops import collective as ops
from weft.ops.arithmetic import maximum
from weft.ops.contract import matrix_multiply
from weft.ops.exponential import exp, log
from weft.ops.op import type_of
from weft.ops.reduce import reduce_max, reduce_sum
from weft.ops.ring import SEQUENCE, block_gradients, hidden_after, ring_attention_vjp, scores
from weft.ops.ring import ring_attention as ring_op
from weft.ops.select import in_dtype, select
from weft.parallel.cuts import assign_axes, local_type, node_factors, ranks_along
from weft.parallel.world import asked, mesh_now
from weft.tensor.creation import asarray
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.tracing import trace_graph

if TYPE_CHECKING:
    from weft.parallel.partition import Partition


@public
def ring_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    axis: str,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Attention over a sequence that is cut over the ranks along an axis of the mesh.

    It is ``scaled_dot_product_attention`` of whole tensors. In a step that is compiled for a mesh, each rank
    has its part of the sequence, and keys and values go round in a ring: no rank ever holds all of them, or a
    whole row of scores. Without a mesh, or with one rank along the axis, it is computed at once.

    Args:
        query: of shape (..., positions, features).
        key: likewise, of the same shape.
        value: likewise; it may have other features.
        axis: of the mesh, over which positions are cut.
        is_causal: whether a position looks at those before it and itself alone.
        scale: of the scores; 1 / sqrt(features) if it is None.

    >>> import weft
    >>> from weft import parallel as par
    >>> import weft.nn.functional as F
    >>> q, k, v = (weft.randn(2, 8, 4) for _ in range(3))
    >>> found = par.ring_attention(q, k, v, "sequence", is_causal=True)
    >>> bool(weft.allclose(found, F.scaled_dot_product_attention(q, k, v, is_causal=True), atol=1e-5))
    True
    """
    given, mesh = [asarray(x) for x in (query, key, value)], asked(mesh_now)
    features = given[0].shape[-1] if given[0].ndim else 1
    factor = 1 / sqrt(max(1, features)) if scale is None else float(scale)
    attrs = {"axis": axis, "causal": bool(is_causal), "scale": factor}
    ring_op.type_rule(*map(type_of, given), **attrs)
    if mesh and thread.capture is not None:
        axis_size("ring_attention", mesh, axis)  # which must be one of the mesh
        cut = (*[ops.OPEN] * (given[0].ndim - 2), axis, ops.OPEN)
        given = [ops.shard(x, cut=cut, mesh=mesh) for x in given]
    out: Tensor = ring_op(*given, **attrs)[0]
    return out


# In the program of a rank


def place_ring(partition: Partition, node: Node) -> bool:
    """Write ring attention or its gradient on parts of the sequence; False for any other node."""
    write = _WRITTEN.get(node.op)
    factors = node_factors(node)
    if write is None or factors is None:
        return False
    axis = node.attrs["axis"]
    now = {v: partition.now[v][1] for v in node.inputs}
    axes = assign_axes(factors, node, now, partition.mesh)
    if axes.get(SEQUENCE) != axis or ranks_along(partition.mesh, axis) == 1:
        return False
    cuts = [tuple([axes.get(n, "") for n in names]) for names in (*factors.inputs, *factors.outputs)]
    count = len(node.inputs)
    ins = [partition.cut_as(v, c, node, False) for v, c in zip(node.inputs, cuts[:count], strict=True)]
    attrs = {k: node.attrs[k] for k in ("causal", "scale")}
    body = partial(write, axis=axis, mesh=partition.mesh, **attrs)
    graph, _ = trace_graph(body, [v.type for v in ins], node.op.name, closed=True)
    found = dict(zip(graph.inputs, ins, strict=True))
    partition.constants.update(graph.constants)
    for made in graph.nodes:
        inputs = [found.get(v, v) for v in made.inputs]
        partition.nodes.append(Node(made.op, inputs, made.attrs, made.outputs, node.location))
    for v, out, cut in zip(node.outputs, graph.outputs, cuts[count:], strict=True):
        part = found.get(out, out)
        assert part.type == local_type(v.type, cut, partition.mesh)
        partition.now[v] = part, cut
    return True


class _Ring:
    """The ranks along an axis, each of which hands on to the next."""

    def __init__(self, axis: str, mesh: str, causal: bool) -> None:
        self.axis, self.mesh, self.causal = axis, mesh, causal
        self.size = axis_size("ring_attention", mesh, axis)
        self.here: Any = ops.axis_index.on_tensors(axis=axis, mesh=mesh) if causal else None

    def hand_on(self, x: Any) -> Any:
        """A block of the rank before this one, for its own."""
        to = tuple((i + 1) % self.size for i in range(self.size))
        return ops.permute_ranks(x, axis=self.axis, mesh=self.mesh, to=to)

    def seen(self, found: Any, turn: int) -> Any:
        """Scores of the block that a rank has at a turn, of which it may see all, some or none."""
        if not self.causal:
            return found
        if turn == 0:
            return hidden_after(found)
        return select(self.here >= turn, found, np.asarray(-np.inf, found.dtype))


def _forward(q: Any, k: Any, v: Any, *, axis: str, mesh: str, causal: bool, scale: float) -> list[Any]:
    ring = _Ring(axis, mesh, causal)
    top, total, made = _block(ring.seen(scores(q, k, scale=scale), 0), v)
    for turn in range(1, ring.size):
        k, v = ring.hand_on(k), ring.hand_on(v)
        new, sums, out = _block(ring.seen(scores(q, k, scale=scale), turn), v, top)
        before = exp(top - new)
        top, total, made = new, total * before + sums, made * before + out
    return [in_dtype(made / total, q.dtype), top + log(total)]


def _block(found: Any, v: Any, top: Any = None) -> tuple[Any, Any, Any]:
    """The largest scores so far, and of a block the sums of exponentials and the sums of values by them."""
    last = found.ndim - 1
    largest = reduce_max(found, axes=(last,), keepdims=True)
    new = largest if top is None else maximum(top, largest)
    p = exp(found - new)
    return new, reduce_sum(p, axes=(last,), keepdims=True), matrix_multiply(p, in_dtype(v, p.dtype))


def _backward(
    q: Any,
    k: Any,
    v: Any,
    total: Any,
    g: Any,
    delta: Any,
    *,
    axis: str,
    mesh: str,
    causal: bool,
    scale: float,
) -> list[Any]:
    ring = _Ring(axis, mesh, causal)
    g, delta, dtype = in_dtype(g, total.dtype), in_dtype(delta, total.dtype), q.dtype
    made: Any = None
    for turn in range(ring.size):
        p = exp(ring.seen(scores(q, k, scale=scale), turn) - total)
        more = block_gradients(q, k, v, p, g, delta, scale=scale)
        found = more if made is None else [a + b for a, b in zip(made, more, strict=True)]
        made = [found[0], ring.hand_on(found[1]), ring.hand_on(found[2])]  # home after the last turn
        if turn + 1 < ring.size:
            k, v = ring.hand_on(k), ring.hand_on(v)
    return [in_dtype(x, dtype) for x in made]


_WRITTEN: dict[Any, Callable[..., list[Any]]] = {ring_op: _forward, ring_attention_vjp: _backward}

"""Ring attention on parts: each rank's queries meet the keys and values of all ranks, block after block.

A rank holds its part of the sequence. At every turn it works on the block of keys and values that it has, and
hands it on to the next rank; after as many turns as there are ranks each query has met every key. What is
known of a row of scores so far is its largest score and its sum of exponentials: a block with a larger score
scales down what was found before. Backward, the gradients of a block of keys and values go round with it.

Where positions look only at those before them, early ranks would see little and late ones all. So the
sequence is cut into two blocks for each rank, and a rank gets one from the beginning and one from the end, in
a zigzag (0 and 7, 1 and 6, ...): of the four pairs of blocks at a turn, each rank then sees two, and computes
no others. Results go back to where they belong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.public import public
from weft.base.ranks import axis_size
from weft.errors import ShapeError
from weft.ir.graph import Node
from weft.ops import collective as ops
from weft.ops.arithmetic import maximum, remainder
from weft.ops.contract import matrix_multiply
from weft.ops.exponential import exp, log
from weft.ops.op import type_of
from weft.ops.reduce import reduce_max, reduce_sum
from weft.ops.ring import SEQUENCE, block_gradients, hidden_after, ring_attention_vjp, scores
from weft.ops.ring import ring_attention as ring_op
from weft.ops.select import in_dtype, select
from weft.ops.view.primitives import join
from weft.ops.view.slices import slice_axes
from weft.parallel.cuts import local_type, node_factors, ranks_along
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
        count = axis_size("ring_attention", mesh, axis)  # which must be one of the mesh
        _check_length(given[0].shape[-2], count, axis)
        cut = (*[ops.OPEN] * (given[0].ndim - 2), axis, ops.OPEN)
        given = [ops.shard(x, cut=cut, mesh=mesh) for x in given]
    out: Tensor = ring_op(*given, **attrs)[0]
    return out


def _check_length(length: object, count: int, axis: str) -> None:
    if isinstance(length, int) and length % count:
        message = f"the positions must divide by the {count} ranks along {axis!r}, got {length}"
        hint = f"pad them to {length + -length % count}: with is_causal=True nothing sees what comes after it"
        raise ShapeError("ring_attention", message, hint=hint)


# In the program of a rank


def place_ring(partition: Partition, node: Node) -> bool:
    """Write ring attention or its gradient on parts of the sequence; False for any other node."""
    write = _WRITTEN.get(node.op)
    factors = node_factors(node) if write is not None else None
    if write is None or factors is None:
        return False
    axis = node.attrs["axis"]
    axes = partition.axes_of(node, factors)
    if axes.get(SEQUENCE) != axis or ranks_along(partition.mesh, axis) == 1:
        return False
    ins, cuts = partition.cut_inputs(node, factors, axes)
    attrs = {k: node.attrs[k] for k in ("causal", "scale")}
    body = partial(write, axis=axis, mesh=partition.mesh, **attrs)
    graph, _ = trace_graph(body, [v.type for v in ins], node.op.name, closed=True)
    found = dict(zip(graph.inputs, ins, strict=True))
    partition.constants.update(graph.constants)
    for made in graph.nodes:
        inputs = [found.get(v, v) for v in made.inputs]
        partition.nodes.append(Node(made.op, inputs, made.attrs, made.outputs, node.location))
    for v, out, cut in zip(node.outputs, graph.outputs, cuts, strict=True):
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
        return self._send(x, [(i + 1) % self.size for i in range(self.size)])

    def _send(self, x: Any, to: Sequence[int]) -> Any:
        return ops.permute_ranks(x, axis=self.axis, mesh=self.mesh, to=tuple(to))

    def seen(self, found: Any, turn: int) -> Any:
        """Scores of the block that a rank has at a turn, of which it may see all, some or none."""
        if not self.causal:
            return found
        if turn == 0:
            return hidden_after(found)
        return select(self.here >= turn, found, np.asarray(-np.inf, found.dtype))


class _Zigzag(_Ring):
    """Ranks of which each has a block from the beginning of the sequence and one from the end."""

    def __init__(self, axis: str, mesh: str) -> None:
        super().__init__(axis, mesh, True)
        count = self.size
        homes = [c if c < count else 2 * count - 1 - c for c in range(2 * count)]
        self._first, self._second = homes[::2], homes[1::2]  # of the blocks that each rank has
        self._even: Any = remainder(self.here, np.asarray(2, self.here.dtype)) == 0

    def spread(self, x: Any) -> Any:
        """The two blocks that a rank gets, the earlier one first."""
        a, b = halves(x)
        a, b = self._send(a, self._first), self._send(b, self._second)
        return joined(select(self._even, a, b), select(self._even, b, a))

    def back(self, x: Any) -> Any:
        """The two blocks that belong to a rank."""
        low, high = halves(x)
        a, b = select(self._even, low, high), select(self._even, high, low)
        first, second = ([to.index(i) for i in range(self.size)] for to in (self._first, self._second))
        return joined(self._send(a, first), self._send(b, second))

    def earlier(self, turn: int) -> Any:
        """Whether the blocks that a rank has at a turn are of one before it along the axis.

        If so, both of its own blocks see the first of those; else its last one sees both.
        """
        return self.here >= turn


def halves(x: Any) -> tuple[Any, Any]:
    """The positions of a rank in two blocks."""
    at, shape = x.ndim - 2, x.shape
    middle = shape[at] // 2

    def part(start: int, stop: int) -> Any:
        starts, stops = [0] * len(shape), list(shape)
        starts[at], stops[at] = start, stop
        return slice_axes(x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * len(shape))

    return part(0, middle), part(middle, shape[at])


def joined(a: Any, b: Any) -> Any:
    """Two blocks of positions as one."""
    return join(a, b, axis=a.ndim - 2)


def _is_zigzag(q: Any, causal: bool) -> bool:
    return causal and q.shape[-2] > 0 and q.shape[-2] % 2 == 0


def _forward(q: Any, k: Any, v: Any, *, axis: str, mesh: str, causal: bool, scale: float) -> list[Any]:
    if _is_zigzag(q, causal):
        return _forward_zigzag(_Zigzag(axis, mesh), q, k, v, scale)
    ring = _Ring(axis, mesh, causal)
    rows = _block(ring.seen(scores(q, k, scale=scale), 0), v)
    for turn in range(1, ring.size):
        k, v = ring.hand_on(k), ring.hand_on(v)
        rows = _more(rows, ring.seen(scores(q, k, scale=scale), turn), v)
    return _finished(rows, q.dtype)


def _forward_zigzag(ring: _Zigzag, q: Any, k: Any, v: Any, scale: float) -> list[Any]:
    q, k, v = (ring.spread(x) for x in (q, k, v))
    rows = _block(hidden_after(scores(q, k, scale=scale)), v)
    low, high = zip(*[halves(x) for x in rows], strict=True)
    first, last = halves(q)
    for turn in range(1, ring.size):
        k, v = ring.hand_on(k), ring.hand_on(v)
        earlier, (kl, kh), (vl, vh) = ring.earlier(turn), halves(k), halves(v)
        high = _more(high, scores(last, kl, scale=scale), vl)
        query, key, value, *own = [
            select(earlier, a, b)
            for a, b in ((first, last), (kl, kh), (vl, vh), *zip(low, high, strict=True))
        ]
        found = _more(own, scores(query, key, scale=scale), value)
        low = tuple([select(earlier, a, b) for a, b in zip(found, low, strict=True)])
        high = tuple([select(earlier, b, a) for a, b in zip(found, high, strict=True)])
    rows = tuple([joined(a, b) for a, b in zip(low, high, strict=True)])
    return [ring.back(x) for x in _finished(rows, q.dtype)]


def _more(rows: Sequence[Any], found: Any, v: Any) -> tuple[Any, Any, Any]:
    """What is known of rows, with the scores of another block."""
    top, total, made = rows
    new, sums, out = _block(found, v, top)
    before = exp(top - new)
    return new, total * before + sums, made * before + out


def _finished(rows: Sequence[Any], dtype: Any) -> list[Any]:
    top, total, made = rows
    return [in_dtype(made / total, dtype), top + log(total)]


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
    g, delta, dtype = in_dtype(g, total.dtype), in_dtype(delta, total.dtype), q.dtype
    if _is_zigzag(q, causal):
        zigzag = _Zigzag(axis, mesh)
        return [in_dtype(x, dtype) for x in _backward_zigzag(zigzag, q, k, v, total, g, delta, scale)]
    ring = _Ring(axis, mesh, causal)
    made: Any = None
    for turn in range(ring.size):
        p = exp(ring.seen(scores(q, k, scale=scale), turn) - total)
        more = block_gradients(q, k, v, p, g, delta, scale=scale)
        found = more if made is None else [a + b for a, b in zip(made, more, strict=True)]
        made = [found[0], ring.hand_on(found[1]), ring.hand_on(found[2])]  # home after the last turn
        if turn + 1 < ring.size:
            k, v = ring.hand_on(k), ring.hand_on(v)
    return [in_dtype(x, dtype) for x in made]


def _backward_zigzag(
    ring: _Zigzag, q: Any, k: Any, v: Any, total: Any, g: Any, delta: Any, scale: float
) -> list[Any]:
    q, k, v, total, g, delta = (ring.spread(x) for x in (q, k, v, total, g, delta))

    def gradients(rows: Sequence[Any], k: Any, v: Any) -> Sequence[Any]:
        q, total, g, delta = rows
        p = exp(scores(q, k, scale=scale) - total)
        return block_gradients(q, k, v, p, g, delta, scale=scale)

    p = exp(hidden_after(scores(q, k, scale=scale)) - total)
    of_q, of_k, of_v = block_gradients(q, k, v, p, g, delta, scale=scale)
    first, last = zip(*[halves(x) for x in (q, total, g, delta)], strict=True)
    low, high = halves(of_q)
    for turn in range(1, ring.size):
        k, v, of_k, of_v = (ring.hand_on(x) for x in (k, v, of_k, of_v))
        earlier, (kl, kh), (vl, vh) = ring.earlier(turn), halves(k), halves(v)
        (kl_g, kh_g), (vl_g, vh_g) = halves(of_k), halves(of_v)
        more = gradients(last, kl, vl)
        high, kl_g, vl_g = high + more[0], kl_g + more[1], vl_g + more[2]
        rows = [select(earlier, a, b) for a, b in zip(first, last, strict=True)]
        more = gradients(rows, select(earlier, kl, kh), select(earlier, vl, vh))
        low, high = select(earlier, low + more[0], low), select(earlier, high, high + more[0])
        of_k = joined(select(earlier, kl_g + more[1], kl_g), select(earlier, kh_g, kh_g + more[1]))
        of_v = joined(select(earlier, vl_g + more[2], vl_g), select(earlier, vh_g, vh_g + more[2]))
    of_k, of_v = ring.hand_on(of_k), ring.hand_on(of_v)  # home after the last turn
    return [ring.back(x) for x in (joined(low, high), of_k, of_v)]


_WRITTEN: dict[Any, Callable[..., list[Any]]] = {ring_op: _forward, ring_attention_vjp: _backward}

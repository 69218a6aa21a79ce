"""Convolutions in half precision by a library, and the work between them on images whose channels come last.

Libraries want channels last. A convolution is put between two permutations; one that follows it is moved
behind elementwise work and sums, until it meets that of the next convolution, and both are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import bfloat16, float16
from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, sweep
from weft.ops.conv.biased import conv_add
from weft.ops.conv.primitive import conv
from weft.ops.library_conv import (
    library_conv,
    library_conv_add,
    library_conv_input,
    library_conv_input_add,
    library_conv_weight,
)
from weft.ops.reduce import reduce_sum
from weft.ops.view.primitives import broadcast_to, permute, reshape
from weft.ops.view.slices import pad_axes, slice_axes
from weft.passes.base import graph_pass, is_elementwise
from weft.passes.dce import dce

_HALVES = (float16, bfloat16)
_FIRST, _LAST = (0, 3, 1, 2), (0, 2, 3, 1)
_BIASED = {library_conv: library_conv_add, library_conv_input: library_conv_input_add}
_EVEN = 8  # what the library wants channels to be a multiple of
_MOST_TAPS = 16  # of weights along an axis


@graph_pass(once=True)
def channels_last(graph: Graph) -> Graph:
    """Leave convolutions of images in half precision to a library.

    >>> import weft
    >>> from weft.passes.lowering.channels_last import channels_last
    >>> def f(x, w):
    ...     conv = weft.nn.functional.conv2d
    ...     return conv(weft.relu(conv(x, w)), w)
    >>> x, w = weft.ones((2, 8, 9, 9), dtype=weft.bfloat16), weft.ones((8, 8, 3, 3), dtype=weft.bfloat16)
    >>> graph = weft.make_graph(f)(x, w).optimize(passes=["inline"])
    >>> [node.op.name for node in channels_last(graph).nodes if node.op.name != "permute"]
    ['library_conv', 'relu', 'library_conv']
    """
    ops = (conv, *_BIASED.values())
    if not any(node.op in ops and node.inputs[0].type.dtype in _HALVES for node in graph.nodes):
        return graph
    found = sweep(graph, _Rules().by_op(), again=False)
    return graph if found is graph else dce(found)


@graph_pass(once=True)
def convolutions_by_library(graph: Graph) -> Graph:
    """Leave convolutions of images in half precision with a bias to a library: it adds before it rounds.

    Others become sums in float32, to which the bias is added by the kernel that rounds them.

    >>> import weft
    >>> from weft.passes.lowering.channels_last import convolutions_by_library
    >>> x, w = weft.ones((2, 8, 9, 9), dtype=weft.bfloat16), weft.ones((8, 8, 3, 3), dtype=weft.bfloat16)
    >>> graph = weft.make_graph(weft.conv2d)(x, w, weft.ones(8, dtype=weft.bfloat16))
    >>> [node.op.name for node in graph.optimize(passes=["inline", convolutions_by_library]).nodes]
    ['permute', 'permute', 'library_conv_add', 'permute']
    """
    return sweep(graph, {conv_add: [_with_bias]})


def _with_bias(draft: Draft, node: Node) -> Sequence[Value] | None:
    meant = _meant(draft, node)
    if meant is None or meant.op not in _BIASED:
        return None
    sides = [draft.emit(permute, [v], axes=_LAST)[0] for v in meant.sides]
    if meant.op is library_conv:
        sides = [_widened(draft, v) for v in sides]
    out = draft.emit(_BIASED[meant.op], [*sides, node.inputs[2]], **meant.attrs)
    return draft.emit(permute, out, axes=_FIRST)


class _Meant:
    """A convolution as the library is asked for it: which of the three, of what, and how.

    Attributes:
        op: that the library has.
        sides: two values, channels first.
        attrs: of the op.
    """

    def __init__(self, op: Any, sides: tuple[Value, Value], **attrs: Any) -> None:
        self.op, self.sides, self.attrs = op, sides, attrs


class _Rules:
    """Rewrites convolutions, and what works on their results.

    Attributes:
        last: by value of images, the same with channels last.
        first: by result of a library, the same with channels first.
    """

    def __init__(self) -> None:
        self.last: dict[Value, Value] = {}
        self.first: dict[Value, Value] = {}

    def by_op(self) -> dict[Any, Any]:
        """The rules."""
        return {
            conv: [self.convolved],
            library_conv_add: [self.biased],
            library_conv_input_add: [self.biased],
            permute: [self.permuted],
            reduce_sum: [self.summed],
            broadcast_to: [self.spread],
            None: [self.elementwise],
        }

    def convolved(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        """A convolution by the library."""
        meant = _meant(draft, node)
        if meant is None:
            return None
        left, right = (self._turned(draft, v) for v in meant.sides)
        if meant.op is library_conv_weight:
            return self._by_weight(draft, left, right, meant, node)
        if meant.op is library_conv:
            left, right = (_widened(draft, v) for v in (left, right))
        (out,) = draft.emit(meant.op, [left, right], **meant.attrs)
        return [self._put_first(draft, out)]

    def biased(self, draft: Draft, node: Node) -> Sequence[Value]:
        """A convolution that the library has already; its sides are known with channels last by others."""
        *sides, z = node.inputs
        (out,) = draft.emit(node.op, [*[self._as_known(draft, v) for v in sides], z], **node.attrs)
        self.first[out] = self._put_first(draft, out)
        return [out]

    def _as_known(self, draft: Draft, value: Value) -> Value:
        wide = draft.producer(value, pad_axes)
        turned = draft.producer(value if wide is None else wide.inputs[0], permute)
        if turned is None or turned.attrs["axes"] != _LAST:
            return value
        (own,) = turned.outputs
        known = self.last.setdefault(turned.inputs[0], own)
        return value if known is own else _widened(draft, known)

    def permuted(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        """Channels of such a convolution put first."""
        found = self.first.get(node.inputs[0]) if node.attrs["axes"] == _FIRST else None
        return None if found is None else [found]

    def _put_first(self, draft: Draft, out: Value) -> Value:
        (found,) = draft.emit(permute, [out], axes=_FIRST)
        self.last[found] = out
        return found

    def _by_weight(
        self, draft: Draft, x: Value, g: Value, meant: _Meant, node: Node
    ) -> Sequence[Value] | None:
        (out,) = draft.emit(meant.op, [_widened(draft, x), g], **meant.attrs)
        count = x.type.shape[3]
        if out.type.shape[3] != count:
            stops = (*out.type.shape[:3], count)
            (out,) = draft.emit(slice_axes, [out], starts=(0,) * 4, stops=stops, steps=(1,) * 4)
        return draft.emit(permute, [out], axes=(3, 0, 1, 2))  # as the convolution gave it: inputs, outputs

    def _turned(self, draft: Draft, value: Value) -> Value:
        if value not in self.last:
            (self.last[value],) = draft.emit(permute, [value], axes=_LAST)
        return self.last[value]

    def elementwise(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        """Elementwise work on images, done with channels last."""
        shape = node.outputs[0].type.shape if len(node.outputs) == 1 else ()
        if len(shape) != 4 or not is_elementwise(node) or not any(v in self.last for v in node.inputs):
            return None
        inputs = [self._fitted(draft, v, shape) for v in node.inputs]
        known = [v for v in inputs if v is not None]
        if len(known) != len(inputs):
            return None
        (out,) = draft.emit(node.op, known, **node.attrs)
        return [self._put_first(draft, out)]

    def _fitted(self, draft: Draft, value: Value, shape: Sequence[Any]) -> Value | None:
        """An operand for images with channels last; None where it is in the way."""
        own = value.type.shape
        if own == shape:
            return self._turned(draft, value)
        whole = (*[1] * (4 - len(own)), *own)
        if all(s == 1 for s in (whole[0], *whole[2:])):  # numbers of channels, or one number
            return value if whole[1] == 1 else draft.emit(reshape, [value], shape=(whole[1],))[0]
        return None

    def spread(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        """Numbers of channels for all places of images."""
        shape = node.outputs[0].type.shape
        if len(shape) != 4 or node.inputs[0].type.shape == shape or not self.last:
            return None
        numbers = self._fitted(draft, node.inputs[0], shape)
        if numbers is None:
            return None
        (out,) = draft.emit(broadcast_to, [numbers], shape=tuple(shape[a] for a in _LAST))
        return [self._put_first(draft, out)]

    def summed(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        """Sums over all but channels."""
        image = self.last.get(node.inputs[0])
        if image is None or node.attrs["axes"] != (0, 2, 3):
            return None
        found = draft.emit(reduce_sum, [image], axes=(0, 1, 2), keepdims=False)
        return draft.emit(reshape, found, shape=node.outputs[0].type.shape)


def _widened(draft: Draft, value: Value) -> Value:
    """A value with as many channels as the library wants; those that are added are zeros."""
    more = -value.type.shape[3] % _EVEN
    if not more:
        return value
    nothing = (0, 0, 0, 0)
    return draft.emit(pad_axes, [value], low=nothing, high=(0, 0, 0, more), interior=nothing, value=0)[0]


# Which convolution is meant


def _meant(draft: Draft, node: Node) -> _Meant | None:
    if not _is_known(node):
        return None
    found = _by_weight(draft, node) or _by_input(draft, node)
    if found is not None:
        return found
    if not _is_plain(node):
        return None
    x, w = node.inputs[:2]
    given = {name: node.attrs[name] for name in ("stride", "padding", "dilation")}
    return _Meant(library_conv, (x, w), **given)


def _is_known(node: Node) -> bool:
    """Whether a convolution is one of images in half precision, without groups, all sizes known."""
    x, w = node.inputs[:2]
    sizes = [*x.type.shape, *w.type.shape, *node.outputs[0].type.shape]
    of_images = x.type.ndim == 4 and x.type.dtype in _HALVES and node.attrs["groups"] == 1
    return of_images and not any(isinstance(s, Size) or s == 0 for s in sizes)


def _is_plain(node: Node) -> bool:
    """Whether the library has it as it is: no gradient, weights of sizes that it takes."""
    outputs, _, *taps = node.inputs[1].type.shape
    pads = [n for pair in node.attrs["padding"] for n in pair]
    plain = node.attrs["input_dilation"] == (1, 1) and all(n >= 0 for n in pads)
    return plain and outputs % _EVEN == 0 and max(taps) <= _MOST_TAPS


def _by_weight(draft: Draft, node: Node) -> _Meant | None:
    """The gradient by weights: images and gradients with batch and channels exchanged."""
    images, gradients = (_exchanged(draft, v) for v in node.inputs[:2])
    attrs, size = node.attrs, node.outputs[0].type.shape[2:]
    if images is None or gradients is None or attrs["input_dilation"] != (1, 1):
        return None
    stride, dilation = attrs["dilation"], attrs["stride"]
    before = [lo for lo, _ in attrs["padding"]]
    padding = _padding(images.type.shape[2:], gradients.type.shape[2:], size, stride, dilation, before)
    if padding is None or gradients.type.shape[1] % _EVEN:
        return None
    given = {"stride": stride, "padding": padding, "dilation": dilation, "size": tuple(size)}
    return _Meant(library_conv_weight, (images, gradients), **given)


def _by_input(draft: Draft, node: Node) -> _Meant | None:
    """The gradient by images: of weights that are turned round, with inputs and outputs exchanged."""
    g, turned = node.inputs[:2]
    attrs, size = node.attrs, node.outputs[0].type.shape[2:]
    flip = draft.producer(turned, slice_axes)
    if flip is None or flip.attrs["steps"] != (1, 1, -1, -1) or flip.inputs[0].type != turned.type:
        return None
    w = _exchanged(draft, flip.inputs[0])
    if w is None or attrs["stride"] != (1, 1):
        return None
    stride, dilation, taps = attrs["input_dilation"], attrs["dilation"], w.type.shape[2:]
    pads = zip(dilation, taps, attrs["padding"], strict=True)
    before = [d * (k - 1) - lo for d, k, (lo, _) in pads]
    padding = _padding(size, g.type.shape[2:], taps, stride, dilation, before)
    if padding is None or w.type.shape[0] % _EVEN or w.type.shape[1] % _EVEN:
        return None
    given = {"stride": stride, "padding": padding, "dilation": dilation, "size": tuple(size)}
    return _Meant(library_conv_input, (g, w), **given)


def _padding(
    sizes: Sequence[int], counts: Sequence[int], taps: Sequence[int], stride: Sequence[int],
    dilation: Sequence[int], before: Sequence[int],
) -> tuple[tuple[int, int], ...] | None:  # fmt: skip
    """Of a convolution from images of a size to so many positions, the same on both sides if it may be."""
    out = []
    for n, count, k, s, d, lo in zip(sizes, counts, taps, stride, dilation, before, strict=True):
        reach = d * (k - 1) + 1
        same = lo >= 0 and n + 2 * lo >= reach and (n + 2 * lo - reach) // s + 1 == count
        hi = lo if same else (count - 1) * s + reach - n - lo
        if lo < 0 or hi < 0:
            return None
        out.append((lo, hi))
    return tuple(out)


def _exchanged(draft: Draft, value: Value) -> Value | None:
    """What a value is with its first two axes exchanged, by way of an axis of one group."""
    last = draft.producer(value, reshape)
    turned = None if last is None else draft.producer(last.inputs[0], permute)
    first = None if turned is None else draft.producer(turned.inputs[0], reshape)
    if turned is None or first is None:
        return None
    (source,) = first.inputs
    own, whole = source.type.shape, first.outputs[0].type.shape
    if len(own) != 4 or value.type.shape != (own[1], own[0], *own[2:]):
        return None
    axes = [a for a in turned.attrs["axes"] if whole[a] != 1 or len(whole) == 4]
    ones = [i for i, s in enumerate(whole) if s == 1]
    if len(whole) != 5 or len(ones) != 1:
        return None
    kept = [i for i in range(5) if i != ones[0]]
    return source if axes == [kept[1], kept[0], kept[2], kept[3]] else None
